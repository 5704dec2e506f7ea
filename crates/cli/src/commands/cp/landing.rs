//! Where a copy lands: the rules of `docker cp`, decided from what the two sides are. Touches no file and asks nobody.

use std::path::{Path, PathBuf};

use api::{Code, Problem};

use crate::error::{CliError, Result};

/// What is to be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// As it was typed, for messages.
    pub(crate) typed: String,
    /// The last part of its path; a root has none.
    pub(crate) name: Option<PathBuf>,
    /// A directory.
    pub(crate) directory: bool,
}

/// What is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Absent,
    /// A directory, or a link to one.
    Directory,
    /// Anything else.
    File,
}

/// Where it lands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Landing {
    /// In the target, under this name.
    Below(PathBuf),
    /// In the target, without its own top: what is in it beside what is there.
    Merged,
    /// In the place of the target.
    Instead,
}

impl Source {
    /// A path that ends with `/.` means what is in the directory, not the directory.
    fn means_content(&self) -> bool {
        self.name.is_none() || self.typed == "." || self.typed.ends_with("/.")
    }
}

/// Decides; `target` is as it was typed, `there` what it is.
pub(crate) fn landing(source: &Source, target: &str, there: Kind) -> Result<Landing> {
    let no = |code, detail: String, hint: &str| CliError::from(Problem::new(code, detail).hint(hint));
    match (there, source.directory) {
        (Kind::Directory, true) if source.means_content() => Ok(Landing::Merged),
        (Kind::Directory, _) => Ok(source.name.clone().map_or(Landing::Merged, Landing::Below)),
        (Kind::Absent, false) if target.ends_with('/') => Err(no(
            Code::NotFound,
            format!("there is no directory {target}"),
            "make it first, or leave the last / out to copy under that name",
        )),
        (Kind::File, false) if target.ends_with('/') => Err(no(
            Code::Refused,
            format!("{target} is not a directory"),
            "leave the last / out to replace the file",
        )),
        (Kind::File, true) => Err(no(
            Code::Refused,
            format!("{} is a directory, {target} is a file", source.typed),
            "a directory cannot take the place of a file: name another target",
        )),
        (Kind::Absent, _) | (Kind::File, false) => Ok(Landing::Instead),
    }
}

/// A path's last part, as the names in a tar stream begin.
pub(crate) fn last_part(path: &Path) -> Option<PathBuf> {
    path.file_name().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(typed: &str, directory: bool, target: &str, there: Kind) -> String {
        let source = Source {
            typed: typed.to_owned(),
            name: last_part(Path::new(typed)),
            directory,
        };
        match landing(&source, target, there) {
            Ok(Landing::Below(name)) => format!("below as {}", name.display()),
            Ok(Landing::Merged) => "merged".to_owned(),
            Ok(Landing::Instead) => "instead".to_owned(),
            Err(error) => format!("exit {}", error.exit_code),
        }
    }

    /// The table of `docker cp`'s manual, in its order.
    #[test]
    fn the_rules_of_docker() {
        let (file, directory) = (false, true);
        assert_eq!(check("f", file, "/new", Kind::Absent), "instead");
        assert_eq!(check("f", file, "/new/", Kind::Absent), "exit 3");
        assert_eq!(check("f", file, "/old", Kind::File), "instead");
        assert_eq!(check("f", file, "/old/", Kind::File), "exit 4");
        assert_eq!(check("a/f", file, "/d", Kind::Directory), "below as f");
        assert_eq!(check("a/f", file, "/d/", Kind::Directory), "below as f");
        assert_eq!(check("d", directory, "/new", Kind::Absent), "instead");
        assert_eq!(check("d", directory, "/new/", Kind::Absent), "instead");
        assert_eq!(check("d/.", directory, "/new", Kind::Absent), "instead");
        assert_eq!(check("d", directory, "/old", Kind::File), "exit 4");
        assert_eq!(check("a/d", directory, "/d", Kind::Directory), "below as d");
        assert_eq!(check("a/d/", directory, "/d", Kind::Directory), "below as d");
        assert_eq!(check("a/d/.", directory, "/d", Kind::Directory), "merged");
        assert_eq!(check(".", directory, "/d", Kind::Directory), "merged");
        assert_eq!(check("/", directory, "/d", Kind::Directory), "merged");
    }
}
