//! Makes scripts: a seed and a shape give one script, always the same. A script is a row of phases; some mix
//! all operations, others force the store to change its structure (fill in one direction, drain, churn).

use std::sync::Arc;

use kvilt_base::Direction;

use crate::{
    dice::Dice,
    script::{Expected, KeyId, Payload, Script, Span, Step, VIEW_SLOTS},
    subject::Subject,
    taste::Taste,
};

pub use crate::taste::Tastes;

/// Weight of phases of range deletes among phases of writes, whose other weights add up to twenty.
const WIPES: u32 = 2;
/// The same in scripts that have much of them, and there also of phases that delete one range again and
/// again.
const WIPES_MANY: u32 = 12;
/// Crash scripts from this seed on may have such phases, or long keys. Those before are the ones that planted
/// bugs are hunted with and fuzz targets begin with, by budgets that were found for them.
const FIRST_WIPING_SEED: u64 = 12;

/// What kind of scripts to make.
#[derive(Clone, Debug)]
pub struct Shape {
    /// About how many steps.
    pub steps: usize,
    /// About how many keys.
    pub keys: usize,
    /// Longest ordinary value, in bytes.
    pub value_bytes_max: usize,
    /// One value in a hundred is up to this long, in bytes: larger than a chunk.
    pub large_value_bytes_max: usize,
    /// Longest key, in bytes; only a few keys are longer than 40, except in scripts of long keys.
    pub key_bytes_max: usize,
    /// Whether the store is closed and opened within the script.
    pub reopens: bool,
    /// Of a hundred mixed steps, about how many let background workers run or time pass.
    pub background_percent: u32,
    /// Of ten thousand mixed steps, about how many verify or copy the whole store.
    pub checks_per_10000: u32,
    /// What some scripts have much of.
    pub tastes: Tastes,
    /// Longest beginning that keys share in scripts of long keys, in bytes.
    pub long_key_bytes_max: usize,
    /// Whether each script may have many range deletes in a row, or a taste; otherwise those from a later
    /// seed on have.
    pub is_wiping: bool,
    /// Whether the store has so little memory that heavy scripts must have few steps.
    pub is_starved: bool,
}

impl Shape {
    /// Long scripts for comparing with the model.
    pub fn long() -> Self {
        Shape {
            steps: 2_500,
            keys: 400,
            value_bytes_max: 60,
            large_value_bytes_max: 9_000,
            key_bytes_max: 900,
            reopens: true,
            background_percent: 12,
            checks_per_10000: 8,
            tastes: Tastes::All,
            long_key_bytes_max: 30 << 10,
            is_wiping: true,
            is_starved: false,
        }
    }

    /// Short scripts whose every disk operation becomes a crash.
    pub fn crash() -> Self {
        Shape {
            steps: 110,
            keys: 60,
            value_bytes_max: 90,
            large_value_bytes_max: 3_000,
            key_bytes_max: 300,
            reopens: true,
            background_percent: 22,
            checks_per_10000: 0,
            // Each image of the disk is copied many times.
            tastes: Tastes::LongKeys,
            long_key_bytes_max: 8 << 10,
            is_wiping: false,
            is_starved: false,
        }
    }

    /// What is done between two crashes: a few steps on the keys of the script before.
    pub fn afterlife() -> Self {
        Shape { steps: 14, background_percent: 25, ..Shape::crash() }
    }

    /// The same for this store.
    #[must_use]
    pub fn on(self, subject: &dyn Subject) -> Self {
        Shape { is_starved: subject.is_starved(), ..self }
    }

    /// The script of a seed.
    pub fn script(&self, seed: u64) -> Script {
        let mut dice = Dice::new(seed);
        let is_wiping = self.is_wiping || seed >= FIRST_WIPING_SEED;
        let tastes = if is_wiping { self.tastes } else { Tastes::None };
        let shape = Shape { is_wiping, tastes, ..self.clone() };
        let taste = Taste::of_seed(seed, &shape);
        let shape = taste.fit(&shape);
        let keys = universe(&mut dice, &shape, taste);
        shape.script_of(taste, Arc::new(keys), 0, &mut dice)
    }

    /// A script over given keys, whose payloads have numbers above `number`.
    pub fn script_over(&self, keys: Arc<Vec<Vec<u8>>>, number: u32, dice: &mut Dice) -> Script {
        self.script_of(Taste::Plain, keys, number, dice)
    }

    fn script_of(&self, taste: Taste, keys: Arc<Vec<Vec<u8>>>, number: u32, dice: &mut Dice) -> Script {
        let wipes = match taste {
            Taste::RangeDeletes => WIPES_MANY,
            _ if self.is_wiping => WIPES,
            _ => 0,
        };
        let large = if matches!(taste, Taste::LargeValues(_)) { 12 } else { 1 };
        let repeats = if taste == Taste::RangeDeletes { WIPES_MANY } else { 0 };
        let mut author =
            Author { shape: self, wipes, repeats, large, count: keys.len(), number, steps: Vec::new(), dice };
        while author.steps.len() < self.steps {
            author.write_phase();
        }
        Script { keys, steps: author.steps }
    }
}

/// The keys of a script: one family of shapes, some corner cases, strictly ascending.
fn universe(dice: &mut Dice, shape: &Shape, taste: Taste) -> Vec<Vec<u8>> {
    let family = dice.below(5);
    let mut keys: Vec<Vec<u8>> = (0..shape.keys).map(|i| family_key(dice, family, i)).collect();
    if let Taste::LongKeys(bytes) = taste {
        let beginning = vec![b'p'; bytes];
        // Some stay short, and some differ in the middle of what the others share.
        for key in &mut keys {
            let shared = *dice.pick(&[bytes, bytes, bytes, bytes, bytes, bytes, bytes / 2, 0]);
            key.splice(0..0, beginning[..shared].iter().copied());
        }
    }
    keys.push(Vec::new());
    keys.push(vec![0]);
    keys.push(vec![0xff; 3]);
    for _ in 0..3 {
        // Neighbours that differ by a trailing zero byte only: nothing fits between them.
        let mut successor = dice.pick(&keys).clone();
        successor.push(0);
        keys.push(successor);
        let length = dice.between(41.min(shape.key_bytes_max), shape.key_bytes_max);
        let mut long = dice.pick(&keys).clone();
        long.resize(length.max(long.len()), b'x');
        keys.push(long);
    }
    keys.sort();
    keys.dedup();
    keys
}

fn family_key(dice: &mut Dice, family: usize, i: usize) -> Vec<u8> {
    match family {
        // app · time · user: popular prefixes.
        0 => format!("app{:02}/{:06}/u{:03}", dice.below(6), dice.below(5000), dice.below(50)).into_bytes(),
        // Dense integers, as an auto-increment would make.
        1 => (i as u64).to_be_bytes().to_vec(),
        // One long prefix shared by all.
        2 => format!("the/same/prefix/for/every/key/{:05}", dice.below(20_000)).into_bytes(),
        // Short, arbitrary bytes, zeros and 0xff among them.
        3 => {
            (0..dice.between(1, 4)).map(|_| *dice.pick(&[0, 1, b'a', b'b', 0x7f, 0x80, 0xfe, 0xff])).collect()
        }
        // Several tables of a relational layer: edge · node · type · node.
        _ => format!("e{}|{:03}|{}|{:03}", dice.below(3), dice.below(99), dice.below(4), dice.below(99))
            .into_bytes(),
    }
}

/// Writes one script, phase by phase.
struct Author<'a> {
    shape: &'a Shape,
    /// How often it writes range deletes for a while, of some twenty times.
    wipes: u32,
    /// How often it deletes one range again and again for a while.
    repeats: u32,
    /// Of a hundred values, about how many are large.
    large: usize,
    /// How many keys there are.
    count: usize,
    /// The last payload number given.
    number: u32,
    steps: Vec<Step>,
    dice: &'a mut Dice,
}

impl Author<'_> {
    fn write_phase(&mut self) {
        let share = (self.shape.steps / 5).max(4);
        let length = self.dice.between(share / 2, share);
        match self.dice.weighted(&[10, 2, 2, 2, 2, 1, 1, self.wipes, self.repeats]) {
            0 => self.mix(length),
            1 => self.fill(length, Order::Ascending),
            2 => self.fill(length, Order::Descending),
            3 => self.fill(length, Order::Random),
            4 => self.drain(length),
            5 => self.churn(length),
            6 => (0..length / 4).for_each(|_| self.batch()),
            7 => self.wipe(length),
            _ => self.repeat(length),
        }
    }

    fn key(&mut self) -> KeyId {
        self.dice.below(self.count) as KeyId
    }

    fn slot(&mut self) -> u8 {
        self.dice.below(VIEW_SLOTS) as u8
    }

    fn view(&mut self) -> Option<u8> {
        if self.dice.chance(2, 5) { Some(self.slot()) } else { None }
    }

    fn payload(&mut self) -> Payload {
        let throw = self.dice.below(100);
        let bytes = match throw {
            _ if throw < self.large => {
                self.dice.between(self.shape.value_bytes_max, self.shape.large_value_bytes_max)
            }
            _ if throw < self.large + 4 => return Payload::EMPTY,
            _ => self.dice.between(4, self.shape.value_bytes_max),
        };
        self.number += 1;
        Payload { number: self.number, bytes: bytes as u32 }
    }

    fn span(&mut self) -> Span {
        let start = if self.dice.chance(1, 8) { 0 } else { self.key() };
        let end = match self.dice.below(10) {
            0..=2 => None,
            // Anywhere, so that start > end happens too.
            3 => Some(self.key()),
            _ => {
                let length = self.dice.between(0, self.count / 4);
                Some((usize::from(start) + length).min(self.count - 1) as KeyId)
            }
        };
        Span { start, end }
    }

    /// All operations in any order.
    fn mix(&mut self, length: usize) {
        let reopen = u32::from(self.shape.reopens) * 30;
        let background = self.shape.background_percent * 100;
        let checks = self.shape.checks_per_10000;
        for _ in 0..length {
            let weights = [3000, 900, 500, 450, 60, 1700, 900, 500, 250, 150, 60, background, reopen, checks];
            match self.dice.weighted(&weights) {
                0 => self.put(),
                1 => {
                    let key = self.key();
                    self.steps.push(Step::Delete(key));
                }
                2 => self.batch(),
                3 => self.swap(),
                4 => self.delete_range(),
                5 => self.get(),
                6 => self.scan(),
                7 => self.scan_both_ends(),
                8 => {
                    let step = Step::OpenView(self.slot());
                    self.steps.push(step);
                }
                9 => {
                    let step = Step::CloseView(self.slot());
                    self.steps.push(step);
                }
                10 => self.steps.push(Step::Sync),
                11 => self.background(),
                12 => self.steps.push(Step::Reopen),
                _ => self.steps.push(if self.dice.chance(4, 5) { Step::Check } else { Step::Copy }),
            }
        }
    }

    /// Reads a key; every third time, where budgets of hunts do not depend on it, others with it. The dice of
    /// the script do not decide that, so that scripts are otherwise what they were before there were such.
    fn get(&mut self) {
        let (key, view) = (self.key(), self.view());
        let is_of_many = self.shape.is_wiping && self.steps.len().is_multiple_of(3);
        self.steps.push(if is_of_many {
            Step::get_many(key, view, self.count, self.steps.len() as u64)
        } else {
            Step::Get(key, view)
        });
    }

    fn put(&mut self) {
        let step = Step::Put(self.key(), self.payload());
        self.steps.push(step);
    }

    fn batch(&mut self) {
        let length = self.dice.between(2, 20);
        // Half of the batches stay in one place, the others span the key space.
        let place = self.key();
        let is_local = self.dice.chance(1, 2);
        let changes = (0..length)
            .map(|i| {
                let key =
                    if is_local { ((usize::from(place) + i) % self.count) as KeyId } else { self.key() };
                (key, if self.dice.chance(1, 4) { None } else { Some(self.payload()) })
            })
            .collect();
        self.steps.push(Step::Batch(changes));
    }

    fn swap(&mut self) {
        let expected = match self.dice.below(4) {
            0 | 1 => Expected::Current,
            2 => Expected::Absent,
            _ => Expected::Wrong,
        };
        let new = if self.dice.chance(1, 5) { None } else { Some(self.payload()) };
        let key = self.key();
        self.steps.push(Step::Swap(key, expected, new));
    }

    fn delete_range(&mut self) {
        let mut span = self.span();
        if self.dice.chance(1, 8) {
            span.end = span.start.checked_sub(1);
        }
        self.steps.push(Step::DeleteRange(span));
    }

    fn scan(&mut self) {
        let direction = if self.dice.chance(1, 2) { Direction::Forward } else { Direction::Backward };
        let rows_max = match self.dice.below(3) {
            0 => 1,
            1 => self.dice.between(2, 20) as u32,
            _ => u32::MAX,
        };
        let batch_bytes = *self.dice.pick(&[1, 64, 500, 4096, 1 << 17]);
        let keys_only = self.dice.chance(1, 6);
        let (span, view) = (self.span(), self.view());
        self.steps.push(Step::Scan { span, direction, rows_max, batch_bytes, keys_only, view });
    }

    fn scan_both_ends(&mut self) {
        let batch_rows = self.dice.between(1, 9) as u8;
        let (span, turns, view) = (self.span(), self.dice.number(), self.view());
        self.steps.push(Step::ScanBothEnds { span, turns, batch_rows, view });
    }

    fn background(&mut self) {
        if self.dice.chance(1, 4) {
            let ms = *self.dice.pick(&[1, 50, 300, 600, 5_000]);
            self.steps.push(Step::Advance { ms });
        }
        let steps = *self.dice.pick(&[1, 1, 2, 3, 8, 30]);
        let seed = self.dice.number();
        self.steps.push(Step::Background { steps, seed });
    }

    /// Puts run through the keys in one order: monotone inserts land in one chunk and split it again and
    /// again.
    fn fill(&mut self, length: usize, order: Order) {
        let stride = self.dice.between(1, 3);
        let start = self.key();
        for i in 0..length {
            let offset = i * stride % self.count;
            let key = match order {
                Order::Ascending => (usize::from(start) + offset) % self.count,
                Order::Descending => (usize::from(start) + self.count - offset) % self.count,
                Order::Random => self.dice.below(self.count),
            };
            let payload = self.payload();
            self.steps.push(Step::Put(key as KeyId, payload));
            if self.dice.chance(1, 12) {
                self.background();
            }
        }
        self.look_around();
    }

    /// Deletes most of what is there, so that neighbours are coalesced and space comes back.
    fn drain(&mut self, length: usize) {
        if self.dice.chance(1, 2) {
            let start = self.key();
            let span = Span { start, end: Some(self.key().max(start)) };
            self.steps.push(Step::DeleteRange(span));
        } else {
            let start = usize::from(self.key());
            for i in 0..length {
                self.steps.push(Step::Delete(((start + i) % self.count) as KeyId));
            }
        }
        for _ in 0..3 {
            self.background();
        }
        self.look_around();
    }

    /// Many range deletes, most of them small, side by side, one over the other or where nothing is; some
    /// over all of them.
    fn wipe(&mut self, length: usize) {
        let mut place = usize::from(self.key());
        let width = self.dice.between(1, 9);
        for _ in 0..length {
            let (start, end) = match self.dice.below(16) {
                0 => (0, None),
                1 => (place.saturating_sub(width * 8), Some(place + width * 8)),
                2..=4 => (place, Some(place + width)),
                _ => {
                    place = (place + width + self.dice.below(3)) % self.count;
                    (place, Some(place + self.dice.between(0, width)))
                }
            };
            let id = |key: usize| key.min(self.count - 1) as KeyId;
            self.steps.push(Step::DeleteRange(Span { start: id(start), end: end.map(id) }));
            match self.dice.below(12) {
                0 => self.background(),
                1 => {
                    let step = Step::OpenView(self.slot());
                    self.steps.push(step);
                }
                2 => {
                    let step = Step::CloseView(self.slot());
                    self.steps.push(step);
                }
                3 => self.scan(),
                4 => {
                    let step = Step::Get(id(place), self.view());
                    self.steps.push(step);
                }
                5..=8 => {
                    let key = id(place + self.dice.below(2 * width));
                    let payload = self.payload();
                    self.steps.push(Step::Put(key, payload));
                }
                _ => {}
            }
        }
        self.look_around();
    }

    /// Deletes one range again and again, as a job does that has nothing to do any more. Now and then it has.
    fn repeat(&mut self, length: usize) {
        let start = self.key();
        let end = (usize::from(start) + self.dice.between(1, 40)).min(self.count - 1) as KeyId;
        for _ in 0..length {
            self.steps.push(Step::DeleteRange(Span { start, end: Some(end) }));
            match self.dice.below(40) {
                0 => self.background(),
                1 => {
                    let step = Step::OpenView(self.slot());
                    self.steps.push(step);
                }
                2 => self.put(),
                3 => {
                    let payload = self.payload();
                    self.steps.push(Step::Put(start, payload));
                }
                _ => {}
            }
        }
        self.look_around();
    }

    /// Overwrites a handful of keys: many versions of one key, logs full of what nobody needs.
    fn churn(&mut self, length: usize) {
        let start = usize::from(self.key());
        for _ in 0..length {
            let key = (start + self.dice.below(4)) % self.count;
            let payload = self.payload();
            self.steps.push(Step::Put(key as KeyId, payload));
            match self.dice.below(24) {
                0 | 1 => self.background(),
                2 => {
                    let step = Step::OpenView(self.slot());
                    self.steps.push(step);
                }
                3 => self.scan(),
                _ => {}
            }
        }
        self.look_around();
    }

    /// A full scan and some gets, after the structure was changed.
    fn look_around(&mut self) {
        let whole = Span { start: 0, end: None };
        let direction = if self.dice.chance(1, 2) { Direction::Forward } else { Direction::Backward };
        let view = self.view();
        self.steps.push(Step::Scan {
            span: whole,
            direction,
            rows_max: u32::MAX,
            batch_bytes: 4096,
            keys_only: false,
            view,
        });
        for _ in 0..3 {
            let step = Step::Get(self.key(), self.view());
            self.steps.push(step);
        }
    }
}

/// The order in which a fill runs through the keys.
#[derive(Clone, Copy)]
enum Order {
    Ascending,
    Descending,
    Random,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_script_and_another_seed_another() {
        let shape = Shape::crash();
        assert_eq!(shape.script(3), shape.script(3));
        assert_ne!(shape.script(3), shape.script(4));
    }

    #[test]
    fn keys_are_strictly_ascending_and_include_the_empty_one() {
        for seed in 0..20 {
            let script = Shape::long().script(seed);
            assert!(script.keys.is_sorted_by(|a, b| a < b));
            assert!(script.keys[0].is_empty());
            assert!(script.keys.len() < usize::from(KeyId::MAX));
        }
    }

    #[test]
    fn every_kind_of_step_is_written() {
        let mut kinds = std::collections::HashSet::new();
        for seed in 0..8 {
            kinds.extend(Shape::long().script(seed).steps.iter().map(std::mem::discriminant));
        }
        assert_eq!(kinds.len(), 17);
    }

    #[test]
    fn some_scripts_have_long_keys_large_values_or_hundreds_of_range_deletes() {
        let scripts: Vec<Script> = (0..72).map(|seed| Shape::long().script(seed)).collect();
        let with = |has: &dyn Fn(&Script) -> bool| scripts.iter().filter(|script| has(script)).count();
        let long = |script: &Script| script.keys.iter().filter(|key| key.len() > 10 << 10).count() > 10;
        let large = |script: &Script| {
            script.steps.iter().flat_map(payloads).filter(|value| value.bytes > 256 << 10).count() > 3
        };
        let wipes = |step: &&Step| matches!(step, Step::DeleteRange(_));
        let wiping = |script: &Script| script.steps.iter().filter(wipes).count() > 400;
        let again = |script: &Script| {
            let mut last: Vec<&Step> = script.steps.iter().filter(wipes).collect();
            let all = last.len();
            last.dedup();
            all > last.len() + 100
        };
        for count in [with(&long), with(&large), with(&wiping), with(&again)] {
            assert!((2..40).contains(&count), "{count} of {}", scripts.len());
        }
    }

    #[test]
    fn payload_numbers_are_not_reused() {
        let script = Shape::long().script(9);
        let mut seen = std::collections::HashSet::new();
        for step in &script.steps {
            for payload in payloads(step) {
                assert!(payload == Payload::EMPTY || seen.insert(payload.number), "{payload}");
            }
        }
        assert!(seen.len() > 500);
    }

    fn payloads(step: &Step) -> Vec<Payload> {
        match step {
            Step::Put(_, value) | Step::Swap(_, _, Some(value)) => vec![*value],
            Step::Batch(changes) => changes.iter().filter_map(|(_, value)| *value).collect(),
            _ => vec![],
        }
    }
}
