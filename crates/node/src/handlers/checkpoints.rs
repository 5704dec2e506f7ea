//! Take a checkpoint, go back, name, log, diff.

use std::time::Duration;

use api::{
    Change, Checkpoint, CheckpointRequest, Checkpointed, Diff, Difference, Log, Phase, RollbackRequest, RolledBack,
    TagRequest, Timing,
};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use timeline::command::{self, CheckpointLine, DiffLine, Revision};
use timeline::{Command, Outcome};

use super::{Answer, Asked, Body, Reply, Shared, mismatch};
use crate::auth::Caller;
use crate::error::ApiError;

/// `POST …/checkpoints`.
pub async fn create(
    State(node): Shared,
    caller: Caller,
    Path(name): Path<String>,
    Body(request): Body<CheckpointRequest>,
) -> Result<Response, ApiError> {
    let entry = node.live.find(&caller.tenant, &name)?;
    let command = Command::Checkpoint {
        message: request.message,
        tag: request.tag,
    };
    match node.live.ask(&caller, &entry, command).await? {
        Outcome::Checkpointed {
            line,
            timing,
            page_count,
        } => {
            let answer = Checkpointed {
                checkpoint: checkpoint(line),
                timing: wire_timing(&timing),
                page_count,
            };
            Ok((StatusCode::CREATED, Reply(answer)).into_response())
        }
        other => Err(mismatch(&other)),
    }
}

/// `POST …/rollback`.
pub async fn rollback(
    State(node): Shared,
    caller: Caller,
    Path(name): Path<String>,
    Body(request): Body<RollbackRequest>,
) -> Answer<RolledBack> {
    let entry = node.live.find(&caller.tenant, &name)?;
    let command = Command::Rollback {
        to: request.to.map(Revision),
        keep_present: request.keep_present,
    };
    match node.live.ask(&caller, &entry, command).await? {
        Outcome::RolledBack {
            to,
            kept,
            timing,
            page_count,
            changed_files,
            cut,
        } => Ok(Reply(RolledBack {
            to: to.to_string(),
            kept: kept.map(|id| id.to_string()),
            timing: wire_timing(&timing),
            page_count,
            changed_files,
            cut: cut.iter().map(ToString::to_string).collect(),
        })),
        other => Err(mismatch(&other)),
    }
}

/// `POST …/tags`.
pub async fn tag(
    State(node): Shared,
    caller: Caller,
    Path(name): Path<String>,
    Body(request): Body<TagRequest>,
) -> Result<StatusCode, ApiError> {
    let entry = node.live.find(&caller.tenant, &name)?;
    let at = Revision(request.at.unwrap_or_else(|| "HEAD".to_owned()));
    match node
        .live
        .ask(&caller, &entry, Command::Tag { at, name: request.name })
        .await?
    {
        Outcome::Done => Ok(StatusCode::NO_CONTENT),
        other => Err(mismatch(&other)),
    }
}

/// `DELETE …/tags/{name}`.
pub async fn untag(
    State(node): Shared,
    caller: Caller,
    Path((name, tag)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let entry = node.live.find(&caller.tenant, &name)?;
    match node.live.ask(&caller, &entry, Command::Untag { name: tag }).await? {
        Outcome::Done => Ok(StatusCode::NO_CONTENT),
        other => Err(mismatch(&other)),
    }
}

/// `GET …/checkpoints`.
pub async fn log(State(node): Shared, caller: Caller, Path(name): Path<String>) -> Answer<Log> {
    let entry = node.live.find(&caller.tenant, &name)?;
    match node.live.ask(&caller, &entry, Command::Log).await? {
        Outcome::Log(lines) => Ok(Reply(Log {
            checkpoints: lines.into_iter().map(checkpoint).collect(),
        })),
        other => Err(mismatch(&other)),
    }
}

/// Query of `GET …/diff`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiffQuery {
    /// From; the head when absent.
    from: Option<String>,
    /// To; the running box when absent.
    to: Option<String>,
}

/// `GET …/diff`.
pub async fn diff(
    State(node): Shared,
    caller: Caller,
    Path(name): Path<String>,
    Asked(query): Asked<DiffQuery>,
) -> Answer<Diff> {
    let entry = node.live.find(&caller.tenant, &name)?;
    let from = Revision(query.from.unwrap_or_else(|| "HEAD".to_owned()));
    match node
        .live
        .ask(
            &caller,
            &entry,
            Command::Diff {
                from,
                to: query.to.map(Revision),
            },
        )
        .await?
    {
        Outcome::Diff(lines) => Ok(Reply(Diff {
            differences: lines.into_iter().map(difference).collect(),
        })),
        other => Err(mismatch(&other)),
    }
}

fn checkpoint(line: CheckpointLine) -> Checkpoint {
    Checkpoint {
        id: line.id.to_string(),
        parent: line.parent.map(|id| id.to_string()),
        message: line.message,
        tags: line.tags,
        created_ms: line.created_ms,
        head: line.head,
        process_count: line.process_count,
        memory_bytes: line.memory_bytes,
        file_bytes: line.file_bytes,
        changed_files: line.changed_files,
        dropped: line.dropped,
        automatic: line.automatic,
        outside: line.outside,
    }
}

fn difference(line: DiffLine) -> Difference {
    let change = |sign| match sign {
        '+' => Change::Added,
        '-' => Change::Removed,
        _ => Change::Changed,
    };
    match line {
        DiffLine::File { change: sign, path } => Difference::File {
            change: change(sign),
            path,
        },
        DiffLine::Process {
            change: sign,
            pid,
            comm,
            bytes,
        } => Difference::Process {
            change: change(sign),
            pid,
            comm,
            bytes,
        },
    }
}

fn wire_timing(timing: &command::Timing) -> Timing {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let phases = timing.phases.iter().map(|(name, duration)| Phase {
        name: name.clone(),
        ms: ms(*duration),
    });
    Timing {
        stop_ms: ms(timing.stop),
        total_ms: ms(timing.total),
        phases: phases.collect(),
    }
}
