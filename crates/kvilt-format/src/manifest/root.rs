//! The root: everything that is durable, in one value.
//!
//! Where it stands: in memory as long as the store is open, equal to what the manifest says. Always true,
//! after every successful [`Root::apply`]: there is a chunk whose first key is empty; chunks name known files
//! only; a known file has a number below `next_file`; the checkpoint never goes back. A failed apply changes
//! nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use kvilt_base::{Error, ErrorKind, Result, Version};

use super::edit::{Edit, FileRecord, encode_chunk};
use crate::coding::VARINT_BYTES_MAX;

/// What is durable. Read its fields; change it by [`Root::apply`] alone, which keeps count of who uses a
/// file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Chosen at random when the store was made; in the header of every file.
    pub store_id: u64,
    /// The next file to be made has this number. Numbers are never used twice.
    pub next_file: u64,
    /// Everything written up to this version is durable in the files below.
    pub checkpoint: Version,
    /// Pairs (`a`, `b`): versions `v` with `a < v < b` were lost in a crash and are ignored wherever they are
    /// found.
    pub dead: Vec<(Version, Version)>,
    /// Whether the store was closed after the last checkpoint, so that nothing was written since.
    pub is_clean: bool,
    /// Commit logs with smaller numbers are obsolete; zero if there are none.
    pub commit_first: u64,
    /// Whether the commit log with that number was there, its name and its header durable, when this became
    /// the root: then it is missed if it is not.
    pub commit_is_begun: bool,
    /// The live tables and logs, by number.
    pub files: BTreeMap<u64, FileRecord>,
    /// The chunks: first key → file numbers, oldest to newest. A chunk ends where the next one begins.
    pub chunks: BTreeMap<Vec<u8>, Vec<u64>>,
    /// How many chunks use each file; files that none uses are left out.
    users: HashMap<u64, u32>,
}

impl Root {
    /// The root of a new store: one chunk without files, which holds every key.
    pub fn new(store_id: u64) -> Root {
        let chunks = BTreeMap::from([(Vec::new(), Vec::new())]);
        Root { store_id, next_file: 1, chunks, ..Root::default() }
    }

    /// Before the first edit; what a reader starts from.
    pub(super) fn nothing(store_id: u64) -> Root {
        Root { store_id, ..Root::default() }
    }

    /// How many chunks use this file.
    pub fn users(&self, file: u64) -> u32 {
        self.users.get(&file).copied().unwrap_or(0)
    }

    /// The edit that makes this root out of nothing: the first one of a fresh manifest.
    pub fn to_edit(&self) -> Edit {
        let chunks = self.chunks.iter().map(|(key, files)| (key.clone(), files.clone()));
        Edit { chunks_upserted: chunks.collect(), ..self.to_edit_but_chunks() }
    }

    /// Appends the encoding of [`Root::to_edit`]; copies no chunk for it.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.to_edit_but_chunks().encode(out);
        self.chunks.iter().for_each(|(key, files)| encode_chunk(out, key, files));
    }

    /// More bytes than that takes.
    pub(super) fn encoded_bytes_max(&self) -> usize {
        const NUMBERS: usize = 5 * VARINT_BYTES_MAX;
        let chunk = |(key, files): (&Vec<u8>, &Vec<u64>)| key.len() + (files.len() + 2) * VARINT_BYTES_MAX;
        self.chunks.iter().map(chunk).sum::<usize>() + (self.files.len() + self.dead.len() + 4) * NUMBERS
    }

    fn to_edit_but_chunks(&self) -> Edit {
        Edit {
            next_file: Some(self.next_file),
            checkpoint: Some(self.checkpoint),
            dead: Some(self.dead.clone()),
            is_clean: Some(self.is_clean),
            commit_first: Some(self.commit_first),
            commit_is_begun: self.commit_is_begun.then_some(true),
            files_upserted: self.files.iter().map(|(number, record)| (*number, *record)).collect(),
            files_removed: Vec::new(),
            chunks_upserted: Vec::new(),
            chunks_removed: Vec::new(),
        }
    }

    /// Makes the change, in time proportional to the edit. Removals of chunks come before upserts, removals
    /// of files last.
    ///
    /// Errors: `Corrupted`, and nothing is changed, if what came out would not be a root, or if the edit
    /// removes what is not there.
    pub fn apply(&mut self, edit: &Edit) -> Result<()> {
        self.check_scalars(edit)?;
        let upserted = files_of(edit)?;
        let chunks = self.chunk_changes(edit)?;
        let user_changes = self.user_changes(&chunks, &upserted, edit)?;
        self.check_removed(edit, &upserted, &user_changes)?;
        if !chunks.get([].as_slice()).map_or_else(|| self.chunks.contains_key([].as_slice()), Option::is_some)
        {
            return Err(wrong("no chunk begins at the empty key".into()));
        }
        let chunks: Vec<_> = chunks.into_iter().map(|(key, files)| (key, files.cloned())).collect();

        self.next_file = edit.next_file.unwrap_or(self.next_file);
        self.checkpoint = edit.checkpoint.unwrap_or(self.checkpoint);
        if let Some(dead) = &edit.dead {
            self.dead.clone_from(dead);
        }
        self.is_clean = edit.is_clean.unwrap_or(self.is_clean);
        self.commit_first = edit.commit_first.unwrap_or(self.commit_first);
        self.commit_is_begun = edit.commit_is_begun.unwrap_or(self.commit_is_begun);
        self.files.extend(upserted);
        for (key, files) in chunks {
            match files {
                Some(files) => self.chunks.insert(key.to_vec(), files),
                None => self.chunks.remove(key),
            };
        }
        for (file, users) in user_changes {
            match users {
                0 => self.users.remove(&file),
                _ => self.users.insert(file, users),
            };
        }
        for file in &edit.files_removed {
            self.files.remove(file);
        }
        Ok(())
    }

    fn check_scalars(&self, edit: &Edit) -> Result<()> {
        let next_file = edit.next_file.unwrap_or(self.next_file);
        if next_file < self.next_file {
            return Err(wrong(format!("the next file goes back from {} to {next_file}", self.next_file)));
        }
        if let Some(checkpoint) = edit.checkpoint
            && checkpoint < self.checkpoint
        {
            return Err(wrong(format!("the checkpoint goes back from {} to {checkpoint}", self.checkpoint)));
        }
        if let Some((after, before)) = edit.dead.iter().flatten().find(|(after, before)| after >= before) {
            return Err(wrong(format!("dead versions {after} to {before} are no range")));
        }
        match edit.files_upserted.iter().find(|(number, _)| *number >= next_file) {
            Some((number, _)) => Err(wrong(format!("file {number} is not below the next file {next_file}"))),
            None => Ok(()),
        }
    }

    /// What becomes of each chunk that the edit names: its files, or none if it goes.
    fn chunk_changes<'e>(&self, edit: &'e Edit) -> Result<BTreeMap<&'e [u8], Option<&'e Vec<u64>>>> {
        let mut changes = BTreeMap::new();
        for key in &edit.chunks_removed {
            let is_twice = changes.insert(key.as_slice(), None).is_some();
            if is_twice || !self.chunks.contains_key(key) {
                return Err(wrong(format!("the chunk \"{}\" cannot be removed", key.escape_ascii())));
            }
        }
        for (key, files) in &edit.chunks_upserted {
            if let Some(Some(_)) = changes.insert(key.as_slice(), Some(files)) {
                return Err(wrong(format!("the chunk \"{}\" is given twice", key.escape_ascii())));
            }
        }
        Ok(changes)
    }

    /// The new number of users of each file that the chunks' changes concern.
    fn user_changes(
        &self,
        chunks: &BTreeMap<&[u8], Option<&Vec<u64>>>,
        upserted: &BTreeMap<u64, FileRecord>,
        edit: &Edit,
    ) -> Result<HashMap<u64, u32>> {
        let removed: HashSet<u64> = edit.files_removed.iter().copied().collect();
        let mut changes: HashMap<u64, u32> = HashMap::new();
        for (key, new_files) in chunks {
            for &file in self.chunks.get(*key).into_iter().flatten() {
                let users = changes.entry(file).or_insert_with(|| self.users(file));
                *users = users.checked_sub(1).ok_or_else(|| wrong(format!("file {file} lost its users")))?;
            }
            for &file in new_files.iter().copied().flatten() {
                if !upserted.contains_key(&file) && !self.files.contains_key(&file) || removed.contains(&file)
                {
                    let key = key.escape_ascii();
                    return Err(wrong(format!("the chunk \"{key}\" names file {file}, which is not known")));
                }
                let users = changes.entry(file).or_insert_with(|| self.users(file));
                *users =
                    users.checked_add(1).ok_or_else(|| wrong(format!("file {file} is used too often")))?;
            }
        }
        Ok(changes)
    }

    fn check_removed(
        &self,
        edit: &Edit,
        upserted: &BTreeMap<u64, FileRecord>,
        user_changes: &HashMap<u64, u32>,
    ) -> Result<()> {
        let mut seen = HashSet::new();
        for file in &edit.files_removed {
            if !seen.insert(file) || upserted.contains_key(file) || !self.files.contains_key(file) {
                return Err(wrong(format!("file {file} cannot be removed")));
            }
            let users = user_changes.get(file).copied().unwrap_or_else(|| self.users(*file));
            if users > 0 {
                return Err(wrong(format!("file {file} is removed while {users} chunks use it")));
            }
        }
        Ok(())
    }
}

fn files_of(edit: &Edit) -> Result<BTreeMap<u64, FileRecord>> {
    let mut files = BTreeMap::new();
    for (number, record) in &edit.files_upserted {
        if files.insert(*number, *record).is_some() {
            return Err(wrong(format!("file {number} is given twice")));
        }
    }
    Ok(files)
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::Corrupted, format!("a manifest edit does not fit: {what}"))
}
