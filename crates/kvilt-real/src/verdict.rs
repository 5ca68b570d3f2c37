//! `Verdict`: whether what is left of a store is what it promised, given what its writers noted.
//!
//! For each writer the store must show the state after some number of its steps. Of the numbers that fit, the
//! least are chosen that keep every promise: what was durable is there, and if a step survived that began
//! after another was done, the other survived too. If there are none, the promise was broken.

use std::{collections::BTreeSet, fmt};

use crate::{
    diary::Note,
    tale::{Rows, Step, Tale},
};

/// One writer's part of the story.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its rows when this life began.
    pub(crate) before: Rows,
    /// What it did, from the first step.
    pub(crate) tale: Tale,
    /// What it noted.
    pub(crate) notes: Vec<Note>,
    /// Its rows now.
    pub(crate) now: Rows,
}

/// How much of the writing survived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Steps that were acknowledged.
    pub(crate) acknowledged: usize,
    /// Acknowledged steps that are gone, as the level allows.
    pub(crate) lost: usize,
}

/// A part with its steps and the numbers of steps after which the rows were as they are now.
struct Suspect {
    notes: Vec<Note>,
    steps: Vec<Step>,
    fits: BTreeSet<usize>,
    /// The number of steps after which the fewest rows are not as they are now, and these.
    nearest: (usize, Vec<Differing>),
}

/// A key with its value after some steps, and its value now.
#[derive(Debug)]
struct Differing {
    key: Vec<u8>,
    expected: Option<Vec<u8>>,
    now: Option<Vec<u8>>,
}

impl fmt::Display for Differing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The beginning of a value says in which life and step it was written.
        let text = |value: &Option<Vec<u8>>| match value {
            Some(value) => format!("`{}…`", value[..value.len().min(14)].escape_ascii()),
            None => "nothing".to_string(),
        };
        write!(f, "{} is {} and was {}", self.key.escape_ascii(), text(&self.now), text(&self.expected))
    }
}

/// Judges what is left. `keeps_all` says that every acknowledged step must have survived.
pub(crate) fn judge(parts: Vec<Part>, keeps_all: bool) -> Result<Verdict, String> {
    let suspects: Vec<Suspect> = parts.into_iter().map(Suspect::new).collect();
    for (writer, suspect) in suspects.iter().enumerate() {
        if suspect.fits.is_empty() {
            let (count, differing) = &suspect.nearest;
            let differing: Vec<String> = differing.iter().map(Differing::to_string).collect();
            return Err(format!(
                "writer {writer} began {} steps, and its rows are those after none of them; after {count} of them: {}",
                suspect.notes.len(),
                differing.join(", ")
            ));
        }
    }
    let syncs = suspects.iter().filter_map(Suspect::last_sync_done).max();
    let mut chosen = vec![0; suspects.len()];
    // Whatever was done before this tick must have survived; it rises until nothing more follows from it.
    let mut durable_before = if keeps_all { u64::MAX } else { syncs.unwrap_or(0) };
    loop {
        for (writer, suspect) in suspects.iter().enumerate() {
            let least = suspect.done_before(durable_before);
            chosen[writer] = *suspect.fits.range(least..).next().ok_or_else(|| {
                let most = suspect.fits.last().expect("looked at above");
                format!(
                    "writer {writer}: {least} of its {} steps must have survived, but only {most} have",
                    suspect.notes.len()
                )
            })?;
        }
        let survived = suspects.iter().zip(&chosen).filter_map(|(suspect, &count)| suspect.began_last(count));
        let next = survived.max().unwrap_or(0).max(durable_before);
        if next == durable_before {
            break;
        }
        durable_before = next;
    }
    let mut verdict = Verdict::default();
    for (suspect, count) in suspects.iter().zip(&chosen) {
        let acknowledged = suspect.done_before(u64::MAX);
        verdict.acknowledged += acknowledged;
        verdict.lost += acknowledged - acknowledged.min(*count);
    }
    Ok(verdict)
}

impl Suspect {
    fn new(part: Part) -> Self {
        let steps: Vec<Step> = part.tale.take(part.notes.len()).collect();
        let mut rows = part.before;
        let keys = rows.keys().chain(part.now.keys());
        let mut differing: BTreeSet<Vec<u8>> =
            keys.filter(|&key| rows.get(key) != part.now.get(key)).cloned().collect();
        let mut fits = BTreeSet::new();
        let (mut nearest, mut fewest) = ((0, Vec::new()), usize::MAX);
        for count in 0..=steps.len() {
            if differing.is_empty() {
                fits.insert(count);
            }
            if differing.len() < fewest {
                fewest = differing.len();
                let values = |key: &Vec<u8>| Differing {
                    key: key.clone(),
                    expected: rows.get(key).cloned(),
                    now: part.now.get(key).cloned(),
                };
                nearest = (count, differing.iter().map(values).collect());
            }
            let Some(step) = steps.get(count) else { break };
            for key in step.apply(&mut rows) {
                if rows.get(&key) == part.now.get(&key) {
                    differing.remove(&key);
                } else {
                    differing.insert(key);
                }
            }
        }
        Suspect { notes: part.notes, steps, fits, nearest }
    }

    /// How many of its steps were done before `tick`: its steps are done one after the other.
    fn done_before(&self, tick: u64) -> usize {
        self.notes.iter().take_while(|note| note.done.is_some_and(|done| done < tick)).count()
    }

    /// When the last sync that returned was begun: what was done before is durable.
    fn last_sync_done(&self) -> Option<u64> {
        let done = self.steps.iter().zip(&self.notes).filter(|(_, note)| note.done.is_some());
        done.filter(|(step, _)| matches!(step, Step::Sync)).map(|(_, note)| note.began).next_back()
    }

    /// When the last of the first `count` steps that wrote something began.
    fn began_last(&self, count: usize) -> Option<u64> {
        let writes = |step: &Step| matches!(step, Step::Write(_) | Step::DeleteRange(..));
        let last = self.steps[..count].iter().rposition(writes)?;
        Some(self.notes[last].began)
    }
}

#[cfg(test)]
mod tests;
