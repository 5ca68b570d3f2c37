//! One change of the root, and its bytes.
//!
//! Where it stands: a record of the manifest holds one edit. Always true: an edit decodes to what was
//! encoded, or is malformed; counts are believed only as far as bytes follow.

use kvilt_base::{FileName, Version, limits};

use crate::{
    coding::{Decoder, Malformed, push_prefixed, push_varint},
    header::HEADER_BYTES,
    names::{LOG, TABLE},
};

/// What kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// A sorted table.
    Table,
    /// A chunk's log.
    Log,
}

impl PartKind {
    /// The name of the file of this kind that has this number.
    pub fn name(self, number: u64) -> FileName {
        match self {
            PartKind::Table => FileName::Of(TABLE, number),
            PartKind::Log => FileName::Of(LOG, number),
        }
    }
}

/// What the root knows about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// What kind of file.
    pub kind: PartKind,
    /// Bytes of it that are durable: all of a table; a log may be longer.
    pub len: u64,
    /// A log's base version, which says its epoch; zero for a table.
    pub base: Version,
    /// Where in the durable bytes of a log its last summary lies, if it has one.
    pub summary: Option<u64>,
}

impl FileRecord {
    /// That of a table of so many bytes.
    pub fn table(len: u64) -> Self {
        FileRecord { kind: PartKind::Table, len, base: Version::ZERO, summary: None }
    }
}

/// One change of the root: what is none or empty stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// New value of [`super::Root::next_file`].
    pub next_file: Option<u64>,
    /// New value of [`super::Root::checkpoint`].
    pub checkpoint: Option<Version>,
    /// New value of [`super::Root::dead`], all of it.
    pub dead: Option<Vec<(Version, Version)>>,
    /// New value of [`super::Root::is_clean`].
    pub is_clean: Option<bool>,
    /// New value of [`super::Root::commit_first`].
    pub commit_first: Option<u64>,
    /// New value of [`super::Root::commit_is_begun`].
    pub commit_is_begun: Option<bool>,
    /// Files that are new, or have a new record. No file twice.
    pub files_upserted: Vec<(u64, FileRecord)>,
    /// Files that no chunk uses any more.
    pub files_removed: Vec<u64>,
    /// Chunks that are new, or have new files: first key, file numbers oldest to newest. No chunk twice.
    pub chunks_upserted: Vec<(Vec<u8>, Vec<u64>)>,
    /// First keys of chunks that are no more.
    pub chunks_removed: Vec<Vec<u8>>,
}

const NEXT_FILE: u8 = 1;
const CHECKPOINT: u8 = 2;
const DEAD: u8 = 3;
const IS_CLEAN: u8 = 4;
const COMMIT_FIRST: u8 = 5;
const FILE_UPSERTED: u8 = 6;
const FILE_REMOVED: u8 = 7;
const CHUNK_UPSERTED: u8 = 8;
const CHUNK_REMOVED: u8 = 9;
const COMMIT_IS_BEGUN: u8 = 10;

const TABLE_TAG: u8 = 0;
const LOG_TAG: u8 = 1;
const LOG_WITH_SUMMARY: u8 = 2;

impl Edit {
    /// Appends its encoding: fields, each behind its tag.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let scalars = [
            (NEXT_FILE, self.next_file),
            (CHECKPOINT, self.checkpoint.map(Version::to_u64)),
            (IS_CLEAN, self.is_clean.map(u64::from)),
            (COMMIT_FIRST, self.commit_first),
            (COMMIT_IS_BEGUN, self.commit_is_begun.map(u64::from)),
        ];
        for (tag, value) in scalars {
            if let Some(value) = value {
                out.push(tag);
                push_varint(out, value);
            }
        }
        if let Some(dead) = &self.dead {
            out.push(DEAD);
            push_varint(out, dead.len() as u64);
            for (after, before) in dead {
                push_varint(out, after.to_u64());
                push_varint(out, before.to_u64());
            }
        }
        for (number, record) in &self.files_upserted {
            out.push(FILE_UPSERTED);
            push_varint(out, *number);
            out.push(match (record.kind, record.summary) {
                (PartKind::Table, _) => TABLE_TAG,
                (PartKind::Log, None) => LOG_TAG,
                (PartKind::Log, Some(_)) => LOG_WITH_SUMMARY,
            });
            push_varint(out, record.len);
            push_varint(out, record.base.to_u64());
            if let (PartKind::Log, Some(summary)) = (record.kind, record.summary) {
                push_varint(out, summary);
            }
        }
        for number in &self.files_removed {
            out.push(FILE_REMOVED);
            push_varint(out, *number);
        }
        for (first_key, files) in &self.chunks_upserted {
            encode_chunk(out, first_key, files);
        }
        for first_key in &self.chunks_removed {
            out.push(CHUNK_REMOVED);
            push_prefixed(out, first_key);
        }
    }

    /// Undoes [`Edit::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Edit, Malformed> {
        let mut edit = Edit::default();
        let mut decoder = Decoder::new(bytes);
        while !decoder.is_empty() {
            edit.decode_field(&mut decoder)?;
        }
        Ok(edit)
    }

    fn decode_field(&mut self, decoder: &mut Decoder<'_>) -> Result<(), Malformed> {
        match decoder.u8()? {
            NEXT_FILE => set_once(&mut self.next_file, decoder.varint()?),
            CHECKPOINT => set_once(&mut self.checkpoint, version(decoder)?),
            DEAD => {
                let count = decoder.count(2)?;
                let dead = (0..count).map(|_| Ok((version(decoder)?, version(decoder)?)));
                let dead = dead.collect::<Result<_, Malformed>>()?;
                set_once(&mut self.dead, dead)
            }
            IS_CLEAN => set_once(&mut self.is_clean, flag(decoder)?),
            COMMIT_FIRST => set_once(&mut self.commit_first, decoder.varint()?),
            COMMIT_IS_BEGUN => set_once(&mut self.commit_is_begun, flag(decoder)?),
            FILE_UPSERTED => {
                let number = decoder.varint()?;
                let (kind, has_summary) = match decoder.u8()? {
                    TABLE_TAG => (PartKind::Table, false),
                    LOG_TAG => (PartKind::Log, false),
                    LOG_WITH_SUMMARY => (PartKind::Log, true),
                    _ => return Err(Malformed("a file has an unknown kind")),
                };
                let (len, base) = (decoder.varint()?, version(decoder)?);
                let summary = if has_summary { Some(decoder.varint()?) } else { None };
                if summary.is_some_and(|at| at < HEADER_BYTES as u64 || at >= len) {
                    return Err(Malformed("a summary does not lie in its log"));
                }
                self.files_upserted.push((number, FileRecord { kind, len, base, summary }));
                Ok(())
            }
            FILE_REMOVED => {
                self.files_removed.push(decoder.varint()?);
                Ok(())
            }
            CHUNK_UPSERTED => {
                let first_key = first_key(decoder)?;
                let count = decoder.count(1)?;
                let files = (0..count).map(|_| decoder.varint()).collect::<Result<_, _>>()?;
                self.chunks_upserted.push((first_key, files));
                Ok(())
            }
            CHUNK_REMOVED => {
                self.chunks_removed.push(first_key(decoder)?);
                Ok(())
            }
            _ => Err(Malformed("an edit has an unknown tag")),
        }
    }
}

/// Appends the encoding of a chunk that is new, or has new files.
pub(super) fn encode_chunk(out: &mut Vec<u8>, first_key: &[u8], files: &[u64]) {
    out.push(CHUNK_UPSERTED);
    push_prefixed(out, first_key);
    push_varint(out, files.len() as u64);
    files.iter().for_each(|number| push_varint(out, *number));
}

fn set_once<T>(field: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed("an edit sets a field twice")),
    }
}

fn flag(decoder: &mut Decoder<'_>) -> Result<bool, Malformed> {
    match decoder.varint()? {
        flag @ (0 | 1) => Ok(flag == 1),
        _ => Err(Malformed("a flag is neither 0 nor 1")),
    }
}

fn version(decoder: &mut Decoder<'_>) -> Result<Version, Malformed> {
    decoder.varint().map(Version::from_u64)
}

fn first_key(decoder: &mut Decoder<'_>) -> Result<Vec<u8>, Malformed> {
    let key = decoder.prefixed()?;
    if key.len() > limits::ENGINE_KEY_BYTES_MAX {
        return Err(Malformed("a chunk's first key exceeds its limit"));
    }
    Ok(key.to_vec())
}
