//! Settings, read once and passed down. The only place of this crate that reads the environment, the clock or
//! randomness.

use std::path::{Path, PathBuf};

/// Where state lies when nothing else is said.
pub const STATE_DEFAULT: &str = "/var/lib/deltabox";

/// Where the socket of the default state lies.
pub const SOCKET_DEFAULT: &str = "/run/deltabox/deltabox.sock";

/// Members of this group may use the socket.
pub const SOCKET_GROUP: &str = "deltabox";

/// The kernel's bound on a socket's path (`sun_path` without its final zero).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Settings of one daemon.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where state lies.
    pub state: PathBuf,
    /// Where to listen.
    pub socket: PathBuf,
    /// Which group may connect beside root.
    pub socket_group: Option<u32>,
    /// Which build of this version the program is, said in every answer.
    pub build: String,
    /// Find changed memory by PAGEMAP_SCAN; else by comparing.
    pub scan: bool,
    /// Compare with the checkpoint after every rollback, before anything runs.
    pub verify: bool,
    /// Fault points that are switched on; empty but in tests.
    pub faults: Vec<String>,
    /// Unix time in milliseconds.
    pub now_ms: fn() -> u64,
    /// 64 random bits.
    pub random_bits: fn() -> u64,
}

/// Where state and socket are, from `DELTABOX_STATE` and `DELTABOX_HOST`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where state lies.
    pub state: PathBuf,
    /// The daemon's socket.
    pub socket: PathBuf,
}

/// A `DELTABOX_HOST` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("DELTABOX_HOST is {0:?}: only unix:///absolute/path is known")]
pub struct HostError(pub String);

impl Place {
    /// From the two variables; an empty one counts as absent.
    pub fn new(state: Option<&str>, host: Option<&str>) -> Result<Self, HostError> {
        let state = state.filter(|text| !text.is_empty()).map(PathBuf::from);
        let socket = match host.filter(|text| !text.is_empty()) {
            Some(host) => {
                let path = host.strip_prefix("unix://").filter(|path| path.starts_with('/'));
                PathBuf::from(path.ok_or_else(|| HostError(host.to_owned()))?)
            }
            None => match &state {
                Some(state) if state.as_path() != Path::new(STATE_DEFAULT) => state.join("deltabox.sock"),
                _ => PathBuf::from(SOCKET_DEFAULT),
            },
        };
        Ok(Self {
            state: state.unwrap_or_else(|| PathBuf::from(STATE_DEFAULT)),
            socket,
        })
    }

    /// From this process's environment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where these two settings are read"
    )]
    pub fn from_environment() -> Result<Self, HostError> {
        let state = std::env::var("DELTABOX_STATE").ok();
        let host = std::env::var("DELTABOX_HOST").ok();
        Self::new(state.as_deref(), host.as_deref())
    }
}

impl Config {
    /// Settings for a daemon at `place`, with this machine's clock, randomness and groups.
    pub fn new(place: Place) -> Self {
        let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
        Self {
            state: place.state,
            socket: place.socket,
            socket_group: group_id(&groups, SOCKET_GROUP),
            build: String::new(),
            scan: true,
            verify: false,
            faults: Vec::new(),
            now_ms: unix_now_ms,
            random_bits,
        }
    }
}

/// The id of `name` in the text of `/etc/group`.
fn group_id(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        fields.nth(1)?.parse().ok()
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the daemon's clock is read here and passed down"
)]
pub(crate) fn unix_now_ms() -> u64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn random_bits() -> u64 {
    let mut bytes = [0_u8; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        let got = rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty());
        filled += got.expect("getrandom with no flags blocks until it can answer");
    }
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(state: Option<&str>, host: Option<&str>) -> (String, String) {
        let place = Place::new(state, host).unwrap();
        (place.state.display().to_string(), place.socket.display().to_string())
    }

    #[test]
    fn places() {
        let default = (STATE_DEFAULT.to_owned(), SOCKET_DEFAULT.to_owned());
        assert_eq!(place(None, None), default);
        assert_eq!(place(Some(""), Some("")), default);
        assert_eq!(place(Some(STATE_DEFAULT), None), default);
        assert_eq!(
            place(Some("/a"), None),
            ("/a".to_owned(), "/a/deltabox.sock".to_owned())
        );
        assert_eq!(
            place(Some("/a"), Some("unix:///b/c")),
            ("/a".to_owned(), "/b/c".to_owned())
        );
        assert!(Place::new(None, Some("http://x")).is_err());
        assert!(Place::new(None, Some("unix://relative")).is_err());
    }

    #[test]
    fn groups() {
        assert_eq!(group_id("root:x:0:\ndeltabox:x:998:ann,bob\n", "deltabox"), Some(998));
        assert_eq!(group_id("root:x:0:\n", "deltabox"), None);
    }
}
