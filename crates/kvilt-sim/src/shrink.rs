//! Makes a failing script small: drops steps as long as what is left still fails. Halves first, then smaller
//! pieces, then single steps; then values and batches are made smaller.

use crate::{
    report::Failure,
    script::{Payload, Script, Step},
};

/// Reduces `script`, which fails with `failure`. `fails` plays a script and returns its failure, if any; it
/// is called at most `tries_max` times. Returns the smallest failing script found, and how it fails.
pub fn reduce(
    script: &Script,
    failure: Failure,
    tries_max: u32,
    mut fails: impl FnMut(&Script) -> Option<Failure>,
) -> (Script, Failure) {
    let mut best = (script.clone(), failure);
    // What comes after the failing step cannot matter to it, unless the failure came at the very end.
    best.0.steps.truncate(best.1.step.saturating_add(1));
    let mut tries = 0;
    if best.0.steps.len() < script.steps.len() {
        tries += 1;
        match fails(&best.0) {
            Some(failure) => best.1 = failure,
            None => best.0 = script.clone(),
        }
    }
    let mut attempt = |best: &mut (Script, Failure), candidate: Script| {
        tries += 1;
        if tries > tries_max {
            return false;
        }
        let failure = fails(&candidate);
        let is_smaller = failure.is_some();
        if let Some(failure) = failure {
            *best = (candidate, failure);
        }
        is_smaller
    };
    drop_steps(&mut best, &mut attempt);
    simplify_steps(&mut best, &mut attempt);
    best
}

type Attempt<'a> = dyn FnMut(&mut (Script, Failure), Script) -> bool + 'a;

/// Drops runs of steps, in halves, quarters, … singles; again from the start as long as singles still go.
fn drop_steps(best: &mut (Script, Failure), attempt: &mut Attempt<'_>) {
    let mut length = best.0.steps.len().div_ceil(2).max(1);
    loop {
        let mut has_dropped = false;
        // From the end: later steps depend on earlier ones, seldom the other way.
        let mut end = best.0.steps.len();
        while end > 0 {
            let start = end.saturating_sub(length);
            let mut candidate = best.0.clone();
            candidate.steps.drain(start..end);
            has_dropped |= attempt(best, candidate);
            end = start.min(best.0.steps.len());
        }
        if length == 1 && !has_dropped {
            return;
        }
        length = if length == 1 { 1 } else { length.div_ceil(2) };
    }
}

/// Makes single steps smaller: batches of fewer operations, short values, fewer background steps.
fn simplify_steps(best: &mut (Script, Failure), attempt: &mut Attempt<'_>) {
    for position in 0..best.0.steps.len() {
        let mut is_moving = true;
        while is_moving {
            is_moving = simpler(&best.0.steps[position]).into_iter().any(|step| {
                let mut candidate = best.0.clone();
                candidate.steps[position] = step;
                attempt(best, candidate)
            });
        }
    }
}

fn simpler(step: &Step) -> Vec<Step> {
    let shorter = |value: Payload| {
        (value.bytes > 8).then_some(Payload { number: value.number, bytes: (value.bytes / 4).max(8) })
    };
    match step {
        Step::Put(key, value) => shorter(*value).map(|value| Step::Put(*key, value)).into_iter().collect(),
        Step::Batch(changes) => {
            let without = (0..changes.len()).map(|i| {
                let mut fewer = changes.clone();
                fewer.remove(i);
                Step::Batch(fewer)
            });
            let with_shorter = changes.iter().enumerate().filter_map(|(i, (_, value))| {
                let mut lighter = changes.clone();
                lighter[i].1 = Some(shorter((*value)?)?);
                Some(Step::Batch(lighter))
            });
            without.chain(with_shorter).collect()
        }
        Step::GetMany(keys, view) => (0..keys.len())
            .map(|i| {
                let mut fewer = keys.clone();
                fewer.remove(i);
                Step::GetMany(fewer, *view)
            })
            .collect(),
        Step::Background { steps, seed } if *steps > 1 => {
            vec![
                Step::Background { steps: steps / 2, seed: *seed },
                Step::Background { steps: steps - 1, seed: *seed },
            ]
        }
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{script::KeyId, workload::Shape};

    /// "Fails" if key 3 is put and later deleted; needs exactly two steps.
    fn put_then_delete(script: &Script) -> Option<Failure> {
        let key: KeyId = 3;
        let put = script.steps.iter().position(|step| matches!(step, Step::Put(k, _) if *k == key))?;
        let delete = script.steps[put..].iter().position(|step| *step == Step::Delete(key))?;
        Some(Failure::at_step(put + delete, "put, then deleted".into()))
    }

    #[test]
    fn what_does_not_matter_is_dropped() {
        let mut script = Shape::long().script(1);
        script.steps.insert(500, Step::Put(3, Payload { number: 7, bytes: 5_000 }));
        script.steps.push(Step::Delete(3));
        let failure = put_then_delete(&script).unwrap();
        let (reduced, failure) = reduce(&script, failure, 10_000, put_then_delete);
        assert_eq!(reduced.steps.len(), 2, "{reduced}");
        assert_eq!(failure.step, 1);
        assert!(matches!(reduced.steps[0], Step::Put(3, value) if value.bytes <= 8));
    }

    #[test]
    fn tries_are_bounded() {
        let script = Shape::long().script(2);
        let mut tries = 0;
        let failure = Failure::at_step(usize::MAX, String::new());
        reduce(&script, failure, 10, |_| {
            tries += 1;
            None
        });
        assert_eq!(tries, 10);
    }
}
