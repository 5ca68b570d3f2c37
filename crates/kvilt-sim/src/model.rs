//! `Model`: what the store must contain — an ordered map, its state at every open view, and a fingerprint of
//! its state after each write, by which a recovered store is recognised as one of them.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    dice::mix,
    reading::Row,
    script::{Expected, KeyId, Payload, Script, Span, Step, VIEW_SLOTS},
};

/// One state of the store.
pub type State = BTreeMap<KeyId, Payload>;

/// What one write changes, key by key; none takes the value away. Ranges and swaps are already resolved.
pub type Changes = Vec<(KeyId, Option<Payload>)>;

/// The ordered map that a store is compared with.
#[derive(Clone, Debug)]
pub struct Model {
    now: Arc<State>,
    /// Sum over the rows of [`row_fingerprint`]; follows each change, so it costs nothing to know.
    fingerprint: u64,
    views: [Option<Arc<State>>; VIEW_SLOTS],
}

impl Model {
    /// The model of an empty store.
    pub fn new() -> Self {
        Model::with(State::new())
    }

    /// The model of a store that contains this.
    pub fn with(state: State) -> Self {
        let fingerprint = fingerprint(&state);
        Model { now: Arc::new(state), fingerprint, views: [const { None }; VIEW_SLOTS] }
    }

    /// The newest state.
    pub fn now(&self) -> &State {
        &self.now
    }

    /// Changes when the state does.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The state at the view in a slot, or the newest if none is meant or open.
    pub fn at(&self, view: Option<u8>) -> Arc<State> {
        let open = view.and_then(|slot| self.views[usize::from(slot)].as_ref());
        Arc::clone(open.unwrap_or(&self.now))
    }

    /// Opens a view into a slot.
    pub fn open_view(&mut self, slot: u8) {
        self.views[usize::from(slot)] = Some(Arc::clone(&self.now));
    }

    /// Closes the view in a slot.
    pub fn close_view(&mut self, slot: u8) {
        self.views[usize::from(slot)] = None;
    }

    /// Closes all views, as a close of the store does.
    pub fn close_views(&mut self) {
        self.views = [const { None }; VIEW_SLOTS];
    }

    /// What a step changes, or none if it changes nothing by its nature (a swap that finds something else).
    pub fn changes(&self, step: &Step) -> Option<Changes> {
        match step {
            Step::Put(key, value) => Some(vec![(*key, Some(*value))]),
            Step::Delete(key) => Some(vec![(*key, None)]),
            Step::Batch(changes) => Some(changes.clone()),
            Step::Swap(key, expected, new) => {
                let is_done = match expected {
                    Expected::Current => true,
                    Expected::Absent => !self.now.contains_key(key),
                    Expected::Wrong => false,
                };
                is_done.then(|| vec![(*key, *new)])
            }
            Step::DeleteRange(span) => Some(self.keys_in(*span).map(|key| (key, None)).collect()),
            _ => None,
        }
    }

    fn keys_in(&self, span: Span) -> impl Iterator<Item = KeyId> {
        rows_in(&self.now, span).map(|(key, _)| key)
    }

    /// Applies the changes of one write.
    pub fn apply(&mut self, changes: &Changes) {
        let now = Arc::make_mut(&mut self.now);
        for &(key, value) in changes {
            let before = match value {
                Some(value) => {
                    self.fingerprint = self.fingerprint.wrapping_add(row_fingerprint(key, value));
                    now.insert(key, value)
                }
                None => now.remove(&key),
            };
            if let Some(before) = before {
                self.fingerprint = self.fingerprint.wrapping_sub(row_fingerprint(key, before));
            }
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Model::new()
    }
}

/// The rows of a state inside a span, ascending.
pub fn rows_in(state: &State, span: Span) -> impl DoubleEndedIterator<Item = (KeyId, Payload)> {
    let is_empty = span.end.is_some_and(|end| end <= span.start);
    let end = if is_empty { Some(span.start) } else { span.end };
    let upper = end.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
    state.range((std::ops::Bound::Included(span.start), upper)).map(|(key, value)| (*key, *value))
}

/// Two states with the same fingerprint are taken to be the same: it has 64 bits.
pub fn fingerprint(state: &State) -> u64 {
    state.iter().fold(0, |sum, (key, value)| sum.wrapping_add(row_fingerprint(*key, *value)))
}

/// What one row adds to a state's fingerprint.
fn row_fingerprint(key: KeyId, value: Payload) -> u64 {
    let row = (u64::from(key) << 48) ^ (u64::from(value.number) << 20) ^ u64::from(value.bytes);
    mix(mix(row ^ 0x6b65_7920_726f_7773))
}

/// Turns rows read from a store back into a state: keys must be the script's, and each value what the payload
/// that it names expands to. Says what is wrong with the first row that is not.
pub fn state_of_rows(script: &Script, rows: &[Row]) -> Result<State, String> {
    let mut state = State::new();
    let mut expanded = Vec::new();
    for (key, value) in rows {
        let Ok(id) = script.keys.binary_search(key) else {
            return Err(format!("a key that was never written: \"{}\"", key.escape_ascii()));
        };
        let payload = match value.first_chunk::<4>() {
            Some(number) => Payload { number: u32::from_be_bytes(*number), bytes: value.len() as u32 },
            None => Payload::EMPTY,
        };
        payload.expand_into(&mut expanded);
        if expanded != *value {
            return Err(format!(
                "key {id} has a value that nobody wrote: it is not what {payload} expands to"
            ));
        }
        state.insert(id as KeyId, payload);
    }
    Ok(state)
}

impl Payload {
    /// The one payload that is shorter than its number. Every empty value is this one, so that a row still
    /// names its payload.
    pub const EMPTY: Payload = Payload { number: 0, bytes: 0 };
}
