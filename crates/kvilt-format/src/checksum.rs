//! The one checksum: CRC-32, salted with the identity of the file and, where a place is known, with the
//! place.
//!
//! Where it stands: every record and block carries one. Why CRC-32: it finds every error burst of up to 32
//! bits, it is done in hardware everywhere, and what it guards against is accident, not malice — decoders
//! hold for hostile bytes with valid checksums too (F-3). Why the salt: a block of another store, of another
//! file, or of another place in this file is well-formed, and only its identity tells that it is wrong (F-2).

/// Which file, of which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// Chosen at random when the store was made.
    pub store_id: u64,
    /// The number in the file's name; never used twice in a store.
    pub number: u64,
}

impl FileIdentity {
    /// The checksum's starting value for something that lies at `place` in this file; zero where the writer
    /// does not know the place beforehand.
    ///
    /// It is the high half of `(store_id ^ number·A ^ place·B) · C`, in wrapping 64-bit arithmetic, with
    /// `A = 9e3779b97f4a7c15`, `B = c2b2ae3d27d4eb4f` and `C = ff51afd7ed558ccd` (hexadecimal).
    #[inline]
    pub fn salt(self, place: u64) -> u32 {
        let mixed = self.store_id
            ^ self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ place.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        (mixed.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32) as u32
    }
}

/// CRC-32 (IEEE, reflected polynomial `edb88320`) of `bytes`, continued from `salt` as if that were the CRC
/// of bytes before: what zlib calls `crc32(salt, bytes)`.
///
/// ```
/// assert_eq!(kvilt_format::checksum::checksum(0, b"123456789"), 0xcbf4_3926);
/// ```
#[inline]
pub fn checksum(salt: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(bytes);
    hasher.finalize()
}

/// The checksum of bytes that come in parts.
pub fn checksum_of_parts<'p>(salt: u32, parts: impl IntoIterator<Item = &'p [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    parts.into_iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// The checksum of bytes of which not all are in memory at once.
#[derive(Debug)]
pub(crate) struct Running(crc32fast::Hasher);

impl Running {
    pub(crate) fn new(salt: u32) -> Self {
        Running(crc32fast::Hasher::new_with_initial(salt))
    }

    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    pub(crate) fn finish(self) -> u32 {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_store_file_or_place_makes_another_checksum() {
        let id = FileIdentity { store_id: 1, number: 2 };
        let others = [
            FileIdentity { store_id: 2, number: 2 }.salt(64),
            FileIdentity { store_id: 1, number: 3 }.salt(64),
            id.salt(0),
            id.salt(65),
        ];
        for other in others {
            assert_ne!(checksum(id.salt(64), b"block"), checksum(other, b"block"));
        }
    }

    #[test]
    fn neighbouring_places_do_not_share_a_salt() {
        let id = FileIdentity { store_id: 0x1234_5678_9abc_def0, number: 17 };
        let mut salts: Vec<u32> = (0..20_000).map(|place| id.salt(place)).collect();
        salts.sort_unstable();
        salts.dedup();
        assert!(salts.len() > 19_990, "{}", salts.len());
    }
}
