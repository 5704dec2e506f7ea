//! The files of a checkpoint, as plain data: what the upper directory of a box's overlay (and its `/dev/shm`) held.
//!
//! The idea that makes it cheap: a tree is kept the way a file system keeps it, as a table of inodes, where a
//! directory maps names to inodes. A rename changes two names and nothing below; a hard link is one inode with two
//! names; the kernel's file handle (inode number and generation) is the key, so that "the same file" means what it
//! means to the kernel. Everything is persistent: a tree shares with the tree before it what did not change, and a
//! comparison of two trees skips what they share.
//!
//! Never does I/O: the bytes of large files are named by a [`Blob`], whose file the `files` crate owns.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

/// File type bits of a mode.
pub const S_IFMT: u32 = 0o170_000;
/// A directory.
pub const S_IFDIR: u32 = 0o040_000;
/// A regular file.
pub const S_IFREG: u32 = 0o100_000;
/// A symbolic link.
pub const S_IFLNK: u32 = 0o120_000;
/// A character device.
pub const S_IFCHR: u32 = 0o020_000;

/// Identity of an inode: the kernel's file handle. Changes when a file is made again under the same name or number;
/// does not change with names, content or attributes. Means nothing outside its file system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    kind: i32,
    len: u8,
    bytes: [u8; FileKey::CAPACITY],
}

impl FileKey {
    /// The longest handle that is taken (ext4 8, XFS 12, tmpfs 12, btrfs 20).
    pub const CAPACITY: usize = 27;

    /// The key for a handle of the kernel; `None` when it is longer than [`FileKey::CAPACITY`].
    pub fn new(kind: i32, handle: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::CAPACITY];
        bytes.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(Self {
            kind,
            len: u8::try_from(handle.len()).ok()?,
            bytes,
        })
    }

    /// The kernel's type of the handle.
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// The kernel's bytes of the handle.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:", self.kind)?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A name in a directory: any bytes but `/` and NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Arc<[u8]>);

impl Name {
    /// A name of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A point in time on the file system's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// What `stat` says of an inode and a checkpoint keeps. The change time is the kernel's own and cannot be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner, as the upper directory stores it (outside the box's user namespace).
    pub uid: u32,
    /// Group, likewise.
    pub gid: u32,
    /// Device number of a device node, major and minor.
    pub rdev: (u32, u32),
    /// Length in bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last access, as far as it is known: reads raise no event.
    pub atime: Time,
}

/// Names and values of all extended attributes, the overlay's own included.
pub type Xattrs = BTreeMap<Arc<[u8]>, Arc<[u8]>>;

/// The bytes of a large file, kept as a file of its own in the blob directory for as long as any tree names it.
#[derive(Debug)]
pub struct Blob {
    /// Its name in the blob directory.
    pub number: u64,
    /// Length in bytes.
    pub size: u64,
    /// Bytes it takes on disk when nothing is shared.
    pub allocated: u64,
    /// Where its number goes when the last tree that names it is gone.
    pub retired: Arc<Mutex<Vec<u64>>>,
}

impl Drop for Blob {
    fn drop(&mut self) {
        if let Ok(mut retired) = self.retired.lock() {
            retired.push(self.number);
        }
    }
}

/// Content of a regular file.
#[derive(Debug, Clone)]
pub enum Content {
    /// A small file, in memory; `data` lists the ranges that are not holes when it has holes.
    Bytes {
        /// All bytes, holes as zeros.
        bytes: Arc<[u8]>,
        /// Allocated ranges of a sparse file; `None`: no holes.
        data: Option<Arc<[Range<u64>]>>,
    },
    /// A large file, by reference.
    Blob(Arc<Blob>),
    /// The same bytes as this file of the lower layers (a path without a leading slash): an overlay "metacopy", or
    /// a file put back to what the lower layers say.
    Lower(Arc<[u8]>),
}

impl Content {
    /// True when both are known to be the same bytes without looking at them.
    pub fn is_same(&self, other: &Content) -> bool {
        match (self, other) {
            (Content::Bytes { bytes: a, data: x }, Content::Bytes { bytes: b, data: y }) => {
                (Arc::ptr_eq(a, b) || a == b) && x == y
            }
            (Content::Blob(a), Content::Blob(b)) => Arc::ptr_eq(a, b),
            (Content::Lower(a), Content::Lower(b)) => a == b,
            _ => false,
        }
    }
}

/// What the lower layers hold under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Covered {
    /// Identity on the lower file system.
    pub key: FileKey,
    /// True for a directory.
    pub is_dir: bool,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// An inode of this tree.
    Inode(FileKey),
    /// The name of a lower file or directory, deleted.
    Whiteout,
}

/// One name in a directory of the upper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dentry {
    /// What it stands for.
    pub entry: Entry,
    /// What it hides or covers in the lower layers; they never change, so it stays true.
    pub covers: Option<Covered>,
}

/// What an inode is, besides its attributes.
#[derive(Debug, Clone)]
pub enum Body {
    /// A regular file.
    Regular(Content),
    /// A directory and its names.
    Directory(OrdMap<Name, Dentry>),
    /// A symbolic link and where it points.
    Symlink(Arc<[u8]>),
    /// A device node, FIFO or socket.
    Special,
}

/// One inode.
#[derive(Debug, Clone)]
pub struct Inode {
    /// What `stat` says.
    pub attributes: Attributes,
    /// Extended attributes.
    pub xattrs: Arc<Xattrs>,
    /// The rest.
    pub body: Body,
    /// Inode number: what the box's descriptors show (unless the overlay shows the lower file's).
    pub ino: u64,
    /// Device number of the file system it is on.
    pub dev: (u32, u32),
    /// Every name: the directory it is in and the name there. Empty only for the root.
    pub names: Vec<(FileKey, Name)>,
    /// It was put back to what the lower layers say: to a reader it is as good as absent from the upper.
    pub as_lower: bool,
}

impl Inode {
    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    /// The names in it; `None` unless a directory.
    pub fn children(&self) -> Option<&OrdMap<Name, Dentry>> {
        match &self.body {
            Body::Directory(children) => Some(children),
            _ => None,
        }
    }

    /// An extended attribute of the overlay itself (`opaque`, `redirect`, `origin`, `metacopy`).
    pub fn overlay(&self, name: &str) -> Option<&[u8]> {
        self.xattrs
            .get([b"trusted.overlay.", name.as_bytes()].concat().as_slice())
            .map(|value| &**value)
    }

    /// The handle of the lower file that this one was copied up from: the overlay keeps it in `origin` as a header
    /// of 21 bytes (version, magic, length, flags, type, file system) and the kernel's handle.
    pub fn origin(&self) -> Option<FileKey> {
        const HEADER: usize = 21;
        let value = self.overlay("origin")?;
        FileKey::new(i32::from(*value.get(4)?), value.get(HEADER..)?)
    }

    /// True for a directory whose lower directory shows through.
    pub fn is_merged(&self) -> bool {
        self.is_dir() && self.origin().is_some() && self.overlay("opaque") != Some(b"y")
    }
}

/// A shared inode. Equal only when it is the very same record, which is what makes comparing trees cheap.
#[derive(Debug, Clone)]
pub struct Node(pub Arc<Inode>);

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Node {}

impl std::ops::Deref for Node {
    type Target = Inode;
    fn deref(&self) -> &Inode {
        &self.0
    }
}

/// One tracked tree: the overlay's upper, or `/dev/shm`.
#[derive(Debug, Clone)]
pub struct Side {
    /// Its root directory.
    pub top: FileKey,
    /// Every inode in it.
    pub inodes: OrdMap<FileKey, Node>,
}

/// How an inode differs between two sides.
#[derive(Debug, Clone, Copy)]
pub enum Difference<'a> {
    /// Only in the second.
    Added(FileKey, &'a Inode),
    /// Only in the first.
    Removed(FileKey, &'a Inode),
    /// In both, another record.
    Changed(FileKey, &'a Inode, &'a Inode),
}

impl Side {
    /// The inode of `key`.
    pub fn get(&self, key: &FileKey) -> Option<&Inode> {
        self.inodes.get(key).map(|node| &**node)
    }

    /// Inodes that differ, skipping everything the two share.
    pub fn differences<'a>(&'a self, other: &'a Side) -> impl Iterator<Item = Difference<'a>> {
        self.inodes.diff(&other.inodes).map(|item| match item {
            DiffItem::Add(key, node) => Difference::Added(*key, node),
            DiffItem::Remove(key, node) => Difference::Removed(*key, node),
            DiffItem::Update { old, new } => Difference::Changed(*old.0, old.1, new.1),
        })
    }

    /// The path of `key` from the root of the side, without a leading slash (the root: empty). One of them, when
    /// the inode has several names; `None` when it is not in this side.
    pub fn path(&self, key: &FileKey) -> Option<Vec<u8>> {
        let mut parts: Vec<&Name> = Vec::new();
        let mut at = *key;
        while at != self.top {
            let (parent, name) = self.get(&at)?.names.first()?;
            parts.push(name);
            at = *parent;
        }
        parts.reverse();
        Some(parts.iter().map(|name| &*name.0).collect::<Vec<_>>().join(&b'/'))
    }

    /// What a path names, without following links; the path may begin with a slash.
    pub fn lookup(&self, path: &[u8]) -> Option<Dentry> {
        let mut at = Dentry {
            entry: Entry::Inode(self.top),
            covers: None,
        };
        for part in path
            .split(|&byte| byte == b'/')
            .filter(|part| !part.is_empty() && *part != b".")
        {
            let Entry::Inode(key) = at.entry else { return None };
            at = *self.get(&key)?.children()?.get(&Name::new(part))?;
        }
        Some(at)
    }

    /// The path in the lower layers that shows through the directory `key` of the upper (without a leading slash);
    /// `None` when nothing can.
    pub fn lower_path(&self, key: &FileKey) -> Option<Vec<u8>> {
        if *key == self.top {
            return Some(Vec::new());
        }
        let inode = self.get(key)?;
        if !inode.is_merged() {
            return None;
        }
        self.origin_path(inode)
    }

    /// The path in the lower layers that `inode` was copied up from, if its names still tell.
    pub fn origin_path(&self, inode: &Inode) -> Option<Vec<u8>> {
        let redirect = inode.overlay("redirect");
        if let Some(absolute) = redirect.and_then(|redirect| redirect.strip_prefix(b"/")) {
            return Some(absolute.to_vec());
        }
        let (parent, name) = inode.names.first()?;
        Some(join(&self.lower_path(parent)?, redirect.unwrap_or(&name.0)))
    }
}

/// `directory/name`, where the empty directory is the root.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        name.to_vec()
    } else {
        [directory, name].join(&b'/')
    }
}

/// The files of a checkpoint. Cheap to clone, immutable.
#[derive(Debug, Clone)]
pub struct Tree {
    /// The overlay's upper directory.
    pub root: Side,
    /// The box's `/dev/shm`, when it has one.
    pub shm: Option<Side>,
}

/// Where [`Tree::shm`] shows inside the box.
pub const SHM_PATH: &[u8] = b"dev/shm";

impl Tree {
    /// What an absolute path inside the box names in what was captured; `None` when the lower layers answer.
    pub fn lookup(&self, path: &[u8]) -> Option<(&Side, Dentry)> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        if let Some(shm) = &self.shm
            && let Some(rest) = path.strip_prefix(SHM_PATH)
            && (rest.is_empty() || rest.starts_with(b"/"))
        {
            return Some((shm, shm.lookup(rest)?));
        }
        Some((&self.root, self.root.lookup(path)?))
    }

    /// The inode behind [`Tree::lookup`].
    pub fn inode(&self, path: &[u8]) -> Option<&Inode> {
        match self.lookup(path)? {
            (
                side,
                Dentry {
                    entry: Entry::Inode(key),
                    ..
                },
            ) => side.get(&key),
            _ => None,
        }
    }

    /// Bytes of content that only this tree (and not `parent`) holds.
    pub fn own_bytes(&self, parent: Option<&Tree>) -> u64 {
        let of_side = |side: &Side, before: Option<&Side>| -> u64 {
            match before {
                None => side.inodes.values().map(|node| content_bytes(node, None)).sum(),
                Some(before) => before
                    .differences(side)
                    .map(|difference| match difference {
                        Difference::Added(_, inode) => content_bytes(inode, None),
                        Difference::Changed(_, old, new) => content_bytes(new, Some(old)),
                        Difference::Removed(..) => 0,
                    })
                    .sum(),
            }
        };
        let shm = self
            .shm
            .as_ref()
            .map_or(0, |shm| of_side(shm, parent.and_then(|parent| parent.shm.as_ref())));
        of_side(&self.root, parent.map(|parent| &parent.root)) + shm
    }

    /// Changes that a user of the box would see between `a` and `b`: `A`dded, `M`odified, `D`eleted, with the path
    /// inside the box, by path. The overlay's own bookkeeping is not a change. Directories whose times alone moved
    /// are left out.
    pub fn diff(a: &Tree, b: &Tree) -> Vec<(char, Vec<u8>)> {
        let mut found = BTreeMap::new();
        side_changes(&a.root, &b.root, b"/", &mut found);
        if let (Some(a), Some(b)) = (&a.shm, &b.shm) {
            side_changes(a, b, b"/dev/shm/", &mut found);
        }
        found.into_iter().map(|(path, change)| (change, path)).collect()
    }
}

fn content_bytes(inode: &Inode, before: Option<&Inode>) -> u64 {
    let Body::Regular(content) = &inode.body else { return 0 };
    if let Some(Body::Regular(old)) = before.map(|before| &before.body)
        && old.is_same(content)
    {
        return 0;
    }
    match content {
        Content::Bytes { bytes, .. } => bytes.len() as u64,
        Content::Blob(blob) => blob.allocated,
        Content::Lower(_) => 0,
    }
}

/// What a path means to a reader of the merged tree.
enum Seen<'a> {
    Nothing,
    /// What the lower layers hold; the inode of the upper that was made like it, if there is one.
    Lower(Option<&'a Inode>),
    Upper(&'a Inode),
}

/// What `path` shows in `side`, when the lower layers hold something there (`covers`) or not.
fn seen<'a>(side: &'a Side, path: &[u8], covers: bool) -> Seen<'a> {
    let mut at = (side.top, true);
    for part in path.split(|&byte| byte == b'/') {
        let Some(children) = side.get(&at.0).and_then(Inode::children) else {
            return Seen::Nothing;
        };
        match children.get(&Name::new(part)).map(|dentry| dentry.entry) {
            None if covers && at.1 => return Seen::Lower(None),
            None | Some(Entry::Whiteout) => return Seen::Nothing,
            Some(Entry::Inode(key)) => at = (key, side.get(&key).is_some_and(Inode::is_merged)),
        }
    }
    match side.get(&at.0) {
        Some(inode) if inode.as_lower => Seen::Lower(Some(inode)),
        Some(inode) => Seen::Upper(inode),
        None => Seen::Nothing,
    }
}

fn side_changes(a: &Side, b: &Side, prefix: &[u8], found: &mut BTreeMap<Vec<u8>, char>) {
    for (path, covers) in suspects(a, b) {
        let change = match (seen(a, &path, covers), seen(b, &path, covers)) {
            (Seen::Nothing, Seen::Nothing) | (Seen::Lower(_), Seen::Lower(_)) => continue,
            (Seen::Nothing, _) => 'A',
            (_, Seen::Nothing) => 'D',
            // A directory that was only copied up: what changed in it is looked at by itself.
            (Seen::Lower(_), Seen::Upper(inode)) | (Seen::Upper(inode), Seen::Lower(_)) if inode.is_merged() => {
                continue;
            }
            (Seen::Upper(old) | Seen::Lower(Some(old)), Seen::Upper(new) | Seen::Lower(Some(new)))
                if !differs_to_user(old, new) =>
            {
                continue;
            }
            _ => 'M',
        };
        let _none = found.insert([prefix, &path].concat(), change);
    }
}

/// Paths that may have changed, with whether the lower layers hold something there.
fn suspects(a: &Side, b: &Side) -> BTreeMap<Vec<u8>, bool> {
    let mut paths = BTreeMap::new();
    let none = OrdMap::new();
    let mut add = |side: &Side, parent: &FileKey, name: &Name, covers: bool| {
        if let Some(directory) = side.path(parent) {
            *paths.entry(join(&directory, &name.0)).or_insert(false) |= covers;
        }
    };
    for difference in a.differences(b) {
        let (key, old, new) = match difference {
            Difference::Added(key, inode) => (key, None, Some(inode)),
            Difference::Removed(key, inode) => (key, Some(inode), None),
            Difference::Changed(key, old, new) => (key, Some(old), Some(new)),
        };
        for (side, inode) in [(a, old), (b, new)] {
            for (parent, name) in inode.map(|inode| inode.names.as_slice()).unwrap_or_default() {
                add(side, parent, name, false);
            }
        }
        let names = |inode: Option<&Inode>| inode.and_then(Inode::children).cloned().unwrap_or_else(|| none.clone());
        for item in names(old).diff(&names(new)) {
            let (name, covers) = match item {
                DiffItem::Add(name, dentry) | DiffItem::Remove(name, dentry) => (name, dentry.covers.is_some()),
                DiffItem::Update { old, new } => (old.0, old.1.covers.is_some() || new.1.covers.is_some()),
            };
            for (side, inode) in [(a, old), (b, new)] {
                if inode.is_some() {
                    add(side, &key, name, covers);
                }
            }
        }
    }
    paths
}

/// True when a reader of the file could tell the two apart (a directory's names are looked at elsewhere).
fn differs_to_user(old: &Inode, new: &Inode) -> bool {
    let visible = |inode: &Inode| -> Xattrs {
        let mut xattrs = (*inode.xattrs).clone();
        xattrs.retain(|name, _| !name.starts_with(b"trusted.overlay."));
        xattrs
    };
    let (x, y) = (&old.attributes, &new.attributes);
    if (x.mode, x.uid, x.gid, x.rdev) != (y.mode, y.uid, y.gid, y.rdev) {
        return true;
    }
    if !Arc::ptr_eq(&old.xattrs, &new.xattrs) && visible(old) != visible(new) {
        return true;
    }
    match (&old.body, &new.body) {
        // Bytes of the lower layers are not at hand: size and time have to do.
        (Body::Regular(Content::Lower(_)), Body::Regular(b)) | (Body::Regular(b), Body::Regular(Content::Lower(_)))
            if !matches!(b, Content::Lower(_)) =>
        {
            (x.size, x.mtime) != (y.size, y.mtime)
        }
        (Body::Regular(a), Body::Regular(b)) => !a.is_same(b) || x.mtime != y.mtime,
        (Body::Symlink(a), Body::Symlink(b)) => a != b,
        _ => false,
    }
}
