//! Operations from bytes, against the ordered map; the player and its oracle are those of every other run.
//!
//! ```text
//! configuration u8 | seed u8 | per operation: what u8, then one to four bytes
//! ```

use std::sync::Arc;

use kvilt_base::Direction;

use crate::{
    dice::Dice,
    run::run,
    script::{Expected, KeyId, Payload, Script, Span, Step, VIEW_SLOTS},
    subject::Tested,
    world::World,
};

/// Steps of one script.
const STEPS_MAX: usize = 300;

/// Inputs to begin with, of one target.
pub(crate) const SEEDS_MAX: usize = 8;

/// Inputs to begin with: operations by dice.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let script = |seed: u64| {
        let mut dice = Dice::new(seed);
        (0..600).map(|_| dice.number() as u8).collect()
    };
    (0..SEEDS_MAX as u64).map(script).collect()
}

/// The target of an engine.
pub(crate) fn script(tested: &dyn Tested, input: &[u8]) {
    let Some(([configuration, seed], operations)) = input.split_first_chunk::<2>() else { return };
    let script = Script { keys: keys(), steps: steps(operations) };
    let subject = tested.of_seed(u64::from(*configuration));
    let world = World::fresh(u64::from(*seed));
    if let Err(failure) = run(&*subject, &world, &script) {
        panic!("{failure:?}\n{}\n{script}", subject.name());
    }
}

/// Empty, short, long, with shared beginnings, next to each other: in order.
fn keys() -> Arc<Vec<Vec<u8>>> {
    let mut keys = vec![vec![], vec![0], vec![0, 0], vec![0xff; 3], vec![b'm'; 300]];
    for first in [b'a', b'k', b'z'] {
        keys.extend((0..12).map(|i| vec![first, b'/', b'0' + i]));
    }
    keys.sort();
    Arc::new(keys)
}

fn steps(operations: &[u8]) -> Vec<Step> {
    let mut bytes = operations.iter().copied();
    let mut reader = Reader { bytes: &mut bytes, keys: keys().len() as u16, number: 1 };
    std::iter::from_fn(|| reader.step()).take(STEPS_MAX).collect()
}

struct Reader<'b> {
    bytes: &'b mut dyn Iterator<Item = u8>,
    keys: u16,
    /// Of the next payload: each write of a script has another.
    number: u32,
}

impl Reader<'_> {
    fn key(&mut self) -> Option<KeyId> {
        Some(u16::from(self.bytes.next()?) % self.keys)
    }

    fn payload(&mut self) -> Option<Payload> {
        let number = self.number;
        self.number += 1;
        // Mostly small, sometimes larger than a tiny chunk's whole log.
        let bytes = match self.bytes.next()? {
            small @ 0..200 => 4 + u32::from(small),
            large @ 200..=254 => u32::from(large - 199) * 40,
            255 => 0,
        };
        Some(if bytes == 0 { Payload::EMPTY } else { Payload { number, bytes } })
    }

    fn span(&mut self) -> Option<Span> {
        let start = self.key()?;
        let end = self.bytes.next()?;
        Some(Span { start, end: (end < 230).then(|| u16::from(end) % self.keys) })
    }

    fn view(&mut self) -> Option<Option<u8>> {
        let byte = self.bytes.next()?;
        Some((byte & 1 == 1).then_some((byte >> 1) % VIEW_SLOTS as u8))
    }

    fn step(&mut self) -> Option<Step> {
        let what = self.bytes.next()?;
        Some(match what % 32 {
            0..=9 => Step::Put(self.key()?, self.payload()?),
            10 | 11 => Step::Delete(self.key()?),
            12 | 13 => {
                let count = usize::from(what >> 5) + 1;
                Step::Batch((0..count).map(|i| self.change(i)).collect::<Option<_>>()?)
            }
            14 => Step::Swap(self.key()?, Expected::Current, Some(self.payload()?)),
            15 => Step::Swap(self.key()?, Expected::Absent, Some(self.payload()?)),
            16 => Step::Swap(self.key()?, Expected::Wrong, None),
            17 => Step::DeleteRange(self.span()?),
            19 if what & 128 != 0 => {
                Step::get_many(self.key()?, self.view()?, self.keys.into(), u64::from(what))
            }
            18 | 19 => Step::Get(self.key()?, self.view()?),
            20 | 21 => Step::Scan {
                span: self.span()?,
                direction: if what & 32 == 0 { Direction::Forward } else { Direction::Backward },
                rows_max: 1 + u32::from(self.bytes.next()?),
                batch_bytes: 1 + u32::from(self.bytes.next()?) * 8,
                keys_only: what & 64 != 0,
                view: self.view()?,
            },
            22 => Step::ScanBothEnds {
                span: self.span()?,
                turns: u64::from(self.bytes.next()?) * 0x0101_0101_0101_0101,
                batch_rows: 1 + what / 32,
                view: self.view()?,
            },
            23 => Step::OpenView(what / 32 % VIEW_SLOTS as u8),
            24 => Step::CloseView(what / 32 % VIEW_SLOTS as u8),
            25 => Step::Sync,
            26..=28 => {
                Step::Background { steps: 1 + u16::from(what / 32) * 4, seed: u64::from(self.bytes.next()?) }
            }
            29 => Step::Advance { ms: u32::from(what / 32) * 200 },
            30 => Step::Reopen,
            _ => Step::Check,
        })
    }

    fn change(&mut self, place: usize) -> Option<(KeyId, Option<Payload>)> {
        let key = self.key()?;
        if place % 3 == 2 { Some((key, None)) } else { Some((key, Some(self.payload()?))) }
    }
}
