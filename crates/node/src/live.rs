//! The sandboxes that run: id -> the door to its driver. Names and prefixes are resolved here. All contact with
//! `timeline` beyond its plain values is in this file.

mod boxes;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use api::{Code, Event, Problem};
use image::{ExecId, SandboxId, Tenant};
use timeline::output::{Follower, Position};
use timeline::{Command, Outcome, TimelineError};
use tokio::sync::oneshot;

use crate::driver::{Birth, Caller, Driver, ImageSource, Maker, Summary};
use crate::error::ApiError;
use crate::events::Events;

pub use boxes::boxes;

/// How unlike a typed name may be to be offered (1 is equal).
const LIKENESS_MIN: f64 = 0.7;

/// One sandbox that runs.
#[derive(Debug)]
pub struct Entry {
    /// Its id.
    pub id: SandboxId,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant: Tenant,
    /// What it was made from, for people.
    pub image: String,
    /// When.
    pub created_ms: u64,
    driver: Box<dyn Driver>,
}

impl Entry {
    /// What is known without asking.
    pub fn summary(&self) -> Summary {
        self.driver.summary()
    }

    /// See [`Driver::follow`].
    pub fn follow(&self, exec: ExecId, from: Position) -> Result<Follower, TimelineError> {
        self.driver.follow(exec, from)
    }
}

/// A name is taken from the moment somebody begins to make a box with it.
#[derive(Debug)]
enum Slot {
    Making { name: String, tenant: Tenant },
    Running(Arc<Entry>),
}

impl Slot {
    fn name(&self) -> (&Tenant, &str) {
        match self {
            Self::Making { name, tenant } => (tenant, name),
            Self::Running(entry) => (&entry.tenant, &entry.name),
        }
    }
}

/// The sandboxes that run.
#[derive(Debug)]
pub struct Live {
    maker: Arc<dyn Maker>,
    events: Arc<Events>,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    by_id: BTreeMap<SandboxId, Slot>,
    closing: bool,
}

impl Live {
    /// None yet.
    pub fn new(maker: Arc<dyn Maker>, events: Arc<Events>) -> Self {
        Self {
            maker,
            events,
            slots: Mutex::new(Slots::default()),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many run.
    pub fn count(&self) -> usize {
        self.slots().by_id.len()
    }

    /// Those of a tenant, oldest first.
    pub fn list(&self, tenant: &Tenant) -> Vec<Arc<Entry>> {
        let mut entries: Vec<_> = self
            .running()
            .into_iter()
            .filter(|entry| entry.tenant == *tenant)
            .collect();
        entries.sort_by_key(|entry| (entry.created_ms, entry.id));
        entries
    }

    fn running(&self) -> Vec<Arc<Entry>> {
        let slots = self.slots();
        let running = slots.by_id.values().filter_map(|slot| match slot {
            Slot::Running(entry) => Some(Arc::clone(entry)),
            Slot::Making { .. } => None,
        });
        running.collect()
    }

    /// The one that `text` means: a name, an id, or a unique prefix of an id (with or without `sbx_`).
    pub fn find(&self, tenant: &Tenant, text: &str) -> Result<Arc<Entry>, ApiError> {
        let entries = self.list(tenant);
        if let Some(entry) = entries.iter().find(|entry| entry.name == text) {
            return Ok(Arc::clone(entry));
        }
        let prefix = text.strip_prefix(SandboxId::PREFIX).unwrap_or(text);
        let fits = |entry: &&Arc<Entry>| !prefix.is_empty() && entry.id.to_string()[4..].starts_with(prefix);
        let fitting: Vec<_> = entries.iter().filter(fits).collect();
        match fitting.as_slice() {
            [entry] => Ok(Arc::clone(entry)),
            [] => Err(not_found(&entries, text)),
            several => {
                let names = several
                    .iter()
                    .map(|entry| format!("{} ({})", entry.id, entry.name))
                    .collect();
                let problem = Problem::new(Code::Conflict, format!("{text:?} fits {} sandboxes", several.len()));
                Err(problem.hint("give more digits, or the name").candidates(names).into())
            }
        }
    }

    /// Makes one.
    pub async fn create(&self, birth: Birth) -> Result<Arc<Entry>, ApiError> {
        self.reserve(&birth)?;
        let begun = Instant::now();
        let maker = Arc::clone(&self.maker);
        let id = birth.id;
        let (caller, now_ms) = (birth.caller.clone(), birth.created_ms);
        let made = tokio::task::spawn_blocking(move || maker.create(&birth).map(|driver| (birth, driver))).await;
        let result = match made {
            Ok(Ok((birth, driver))) => Ok(self.enter(birth, driver)),
            Ok(Err(error)) => Err(ApiError::from(error)),
            Err(_) => Err(ApiError::new(
                Code::Internal,
                "making the sandbox panicked; the daemon's log says where",
            )),
        };
        if result.is_err() {
            self.slots().by_id.remove(&id);
        }
        let said = result.as_ref().map(|entry| (0, entry.name.clone()));
        self.record(&caller, id, "create", begun, now_ms, said);
        result
    }

    fn reserve(&self, birth: &Birth) -> Result<(), ApiError> {
        let mut slots = self.slots();
        if slots.closing {
            return Err(ApiError::new(Code::ShuttingDown, "the daemon is going down"));
        }
        let tenant = &birth.caller.tenant;
        if slots
            .by_id
            .values()
            .any(|slot| slot.name() == (tenant, birth.name.as_str()))
        {
            let problem = Problem::new(Code::Conflict, format!("a sandbox is already named {:?}", birth.name));
            return Err(problem
                .hint(format!("choose another name, or `deltabox rm {}` first", birth.name))
                .into());
        }
        slots.by_id.insert(
            birth.id,
            Slot::Making {
                name: birth.name.clone(),
                tenant: tenant.clone(),
            },
        );
        Ok(())
    }

    fn enter(&self, birth: Birth, driver: Box<dyn Driver>) -> Arc<Entry> {
        let image = match birth.image {
            ImageSource::Host => "host".to_owned(),
            ImageSource::Directory(path) | ImageSource::Tar(path) => path,
        };
        let entry = Arc::new(Entry {
            id: birth.id,
            name: birth.name,
            tenant: birth.caller.tenant,
            image,
            created_ms: birth.created_ms,
            driver,
        });
        self.slots().by_id.insert(entry.id, Slot::Running(Arc::clone(&entry)));
        entry
    }

    /// Asks one thing of one sandbox and waits for what comes of it.
    pub async fn ask(&self, caller: &Caller, entry: &Entry, command: Command) -> Result<Outcome, ApiError> {
        let verb = verb(&command);
        let begun = Instant::now();
        let (sender, receiver) = oneshot::channel();
        let reply = Box::new(move |result| {
            drop(sender.send(result));
        });
        entry.driver.submit(caller, command, reply);
        let result = receiver
            .await
            .unwrap_or(Err(TimelineError::DriverLost))
            .map_err(ApiError::from);
        if let Some(verb) = verb {
            self.record(
                caller,
                entry.id,
                verb,
                begun,
                crate::config::unix_now_ms(),
                result.as_ref().map(said_of),
            );
        }
        result
    }

    /// Takes one down.
    pub async fn remove(&self, caller: &Caller, entry: &Entry) -> Result<(), ApiError> {
        self.ask(caller, entry, Command::Remove).await?;
        self.slots().by_id.remove(&entry.id);
        Ok(())
    }

    /// Takes every one down and lets no new one in.
    pub async fn close(&self) {
        self.slots().closing = true;
        let caller = Caller {
            tenant: Tenant::default(),
            principal: image::Principal("daemon".to_owned()),
            root: true,
        };
        for entry in self.running() {
            let caller = Caller {
                tenant: entry.tenant.clone(),
                ..caller.clone()
            };
            // What could not be removed is named in the event; there is nobody else to tell.
            drop(self.remove(&caller, &entry).await);
        }
    }

    fn record(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        command: &str,
        begun: Instant,
        at_ms: u64,
        said: Result<(u64, String), &ApiError>,
    ) {
        let (outcome, bytes, detail) = match said {
            Ok((bytes, detail)) => ("ok".to_owned(), bytes, detail),
            Err(ApiError(problem)) => (problem.code.name().to_owned(), 0, problem.detail.clone()),
        };
        self.events.record(Event {
            id: 0,
            at_ms,
            tenant: caller.tenant.0.clone(),
            principal: caller.principal.0.clone(),
            sandbox: sandbox.to_string(),
            command: command.to_owned(),
            outcome,
            ms: begun.elapsed().as_secs_f64() * 1e3,
            bytes,
            detail,
        });
    }
}

fn not_found(entries: &[Arc<Entry>], text: &str) -> ApiError {
    let mut near: Vec<(f64, String)> = entries
        .iter()
        .map(|entry| (strsim::jaro_winkler(&entry.name, text), entry.name.clone()))
        .collect();
    near.retain(|(likeness, _)| *likeness >= LIKENESS_MIN);
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let names: Vec<String> = near.into_iter().take(3).map(|(_, name)| name).collect();
    let hint = match names.as_slice() {
        [] if entries.is_empty() => "there is none yet: `deltabox create --name work`".to_owned(),
        [] => "`deltabox ls` lists them".to_owned(),
        names => format!("did you mean {}?", names.join(" or ")),
    };
    Problem::new(Code::NotFound, format!("no sandbox {text:?}"))
        .hint(hint)
        .candidates(names)
        .into()
}

/// What an event calls a command; commands that only read or carry a keystroke leave none.
fn verb(command: &Command) -> Option<&'static str> {
    match command {
        Command::Exec(_) => Some("exec"),
        Command::Signal { .. } => Some("signal"),
        Command::Checkpoint { .. } => Some("checkpoint"),
        Command::Rollback { .. } => Some("rollback"),
        Command::Tag { .. } => Some("tag"),
        Command::Untag { .. } => Some("untag"),
        Command::ReadFiles { .. } => Some("read_files"),
        Command::WriteFiles { .. } => Some("write_files"),
        Command::Remove => Some("remove"),
        Command::Stdin { .. }
        | Command::Resize { .. }
        | Command::Log
        | Command::Diff { .. }
        | Command::Inspect { .. } => None,
    }
}

fn said_of(outcome: &Outcome) -> (u64, String) {
    match outcome {
        Outcome::Started { exec, pid } => (0, format!("{exec} is pid {pid}")),
        Outcome::Checkpointed { line, .. } => (line.memory_bytes + line.file_bytes, line.id.to_string()),
        Outcome::RolledBack { to, page_count, .. } => (page_count * 4096, to.to_string()),
        Outcome::Files(tar) => (tar.len() as u64, String::new()),
        _ => (0, String::new()),
    }
}
