//! One way to hurt one file (or two) of a store.

use std::fmt;

use kvilt_base::FileName;
use kvilt_io::MemoryDisk;

use super::reference::Reference;

/// A sector: what disks write whole, and mix up.
const SECTOR: usize = 512;

/// One way to hurt a store.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "fields are what they are called")]
pub enum Blow {
    /// One bit is the other way round.
    Flip { name: FileName, bit: u64 },
    /// The file ends here.
    Cut { name: FileName, len: u64 },
    /// A sector has zeros.
    Zero { name: FileName, sector: usize },
    /// Two sectors have changed places.
    Swap { name: FileName, sectors: (usize, usize) },
    /// One sector's bytes are also where another's should be.
    Double { name: FileName, from: usize, to: usize },
    /// The file is gone.
    Remove { name: FileName },
    /// Two files of a kind have changed names.
    Exchange { names: (FileName, FileName) },
    /// The file has the bytes of another of its kind.
    Copy { from: FileName, to: FileName },
    /// The file is as it was at an earlier time, by number.
    Older { name: FileName, generation: usize },
}

impl Blow {
    /// Every flip of a file of `len` bytes.
    pub fn flips(name: FileName, len: usize) -> impl Iterator<Item = Blow> {
        (0..len as u64 * 8).map(move |bit| Blow::Flip { name, bit })
    }

    /// Every length that such a file may be cut to; zero is an empty file.
    pub fn cuts(name: FileName, len: usize) -> impl Iterator<Item = Blow> {
        (0..len as u64).map(move |len| Blow::Cut { name, len })
    }

    /// Every sector zeroed, exchanged, doubled.
    pub fn sectors(name: FileName, len: usize) -> impl Iterator<Item = Blow> {
        let count = len.div_ceil(SECTOR);
        (0..count).flat_map(move |sector| {
            let pairs = (0..count).filter(move |other| *other != sector);
            let doubled = pairs.clone().map(move |to| Blow::Double { name, from: sector, to });
            let swapped = pairs
                .filter(move |other| *other > sector)
                .map(move |other| Blow::Swap { name, sectors: (sector, other) });
            [Blow::Zero { name, sector }].into_iter().chain(doubled).chain(swapped)
        })
    }

    /// All that can happen to a reference, to whole files first.
    pub fn all(reference: &Reference) -> impl Iterator<Item = Blow> {
        let files = reference.files.iter().map(|(name, bytes)| (*name, bytes.len()));
        let in_files = files.flat_map(|(name, len)| {
            Blow::flips(name, len).chain(Blow::cuts(name, len)).chain(Blow::sectors(name, len))
        });
        Blow::whole_files(reference).chain(in_files)
    }

    /// Everything that can happen to whole files.
    pub fn whole_files(reference: &Reference) -> impl Iterator<Item = Blow> {
        let names: Vec<FileName> = reference.files.keys().copied().collect();
        let removed = names.clone().into_iter().map(|name| Blow::Remove { name });
        let is_alike = |a: FileName, b: FileName| a.kind() == b.kind();
        let mut pairs = Vec::new();
        for &from in &names {
            for &to in names.iter().filter(|&&to| to != from && is_alike(from, to)) {
                pairs.push(Blow::Copy { from, to });
                if from < to {
                    pairs.push(Blow::Exchange { names: (from, to) });
                }
            }
        }
        let older: Vec<Blow> = reference
            .older
            .iter()
            .flat_map(|(&name, all)| (0..all.len()).map(move |generation| Blow::Older { name, generation }))
            .collect();
        removed.chain(pairs).chain(older)
    }

    /// Whether it is about a file as a whole.
    pub fn is_whole(&self) -> bool {
        matches!(self, Blow::Remove { .. } | Blow::Exchange { .. } | Blow::Copy { .. } | Blow::Older { .. })
    }

    /// Hurts the disk, which holds the reference; false if nothing is different now.
    pub fn strike(&self, disk: &MemoryDisk, reference: &Reference) -> bool {
        let bytes = |name: &FileName| reference.files[name].clone();
        match self {
            Blow::Flip { name, bit } => disk.flip_bit(*name, bit / 8, (bit % 8) as u32),
            Blow::Cut { name, len } => disk.truncate(*name, *len),
            Blow::Zero { name, sector } => {
                let mut hurt = bytes(name);
                place(&mut hurt, *sector, &[0; SECTOR]);
                exchange(disk, *name, hurt, reference)
            }
            Blow::Swap { name, sectors: (a, b) } => {
                let good = bytes(name);
                let mut hurt = good.clone();
                place(&mut hurt, *a, sector(&good, *b));
                place(&mut hurt, *b, sector(&good, *a));
                exchange(disk, *name, hurt, reference)
            }
            Blow::Double { name, from, to } => {
                let good = bytes(name);
                let mut hurt = good.clone();
                place(&mut hurt, *to, sector(&good, *from));
                exchange(disk, *name, hurt, reference)
            }
            Blow::Remove { name } => disk.lose(*name),
            Blow::Exchange { names: (a, b) } => {
                disk.replace(*a, bytes(b));
                disk.replace(*b, bytes(a));
                true
            }
            Blow::Copy { from, to } => exchange(disk, *to, bytes(from), reference),
            Blow::Older { name, generation } => {
                exchange(disk, *name, reference.older[name][*generation].clone(), reference)
            }
        }
    }
}

fn sector(bytes: &[u8], number: usize) -> &[u8] {
    &bytes[number * SECTOR..bytes.len().min((number + 1) * SECTOR)]
}

/// Writes over a sector, as far as both reach.
fn place(bytes: &mut [u8], number: usize, content: &[u8]) {
    let start = number * SECTOR;
    let count = content.len().min(bytes.len() - start);
    bytes[start..start + count].copy_from_slice(&content[..count]);
}

fn exchange(disk: &MemoryDisk, name: FileName, bytes: Vec<u8>, reference: &Reference) -> bool {
    let is_different = reference.files.get(&name) != Some(&bytes);
    disk.replace(name, bytes);
    is_different
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blow::Flip { name, bit } => write!(f, "{name}: bit {} of byte {} flipped", bit % 8, bit / 8),
            Blow::Cut { name, len } => write!(f, "{name}: cut to {len} bytes"),
            Blow::Zero { name, sector } => write!(f, "{name}: sector {sector} zeroed"),
            Blow::Swap { name, sectors: (a, b) } => write!(f, "{name}: sectors {a} and {b} exchanged"),
            Blow::Double { name, from, to } => write!(f, "{name}: sector {from} also at {to}"),
            Blow::Remove { name } => write!(f, "{name}: removed"),
            Blow::Exchange { names: (a, b) } => write!(f, "{a} and {b} exchanged"),
            Blow::Copy { from, to } => write!(f, "{to} has the bytes of {from}"),
            Blow::Older { name, generation } => write!(f, "{name}: as it was at time {generation}"),
        }
    }
}
