//! `Map`: the occupancy map of a shard, as its file will have it after the next cut.
//!
//! The bits themselves are the slabs'; this knows which pages of the file they belong to, which pages have
//! changed since the last cut, and which copy of a page counts.
//!
//! What is always true:
//! - K-6: of a pair, the copy that the newest durable cut counts is never written over: the next cut writes
//!   the other one. A copy of a cut that came to nothing is written over before another cut could count it.

use std::{collections::BTreeSet, sync::Arc};

use bytes::BytesMut;
use kvilt_base::{Error, File, Result, queue::aligned};
use kvilt_format::{
    FileIdentity,
    slab::{
        CLASS_COUNT, Class, MAP_BITS_BYTES, MAP_PAGE_SLOTS, MapPage, MapTotal, PAGE_BYTES, map_page_offset,
        pair_stamp,
    },
};

use crate::slab::Slab;

/// Two pages of the file for a stretch of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) class: Class,
    pub(crate) first_slot: u64,
    /// The copy that counts, and the cut it was written at; none before the first.
    pub(crate) current: Option<(usize, u64)>,
}

/// A page to be written for a cut.
pub(crate) struct PageImage {
    pair: usize,
    copy: usize,
    bytes: BytesMut,
}

/// See the module.
pub(crate) struct Map {
    file: Arc<dyn File>,
    id: FileIdentity,
    pairs: Vec<Pair>,
    /// Numbers of a class's pairs, by stretch.
    of_class: Vec<Vec<usize>>,
    changed: BTreeSet<usize>,
}

impl Map {
    /// A map of these pairs; those of `changed` are to be written at the next cut.
    pub(crate) fn new(
        file: Arc<dyn File>,
        id: FileIdentity,
        pairs: Vec<Pair>,
        changed: BTreeSet<usize>,
    ) -> Self {
        let mut of_class = vec![Vec::new(); CLASS_COUNT];
        for (number, pair) in pairs.iter().enumerate() {
            let stretches: &mut Vec<usize> = &mut of_class[usize::from(pair.class.number())];
            let stretch = (pair.first_slot / MAP_PAGE_SLOTS) as usize;
            if stretches.len() <= stretch {
                stretches.resize(stretch + 1, usize::MAX);
            }
            stretches[stretch] = number;
        }
        Map { file, id, pairs, of_class, changed }
    }

    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        (self.pairs.len() * (size_of::<Pair>() + size_of::<usize>())) as u64
    }

    /// Makes room for a class of this many slots.
    ///
    /// Errors: `NoSpace`, `Io`; then nothing has changed.
    pub(crate) fn grow(&mut self, class: Class, slots: u64) -> Result<()> {
        let stretches = self.of_class[usize::from(class.number())].len() as u64;
        let needed = slots.div_ceil(MAP_PAGE_SLOTS);
        if needed <= stretches {
            return Ok(());
        }
        let pairs = self.pairs.len() as u64 + needed - stretches;
        self.file
            .allocate(map_page_offset(pairs, 0))
            .map_err(|e| Error::io("take room for an occupancy map", e).in_file(self.file.name()))?;
        self.add_pairs(class, slots);
        Ok(())
    }

    /// Pairs for a class of this many slots, without room on the disk.
    pub(crate) fn add_pairs(&mut self, class: Class, slots: u64) {
        let stretches = self.of_class[usize::from(class.number())].len() as u64;
        for stretch in stretches..slots.div_ceil(MAP_PAGE_SLOTS) {
            let number = self.pairs.len();
            self.of_class[usize::from(class.number())].push(number);
            self.pairs.push(Pair { class, first_slot: stretch * MAP_PAGE_SLOTS, current: None });
            // Written by the next cut, whatever comes into it: an open reads up to the first that is not.
            self.changed.insert(number);
        }
    }

    /// The bit of a slot has changed.
    pub(crate) fn changes(&mut self, class: Class, slot: u64) {
        let stretch = (slot / MAP_PAGE_SLOTS) as usize;
        self.changed.insert(self.of_class[usize::from(class.number())][stretch]);
    }

    /// The pages that have changed, as they are now, for this cut.
    pub(crate) fn take_images(&mut self, slabs: &[Option<Slab>], cut: u64) -> Vec<PageImage> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|pair| self.image(pair, slabs, cut)).collect()
    }

    fn image(&self, number: usize, slabs: &[Option<Slab>], cut: u64) -> PageImage {
        let pair = &self.pairs[number];
        let mut bits = [0; MAP_BITS_BYTES];
        if let Some(slab) = &slabs[usize::from(pair.class.number())] {
            for (word, bytes) in bits.chunks_exact_mut(8).enumerate() {
                let word = slab.used().word(pair.first_slot + word as u64 * u64::from(u64::BITS));
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        }
        let other = |copy: usize| kvilt_base::planted!(MapWrittenInPlace, 1 - copy => copy);
        let copy = pair.current.map_or(0, |(copy, _)| other(copy));
        let mut bytes = aligned(PAGE_BYTES);
        let page = MapPage { class: pair.class, first_slot: pair.first_slot, cut, bits: &bits };
        let place = bytes.first_chunk_mut().expect("it is a page");
        page.encode_into(place, self.id, map_page_offset(number as u64, copy));
        PageImage { pair: number, copy, bytes }
    }

    /// What the root will say of the pages that count once these are durable.
    pub(crate) fn total_with(&self, images: &[PageImage], cut: u64) -> MapTotal {
        let written: BTreeSet<usize> = images.iter().map(|image| image.pair).collect();
        let stamp = |(number, pair): (usize, &Pair)| {
            let cut = if written.contains(&number) { Some(cut) } else { pair.current.map(|(_, cut)| cut) };
            cut.map(|cut| pair_stamp(number as u64, cut))
        };
        let stamps = self.pairs.iter().enumerate().filter_map(stamp);
        stamps.fold(MapTotal::default(), |total, stamp| MapTotal {
            pairs: total.pairs + 1,
            stamps: total.stamps.wrapping_add(stamp),
        })
    }

    /// The cut with these images is durable.
    pub(crate) fn is_durable(&mut self, images: &[PageImage], cut: u64) {
        for image in images {
            self.pairs[image.pair].current = Some((image.copy, cut));
        }
    }

    /// The cut with these images came to nothing.
    pub(crate) fn is_not_durable(&mut self, images: &[PageImage]) {
        self.changed.extend(images.iter().map(|image| image.pair));
    }
}

/// Writes the images to the map's file; the caller syncs it.
///
/// Errors: `NoSpace`, `Io`.
pub(crate) fn write(file: &dyn File, images: &[PageImage]) -> Result<()> {
    for image in images {
        let offset = map_page_offset(image.pair as u64, image.copy);
        file.write_all_at(offset, &image.bytes[..])
            .map_err(|e| Error::io("write an occupancy map", e).at(file.name(), offset))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kvilt_base::{Disk as _, FileName};
    use kvilt_format::names::{MAP, SLAB};
    use kvilt_io::MemoryDisk;

    use super::*;

    /// K-6: the cut that comes to nothing, and the one after it, write the copy that does not count.
    #[test]
    fn a_page_is_written_beside_the_copy_that_counts() {
        let disk = MemoryDisk::new(1);
        let class = Class::new(3).unwrap();
        let mut slab = Slab::new(class, disk.create(FileName::Of(SLAB, 1)).unwrap());
        slab.has_grown(64 << 10);
        let slots = slab.slots();
        let mut slabs: Vec<Option<Slab>> = (0..CLASS_COUNT).map(|_| None).collect();
        slabs[3] = Some(slab);
        let id = FileIdentity { store_id: 1, number: 0 };
        let file = disk.create(FileName::Of(MAP, 0)).unwrap();
        let mut map = Map::new(file, id, Vec::new(), BTreeSet::new());
        map.grow(class, slots).unwrap();
        let copies = |images: &[PageImage]| images.iter().map(|image| image.copy).collect::<Vec<_>>();
        let first = map.take_images(&slabs, 1);
        assert_eq!(copies(&first), [0]);
        map.is_durable(&first, 1);
        assert!(map.take_images(&slabs, 2).is_empty(), "nothing has changed");
        map.changes(class, 5);
        for cut in 2..5 {
            let failed = map.take_images(&slabs, cut);
            assert_eq!(copies(&failed), [1], "cut {cut}");
            let total = map.total_with(&failed, cut);
            assert_eq!((total.pairs, total.stamps), (1, pair_stamp(0, cut)));
            map.is_not_durable(&failed);
            assert_eq!(map.total_with(&[], cut).stamps, pair_stamp(0, 1));
        }
        let second = map.take_images(&slabs, 5);
        map.is_durable(&second, 5);
        map.changes(class, 5);
        assert_eq!(copies(&map.take_images(&slabs, 6)), [0]);
    }
}
