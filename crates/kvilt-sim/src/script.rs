//! `Script`: what a run does, as plain data. It can be printed, replayed and shrunk; nothing in it refers to
//! an engine. Keys are positions in the script's own sorted list of keys, so the order of positions is the
//! order of the keys.

use std::{fmt, sync::Arc};

use kvilt_base::{Direction, KeyRange};

use crate::dice::{Dice, mix};

/// A position in [`Script::keys`].
pub type KeyId = u16;

/// How many read views a script can hold open at once.
pub const VIEW_SLOTS: usize = 6;

/// A value as plain data: its number (different for every write of a script) and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Payload {
    /// Different for every write of a script.
    pub number: u32,
    /// Length, in bytes.
    pub bytes: u32,
}

impl Payload {
    /// Writes the value's bytes into `into`, replacing what was there: the number first, as far as it fits,
    /// then filler that compresses for every second number and does not for the others.
    pub fn expand_into(self, into: &mut Vec<u8>) {
        into.clear();
        let wanted = self.bytes as usize;
        into.extend_from_slice(&self.number.to_be_bytes()[..wanted.min(4)]);
        if self.number.is_multiple_of(2) {
            into.resize(wanted, self.number as u8);
            return;
        }
        let mut state = u64::from(self.number);
        while into.len() < wanted {
            state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
            let take = (wanted - into.len()).min(8);
            into.extend_from_slice(&state.to_le_bytes()[..take]);
        }
    }

    /// The value's bytes.
    pub fn expanded(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.expand_into(&mut bytes);
        bytes
    }
}

/// Keys from `start` up to, not including, `end`; without end if none. A start behind the end is legal and
/// means no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First key inside.
    pub start: KeyId,
    /// First key outside.
    pub end: Option<KeyId>,
}

impl Span {
    /// Whether the key lies inside.
    pub fn contains(self, key: KeyId) -> bool {
        key >= self.start && self.end.is_none_or(|end| key < end)
    }
}

/// What a compare-and-swap expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// What the model says is there: the swap is done.
    Current,
    /// No value.
    Absent,
    /// A value that was never written: the swap differs.
    Wrong,
}

/// One operation on the store, or on the world around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Gives a key a value.
    Put(KeyId, Payload),
    /// Takes a key's value away.
    Delete(KeyId),
    /// Several puts (with a payload) and deletes (without) as one.
    Batch(Vec<(KeyId, Option<Payload>)>),
    /// Compares and swaps; a new value of none deletes.
    Swap(KeyId, Expected, Option<Payload>),
    /// Deletes a range.
    DeleteRange(Span),
    /// Reads a key, now or at the view in this slot (now if the slot is empty).
    Get(KeyId, Option<u8>),
    /// Reads several keys in one call, as [`Step::Get`] reads one.
    GetMany(Vec<KeyId>, Option<u8>),
    /// Reads a range from one end.
    Scan {
        /// The range.
        span: Span,
        /// From which end.
        direction: Direction,
        /// Stop after this many rows.
        rows_max: u32,
        /// Ask for this many bytes at a time.
        batch_bytes: u32,
        /// Without values.
        keys_only: bool,
        /// At the view in this slot, or a new one.
        view: Option<u8>,
    },
    /// Reads a range from both ends in turns until they meet.
    ScanBothEnds {
        /// The range.
        span: Span,
        /// Bit `i % 64` says from which end the `i`-th piece is taken.
        turns: u64,
        /// Rows in a piece.
        batch_rows: u8,
        /// At the view in this slot, or a new one.
        view: Option<u8>,
    },
    /// Opens a view into a slot, closing the one that was there.
    OpenView(u8),
    /// Closes the view in a slot.
    CloseView(u8),
    /// Makes everything durable.
    Sync,
    /// Runs steps of background workers, chosen by the seed.
    Background {
        /// How many.
        steps: u16,
        /// Which workers.
        seed: u64,
    },
    /// Lets time pass.
    Advance {
        /// How much, in milliseconds.
        ms: u32,
    },
    /// Closes all views and the store, and opens it again.
    Reopen,
    /// Verifies the whole store.
    Check,
    /// Copies the store to a new directory.
    Copy,
}

impl Step {
    /// A get of `key` and of up to twelve other keys, of the script's `count`, that `key` and `seed` choose;
    /// one of them may come twice.
    pub fn get_many(key: KeyId, view: Option<u8>, count: usize, seed: u64) -> Step {
        let mut dice = Dice::new(mix(seed ^ u64::from(key)));
        let mut keys = vec![key];
        for _ in 0..dice.below(13) {
            let near = usize::from(*dice.pick(&keys)) + dice.below(2);
            keys.push(if dice.chance(1, 2) { near % count } else { dice.below(count) } as KeyId);
        }
        Step::GetMany(keys, view)
    }

    /// Whether it changes what the store contains (a swap may turn out not to).
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            Step::Put(..) | Step::Delete(_) | Step::Batch(_) | Step::Swap(..) | Step::DeleteRange(_)
        )
    }
}

/// Everything that a run does, in order, and the keys that it does it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// All keys, strictly ascending.
    pub keys: Arc<Vec<Vec<u8>>>,
    /// What is done.
    pub steps: Vec<Step>,
}

impl Script {
    /// The range of keys that a span means.
    pub fn range(&self, span: Span) -> KeyRange {
        KeyRange {
            start: self.keys[usize::from(span.start)].clone(),
            end: span.end.map(|end| self.keys[usize::from(end)].clone()),
        }
    }

    /// How many steps are operations on the store, not on the world around it.
    pub fn operations(&self) -> usize {
        self.steps.iter().filter(|s| !matches!(s, Step::Background { .. } | Step::Advance { .. })).count()
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} ({} B)", self.number, self.bytes)
    }
}

/// A key as text; a long one is cut in the middle.
fn key_text(key: &[u8]) -> String {
    if key.len() <= 40 {
        return format!("\"{}\"", key.escape_ascii());
    }
    let (head, tail) = (&key[..20], &key[key.len() - 8..]);
    format!("\"{}…{}\" ({} B)", head.escape_ascii(), tail.escape_ascii(), key.len())
}

/// A step with its keys as text.
struct Told<'a>(&'a Script, &'a Step);

impl Told<'_> {
    fn key(&self, key: KeyId) -> String {
        key_text(&self.0.keys[usize::from(key)])
    }

    fn span(&self, span: Span) -> String {
        format!("{}..{}", self.key(span.start), span.end.map(|end| self.key(end)).unwrap_or_default())
    }

    fn view(view: Option<u8>) -> String {
        view.map_or_else(|| "now".into(), |slot| format!("view {slot}"))
    }
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Step::Put(key, value) => write!(f, "put {} {value}", self.key(*key)),
            Step::Delete(key) => write!(f, "delete {}", self.key(*key)),
            Step::Batch(changes) => {
                write!(f, "batch")?;
                for (key, value) in changes {
                    match value {
                        Some(value) => write!(f, " +{} {value}", self.key(*key))?,
                        None => write!(f, " -{}", self.key(*key))?,
                    }
                }
                Ok(())
            }
            Step::Swap(key, expected, new) => {
                let new = new.map_or_else(|| "nothing".into(), |value| value.to_string());
                write!(f, "swap {} {expected:?} -> {new}", self.key(*key))
            }
            Step::DeleteRange(span) => write!(f, "delete-range {}", self.span(*span)),
            Step::Get(key, view) => write!(f, "get {} at {}", self.key(*key), Told::view(*view)),
            Step::GetMany(keys, view) => {
                write!(f, "get many")?;
                keys.iter().try_for_each(|key| write!(f, " {}", self.key(*key)))?;
                write!(f, " at {}", Told::view(*view))
            }
            Step::Scan { span, direction, rows_max, batch_bytes, keys_only, view } => write!(
                f,
                "scan {} {direction:?} at {} rows<={rows_max} bytes<={batch_bytes}{}",
                self.span(*span),
                Told::view(*view),
                if *keys_only { " keys only" } else { "" }
            ),
            Step::ScanBothEnds { span, turns, batch_rows, view } => write!(
                f,
                "scan both ends {} at {} rows={batch_rows} turns={turns:x}",
                self.span(*span),
                Told::view(*view)
            ),
            Step::OpenView(slot) => write!(f, "open view {slot}"),
            Step::CloseView(slot) => write!(f, "close view {slot}"),
            Step::Sync => f.write_str("sync"),
            Step::Background { steps, seed } => write!(f, "background {steps} steps, seed {seed:x}"),
            Step::Advance { ms } => write!(f, "advance {ms} ms"),
            Step::Reopen => f.write_str("reopen"),
            Step::Check => f.write_str("check"),
            Step::Copy => f.write_str("copy"),
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{number:5}  {}", Told(self, step))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_different_numbers_differ_and_have_their_length() {
        for bytes in [4, 5, 12, 13, 4000] {
            let even = Payload { number: 2, bytes }.expanded();
            let odd = Payload { number: 3, bytes }.expanded();
            assert_eq!((even.len(), odd.len()), (bytes as usize, bytes as usize));
            assert_ne!(even, odd);
        }
        assert!(Payload { number: 9, bytes: 0 }.expanded().is_empty());
    }

    #[test]
    fn a_script_prints_one_line_a_step() {
        let script = Script {
            keys: Arc::new(vec![vec![], b"a\0".to_vec(), vec![7; 1000]]),
            steps: vec![
                Step::Put(1, Payload { number: 5, bytes: 9 }),
                Step::DeleteRange(Span { start: 2, end: Some(0) }),
            ],
        };
        let text = script.to_string();
        assert!(text.contains("put \"a\\x00\" #5 (9 B)"), "{text}");
        assert!(text.contains("(1000 B)..\"\""), "{text}");
        assert_eq!(text.lines().count(), 2);
    }
}
