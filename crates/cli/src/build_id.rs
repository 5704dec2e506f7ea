//! Which build this program is: what tells it from another build of the same version. The linker's build id where the
//! program carries one (a note near its beginning, so that a short command reads one page), else a hash of the whole
//! file. A copy of a program is the same build; nothing here makes cargo build anything anew.

use std::fs::File;
use std::io::Read;

use crate::error::{CliError, Result};

/// The kernel's link to the file that runs, also when its path was given to another build meanwhile.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// How much of the file is searched for the note.
const HEAD_BYTES: u64 = 4096;

/// Bytes of a hash that stands in for a note: as many as the linker's.
const HASH_BYTES: usize = 20;

/// Digits that are enough for people.
const DIGITS_SHOWN: usize = 12;

/// The build of the running program, in hexadecimal.
pub(crate) fn own() -> Result<String> {
    let fail = |error: std::io::Error| CliError::io(OWN_PROGRAM, &error);
    let file = File::open(OWN_PROGRAM).map_err(fail)?;
    let mut head = Vec::new();
    (&file).take(HEAD_BYTES).read_to_end(&mut head).map_err(fail)?;
    if let Some(note) = build_note(&head) {
        return Ok(hexadecimal(note));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&head);
    hasher.update_reader(file).map_err(fail)?;
    Ok(hexadecimal(&hasher.finalize().as_bytes()[..HASH_BYTES]))
}

/// As much of a build as a person needs to tell it from another.
pub(crate) fn short(build: &str) -> &str {
    build.get(..DIGITS_SHOWN).unwrap_or(build)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The `NT_GNU_BUILD_ID` note of a 64-bit little-endian ELF file, when it lies within `head`.
fn build_note(head: &[u8]) -> Option<&[u8]> {
    const PT_NOTE: u32 = 4;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = usize::try_from(u64_at(head, 32)?).ok()?;
    let (entry_size, entry_count) = (usize::from(u16_at(head, 54)?), usize::from(u16_at(head, 56)?));
    (0..entry_count).find_map(|index| {
        let entry = head.get(table.checked_add(index * entry_size)?..)?;
        if u32_at(entry, 0)? != PT_NOTE {
            return None;
        }
        let offset = usize::try_from(u64_at(entry, 8)?).ok()?;
        let size = usize::try_from(u64_at(entry, 32)?).ok()?;
        build_of(head.get(offset..offset.checked_add(size)?)?)
    })
}

/// The one among the notes of a segment.
fn build_of(mut notes: &[u8]) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    const NOTE_HEAD_BYTES: usize = 12;
    loop {
        let name_size = usize::try_from(u32_at(notes, 0)?).ok()?;
        let size = usize::try_from(u32_at(notes, 4)?).ok()?;
        let kind = u32_at(notes, 8)?;
        let name = notes.get(NOTE_HEAD_BYTES..)?.get(..name_size)?;
        let rest = notes[NOTE_HEAD_BYTES..].get(name_size.next_multiple_of(4)..)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && size > 0 {
            return rest.get(..size);
        }
        notes = rest.get(size.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().copied().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, text: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [name.len(), text.len()] {
            note.extend(u32::try_from(number).unwrap().to_le_bytes());
        }
        note.extend(kind.to_le_bytes());
        for part in [name, text] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    fn program(notes: &[u8]) -> Vec<u8> {
        let mut head = b"\x7fELF\x02\x01".to_vec();
        head.resize(64 + 56, 0);
        head[32] = 64;
        head[54] = 56;
        head[56] = 1;
        head[64] = 4;
        head[64 + 8] = 120;
        head[64 + 32] = u8::try_from(notes.len()).unwrap();
        head.extend(notes);
        head
    }

    #[test]
    fn the_linkers_note_is_found_among_others() {
        let others = [note(b"GNU\0", 1, b"abi"), note(b"Go\0", 3, b"other")].concat();
        let with = [&others[..], &note(b"GNU\0", 3, b"\x01\xab")].concat();
        assert_eq!(build_note(&program(&with)), Some(&b"\x01\xab"[..]));
        assert_eq!(build_note(&program(&others)), None);
        assert_eq!(build_note(b"#!/bin/sh\n"), None);
        let whole = program(&with);
        for cut in 0..whole.len() {
            assert_eq!(build_note(&whole[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn every_program_has_one() {
        let own = own().unwrap();
        assert!(
            own.len() >= DIGITS_SHOWN && own.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{own}"
        );
        assert_eq!(short(&own).len(), DIGITS_SHOWN);
    }
}
