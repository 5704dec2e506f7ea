//! The names of fault points, of all parts of a box together. Each part takes those it knows from one list; whether a name
//! is known to any is asked here, before there is a box. Switches nothing on itself.

use crate::revision::nearest;

/// A name that no part of a box knows: what it was meant to prove would not be proved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no fault point is called {name:?}")]
pub struct UnknownPoint {
    /// The name.
    pub name: String,
    /// Points that may have been meant.
    pub near: Vec<String>,
}

/// Every point, as it is switched on: `skip:pages`, `skip:files.mode`.
pub fn points() -> Vec<String> {
    let of_processes = engine::fault::POINTS.iter().map(|point| format!("skip:{point}"));
    let of_files = files::fault::POINTS.iter().map(|(point, _)| (*point).to_owned());
    of_processes.chain(of_files).collect()
}

/// Whether every name is a point.
///
/// # Errors
/// The first that is not.
pub fn check(names: &[String]) -> Result<(), UnknownPoint> {
    let points = points();
    let Some(name) = names.iter().find(|name| !points.contains(name)) else {
        return Ok(());
    };
    let whole = format!("skip:{}", name.strip_prefix("skip:").unwrap_or(name));
    Err(UnknownPoint {
        name: name.clone(),
        near: nearest(&whole, points.iter().map(String::as_str)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(name: &str) -> Vec<String> {
        check(&["skip:pages".to_owned(), name.to_owned()]).unwrap_err().near
    }

    #[test]
    fn every_point_is_known_and_nothing_else() {
        assert_eq!(check(&points()), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(near("skip:sigmaks")[0], "skip:sigmask");
        assert_eq!(near("files.mode")[0], "skip:files.mode");
        assert_eq!(near("skip:files.modes")[0], "skip:files.mode");
        assert_eq!(near("pages")[0], "skip:pages");
        assert!(near("nothing-of-this-kind-at-all").is_empty());
    }
}
