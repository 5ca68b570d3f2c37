//! `KeyBounds`: what can be written where a range of keys is wanted.
//!
//! A bound `RangeBounds<K>` alone would make `db.range(..)` ambiguous, because `..` is a range of every type.
//! So there is a trait of our own, implemented for each of the standard ranges.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use kvilt_base::KeyRange;

/// A range of keys: every range expression of the standard library over anything that is bytes, a pair of
/// [`Bound`]s, or a [`KeyRange`].
///
/// A start behind the end is an empty range, not an error.
///
/// ```
/// # fn main() -> kvilt::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = kvilt::Db::open(dir.path().join("events"))?;
/// use std::ops::Bound;
///
/// for key in ["a", "b", "c", "d"] {
///     db.put(key, "")?;
/// }
/// assert_eq!(db.range(..).count(), 4);
/// assert_eq!(db.range("b".."d").count(), 2);
/// assert_eq!(db.range(b"b"..=b"d").count(), 3);
/// assert_eq!(db.range(vec![b'c']..).count(), 2);
/// assert_eq!(db.range("z".."a").count(), 0);
/// assert_eq!(db.range((Bound::Excluded("b"), Bound::Unbounded)).count(), 2);
/// # Ok(())
/// # }
/// ```
///
/// Code that is generic over `R: RangeBounds<K>` passes `(range.start_bound(), range.end_bound())`.
pub trait KeyBounds {
    /// The half-open range with these bounds.
    fn key_range(&self) -> KeyRange;
}

impl KeyBounds for KeyRange {
    fn key_range(&self) -> KeyRange {
        self.clone()
    }
}

impl KeyBounds for RangeFull {
    fn key_range(&self) -> KeyRange {
        KeyRange::all()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for (Bound<K>, Bound<K>) {
    fn key_range(&self) -> KeyRange {
        KeyRange::new::<&[u8]>((bytes_of(&self.0), bytes_of(&self.1)))
    }
}

/// The same for each standard range: the start and the end as bounds of bytes.
macro_rules! key_bounds {
    ($($range:ident: |$r:ident| $start:expr, $end:expr;)+) => {
        $(impl<K: AsRef<[u8]>> KeyBounds for $range<K> {
            fn key_range(&self) -> KeyRange {
                let $r = self;
                KeyRange::new::<&[u8]>(($start, $end))
            }
        })+
    };
}

key_bounds! {
    Range: |r| Bound::Included(r.start.as_ref()), Bound::Excluded(r.end.as_ref());
    RangeFrom: |r| Bound::Included(r.start.as_ref()), Bound::Unbounded;
    RangeInclusive: |r| Bound::Included(r.start().as_ref()), Bound::Included(r.end().as_ref());
    RangeTo: |r| Bound::Unbounded, Bound::Excluded(r.end.as_ref());
    RangeToInclusive: |r| Bound::Unbounded, Bound::Included(r.end.as_ref());
}

fn bytes_of<K: AsRef<[u8]>>(bound: &Bound<K>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key.as_ref()),
        Bound::Excluded(key) => Bound::Excluded(key.as_ref()),
        Bound::Unbounded => Bound::Unbounded,
    }
}
