//! Who calls: the kernel says it (`SO_PEERCRED`); whoever may open the socket may call. Only root may ask for what
//! reaches out of a box (volumes, `--privileged`).

use axum::extract::FromRequestParts;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::request::Parts;
use axum::serve::IncomingStream;
use image::{Principal, Tenant};
use tokio::net::UnixListener;

use crate::error::ApiError;

/// Who asks.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose data.
    pub tenant: Tenant,
    /// Which person or program.
    pub principal: Principal,
    /// Root on the local socket, who may also use volumes and `--privileged`.
    pub root: bool,
}

/// The process at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Its user, if the kernel said so.
    pub uid: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self {
            uid: stream.io().peer_cred().ok().map(|credentials| credentials.uid()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let peer = parts.extensions.get::<ConnectInfo<Peer>>().and_then(|info| info.0.uid);
        let uid = peer.ok_or_else(|| ApiError::new(api::Code::Denied, "the kernel does not say who is calling"))?;
        Ok(Self {
            tenant: Tenant::default(),
            principal: Principal(format!("uid:{uid}")),
            root: uid == 0,
        })
    }
}
