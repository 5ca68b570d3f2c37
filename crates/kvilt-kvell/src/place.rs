//! `Place`: where an item lies, a size class and the number of a slot in it, in 48 bits.

use kvilt_format::slab::Class;

/// Bytes of a place in the index.
pub const PLACE_BYTES: usize = 6;

/// Size classes that a place can name.
const CLASSES: u8 = 1 << 6;

/// Slots that a class can have.
const SLOTS: u64 = 1 << 42;

/// A size class and a slot of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
pub struct Place(u64);

impl Place {
    /// The place of slot `slot` of class `class`.
    pub fn new(class: u8, slot: u64) -> Self {
        assert!(class < CLASSES && slot < SLOTS, "no place has class {class} and slot {slot}");
        Place(u64::from(class) << 42 | slot)
    }

    /// The number of the size class.
    pub fn class(self) -> u8 {
        (self.0 >> 42) as u8
    }

    /// The size class. Panics if there is none of that number.
    pub fn size_class(self) -> Class {
        Class::new(self.class()).expect("a place is of a class")
    }

    /// The number of the slot in its class.
    pub fn slot(self) -> u64 {
        self.0 % SLOTS
    }

    /// The place as a number of 48 bits.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// The place of the low 48 bits of a number.
    pub fn from_u64(packed: u64) -> Self {
        Place(packed % (u64::from(CLASSES) * SLOTS))
    }

    /// The place as bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let [a, b, c, d, e, f, _, _] = self.0.to_le_bytes();
        [a, b, c, d, e, f]
    }

    /// The place of these bytes.
    #[inline]
    pub fn from_bytes([a, b, c, d, e, f]: [u8; PLACE_BYTES]) -> Self {
        Place(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_and_slot_come_back_from_six_bytes() {
        for (class, slot) in [(0, 0), (63, SLOTS - 1), (1, SLOTS - 1), (63, 0), (17, 123_456_789_012)] {
            let place = Place::from_bytes(Place::new(class, slot).to_bytes());
            assert_eq!((place.class(), place.slot()), (class, slot));
        }
    }

    #[test]
    #[should_panic(expected = "no place has")]
    fn a_class_of_more_than_six_bits_is_refused() {
        Place::new(64, 0);
    }
}
