//! Every route, once, and what surrounds each request: its id, the version check, problems as JSON. Nothing here waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{BUILD_HEADER, Code, Problem, REQUEST_ID_HEADER, VERSION, VERSION_HEADER};
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::HeaderValue;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};

use crate::Node;
use crate::error::ApiError;
use crate::handlers::{checkpoints, execs, files, node as about, sandboxes};

/// Largest tar stream of one `PUT …/files`.
pub const FILES_BYTES_MAX: usize = 1 << 30;

/// All routes over one node.
pub fn router(node: Arc<Node>) -> Router {
    let in_box = Router::new()
        .route("/", get(sandboxes::get).delete(sandboxes::remove))
        .route("/inspect", get(sandboxes::inspect))
        .route("/checkpoints", get(checkpoints::log).post(checkpoints::create))
        .route("/rollback", post(checkpoints::rollback))
        .route("/tags", post(checkpoints::tag))
        .route("/tags/{name}", delete(checkpoints::untag))
        .route("/diff", get(checkpoints::diff))
        .route("/execs", post(execs::start))
        .route("/execs/{exec}/output", get(execs::output))
        .route("/execs/{exec}/wait", get(execs::wait))
        .route("/execs/{exec}/stdin", post(execs::stdin))
        .route("/execs/{exec}/resize", post(execs::resize))
        .route("/execs/{exec}/signal", post(execs::signal))
        .route(
            "/files",
            get(files::read)
                .put(files::write)
                .layer(DefaultBodyLimit::max(FILES_BYTES_MAX)),
        );
    Router::new()
        .route("/v1/version", get(about::version))
        .route("/v1/health", get(about::health))
        .route("/v1/events", get(about::events))
        .route("/v1/sandboxes", get(sandboxes::list).post(sandboxes::create))
        .nest("/v1/sandboxes/{box}", in_box)
        .fallback(async || ApiError::new(Code::NotFound, "no such endpoint"))
        .method_not_allowed_fallback(async || ApiError::new(Code::BadRequest, "no such method on this endpoint"))
        .layer(from_fn_with_state(
            Arc::new(Surround {
                boot: (node.config.random_bits)(),
                build: HeaderValue::from_str(&node.config.build).expect("a build is named in hexadecimal"),
            }),
            surround,
        ))
        .with_state(node)
}

#[derive(Debug)]
struct Surround {
    boot: u64,
    build: HeaderValue,
}

/// Requests since the daemon started; with the boot's random bits a request's id.
static REQUEST_COUNT: AtomicU64 = AtomicU64::new(0);

async fn surround(State(surround): State<Arc<Surround>>, request: Request, next: Next) -> Response {
    let count = REQUEST_COUNT.fetch_add(1, Ordering::Relaxed);
    let request_id = format!("req_{:08x}{count:08x}", surround.boot & 0xffff_ffff);
    let theirs = request.headers().get(VERSION_HEADER);
    let mut response = match theirs {
        Some(theirs) if theirs != VERSION && request.uri().path() != "/v1/version" => {
            version_mismatch(theirs).into_response()
        }
        _ => next.run(request).await,
    };
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.request_id.clone_from(&request_id);
        let body = serde_json::to_vec(&problem).expect("wire types have only text keys");
        *response.body_mut() = Body::from(body);
        response.headers_mut().remove(axum::http::header::CONTENT_LENGTH);
    }
    let headers = response.headers_mut();
    headers.insert(VERSION_HEADER, HeaderValue::from_static(VERSION));
    headers.insert(BUILD_HEADER, surround.build.clone());
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        headers.insert(REQUEST_ID_HEADER, value);
    }
    response
}

fn version_mismatch(theirs: &HeaderValue) -> ApiError {
    let theirs = theirs.to_str().unwrap_or("unreadable");
    let detail = format!("the command line is version {theirs}, the daemon is version {VERSION}");
    let hint = "stop the daemon when its sandboxes may go (`deltabox version` prints its pid), or use its own deltabox";
    Problem::new(Code::VersionMismatch, detail).hint(hint).into()
}
