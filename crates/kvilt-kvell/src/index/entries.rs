//! `Entries`: keys with their places, copied out of the index into one buffer that can be used again.

use crate::place::Place;

/// Keys with their places, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    keys: Vec<u8>,
    ends: Vec<usize>,
    places: Vec<Place>,
}

impl Entries {
    /// None, and no memory.
    pub fn new() -> Self {
        Entries::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of memory that they need.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.len() * (size_of::<usize>() + size_of::<Place>())
    }

    /// The key at `i`.
    pub fn key(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.keys[start..self.ends[i]]
    }

    /// The place at `i`.
    pub fn place(&self, i: usize) -> Place {
        self.places[i]
    }

    /// The last key.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|last| self.key(last))
    }

    /// All, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], Place)> + ExactSizeIterator {
        (0..self.len()).map(|i| (self.key(i), self.place(i)))
    }

    /// Appends one.
    #[inline]
    pub fn push(&mut self, key: &[u8], place: Place) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.places.push(place);
    }

    /// Takes all out and keeps the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.places.clear();
    }
}
