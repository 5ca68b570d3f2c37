//! `Likeness`: to whom the files of a store belong and who else may use them, for the files that come to it.
//!
//! Who writes to a store may be another user than its owner: root, or one of its group. What he makes must be
//! of as much use to the owner as what was there before; else one command run by root locks the owner out of
//! his own store.
//!
//! What is always true: a file is never open to anybody to whom those before it were not.

use std::{io, os::fd::OwnedFd};

use rustix::{
    fs::{self, AtFlags, FileType, Gid, Mode, Stat, Uid},
    io::{Errno, retry_on_intr},
};

/// What a mode says of reading and writing.
const ACCESS: u32 = 0o666;
/// What it says of the group.
const GROUP_ACCESS: u32 = 0o060;
/// Of its owner's access nothing is taken: he has to open the file again.
const OWNERS_ACCESS: u32 = 0o600;

/// Owner, group and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Likeness {
    owner: u32,
    group: u32,
    mode: u32,
}

impl Likeness {
    /// That of a file of the store, if `name` is one.
    pub(super) fn of_file(directory: &OwnedFd, name: &str) -> io::Result<Option<Likeness>> {
        match retry_on_intr(|| fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Ok(Some(Likeness::of(&stat, stat.st_mode & ACCESS | OWNERS_ACCESS)))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// For the first file in a directory: it belongs to whom that belongs, and is nobody else's to use. A
    /// directory made by `mkdir` lets everybody in, and that is no reason to show them rows.
    pub(super) fn of_first_in(directory: &OwnedFd) -> io::Result<Likeness> {
        Ok(Likeness::of(&retry_on_intr(|| fs::fstat(directory))?, OWNERS_ACCESS))
    }

    /// That of a directory itself.
    pub(super) fn of_directory(directory: &OwnedFd) -> io::Result<Likeness> {
        let stat = retry_on_intr(|| fs::fstat(directory))?;
        Ok(Likeness::of(&stat, stat.st_mode & Mode::all().bits()))
    }

    fn of(stat: &Stat, mode: u32) -> Likeness {
        Likeness { owner: stat.st_uid, group: stat.st_gid, mode }
    }

    /// Makes a file or a directory that was just made, for its maker alone, like this, as far as the maker
    /// may. To give it to another takes a privilege; who has none keeps it.
    pub(super) fn give_to(self, made: &OwnedFd) -> io::Result<()> {
        let mut stat = retry_on_intr(|| fs::fstat(made))?;
        if (stat.st_uid, stat.st_gid) != (self.owner, self.group) {
            let owner = (stat.st_uid != self.owner).then(|| Uid::from_raw(self.owner));
            let group = Some(Gid::from_raw(self.group));
            // Who may not give it away may be of the group all the same.
            match fs::fchown(made, owner, group) {
                Err(refused) if is_refusal(refused) => match fs::fchown(made, None, group) {
                    Err(refused) if is_refusal(refused) => {}
                    outcome => outcome?,
                },
                outcome => outcome?,
            }
            stat = retry_on_intr(|| fs::fstat(made))?;
        }
        let is_of_group = stat.st_gid == self.group;
        let mode = if is_of_group { self.mode } else { self.mode & !GROUP_ACCESS };
        if stat.st_mode & Mode::all().bits() != mode {
            match fs::fchmod(made, Mode::from_bits_truncate(mode)) {
                Err(refused) if is_refusal(refused) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// Not allowed; or a file system that knows no owners.
fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)
}
