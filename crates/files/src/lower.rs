//! What the read-only lower layers of the overlay hold under a path, found the way the overlay finds it: top layer
//! first, whiteouts and opaque directories end the search. They never change, so answers stay true.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use image::tree::{Covered, S_IFDIR, S_IFMT};
use linux::SysError;
use linux::openat::{handle_of, open_beneath};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::Result;
use crate::attributes::{is_whiteout, key_of, overlay_xattr};

/// The lower layers, topmost first; none for `/dev/shm`.
#[derive(Debug)]
pub(crate) struct Lower {
    layers: Vec<OwnedFd>,
}

/// One lower object, open as `O_PATH`.
pub(crate) struct Found {
    pub(crate) fd: OwnedFd,
    pub(crate) mode: u32,
    /// Layer it is in and its path there (a redirect may have changed it).
    pub(crate) layer: usize,
    pub(crate) path: Vec<u8>,
}

impl Lower {
    pub(crate) fn new(layers: Vec<OwnedFd>) -> Self {
        Self { layers }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Identity and kind of what `path` shows, if anything.
    pub(crate) fn covered(&self, path: &[u8]) -> Result<Option<Covered>> {
        let Some(found) = self.find(path)? else { return Ok(None) };
        let key = key_of(handle_of(&found.fd, b"")?);
        Ok(Some(Covered {
            key,
            is_dir: found.mode & S_IFMT == S_IFDIR,
        }))
    }

    /// What `path` (no leading slash; empty: the root) shows.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Option<Found>> {
        if let [only] = self.layers.as_slice() {
            return Ok(open_if_there(only, path)?.map(|(fd, mode)| Found {
                fd,
                mode,
                layer: 0,
                path: path.to_vec(),
            }));
        }
        self.find_from(0, path)
    }

    /// The same in the layers from `first` on.
    fn find_from(&self, first: usize, path: &[u8]) -> Result<Option<Found>> {
        'layers: for (index, layer) in self.layers.iter().enumerate().skip(first) {
            // Walk the parents: a whiteout or an opaque directory in this layer hides the same path in those below.
            let mut at: Vec<u8> = Vec::new();
            let mut opaque = false;
            let parts: Vec<&[u8]> = path
                .split(|&byte| byte == b'/')
                .filter(|part| !part.is_empty())
                .collect();
            for (depth, part) in parts.iter().enumerate() {
                at = image::tree::join(&at, part);
                let Some((fd, mode)) = open_if_there(layer, &at)? else {
                    if opaque {
                        return Ok(None);
                    }
                    continue 'layers;
                };
                if is_whiteout(&fd, mode)? {
                    return Ok(None);
                }
                let is_last = depth + 1 == parts.len();
                if is_last {
                    return Ok(Some(Found {
                        fd,
                        mode,
                        layer: index,
                        path: at,
                    }));
                }
                if mode & S_IFMT != S_IFDIR {
                    return Ok(None);
                }
                if let Some(redirect) = overlay_xattr(&fd, "redirect") {
                    // Below this layer the directory has another name; in this one it has this.
                    if open_if_there(layer, path)?.is_none() {
                        let base = match redirect.strip_prefix(b"/") {
                            Some(absolute) => absolute.to_vec(),
                            None => {
                                let cut = at.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                                image::tree::join(&at[..cut], &redirect)
                            }
                        };
                        let rest = parts[depth + 1..].join(&b'/');
                        return self.find_from(index + 1, &image::tree::join(&base, &rest));
                    }
                }
                opaque |= overlay_xattr(&fd, "opaque").as_deref() == Some(b"y");
            }
            if parts.is_empty() {
                let Some((fd, mode)) = open_if_there(layer, b"")? else {
                    continue;
                };
                return Ok(Some(Found {
                    fd,
                    mode,
                    layer: index,
                    path: Vec::new(),
                }));
            }
        }
        Ok(None)
    }

    /// Names in the directory that `path` shows, of all layers. (Not those of layers below one in which the directory
    /// has another name: redirects are followed for a path, not for a list.)
    pub(crate) fn names(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut candidates = BTreeSet::new();
        for layer in &self.layers {
            match open_beneath(layer, path, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(directory) => candidates.extend(crate::blob::names_in(&directory)?),
                Err(error) if is_nothing(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.layers.len() == 1 {
            return Ok(candidates.into_iter().collect());
        }
        let mut names = Vec::new();
        for name in candidates {
            if self.find(&image::tree::join(path, &name))?.is_some() {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Opens the content of a found regular file or directory.
    pub(crate) fn reopen(&self, found: &Found, flags: OFlags) -> Result<OwnedFd> {
        Ok(open_beneath(&self.layers[found.layer], &found.path, flags)?)
    }
}

fn open_if_there(layer: &OwnedFd, path: &[u8]) -> Result<Option<(OwnedFd, u32)>> {
    match open_beneath(layer, path, OFlags::PATH) {
        Ok(fd) => {
            let stat = crate::attributes::stat(&fd)?;
            Ok(Some((fd, stat.mode)))
        }
        Err(error) if is_nothing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// No such thing below this root; or a link or a file in the middle of the path, and nothing is under those.
fn is_nothing(error: &SysError) -> bool {
    let others = [Errno::LOOP, Errno::NOTDIR, Errno::XDEV];
    error.is_gone() || others.iter().any(|errno| errno.raw_os_error() == error.errno)
}
