//! A directory of this run alone, removed when it goes out of scope.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{BenchError, io_on};

static COUNT: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Result<Self, BenchError> {
        Self::below(&std::env::temp_dir())
    }

    /// The same in another directory than the system's temporary one.
    pub(crate) fn below(parent: &Path) -> Result<Self, BenchError> {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("deltabox-bench-{}-{count}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(io_on(path.display()))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it with this content.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let path = self.path.join(name);
        fs::write(&path, text).map_err(io_on(path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.path));
    }
}
