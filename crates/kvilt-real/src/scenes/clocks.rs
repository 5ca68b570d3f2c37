//! Clocks that jump: nothing may depend on them.

use std::{fs, path::Path, time::Duration};

use anyhow::Result;

use super::{Outcome, Stage};
use crate::{
    child::WRITING,
    death::Death,
    engines,
    hunt::{Aim, strike},
    level::End,
    subject::Subject,
    tale::Style,
    tools,
};

/// Lives under clocks that stand, run wildly, or are years off in either direction, the monotonic one
/// included; killed or not, what they leave is right.
pub(super) fn jumps(stage: &Stage) -> Result<Outcome> {
    if tools::find("faketime").is_none() {
        return Ok(Outcome::Skipped("there is no faketime".to_string()));
    }
    let library = tools::run("faketime", &["-f", "+0", "sh", "-c", "echo $LD_PRELOAD"])?;
    let clocks = ["+0 x1000", "-20y", "+20y", "1970-01-02 00:00:00", "2038-01-19 03:14:07", "+0 x0.01"];
    let mut lives = 0;
    for level in engines::chosen().levels {
        let place = stage.place.join(level.name());
        fs::create_dir(&place)?;
        let mut subject = Subject::new(&place, 19, Style::Mixed);
        for (number, clock) in clocks.iter().enumerate() {
            let child = subject.next_life(*level, 2, 200)?;
            // Without the command `faketime`, which would be killed in the child's place.
            let library = format!("LD_PRELOAD={}", library.trim());
            let command = child.command(&["env".to_string(), library, format!("FAKETIME={clock}")])?;
            // Every other one is killed.
            let aim = match number % 2 {
                0 => Aim::Never,
                _ => Aim::After(WRITING, Duration::from_millis(4)),
            };
            let catch = strike(command, &aim, || Ok(()))?;
            remove_shared(catch.id);
            anyhow::ensure!(
                catch.is_closed || Death::Kill.is_of(catch.status),
                "the child failed under {clock}: {catch:?}"
            );
            subject.look(2, End::Killed, catch.is_closed)?;
            lives += 1;
        }
    }
    Ok(Outcome::Good(format!("{lives} lives under {} clocks", clocks.len())))
}

/// What the library leaves of a killed process: the next one with its number would fail.
fn remove_shared(process: u32) {
    for name in [format!("faketime_shm_{process}"), format!("sem.faketime_sem_{process}")] {
        // A process that ended by itself has removed it.
        let _ = fs::remove_file(Path::new("/dev/shm").join(name));
    }
}
