//! Bytes of regular files: reading them into a [`Content`], and making a file in place have the bytes of one, writing
//! only what differs. The inode stays, so descriptors and mappings of it see the result.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use image::tree::Content;
use linux::reflink::{clone_file, data_ranges, punch_hole, read_at, write_at};
use rustix::fs::SeekFrom;

use crate::Result;
use crate::attributes::{Stat, failed, stat};
use crate::blob::BlobDir;

/// Files up to this size are kept in memory; larger ones in the blob directory.
pub(crate) const SMALL_BYTES_MAX: u64 = 128 << 10;

/// Differences are found and written in units of this size.
const UNIT: usize = 4096;

/// Reads `file`; shares with `before` when nothing changed. Returns the bytes read too.
pub(crate) fn read(
    file: impl AsFd,
    stat: &Stat,
    before: Option<&Content>,
    scratch: &mut Vec<u8>,
    blobs: &mut BlobDir,
) -> Result<(Content, u64)> {
    let size = stat.attributes.size;
    if size > SMALL_BYTES_MAX {
        return Ok((Content::Blob(blobs.keep(file, size)?), size));
    }
    let length = usize::try_from(size).expect("small files fit");
    if scratch.len() < length {
        scratch.resize(length, 0);
    }
    let read = read_at(&file, &mut scratch[..length], 0)?;
    let bytes = &scratch[..read];
    let data = holes_of(&file, size)?;
    if let Some(Content::Bytes {
        bytes: old,
        data: old_data,
    }) = before
        && **old == *bytes
    {
        let content = Content::Bytes {
            bytes: old.clone(),
            data: if *old_data == data { old_data.clone() } else { data },
        };
        return Ok((content, size));
    }
    Ok((
        Content::Bytes {
            bytes: bytes.into(),
            data,
        },
        size,
    ))
}

/// The ranges that hold data, when there are holes. (The number of allocated blocks does not tell: ext4 counts a block
/// of extended attributes among them.)
fn holes_of(file: impl AsFd, size: u64) -> Result<Option<Arc<[Range<u64>]>>> {
    if size == 0 {
        return Ok(None);
    }
    let first = rustix::fs::seek(&file, SeekFrom::Hole(0)).map_err(failed("lseek SEEK_HOLE", b"file"))?;
    if first >= size {
        return Ok(None);
    }
    Ok(Some(data_ranges(&file, size)?.into()))
}

/// Where the bytes to restore come from.
pub(crate) enum Source<'a> {
    /// Memory, with the allocated ranges when there are holes.
    Bytes(&'a [u8], Option<&'a [Range<u64>]>),
    /// An open file of ours or of the lower layers.
    File(OwnedFd),
}

/// Makes `file` (open for reading and writing) have the content of `source`. `known` are the bytes it has now, when
/// a capture has just read them. Returns the bytes written.
pub(crate) fn write(file: impl AsFd, source: &Source<'_>, known: Option<&[u8]>, sparse: bool) -> Result<u64> {
    let file = file.as_fd();
    match source {
        Source::Bytes(bytes, data) => {
            let now = stat(file)?;
            let size = bytes.len() as u64;
            let read_now;
            let known = match known {
                Some(known) => known,
                None => {
                    let mut buffer = vec![0; bytes.len()];
                    let length = read_at(file, &mut buffer, 0)?;
                    buffer.truncate(length);
                    read_now = buffer;
                    &read_now
                }
            };
            let mut written = write_differing(file, known, bytes, 0)?;
            if now.attributes.size != size {
                set_length(file, size)?;
                written = written.max(1);
            }
            if let Some(data) = data.filter(|_| sparse) {
                make_holes(file, data, size)?;
            }
            Ok(written)
        }
        Source::File(source) => write_file(file, source, sparse),
    }
}

/// Writes the units of `wanted` that differ from `known`, both starting at `offset` of the file. Stores nothing past
/// the end of `wanted`, and leaves cutting to the caller.
fn write_differing(file: impl AsFd, known: &[u8], wanted: &[u8], offset: u64) -> Result<u64> {
    let mut written = 0;
    let mut start = 0;
    while start < wanted.len() {
        let unit = |at: usize| at..(at + UNIT).min(wanted.len());
        let same = |range: Range<usize>| known.get(range.clone()) == Some(&wanted[range]);
        if same(unit(start)) {
            start += UNIT;
            continue;
        }
        let mut end = unit(start).end;
        while end < wanted.len() && !same(unit(end)) {
            end = unit(end).end;
        }
        write_at(&file, &wanted[start..end], offset + start as u64)?;
        written += (end - start) as u64;
        start = end;
    }
    Ok(written)
}

fn set_length(file: impl AsFd, size: u64) -> Result<()> {
    Ok(rustix::fs::ftruncate(file, size).map_err(failed("ftruncate", b"file"))?)
}

/// Makes everything outside `data` a hole, as far as it is not one already.
fn make_holes(file: impl AsFd, data: &[Range<u64>], size: u64) -> Result<()> {
    let mut hole_start = 0;
    // A block is given back only whole: the last hole goes past the end (the length stays).
    let end = size.next_multiple_of(1 << 16);
    for range in data.iter().cloned().chain(std::iter::once(end..end)) {
        punch_hole(&file, hole_start..range.start)?;
        hole_start = range.end;
    }
    Ok(())
}

/// Makes `file` like the open file `source`: by sharing its extents where the file system can (mappings fault the
/// new bytes in again), else by comparing and writing what differs.
fn write_file(file: impl AsFd, source: impl AsFd, sparse: bool) -> Result<u64> {
    let size = stat(&source)?.attributes.size;
    if sparse && size > SMALL_BYTES_MAX && clone_file(&source, &file).is_ok() {
        set_length(&file, size)?;
        return Ok(size);
    }
    let mut written = 0;
    if stat(&file)?.attributes.size != size {
        set_length(&file, size)?;
        written = 1;
    }
    let ranges = if sparse {
        data_ranges(&source, size)?
    } else {
        std::iter::once(0..size).collect()
    };
    let mut wanted = vec![0; 256 << 10];
    let mut known = vec![0; 256 << 10];
    for range in &ranges {
        let mut at = range.start;
        while at < range.end {
            let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(wanted.len());
            let length = read_at(&source, &mut wanted[..want], at)?;
            if length == 0 {
                break;
            }
            let have = read_at(&file, &mut known[..length], at)?;
            written += write_differing(&file, &known[..have], &wanted[..length], at)?;
            at += length as u64;
        }
    }
    if sparse && ranges.first() != Some(&(0..size)) {
        make_holes(&file, &ranges, size)?;
    }
    Ok(written)
}
