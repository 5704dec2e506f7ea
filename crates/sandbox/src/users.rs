//! Resolves `user[:group]` with the box's own `/etc/passwd` and `/etc/group`. Both belong to the box, so they are opened
//! inside its root and never trusted beyond what they say about ids inside.

use std::io::Read;
use std::os::fd::BorrowedFd;

use linux::openat::openat2;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::error::SandboxError;

/// Who a command runs as, in ids of the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
    pub(crate) name: String,
}

/// A hostile box cannot make the daemon read for ever.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// More groups than any kernel call here needs.
const GROUPS_MAX: usize = 1024;

/// Looks `user` up in the box whose root is `root`.
pub(crate) fn resolve(root: BorrowedFd<'_>, user: &str) -> Result<Identity, SandboxError> {
    identity(
        user,
        &read_inside(root, "/etc/passwd"),
        &read_inside(root, "/etc/group"),
    )
}

fn identity(user: &str, passwd: &str, group: &str) -> Result<Identity, SandboxError> {
    let unknown = |name: &str| SandboxError::UnknownUser(name.to_owned());
    let (user, group_wanted) = match user.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (user, None),
    };
    let wanted_uid = user.parse::<u32>().ok();
    let entry = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| {
            let named = fields.first() == Some(&user);
            named || wanted_uid.is_some() && fields.get(2).and_then(|uid| uid.parse().ok()) == wanted_uid
        });
    let number = |index: usize| entry.as_ref().and_then(|fields| fields.get(index)?.parse::<u32>().ok());
    // Root is root, also in an image without `/etc/passwd`.
    let wanted_uid = wanted_uid.or((user == "root").then_some(0));
    let uid = number(2)
        .or(wanted_uid)
        .filter(|uid| *uid != u32::MAX)
        .ok_or_else(|| unknown(user))?;
    let name = entry
        .as_ref()
        .and_then(|f| f.first().copied())
        .unwrap_or(user)
        .to_owned();
    let home = entry
        .as_ref()
        .and_then(|f| f.get(5).copied())
        .filter(|home| home.starts_with('/'));
    let (gid, groups) = match group_wanted {
        Some(wanted) => (group_id(wanted, group).ok_or_else(|| unknown(wanted))?, Vec::new()),
        None => (number(3).unwrap_or(0), member_of(&name, group)),
    };
    let home = home.unwrap_or(if uid == 0 { "/root" } else { "/" }).replace('\0', "");
    Ok(Identity {
        uid,
        gid,
        groups,
        home,
        name,
    })
}

fn group_id(wanted: &str, group: &str) -> Option<u32> {
    let named = group.lines().find(|line| line.split(':').next() == Some(wanted));
    named
        .and_then(|line| line.split(':').nth(2)?.parse().ok())
        .or_else(|| wanted.parse().ok())
}

fn member_of(name: &str, group: &str) -> Vec<u32> {
    let lines = group
        .lines()
        .filter(|line| line.split(':').nth(3).is_some_and(|m| m.split(',').any(|m| m == name)));
    lines
        .filter_map(|line| line.split(':').nth(2)?.parse().ok())
        .take(GROUPS_MAX)
        .collect()
}

/// The text of a regular file of the box; empty when there is none.
fn read_inside(root: BorrowedFd<'_>, path: &str) -> String {
    // Never waits: the box could have planted a FIFO, or hold a lease.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let Ok(fd) = openat2(root, path, flags, Mode::empty(), resolve) else {
        return String::new();
    };
    let file = std::fs::File::from(fd);
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return String::new();
    }
    let mut bytes = Vec::new();
    match file.take(FILE_BYTES_MAX).read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33:www:/var/www:/usr/sbin/nologin\n";
    const GROUP: &str = "root:x:0:\nadm:x:4:www-data,syslog\nwww-data:x:33:\nstaff:x:50:www-data\n";

    fn check(user: &str, expected: Option<(u32, u32, &[u32], &str)>) {
        let got = identity(user, PASSWD, GROUP).ok();
        let got = got
            .as_ref()
            .map(|i| (i.uid, i.gid, i.groups.as_slice(), i.home.as_str()));
        assert_eq!(got, expected, "{user}");
    }

    #[test]
    fn names_and_numbers() {
        check("root", Some((0, 0, &[], "/root")));
        check("www-data", Some((33, 33, &[4, 50], "/var/www")));
        check("33", Some((33, 33, &[4, 50], "/var/www")));
        check("www-data:adm", Some((33, 4, &[], "/var/www")));
        check("1000:1000", Some((1000, 1000, &[], "/")));
        check("1000", Some((1000, 0, &[], "/")));
        assert_eq!(
            identity("root", "", "").map(|i| (i.uid, i.gid, i.home)).ok(),
            Some((0, 0, "/root".to_owned()))
        );
        check("nobody-here", None);
        check("root:no-group", None);
        check("4294967295", None);
    }
}
