//! The records of one key: which of them a new one leaves behind it, and which one a reader sees.
//!
//! What is always true:
//! - T-1: records descend by version; of equal versions, which only batches leave, the later put comes first.
//! - T-5: a record goes only if there is a newer one, of a put that is not in flight, and no view is open, or
//!   can be opened, from its version up to below that one's; or if its own batch has put the key again.
//!   Readers that came by it before have it under their pins.
//! - A put looks at the first [`LOOKED_AT_MAX`] records of its key, and takes out those that nobody needs. So
//!   a key that is put for ever has as many records as there are views on it, and about as many more.

use kvilt_base::{Version, invariant, planted};

use super::{
    Readers,
    arena::{Node, Record},
};

/// A put looks at so few records behind its own: a key has more only if more views are open, and then each
/// put goes on with some.
const LOOKED_AT_MAX: usize = 8;

/// Records that went. No link leads to them any more, and readers may still have them.
pub(super) type Went<'a> = [Option<Record<'a>>; LOOKED_AT_MAX];

/// Makes `new` the newest record of its key, and takes out older ones if the key is written in place. The
/// caller has begun a write of the key.
pub(super) fn push<'a>(
    node: Node<'a>,
    new: Record<'a>,
    readers: &impl Readers,
    is_in_place: bool,
) -> Went<'a> {
    let newest = node.newest();
    invariant!(
        "T-1",
        newest.version() <= new.version(),
        "a record at {} behind one at {}",
        new.version(),
        newest.version()
    );
    let mut went: Went<'a> = [None; LOOKED_AT_MAX];
    if !is_in_place {
        new.set_older(Some(newest));
        node.set_newest(new);
        return went;
    }
    // The last record that stays, and whether readers see it already: the new one is seen at the end, and
    // then in one store, with all that stays behind it.
    let (mut newer, mut next) = (new, Some(newest));
    for place in &mut went {
        let Some(record) = next else { break };
        next = record.older();
        if is_needed(record, newer, readers) {
            lead(newer, Some(record));
            newer = record;
        } else {
            *place = Some(record);
        }
    }
    lead(newer, next);
    node.set_newest(new);
    went
}

/// Has a record that stays lead to the next one that does.
fn lead<'a>(newer: Record<'a>, older: Option<Record<'a>>) {
    // No store where nothing changes: the line may be another core's.
    if newer.older().map(Record::place) != older.map(Record::place) {
        newer.set_older(older);
    }
}

/// Whether a reader may need `record` beside the next newer one, see T-5.
fn is_needed(record: Record<'_>, newer: Record<'_>, readers: &impl Readers) -> bool {
    let batch = newer.batch();
    if batch != 0 && batch == record.batch() {
        return false;
    }
    planted!(WrittenInPlaceUnderView => return readers.is_in_flight(batch));
    readers.is_in_flight(batch) || readers.is_viewed(record.version()..newer.version())
}

/// The record that a reader at `view` sees: the newest up to it whose batch is not in flight.
#[inline]
pub(super) fn visible<'a>(node: Node<'a>, view: Version, readers: &impl Readers) -> Option<Record<'a>> {
    let mut next = Some(node.newest());
    while let Some(record) = next {
        if record.version() <= view && !is_passed_by(record, readers) {
            return Some(record);
        }
        next = record.older();
    }
    None
}

#[inline]
fn is_passed_by(record: Record<'_>, readers: &impl Readers) -> bool {
    let batch = record.batch();
    batch != 0 && readers.is_in_flight(batch)
}
