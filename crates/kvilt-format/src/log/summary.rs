//! A summary: of the records before it in a log, all but their values.
//!
//! Where it stands: now and then the engine appends one between the entries, so that who wants to know where
//! the keys of a long log lie, after an open above all, need not read their values. Each says where those
//! before it lie; the manifest knows the last. Always true: a summary tells of the records of a stretch that
//! ends where it begins, of all of them, in their order; and the one before it lies before that stretch, so
//! that the way back ends. Format: `docs/format/log.md`.

use std::ops::Range;

use kvilt_base::{EntryRef, Kind, Version, key::shared_prefix_len, limits};

use super::{
    CHECKSUM_BYTES, Frame, HEADER_BYTES, KIND_MASK, RECORD_BYTES_MIN, SUMMARY, decode_frame, entry_of,
};
use crate::{
    FileIdentity,
    checksum::checksum,
    coding::{Decoder, Malformed, VARINT_BYTES_MAX, push_prefixed, push_varint},
};

/// Most bytes of a summary's body.
pub const SUMMARY_BODY_BYTES_MAX: usize = 1 << 20;

/// Most bytes of a summary.
pub const SUMMARY_BYTES_MAX: usize = CHECKSUM_BYTES + 1 + VARINT_BYTES_MAX + SUMMARY_BODY_BYTES_MAX;

/// A summary says where so many of those before it lie, at most.
pub const EARLIER_MAX: usize = 64;

/// Memory for outlines that stays when they are forgotten, at most.
const KEPT_BYTES: usize = 16 << 10;

/// The kind of a record takes so many bits of its length.
const KIND_BITS: u32 = 2;

/// All of a record but its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline<'a> {
    /// Where the record lies.
    pub offset: u64,
    /// What the entry does.
    pub kind: Kind,
    /// The entry's key.
    pub key: &'a [u8],
    /// The entry's version.
    pub version: Version,
}

/// Gathers outlines for the next summary.
#[derive(Debug)]
pub struct Outlines {
    base: Version,
    bytes: Vec<u8>,
    last_key: Vec<u8>,
    covered_bytes: u64,
}

impl Outlines {
    /// None yet, of a log with this base version.
    pub fn new(base: Version) -> Self {
        Outlines { base, bytes: Vec::new(), last_key: Vec::new(), covered_bytes: 0 }
    }

    /// Adds the outlines of the next records, which these bytes are, as
    /// [`encode_record`](super::encode_record) made them.
    ///
    /// Panics if they are anything else.
    pub fn push_records(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Ok(Frame::Entry(head)) = decode_frame(bytes, self.base) else {
                panic!("records that were encoded here can be decoded")
            };
            let (record, behind) = bytes.split_at(head.record_len());
            self.push(&entry_of(record, &head), record.len());
            bytes = behind;
        }
    }

    fn push(&mut self, entry: &EntryRef<'_>, record_len: usize) {
        let shared = shared_prefix_len(&self.last_key, entry.key);
        self.bytes.reserve(4 * VARINT_BYTES_MAX + entry.key.len());
        push_varint(&mut self.bytes, (record_len as u64) << KIND_BITS | u64::from(entry.kind as u8));
        push_varint(&mut self.bytes, entry.version.to_u64() - self.base.to_u64());
        push_varint(&mut self.bytes, shared as u64);
        push_prefixed(&mut self.bytes, &entry.key[shared..]);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&entry.key[shared..]);
        self.covered_bytes += record_len as u64;
    }

    /// Bytes of the outlines.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of the records that they are of.
    pub fn covered_bytes(&self) -> u64 {
        self.covered_bytes
    }

    /// Memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.last_key.capacity()
    }

    /// Forgets them, and keeps their memory for the next ones, if it is no more than these will need: a batch
    /// of very many rows leaves none, and a long key neither.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.last_key.clear();
        self.last_key.shrink_to(KEPT_BYTES);
        self.covered_bytes = 0;
    }

    /// The summary, to be appended to the log of this identity at `offset`, where the last of the records
    /// ends. `earlier` is where those before it lie, newest first, of which it tells [`EARLIER_MAX`].
    ///
    /// Panics if the outlines have more bytes than a summary may.
    pub fn summary(&self, id: FileIdentity, offset: u64, earlier: impl Iterator<Item = u64>) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.bytes.len() + 4 * VARINT_BYTES_MAX);
        let mut behind = offset;
        for at in earlier.take(EARLIER_MAX) {
            push_varint(&mut body, behind - at);
            behind = at;
        }
        push_varint(&mut body, 0);
        push_varint(&mut body, self.covered_bytes);
        body.extend_from_slice(&self.bytes);
        assert!(body.len() <= SUMMARY_BODY_BYTES_MAX, "whoever gathers stops before");
        let mut record = Vec::with_capacity(CHECKSUM_BYTES + 1 + VARINT_BYTES_MAX + body.len());
        record.extend_from_slice(&[0; CHECKSUM_BYTES]);
        record.push(SUMMARY);
        push_prefixed(&mut record, &body);
        let sum = checksum(id.salt(offset), &record[CHECKSUM_BYTES..]);
        record[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
        record
    }
}

/// A summary as it was read.
#[derive(Debug)]
pub struct Summary {
    record: Vec<u8>,
    /// Where the outlines begin in it.
    outlines: usize,
    base: Version,
    covered: Range<u64>,
    earlier: Vec<u64>,
}

impl Summary {
    /// Of the bytes of a whole summary that lies at `offset`, for which
    /// [`decode_record`](super::decode_record) said that they are one.
    ///
    /// Errors: what is wrong with it, though its checksum is right.
    pub fn decode(record: Vec<u8>, offset: u64, base: Version) -> Result<Summary, Malformed> {
        let mut decoder = Decoder::at(&record, CHECKSUM_BYTES + 1);
        decoder.varint()?;
        let mut earlier = Vec::new();
        while let back = decoder.varint()?
            && back > 0
        {
            let behind = earlier.last().copied().unwrap_or(offset);
            let at = behind.checked_sub(back).filter(|at| *at >= HEADER_BYTES as u64);
            earlier.push(at.ok_or(Malformed("a summary is said to lie before the first record"))?);
            if earlier.len() > EARLIER_MAX {
                return Err(Malformed("a summary names too many others"));
            }
        }
        let covered_bytes = decoder.varint()?;
        let from = offset.checked_sub(covered_bytes).filter(|from| *from >= HEADER_BYTES as u64);
        let from = from.ok_or(Malformed("a summary tells of more than lies before it"))?;
        if earlier.first().is_some_and(|before| *before >= from) {
            return Err(Malformed("a summary is not behind the one before it"));
        }
        let outlines = decoder.position();
        let summary = Summary { record, outlines, base, covered: from..offset, earlier };
        let mut cursor = summary.outlines();
        while cursor.advance()? {}
        if cursor.end != offset {
            return Err(Malformed("a summary does not tell of all records before it"));
        }
        Ok(summary)
    }

    /// The outlines of the records, in their order.
    pub fn outlines(&self) -> OutlineCursor<'_> {
        OutlineCursor {
            summary: self,
            decoder: Decoder::at(&self.record, self.outlines),
            key: Vec::new(),
            kind: Kind::Put,
            version: self.base,
            offset: self.covered.start,
            end: self.covered.start,
        }
    }

    /// Where the records lie that it tells of.
    pub fn covered(&self) -> &Range<u64> {
        &self.covered
    }

    /// Where those before it lie, newest first; [`EARLIER_MAX`] of them, if there are so many.
    pub fn earlier(&self) -> &[u64] {
        &self.earlier
    }

    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.covered.end + self.record.len() as u64
    }
}

/// Walks the outlines of a summary.
#[derive(Debug)]
pub struct OutlineCursor<'s> {
    summary: &'s Summary,
    decoder: Decoder<'s>,
    key: Vec<u8>,
    kind: Kind,
    version: Version,
    /// Where the record of this outline begins, and where it ends.
    offset: u64,
    end: u64,
}

impl OutlineCursor<'_> {
    /// The next outline; none behind the last.
    #[expect(
        clippy::should_implement_trait,
        reason = "outlines borrow from the cursor, which Iterator cannot say"
    )]
    pub fn next(&mut self) -> Option<Outline<'_>> {
        let is_there = self.advance().expect("a summary that was decoded can be walked");
        let OutlineCursor { offset, kind, version, ref key, .. } = *self;
        is_there.then_some(Outline { offset, kind, key, version })
    }

    fn advance(&mut self) -> Result<bool, Malformed> {
        if self.decoder.is_empty() {
            return Ok(false);
        }
        let len_and_kind = self.decoder.varint()?;
        let kind = Kind::from_u8((len_and_kind as u8) & KIND_MASK);
        self.kind = kind.ok_or(Malformed("a summary tells of a record of unknown kind"))?;
        let version = self.summary.base.to_u64().checked_add(self.decoder.varint()?);
        self.version = Version::from_u64(version.ok_or(Malformed("a version in a summary overflows"))?);
        let shared = self.decoder.varint_usize()?;
        if shared > self.key.len() {
            return Err(Malformed("a key in a summary shares more than there is"));
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(self.decoder.prefixed()?);
        if self.key.len() > limits::ENGINE_KEY_BYTES_MAX {
            return Err(Malformed("a key in a summary exceeds its limit"));
        }
        // So that all keys together have no more bytes than the log, though what they share is left out
        // (F-3).
        let len = len_and_kind >> KIND_BITS;
        if len < (RECORD_BYTES_MIN + self.key.len()) as u64 {
            return Err(Malformed("a summary tells of a record that is shorter than its key"));
        }
        self.offset = self.end;
        let end = self.offset.checked_add(len).filter(|end| *end <= self.summary.covered.end);
        self.end = end.ok_or(Malformed("a summary tells of records that reach beyond it"))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        log::{Decoded, LogReader, decode_record, encode_header, encode_record, salvage},
        memory::MemoryFile,
    };
    use kvilt_base::FileName;
    use proptest::prelude::*;

    const ID: FileIdentity = FileIdentity { store_id: 7, number: 9 };
    const BASE: Version = Version::new(3, 5);

    /// A row: key, version above the base, kind, bytes of its value. Or else a summary.
    type Row = Option<(Vec<u8>, u64, u8, usize)>;

    /// A log with these rows and summaries; where each record and each summary lies.
    fn log_of(rows: &[Row]) -> (Vec<u8>, Vec<u64>, Vec<u64>) {
        let mut bytes = encode_header(ID, BASE).to_vec();
        let (mut records, mut summaries) = (Vec::new(), Vec::new());
        let mut outlines = Outlines::new(BASE);
        for row in rows {
            let offset = bytes.len() as u64;
            let Some((key, above, kind, value_len)) = row else {
                bytes.extend_from_slice(&outlines.summary(ID, offset, summaries.iter().rev().copied()));
                outlines.clear();
                summaries.push(offset);
                continue;
            };
            let version = Version::from_u64(BASE.to_u64() + above);
            let kind = Kind::from_u8(*kind).unwrap();
            let entry = EntryRef { key, version, kind, value: &vec![7; *value_len] };
            encode_record(&mut bytes, ID, offset, BASE, entry, above % 2);
            outlines.push_records(&bytes[offset as usize..]);
            records.push(offset);
        }
        (bytes, records, summaries)
    }

    fn summary_at(bytes: &[u8], at: u64) -> Summary {
        match decode_record(&bytes[at as usize..], ID, at, BASE) {
            Decoded::Summary { len } => {
                Summary::decode(bytes[at as usize..at as usize + len].to_vec(), at, BASE).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Whether who goes from one to the next comes to an end.
    fn is_before(summary: &Summary) -> bool {
        let mut earlier = summary.earlier().iter();
        earlier.clone().is_sorted_by(|a, b| a > b)
            && earlier.next().is_none_or(|at| *at < summary.covered().start)
    }

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let row =
            (prop::collection::vec(0u8..3, 0..12), any::<u32>().prop_map(u64::from), 0u8..3, 0usize..300);
        prop::collection::vec(prop::option::weighted(0.5, row), 0..200)
    }

    proptest! {
        #[test]
        fn a_summary_tells_of_every_record_before_it_and_readers_pass_over_it(rows in rows()) {
            let (bytes, records, summaries) = log_of(&rows);
            let mut told = Vec::new();
            for (i, &at) in summaries.iter().enumerate() {
                let summary = summary_at(&bytes, at);
                let earlier: Vec<u64> = summaries[..i].iter().rev().take(EARLIER_MAX).copied().collect();
                prop_assert_eq!(summary.earlier(), earlier);
                let from = i.checked_sub(1).map_or(HEADER_BYTES as u64, |i| summary_at(&bytes, summaries[i]).end());
                prop_assert_eq!(summary.covered(), &(from..at));
                let mut outlines = summary.outlines();
                while let Some(outline) = outlines.next() {
                    told.push((outline.offset, outline.key.to_vec(), outline.version, outline.kind));
                }
            }
            let read = |is_told: &dyn Fn(u64) -> bool| {
                let file = MemoryFile::new(FileName::Of(crate::names::LOG, 9), bytes.clone());
                let mut reader = LogReader::open(file, ID, bytes.len() as u64).unwrap();
                let mut all = Vec::new();
                while let Some((offset, entry, _)) = reader.next().unwrap() {
                    if is_told(offset) {
                        all.push((offset, entry.key.to_vec(), entry.version, entry.kind));
                    }
                }
                all
            };
            let last = summaries.last().copied().unwrap_or(0);
            prop_assert_eq!(told, read(&|offset| offset < last));
            prop_assert_eq!(read(&|_| true).len(), records.len());
            let mut salvaged = 0;
            salvage(&bytes, ID, BASE, true, &mut |_| salvaged += 1, &mut |at| panic!("damage at {at}"));
            prop_assert_eq!(salvaged, records.len());
        }

        /// F-3, behind a checksum that is right.
        #[test]
        fn a_false_summary_is_malformed(flips in prop::collection::vec((any::<u16>(), any::<u8>()), 1..4)) {
            let row = |key: &[u8]| Some((key.to_vec(), 300, 0, 40));
            let (bytes, _, summaries) = log_of(&[row(b"one"), None, row(b"two"), row(b"twofold"), None]);
            let at = summaries[1];
            let mut record = summary_at(&bytes, at).record;
            let body = CHECKSUM_BYTES + 2;
            for (place, value) in flips {
                let place = body + usize::from(place) % (record.len() - body);
                record[place] = value;
            }
            if let Ok(summary) = Summary::decode(record, at, BASE) {
                prop_assert!(is_before(&summary));
                let (mut outlines, mut key_bytes) = (summary.outlines(), 0);
                while let Some(outline) = outlines.next() {
                    key_bytes += outline.key.len() as u64;
                }
                prop_assert!(key_bytes <= at - summary.covered().start);
            }
        }
    }

    /// F-3: what keys share is left out, so a short summary could tell of many long ones.
    #[test]
    fn a_record_has_room_for_its_key() {
        let long = vec![7; 1000];
        let (mut bytes, ..) = log_of(&[Some((long.clone(), 0, 0, 0))]);
        let offset = bytes.len() as u64;
        let mut outlines = Outlines::new(BASE);
        let entry = EntryRef { key: &long, version: BASE, kind: Kind::Put, value: b"" };
        outlines.push(&entry, 900);
        outlines.push(&entry, offset as usize - HEADER_BYTES - 900);
        bytes.extend_from_slice(&outlines.summary(ID, offset, std::iter::empty()));
        let decoded = Summary::decode(bytes[offset as usize..].to_vec(), offset, BASE);
        assert_eq!(decoded.unwrap_err().0, "a summary tells of a record that is shorter than its key");
    }

    /// F-2: a summary is found out by its own checksum, and one of another place does not pass.
    #[test]
    fn every_flip_of_a_summary_is_found() {
        let (bytes, _, summaries) = log_of(&[Some((b"key".to_vec(), 1, 0, 9)), None]);
        let (at, good) = (summaries[0], &bytes[summaries[0] as usize..]);
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            let decoded = decode_record(&bad, ID, at, BASE);
            assert!(
                matches!(decoded, Decoded::Bad(_) | Decoded::Incomplete { .. }),
                "bit {bit}: {decoded:?}"
            );
        }
        assert!(matches!(decode_record(good, ID, at + 1, BASE), Decoded::Bad(_)));
        for cut in 0..good.len() {
            assert!(
                matches!(decode_record(&good[..cut], ID, at, BASE), Decoded::Incomplete { needed } if needed > cut)
            );
        }
    }
}
