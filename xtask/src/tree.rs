//! The text files of the repository, as a map from path to content. Reads everything once; rules only look at the map,
//! so that a test can hand them a tree of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Directories that hold nothing of ours.
const SKIPPED: [&str; 4] = [".git", "target", "node_modules", "__pycache__"];

/// Path with `/`, relative to the root, to content. Files that are not UTF-8 are left out.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, String>,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_directory(root, "")?;
        Ok(tree)
    }

    fn read_directory(&mut self, directory: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                self.read_directory(&entry.path(), &format!("{prefix}{name}/"))?;
            } else if kind.is_file()
                && name != ".git"
                && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
            {
                self.files.insert(format!("{prefix}{name}"), text);
            }
        }
        Ok(())
    }

    /// Path and content of every Rust file.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all().filter(|(path, _)| path.ends_with(".rs"))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Names of the directories right under `crates/` that are packages.
    pub(crate) fn crates(&self) -> impl Iterator<Item = &str> {
        self.files.keys().filter_map(|path| {
            let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!name.contains('/')).then_some(name)
        })
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Tree {
    fn from(files: [(&str, &str); N]) -> Self {
        Self {
            files: files.map(|(path, text)| (path.to_owned(), text.to_owned())).into(),
        }
    }
}
