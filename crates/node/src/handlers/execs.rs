//! Start commands, follow their output, feed and signal them.

use std::time::Duration;

use api::{
    Base64, Code, ExecRequest, ExecStarted, ExecState, Frame, Position, Problem, ResizeRequest, SignalRequest,
    StdinQuery,
};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use timeline::command::ExecSpec;
use timeline::output::{self, ExecEvent};
use timeline::{Command, Outcome};

use super::{Answer, Asked, Body, Reply, Shared, exec_id, mismatch};
use crate::auth::Caller;
use crate::error::ApiError;
use crate::stream;

/// `POST …/execs`.
pub async fn start(
    State(node): Shared,
    caller: Caller,
    Path(name): Path<String>,
    Body(request): Body<ExecRequest>,
) -> Result<Response, ApiError> {
    if request.argv.is_empty() {
        return Err(ApiError::new(Code::BadRequest, "argv is empty: nothing to run"));
    }
    let entry = node.live.find(&caller.tenant, &name)?;
    let spec = ExecSpec {
        argv: request.argv,
        env: request.env,
        workdir: request.workdir,
        user: request.user,
        terminal: request.terminal,
        stdin: request.stdin,
    };
    match node.live.ask(&caller, &entry, Command::Exec(spec)).await? {
        Outcome::Started { exec, pid } => Ok((
            StatusCode::CREATED,
            Reply(ExecStarted {
                id: exec.to_string(),
                pid,
            }),
        )
            .into_response()),
        other => Err(mismatch(&other)),
    }
}

/// Query of `GET …/output`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutputQuery {
    /// Where to begin: bytes of both streams before it.
    offset: u64,
    /// In which generation of the output `offset` counts; that of now when absent.
    generation: Option<u32>,
    /// `exit` ends the stream with the command; `always` goes on, since a rollback can bring the command back.
    follow: Follow,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Follow {
    #[default]
    Exit,
    Always,
}

/// `GET …/execs/{exec}/output`.
pub async fn output(
    State(node): Shared,
    caller: Caller,
    Path((name, exec)): Path<(String, String)>,
    Asked(query): Asked<OutputQuery>,
) -> Result<Response, ApiError> {
    let entry = node.live.find(&caller.tenant, &name)?;
    let from = output::Position {
        generation: query.generation,
        offset: query.offset,
    };
    let follower = entry.follow(exec_id(&exec)?, from)?;
    Ok(stream::follow(follower, query.follow == Follow::Exit, frame))
}

/// `GET …/execs/{exec}/wait`: answers when the command ends.
pub async fn wait(
    State(node): Shared,
    caller: Caller,
    Path((name, exec)): Path<(String, String)>,
) -> Answer<ExecState> {
    let entry = node.live.find(&caller.tenant, &name)?;
    let mut events = stream::Events::new(entry.follow(exec_id(&exec)?, output::Position::default())?);
    while let Some(event) = events.next().await {
        match event {
            ExecEvent::Exited { code } => return Ok(Reply(ExecState { id: exec, code })),
            ExecEvent::RolledBack { to, gone: true, .. } => {
                let problem = Problem::new(Code::NotFound, format!("{exec} was undone by a rollback to {to}"));
                return Err(problem
                    .hint("the box is where the command had not been started yet")
                    .into());
            }
            _ => {}
        }
    }
    Err(ApiError::new(
        Code::Died,
        format!("the sandbox ended before {exec} did"),
    ))
}

fn frame(event: ExecEvent) -> Frame {
    match event {
        ExecEvent::Output {
            stream: output::Stream::Stdout,
            bytes,
            next,
        } => Frame::Stdout {
            bytes: Base64(bytes),
            next: position(next),
        },
        ExecEvent::Output {
            stream: output::Stream::Stderr,
            bytes,
            next,
        } => Frame::Stderr {
            bytes: Base64(bytes),
            next: position(next),
        },
        ExecEvent::Skipped { bytes, next } => Frame::Skipped {
            bytes,
            next: position(next),
        },
        ExecEvent::Exited { code } => Frame::Exited { code },
        ExecEvent::RolledBack { to, cut_at, gone, next } => Frame::RolledBack {
            to: to.to_string(),
            cut_at,
            gone,
            next: position(next),
        },
        ExecEvent::Ended => Frame::Ended,
    }
}

fn position(position: output::Position) -> Position {
    Position {
        generation: position.generation,
        offset: position.offset,
    }
}

/// How long a writer waits when the command does not read: there is no event for "it has read some". The caller's
/// connection, when it closes, ends the waiting.
const INPUT_FULL_WAIT: Duration = Duration::from_millis(20);

/// `POST …/execs/{exec}/stdin`: answers when the bytes were taken, so that a fast writer has the pace of its reader.
pub async fn stdin(
    State(node): Shared,
    caller: Caller,
    Path((name, exec)): Path<(String, String)>,
    Asked(query): Asked<StdinQuery>,
    bytes: Bytes,
) -> Result<StatusCode, ApiError> {
    let exec = exec_id(&exec)?;
    let bytes = Vec::from(bytes);
    loop {
        let command = Command::Stdin {
            exec,
            bytes: bytes.clone(),
            close: query.close,
        };
        match done(&node, &caller, &name, command).await {
            Err(ApiError(problem)) if problem.code == Code::Busy => tokio::time::sleep(INPUT_FULL_WAIT).await,
            other => return other,
        }
    }
}

/// `POST …/execs/{exec}/resize`.
pub async fn resize(
    State(node): Shared,
    caller: Caller,
    Path((name, exec)): Path<(String, String)>,
    Body(size): Body<ResizeRequest>,
) -> Result<StatusCode, ApiError> {
    let exec = exec_id(&exec)?;
    done(
        &node,
        &caller,
        &name,
        Command::Resize {
            exec,
            rows: size.rows,
            columns: size.columns,
        },
    )
    .await
}

/// `POST …/execs/{exec}/signal`.
pub async fn signal(
    State(node): Shared,
    caller: Caller,
    Path((name, exec)): Path<(String, String)>,
    Body(request): Body<SignalRequest>,
) -> Result<StatusCode, ApiError> {
    let exec = exec_id(&exec)?;
    if !(1..=64).contains(&request.signal) {
        return Err(ApiError::new(
            Code::BadRequest,
            format!("{} is not a signal", request.signal),
        ));
    }
    done(
        &node,
        &caller,
        &name,
        Command::Signal {
            exec,
            signal: request.signal,
        },
    )
    .await
}

async fn done(node: &crate::Node, caller: &Caller, name: &str, command: Command) -> Result<StatusCode, ApiError> {
    let entry = node.live.find(&caller.tenant, name)?;
    match node.live.ask(caller, &entry, command).await? {
        Outcome::Done => Ok(StatusCode::NO_CONTENT),
        other => Err(mismatch(&other)),
    }
}
