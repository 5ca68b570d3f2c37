//! `ENGINE`: which engine made a store, as one line of text.
//!
//! Where it stands: written when a store is made, before its first manifest, and never changed; see
//! `docs/format/engine.md`. A store without the file was made before there was one, by `even`.
//! Always true: what is read was written whole, or is `Corrupted`.
//!
//! * **B-8** A store is opened by the engine that made it and by no other.

use std::io;

use crate::{Disk, Error, FileName, Result};

/// Most bytes of a name.
const NAME_BYTES_MAX: usize = 16;
/// A space, eight hexadecimal digits and the end of the line.
const ENDING_BYTES: usize = 10;

/// Writes the name into a store that is being made, over what an earlier attempt left. The caller makes the
/// name of the file durable.
///
/// Errors: `NoSpace`, `Io`, `Poisoned`.
pub fn write(disk: &dyn Disk, name: &str) -> Result<()> {
    let failed = |doing: &str, e| Error::io(doing, e).in_file(FileName::ENGINE);
    match disk.remove(FileName::ENGINE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("replace the engine's name", e)),
        _ => {}
    }
    let file =
        disk.create(FileName::ENGINE).map_err(|e| failed("create the file of the engine's name", e))?;
    file.write_all_at(0, line(name).as_bytes()).map_err(|e| failed("write the engine's name", e))?;
    file.sync().map_err(|e| failed("sync the engine's name", e))
}

/// The name that the store bears; none if there is no file.
///
/// Errors: `Corrupted`, `Io`.
pub fn read(disk: &dyn Disk) -> Result<Option<String>> {
    let failed = |e| Error::io("read the engine's name", e).in_file(FileName::ENGINE);
    let file = match disk.open(FileName::ENGINE) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A link, or a directory.
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(damaged(&e.to_string())),
        opened => opened.map_err(failed)?,
    };
    let mut bytes = [0; NAME_BYTES_MAX + ENDING_BYTES + 1];
    let len = file.read_full_at(0, &mut bytes).map_err(failed)?;
    let name = name_in(&bytes[..len]).ok_or_else(|| damaged("it is not a name and its checksum"))?;
    Ok(Some(name.to_owned()))
}

/// Refuses a store that bears the name of another engine than `own`.
///
/// Errors: `InvalidArgument`, and those of [`read`].
pub fn expect(disk: &dyn Disk, own: &str) -> Result<()> {
    match read(disk)? {
        Some(other) if other != own => Err(not_of(&disk.place(), &other, own)),
        Some(_) | None => Ok(()),
    }
}

/// The error of one who opens a store by another engine than made it.
pub fn not_of(place: &str, other: &str, own: &str) -> Error {
    let message = format!(
        "{place} holds a store of engine `{other}`, and was to be opened by engine `{own}`; name the engine that made it"
    );
    Error::invalid(message).by_setting("engine")
}

fn name_in(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.split(' ').next().filter(|name| is_name(name) && line(name) == text)
}

fn line(name: &str) -> String {
    format!("{name} {:08x}\n", crc32fast::hash(name.as_bytes()))
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn damaged(what: &str) -> Error {
    let advice = "remove the file, and the store is recognised by its other files";
    Error::corrupted(FileName::ENGINE, 0, format!("the engine's name is damaged ({what}); {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_each_damaged_bit_is_found() {
        let good = line("even").into_bytes();
        assert_eq!(good, b"even cf401f72\n");
        assert_eq!(name_in(&good), Some("even"));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(name_in(&bad), None, "bit {bit}");
        }
        for len in 0..good.len() {
            assert_eq!(name_in(&good[..len]), None, "{len} bytes");
        }
        assert_eq!(name_in(b"even cf401f72\n\n"), None);
        assert_eq!(name_in(line("Even").as_bytes()), None);
    }
}
