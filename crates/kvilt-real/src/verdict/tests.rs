//! Stories that the judge must let pass, and broken promises that it must see.

use super::*;
use crate::tale::{Style, writer_of};

/// Most stories are told from this seed.
const SEED: u64 = 11;

/// Writers take turns, `turns` steps in all; `notes[w]` are as if each step was done before the next began.
struct Story {
    seed: u64,
    notes: Vec<Vec<Note>>,
}

impl Story {
    fn of(writers: usize, turns: usize) -> Self {
        let mut notes = vec![Vec::new(); writers];
        for turn in 0..turns as u64 {
            notes[turn as usize % writers].push(Note { began: 2 * turn, done: Some(2 * turn + 1) });
        }
        Story { seed: SEED, notes }
    }

    /// The parts if of each writer so many steps survived.
    fn with(&self, survived: &[usize]) -> Vec<Part> {
        let tale = |writer| Tale::new(Style::Mixed, self.seed, 0, writer);
        let parts = self.notes.iter().zip(survived).enumerate().map(|(writer, (notes, &count))| {
            let mut now = Rows::new();
            for step in tale(writer).take(count) {
                step.apply(&mut now);
            }
            assert!(now.keys().all(|key| writer_of(key) == Some(writer)));
            Part { before: Rows::new(), tale: tale(writer), notes: notes.clone(), now }
        });
        parts.collect()
    }

    fn step(writer: usize, position: usize) -> Step {
        Tale::new(Style::Mixed, SEED, 0, writer).nth(position).unwrap()
    }
}

#[test]
fn a_whole_store_is_right_at_every_level() {
    let story = Story::of(3, 300);
    for keeps_all in [false, true] {
        let verdict = judge(story.with(&[100, 100, 100]), keeps_all).unwrap();
        assert_eq!(verdict, Verdict { acknowledged: 300, lost: 0 });
    }
}

#[test]
fn a_prefix_is_right_unless_all_was_promised_or_a_sync_lies_behind_it() {
    let story = Story::of(1, 200);
    let syncs: Vec<usize> = (0..200).filter(|&i| Story::step(0, i) == Step::Sync).collect();
    let (first, last) = (syncs[0], *syncs.last().unwrap());
    assert!(judge(story.with(&[199]), true).is_err());
    assert!(judge(story.with(&[last]), false).is_ok());
    let error = judge(story.with(&[first]), false).unwrap_err();
    assert!(error.contains("must have survived"), "{error}");
}

#[test]
fn a_hole_between_writers_is_seen() {
    // Nobody may keep a step that began after another writer's lost step was done. Steps that change nothing
    // leave no trace, so the story is one of writes only, the first seed that has one.
    let is_put = |step: &Step| matches!(step, Step::Write(writes) if writes[0].1.is_some());
    let tale = |seed, writer| Tale::new(Style::Mixed, seed, 0, writer).take(6);
    let seed = (0..).find(|&seed| (0..2).all(|writer| tale(seed, writer).all(|step| is_put(&step)))).unwrap();
    let story = Story { seed, ..Story::of(2, 12) };
    assert!(judge(story.with(&[4, 4]), false).is_ok());
    assert!(judge(story.with(&[4, 3]), false).is_ok());
    let error = judge(story.with(&[3, 6]), false).unwrap_err();
    assert!(error.contains("writer 0"), "{error}");
}

#[test]
fn a_step_that_never_returned_may_be_there_or_not() {
    let mut story = Story::of(1, 50);
    story.notes[0].last_mut().unwrap().done = None;
    assert!(judge(story.with(&[50]), true).is_ok());
    assert!(judge(story.with(&[49]), true).is_ok());
    assert!(judge(story.with(&[48]), true).is_err() || Story::step(0, 48) == Step::Sync);
}

#[test]
fn half_a_batch_a_strange_row_and_an_old_value_are_seen() {
    let story = Story::of(1, 120);
    let batch = (0..120).find_map(|i| match Story::step(0, i) {
        Step::Write(writes) if writes.len() > 1 => Some((i, writes)),
        _ => None,
    });
    let (position, writes) = batch.unwrap();
    let mut parts = story.with(&[position]);
    Step::Write(writes[..1].to_vec()).apply(&mut parts[0].now);
    parts[0].notes.truncate(position + 1);
    assert!(judge(parts, false).unwrap_err().contains("none of them"));

    let mut parts = story.with(&[120]);
    parts[0].now.insert(b"00/0/9".to_vec(), b"strange".to_vec());
    assert!(judge(parts, false).is_err());
}
