//! The daemon as a library: HTTP in, `Command`s out. The only async code of the project; below it are threads and
//! blocking calls. It never touches a process or a file of a box itself.
#![forbid(unsafe_code)]

pub mod auth;
pub mod config;
pub mod error;
pub mod events;
pub mod handlers;
pub mod live;
pub mod lock;
pub mod router;
pub mod shutdown;
mod stream;

use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Gid, Mode};
use timeline::events::Events as Log;
use tokio::net::UnixListener;

pub use config::Config;
pub use error::NodeError;

/// What every handler shares.
#[derive(Debug)]
pub struct Node {
    /// Settings.
    pub config: Config,
    /// The sandboxes that run.
    pub live: live::Live,
    /// What happened.
    pub events: Arc<events::Events>,
}

/// Runs a daemon until it gets SIGTERM or SIGINT, then takes every box down; waits for one that is just doing that in the
/// same state directory. `ready` is called once, when the socket
/// accepts connections.
pub fn serve(config: Config, ready: impl FnOnce()) -> Result<(), NodeError> {
    timeline::fault::check(&config.faults)?;
    std::fs::create_dir_all(&config.state).map_err(|error| NodeError::io("create", &config.state, error))?;
    let _lock = lock::take(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        .enable_all()
        .build()
        .map_err(|error| NodeError::io("start threads for", &config.state, error))?;
    runtime.block_on(async move {
        let listener = bind(&config)?;
        let log = Log::open(&config.state);
        let log = log.map_err(|error| NodeError::Io {
            action: "open the event log in",
            path: config.state.clone(),
            error: std::io::Error::from_raw_os_error(error.errno),
        })?;
        let events = Arc::new(events::Events::new(Arc::new(log)));
        let boxes = live::Boxes::open(&config, events.log())?;
        let live = live::Live::new(Arc::new(boxes), Arc::clone(&events));
        let node = Arc::new(Node { config, live, events });
        let stop = shutdown::Stop::install()?;
        ready();
        shutdown::run(listener, router::router(Arc::clone(&node)), Arc::clone(&node), stop).await
    })
}

/// Binds the socket so that at no instant anyone may connect who should not.
fn bind(config: &Config) -> Result<UnixListener, NodeError> {
    let socket = &config.socket;
    if socket.as_os_str().len() > config::SOCKET_PATH_BYTES_MAX {
        return Err(NodeError::SocketPathTooLong { socket: socket.clone() });
    }
    if let Some(parent) = socket.parent() {
        std::fs::create_dir_all(parent).map_err(|error| NodeError::io("create", parent, error))?;
    }
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Err(NodeError::SocketInUse { socket: socket.clone() });
    }
    remove(socket)?;
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(socket);
    rustix::process::umask(before);
    let listener = bound.map_err(|error| NodeError::io("bind", socket, error))?;
    if let Some(gid) = config.socket_group {
        let owned = rustix::fs::chown(socket, None, Some(Gid::from_raw(gid)))
            .and_then(|()| rustix::fs::chmod(socket, Mode::from_raw_mode(0o660)));
        owned.map_err(|errno| NodeError::io("give to the group deltabox", socket, errno.into()))?;
    }
    Ok(listener)
}

fn remove(socket: &Path) -> Result<(), NodeError> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(NodeError::io("remove", socket, error)),
        _ => Ok(()),
    }
}
