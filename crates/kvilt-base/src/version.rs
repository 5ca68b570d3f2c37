//! `Version`: the position of a write in the order of writes.
//!
//! EvenDB §3.2 and §3.5: versions are advanced by readers (scans, snapshots, checkpoints), never by puts, and
//! carry the epoch — the run of the database between two opens — in their high bits. We pack both into one
//! `u64`: 24 bits of epoch, 40 bits of count. A count that overflows carries into the epoch, which is
//! harmless: an epoch is only a fresh, higher place to start counting from.

use std::fmt;

/// Bits of a version that count within an epoch.
pub const COUNT_BITS: u32 = 40;

/// A position in the order of writes: (epoch, count), compared in this order.
///
/// ```
/// use kvilt_base::Version;
/// let v = Version::new(3, 7);
/// assert_eq!((v.epoch(), v.count()), (3, 7));
/// assert!(v < Version::new(4, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(u64);

impl Version {
    /// Before every write.
    pub const ZERO: Version = Version(0);
    /// After every write; a read at this version sees the newest of everything.
    pub const NEWEST: Version = Version(u64::MAX);

    /// The version `count` of `epoch`. Panics if either does not fit its bits.
    pub const fn new(epoch: u32, count: u64) -> Self {
        assert!(epoch < 1 << (64 - COUNT_BITS), "an epoch has 24 bits");
        assert!(count < 1 << COUNT_BITS, "a count has 40 bits");
        Version(((epoch as u64) << COUNT_BITS) | count)
    }

    /// The version with this packed form.
    pub const fn from_u64(packed: u64) -> Self {
        Version(packed)
    }

    /// The packed form; ordered like the versions themselves.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The run of the database that wrote it.
    pub const fn epoch(self) -> u32 {
        (self.0 >> COUNT_BITS) as u32
    }

    /// The position within the epoch.
    pub const fn count(self) -> u64 {
        self.0 & ((1 << COUNT_BITS) - 1)
    }

    /// The version right after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Version(self.0.saturating_add(1))
    }

    /// The first version of the epoch after this version's.
    #[must_use]
    pub const fn next_epoch(self) -> Self {
        Version(((self.0 >> COUNT_BITS) + 1) << COUNT_BITS)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch(), self.count())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_the_order_and_carries_into_the_epoch() {
        let last = Version::new(5, (1 << COUNT_BITS) - 1);
        assert_eq!(last.next(), Version::new(6, 0));
        assert_eq!(Version::new(5, 9).next_epoch(), Version::new(6, 0));
        assert!(Version::new(1, u64::from(u32::MAX)) < Version::new(2, 0));
        assert_eq!(Version::from_u64(last.to_u64()), last);
        assert_eq!(format!("{last}"), "5.1099511627775");
    }
}
