//! Makes boxes: what a request says becomes what `timeline` wants. Gives each box a directory on the state volume and an
//! id range of its own, and takes both back when the box is gone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use image::SandboxId;
use sandbox::{Image, Limits, Spec};
use timeline::events::Events as Log;
use timeline::{CreateSpec, DirtySource, EngineConfig, Handle, Surroundings, Timeline, TimelineError, Volume};

use crate::auth::Caller;
use crate::config::Config;
use crate::error::NodeError;

/// Length of the sparse image that becomes the state volume where the state directory cannot share extents.
const VOLUME_BYTES: u64 = 64 << 30;

/// How long a task may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the files of a box come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// The allowed part of the host's root.
    Host,
    /// A directory of the host.
    Directory(String),
    /// A tar file of the host.
    Tar(String),
}

/// Everything that is settled when a box is made.
#[derive(Debug, Clone)]
pub struct Birth {
    /// Its id.
    pub id: SandboxId,
    /// Its name.
    pub name: String,
    /// Its files.
    pub image: ImageSource,
    /// The request it came from, checked.
    pub request: api::CreateRequest,
    /// When, Unix time in milliseconds.
    pub created_ms: u64,
    /// Who asked.
    pub caller: Caller,
}

/// What boxes are made with.
#[derive(Debug)]
pub struct Boxes {
    volume: Volume,
    log: Arc<Log>,
    dirty: DirtySource,
    faults: Vec<String>,
    verify: bool,
    now_ms: fn() -> u64,
    random_bits: fn() -> u64,
    ranges: Arc<Ranges>,
}

impl Drop for Boxes {
    fn drop(&mut self) {
        // Only a mount that something still uses cannot go; the next daemon takes it as it is.
        drop(self.volume.close());
    }
}

impl Boxes {
    /// Opens the state volume and clears what an earlier daemon that was killed left on it.
    pub fn open(config: &Config, log: Arc<Log>) -> Result<Self, NodeError> {
        let volume = Volume::open(&config.state, VOLUME_BYTES)
            .map_err(|error| NodeError::io("open the state volume in", &config.state, std::io::Error::other(error)))?;
        let directory = volume.root.join("boxes");
        if directory.exists() {
            std::fs::remove_dir_all(&directory).map_err(|error| NodeError::io("clear", &directory, error))?;
        }
        std::fs::create_dir_all(&directory).map_err(|error| NodeError::io("create", &directory, error))?;
        Ok(Self {
            volume,
            log,
            dirty: if config.scan {
                DirtySource::Scan
            } else {
                DirtySource::Compare
            },
            faults: config.faults.clone(),
            verify: config.verify,
            now_ms: config.now_ms,
            random_bits: config.random_bits,
            ranges: Arc::default(),
        })
    }

    /// Makes one, and waits until it takes commands.
    pub fn create(&self, birth: &Birth) -> Result<Running, TimelineError> {
        let directory = self.volume.root.join("boxes").join(birth.id.to_string());
        make_directory(&directory)?;
        // From here on dropping it takes back what was taken.
        let place = Place {
            directory,
            range: Range::take(&self.ranges),
        };
        let mut spec = spec(birth, place.range.index);
        if let ImageSource::Tar(archive) = &birth.image {
            let root = place.directory.join("image");
            sandbox::image::unpack(Path::new(archive), &root)?;
            spec.image = Image::Directory(root);
        }
        let own = place.directory.join("box");
        make_directory(&own)?;
        let (now_ms, random_bits) = (self.now_ms, self.random_bits);
        let surroundings = Surroundings {
            directory: own,
            events: Arc::clone(&self.log),
            clock: Arc::new(now_ms),
            random: Arc::new(random_bits),
        };
        let handle = Timeline::create(self.create_spec(birth, spec), surroundings)?;
        Ok(Running { handle, _place: place })
    }

    fn create_spec(&self, birth: &Birth, sandbox: Spec) -> CreateSpec {
        CreateSpec {
            id: birth.id,
            name: birth.name.clone(),
            tenant: birth.caller.tenant.clone(),
            sandbox,
            engine: EngineConfig {
                dirty: self.dirty,
                faults: self.faults.clone(),
                stop_timeout: STOP_TIMEOUT,
            },
            history_mem_bytes: birth.request.history_bytes.unwrap_or(timeline::HISTORY_MEM_BYTES),
            verify: self.verify,
        }
    }
}

fn make_directory(path: &Path) -> Result<(), TimelineError> {
    std::fs::create_dir(path).map_err(|error| TimelineError::io("mkdir", path.display(), &error))
}

fn spec(birth: &Birth, id_range_index: u32) -> Spec {
    let request = &birth.request;
    let mut spec = Spec::new(&birth.id.to_string().replace('_', "-"));
    spec.hostname = hostname(&birth.name);
    if let ImageSource::Directory(path) = &birth.image {
        spec.image = Image::Directory(PathBuf::from(path));
    }
    spec.limits = Limits {
        memory_bytes: request.memory_bytes,
        cpu_milli: request.cpu_millis,
        task_count: request.pids,
    };
    spec.env.clone_from(&request.env);
    if let Some(workdir) = &request.workdir {
        spec.workdir.clone_from(workdir);
    }
    if let Some(user) = &request.user {
        spec.user.clone_from(user);
    }
    spec.volumes = request.volumes.iter().map(volume).collect();
    spec.privileged = request.privileged;
    spec.id_range_index = id_range_index;
    spec
}

fn volume(volume: &api::Volume) -> sandbox::Volume {
    sandbox::Volume {
        host: PathBuf::from(&volume.host),
        inside: volume.inside.clone(),
        read_only: volume.read_only,
    }
}

/// A host name knows no underscore.
fn hostname(name: &str) -> String {
    name.replace('_', "-")
}

/// What a box takes from the daemon.
#[derive(Debug)]
struct Place {
    directory: PathBuf,
    range: Range,
}

impl Drop for Place {
    fn drop(&mut self) {
        // The next daemon clears what cannot be removed now.
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

#[derive(Debug, Default)]
struct Ranges(Mutex<BTreeSet<u32>>);

/// An id range that no other box has.
#[derive(Debug)]
struct Range {
    index: u32,
    ranges: Arc<Ranges>,
}

impl Range {
    fn take(ranges: &Arc<Ranges>) -> Self {
        let mut taken = ranges.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = (0..)
            .find(|index| !taken.contains(index))
            .expect("there are fewer boxes than numbers");
        taken.insert(index);
        Self {
            index,
            ranges: Arc::clone(ranges),
        }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        self.ranges
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.index);
    }
}

/// A box that runs, with what it took. The handle goes first: then the box is down, and its place can go.
#[derive(Debug)]
pub struct Running {
    /// The way to its driver.
    pub handle: Handle,
    _place: Place,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_ranges_are_given_once_and_again_when_free() {
        let ranges = Arc::default();
        let (first, second) = (Range::take(&ranges), Range::take(&ranges));
        assert_eq!((first.index, second.index), (0, 1));
        drop(first);
        assert_eq!(Range::take(&ranges).index, 0);
        assert_eq!(second.index, 1);
    }
}
