//! The witness: how much of which manifest is known to be synced. Format: `docs/format/witness.md`.
//!
//! Where it stands: beside the manifest. A manifest that lost its end reads like one whose last append never
//! returned, that is, like an older state; only something outside of it can tell the two apart.
//!
//! Always true: a claim is written only after what it claims was synced, so it never says too much; it goes
//! into the half that does not hold the last claim, and that one was synced before, so a torn write leaves
//! the other half; two halves that are both bad are corruption, never "nothing is claimed".

use std::{io, sync::Arc};

use kvilt_base::{Disk, Error, ErrorKind, File, Result, planted};

use crate::{FileIdentity, checksum::checksum, header, names::WITNESS};

/// Bytes of one half: a sector, so that disks write it whole or not at all.
const SLOT_BYTES: usize = 512;
const CHECKSUM_OFFSET: usize = SLOT_BYTES - 4;
const MANIFEST_OFFSET: usize = header::HEADER_BYTES;
const LEN_OFFSET: usize = MANIFEST_OFFSET + 8;
/// The generation of a new witness, in the half at offset zero.
const FIRST_GENERATION: u64 = 2;

/// What is known to be synced. Zeros: nothing yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Number of a manifest.
    pub manifest: u64,
    /// So many bytes of it, at least, are good.
    pub len: u64,
}

/// The witness of an open store. One thread at a time.
#[derive(Debug)]
pub struct Witness {
    file: Arc<dyn File>,
    store_id: u64,
    claim: Claim,
    generation: u64,
    /// How many of its halves this run wrote, the newest first. Of the others nothing is expected: a write
    /// may have been torn, and what an earlier run failed to sync may be seen and yet not be on the disk
    /// (D-5).
    own_halves: u64,
    is_synced: bool,
    /// A sync failed: which half is good is not known any more.
    is_broken: bool,
}

impl Witness {
    /// Makes the witness of a new store, which claims nothing, and makes it and its name durable. What an
    /// earlier attempt left is written over.
    ///
    /// Errors: `NoSpace`, `Io`, `Poisoned`.
    pub fn create(disk: &dyn Disk, store_id: u64) -> Result<Witness> {
        let failed = |doing: &str, e| Error::io(doing, e).in_file(WITNESS);
        let file = match disk.create(WITNESS) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => disk.open(WITNESS),
            created => created,
        };
        let file = file.map_err(|e| failed("create the witness", e))?;
        let mut bytes = [0; 2 * SLOT_BYTES];
        bytes[..SLOT_BYTES].copy_from_slice(&encode(store_id, FIRST_GENERATION, Claim::default()));
        file.write_all_at(0, &bytes).map_err(|e| failed("write the witness", e))?;
        file.sync().map_err(sync_failed)?;
        disk.sync_dir().map_err(sync_failed)?;
        Ok(Witness {
            file,
            store_id,
            claim: Claim::default(),
            generation: FIRST_GENERATION,
            own_halves: 1,
            is_synced: true,
            is_broken: false,
        })
    }

    /// Reads the witness of the store `store_id`; of any store, if none is given. None if there is no file.
    ///
    /// Errors: `Corrupted` if no half is good, `UnsupportedVersion`, `Io`.
    pub fn read(disk: &dyn Disk, store_id: Option<u64>) -> Result<Option<Witness>> {
        let failed = |e| Error::io("read the witness", e).in_file(WITNESS);
        let file = match disk.open(WITNESS) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            // A link, or a directory.
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Err(Error::corrupted(WITNESS, 0, e.to_string()));
            }
            opened => opened.map_err(failed)?,
        };
        let mut bytes = [0; 2 * SLOT_BYTES];
        let len = file.read_full_at(0, &mut bytes).map_err(failed)?;
        let mut newest: Option<Slot> = None;
        let mut first_error = None;
        for half in 0..2 {
            let start = half * SLOT_BYTES;
            let there = bytes.get(start..(start + SLOT_BYTES).min(len)).unwrap_or_default();
            match decode(there, half, store_id) {
                Ok(slot) if newest.as_ref().is_none_or(|n| n.generation < slot.generation) => {
                    newest = Some(slot);
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::UnsupportedVersion => return Err(e),
                Err(e) => {
                    first_error.get_or_insert(e);
                }
            }
        }
        match (newest, first_error) {
            (Some(Slot { store_id, generation, claim }), _) => Ok(Some(Witness {
                file,
                store_id,
                claim,
                generation,
                own_halves: 0,
                // Who wrote it may have been killed before it was synced.
                is_synced: false,
                is_broken: false,
            })),
            (None, Some(e)) => Err(e),
            (None, None) => unreachable!("each half is good or bad"),
        }
    }

    /// What it claims.
    pub fn claim(&self) -> Claim {
        self.claim
    }

    /// The store that it belongs to.
    pub fn store_id(&self) -> u64 {
        self.store_id
    }

    /// Verifies what this run wrote to it. After a failed sync nothing is expected of that.
    ///
    /// Errors: as [`Witness::read`].
    pub fn verify(&self) -> Result<()> {
        if self.is_broken {
            return Ok(());
        }
        let mut bytes = [0; 2 * SLOT_BYTES];
        let failed = |e| Error::io("read the witness", e).in_file(WITNESS);
        let len = self.file.read_full_at(0, &mut bytes).map_err(failed)?;
        for generation in self.generation + 1 - self.own_halves..=self.generation {
            let half = (generation % 2) as usize;
            let start = half * SLOT_BYTES;
            let there = bytes.get(start..(start + SLOT_BYTES).min(len)).unwrap_or_default();
            let slot = decode(there, half, Some(self.store_id))?;
            if slot.generation != generation {
                let message = format!("a half has generation {}; {generation} was written", slot.generation);
                return Err(Error::corrupted(WITNESS, start as u64, message));
            }
        }
        Ok(())
    }

    /// Makes the last claim durable, if it is not. After a failure every call fails: only an open tells which
    /// half is good.
    ///
    /// Errors: `Poisoned`.
    pub fn sync(&mut self) -> Result<()> {
        if self.is_broken {
            let message = "an earlier sync of the witness failed";
            return Err(Error::new(ErrorKind::Poisoned, message).in_file(WITNESS));
        }
        if !self.is_synced {
            self.file.sync().map_err(|e| {
                self.is_broken = true;
                sync_failed(e)
            })?;
            self.is_synced = true;
        }
        Ok(())
    }

    /// Writes a claim, whose truth is durable already, over the older half; it counts at once, and is durable
    /// after the next [`Witness::sync`]. If the write fails, the claim before stands.
    ///
    /// Errors: `NoSpace`, `Io`; `Poisoned` if the claim before had to be synced first and could not.
    pub fn write(&mut self, claim: Claim) -> Result<()> {
        planted!(WitnessNotTold => return Ok(()));
        self.sync()?;
        let generation = self.generation + 1;
        let bytes = encode(self.store_id, generation, claim);
        let offset = (generation % 2) * SLOT_BYTES as u64;
        let written = self.file.write_all_at(offset, &bytes);
        if written.is_err() {
            self.own_halves = self.own_halves.min(1);
        }
        written.map_err(|e| Error::io("write the witness", e).at(WITNESS, offset))?;
        (self.generation, self.claim) = (generation, claim);
        (self.own_halves, self.is_synced) = ((self.own_halves + 1).min(2), false);
        Ok(())
    }
}

/// After a failed sync nobody knows what the disk holds (D-5).
fn sync_failed(error: io::Error) -> Error {
    Error::new(ErrorKind::Poisoned, format!("a sync of the witness failed: {error}")).in_file(WITNESS)
}

struct Slot {
    store_id: u64,
    generation: u64,
    claim: Claim,
}

fn encode(store_id: u64, generation: u64, claim: Claim) -> [u8; SLOT_BYTES] {
    let id = FileIdentity { store_id, number: 0 };
    let mut bytes = [0; SLOT_BYTES];
    bytes[..header::HEADER_BYTES].copy_from_slice(&header::encode(header::WITNESS_MAGIC, id, generation));
    bytes[MANIFEST_OFFSET..LEN_OFFSET].copy_from_slice(&claim.manifest.to_le_bytes());
    bytes[LEN_OFFSET..LEN_OFFSET + 8].copy_from_slice(&claim.len.to_le_bytes());
    let sum = checksum(id.salt(generation % 2), &bytes[..CHECKSUM_OFFSET]);
    bytes[CHECKSUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8], half: usize, store_id: Option<u64>) -> Result<Slot> {
    let offset = (half * SLOT_BYTES) as u64;
    let damaged = |what: &str| Error::corrupted(WITNESS, offset, what);
    let header = header::decode(bytes, header::WITNESS_MAGIC, WITNESS)
        .map_err(|e| if e.kind() == ErrorKind::Corrupted { damaged(e.message()) } else { e })?;
    let bytes: &[u8; SLOT_BYTES] = bytes.try_into().map_err(|_| damaged("the witness ends within a half"))?;
    let sum = checksum(header.id.salt(half as u64), &bytes[..CHECKSUM_OFFSET]);
    if sum.to_le_bytes() != bytes[CHECKSUM_OFFSET..] {
        return Err(damaged("the checksum of a half of the witness differs"));
    }
    if store_id.is_some_and(|id| id != header.id.store_id) {
        return Err(damaged("the witness belongs to another store"));
    }
    let generation = header.by_kind;
    if generation % 2 != half as u64 || generation == u64::MAX {
        return Err(damaged("a half of the witness has a generation that does not belong there"));
    }
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let claim = Claim { manifest: number(MANIFEST_OFFSET), len: number(LEN_OFFSET) };
    Ok(Slot { store_id: header.id.store_id, generation, claim })
}
