//! The sandboxes that run: id -> the door to its driver. Names and prefixes are resolved here. All contact with
//! `timeline` beyond its plain values is in this file.

mod boxes;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::{Code, Problem};
use image::{ExecId, SandboxId, Tenant};
use timeline::{Command, Follower, Outcome, Position, Request, Summary, TimelineError};
use tokio::sync::oneshot;

use crate::auth::Caller;
use crate::error::ApiError;
use crate::events::Events;

pub use boxes::{Birth, Boxes, ImageSource, Running};

/// How long one box may take to go when the daemon ends; the kernel ends what is left together with its driver.
const REMOVE_MAX: Duration = Duration::from_secs(5);

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
    running: Running,
}

impl Entry {
    /// What is known without asking.
    pub fn summary(&self) -> Summary {
        self.running.handle.summary()
    }

    /// A reader of what a command says, from `from` on.
    pub fn follow(&self, exec: ExecId, from: Position) -> Result<Follower, TimelineError> {
        self.running.handle.follow(exec, from)
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
    boxes: Arc<Boxes>,
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
    pub fn new(boxes: Arc<Boxes>, events: Arc<Events>) -> Self {
        Self {
            boxes,
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
        let (id, boxes) = (birth.id, Arc::clone(&self.boxes));
        let made = tokio::task::spawn_blocking(move || boxes.create(&birth).map(|running| (birth, running))).await;
        let result = match made {
            Ok(Ok((birth, running))) => Ok(self.enter(birth, running)),
            Ok(Err(error)) => Err(ApiError::from(error)),
            Err(_) => Err(ApiError::new(
                Code::Internal,
                "making the sandbox panicked; the daemon's log says where",
            )),
        };
        if result.is_err() {
            self.slots().by_id.remove(&id);
        }
        self.events.wake();
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

    fn enter(&self, birth: Birth, running: Running) -> Arc<Entry> {
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
            running,
        });
        self.slots().by_id.insert(entry.id, Slot::Running(Arc::clone(&entry)));
        entry
    }

    /// Asks one thing of one sandbox and waits for what comes of it.
    pub async fn ask(&self, caller: &Caller, entry: &Entry, command: Command) -> Result<Outcome, ApiError> {
        let (sender, receiver) = oneshot::channel();
        let request = Request {
            tenant: caller.tenant.clone(),
            principal: caller.principal.clone(),
            command,
        };
        entry
            .running
            .handle
            .submit(request, move |result| drop(sender.send(result)));
        let result = receiver.await.unwrap_or(Err(TimelineError::DriverLost));
        self.events.wake();
        Ok(result?)
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
            // What could not be removed is named in the event log; there is nobody else to tell.
            drop(tokio::time::timeout(REMOVE_MAX, self.remove(&caller, &entry)).await);
        }
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
