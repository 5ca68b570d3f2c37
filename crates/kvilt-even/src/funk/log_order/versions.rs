//! `OffsetVersions`: the versions of a log's records by their offsets. A log is written in the order of
//! versions, and many records beside each other have the same one.

use kvilt_base::Version;

/// See the module.
#[derive(Default)]
pub(super) struct OffsetVersions {
    /// Offsets that ascend, from each of which on records have the version beside it.
    from: Vec<u32>,
    versions: Vec<Version>,
}

impl OffsetVersions {
    /// Of records in any order.
    pub(super) fn new(mut records: Vec<(u32, Version)>) -> Self {
        // Found as they were written, they are in order.
        if !records.is_sorted() {
            records.sort_unstable();
        }
        records.dedup_by_key(|(_, version)| *version);
        let (from, versions) = records.into_iter().unzip();
        OffsetVersions { from, versions }
    }

    /// Of two parts of a log, one behind the other.
    pub(super) fn joined(older: &OffsetVersions, newer: &OffsetVersions) -> Self {
        let is_one = older.versions.last() == newer.versions.first();
        let first_newer = usize::from(is_one && !newer.versions.is_empty());
        OffsetVersions {
            from: [&older.from[..], &newer.from[first_newer..]].concat(),
            versions: [&older.versions[..], &newer.versions[first_newer..]].concat(),
        }
    }

    /// The version of the record at an offset.
    #[inline]
    pub(super) fn at(&self, offset: u64) -> Version {
        if let [only] = self.versions[..] {
            return only;
        }
        let behind = self.from.partition_point(|from| u64::from(*from) <= offset);
        self.versions[behind - 1]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.from.capacity() * size_of::<u32>() + self.versions.capacity() * size_of::<Version>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_offset_has_its_version_however_they_come() {
        let version = |offset: u32| {
            Version::from_u64(u64::from([1_u32, 1, 1, 2, 2, 7, 7, 7, 3, 3][offset as usize / 10]))
        };
        let offsets: Vec<u32> = (0..100).step_by(3).collect();
        let pairs =
            |offsets: &[u32]| offsets.iter().map(|offset| (*offset, version(*offset))).collect::<Vec<_>>();
        let mut mixed = pairs(&offsets);
        mixed.rotate_left(11);
        let halves = offsets.split_at(14);
        let joined = OffsetVersions::joined(
            &OffsetVersions::new(pairs(halves.0)),
            &OffsetVersions::new(pairs(halves.1)),
        );
        for versions in [OffsetVersions::new(pairs(&offsets)), OffsetVersions::new(mixed), joined] {
            assert_eq!(versions.versions.len(), 4);
            offsets.iter().for_each(|offset| assert_eq!(versions.at(u64::from(*offset)), version(*offset)));
        }
        let nothing = OffsetVersions::default();
        assert_eq!(
            OffsetVersions::joined(&nothing, &OffsetVersions::new(vec![(5, Version::from_u64(2))])).at(5),
            Version::from_u64(2)
        );
    }
}
