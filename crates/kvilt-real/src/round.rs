//! `round`: everything here in the size of one CI run.
//!
//! What needs neither root nor tools must pass anywhere. What does is tried, and says why if it is skipped; a
//! machine whose user is not root may skip all of it, but one that is root and plays nothing has a broken
//! test, not a reason.

use anyhow::{Result, ensure};
use clap::Args;

use crate::{
    cut::Cut,
    kill::Kill,
    mount::{self, Kind},
    scenes::Scenes,
    series::Series,
    tools,
};

/// Growth of the series' store that is too much here, settled, in percent. Without a crash it goes up and
/// down by a third of that, with how rows fall into chunks.
const GROWTH_MAX: f64 = 1.0;
/// Growth of its directory that is too much, from the first third of a hundred lives to the last: rounds of
/// rewriting make 2.3 % of it at most in a simulation, and a busy machine, which lets the background fall
/// behind, more.
const DIRECTORY_GROWTH_MAX: f64 = 10.0;

/// Late opens are told of and fail nothing here: where the check runs beside other work two of three have
/// been late. The campaign on a quiet machine has a bound for them.
const LATE_MAX: f64 = 100.0;

/// Cuts on each kind of file system.
const CUTS: u64 = 25;

/// Everything, in the size of one CI run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Round {
    /// Seed of all that has one.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Round {
    /// Plays everything, and fails if anything failed; what failed does not hide the rest.
    pub(crate) fn run(&self) -> Result<()> {
        if mount::obstacle().is_none() {
            mount::in_own_namespace()?;
        }
        let seed = self.seed;
        let kill = Kill { cycles: 500, seed, jobs: 6, level: None, death: None, dir: None, json: false };
        let series = Series {
            cycles: 100,
            seed,
            growth_max: GROWTH_MAX,
            directory_growth_max: DIRECTORY_GROWTH_MAX,
            late_max: LATE_MAX,
            json: false,
        };
        let mut failures = Vec::new();
        failures.extend(kill.run().err());
        failures.extend(series.run().err());
        let mut cuts_made = 0;
        for kind in [Kind::Ext4, Kind::Xfs] {
            match (Cut { cycles: CUTS, seed, kind, json: false }).run() {
                Ok(is_made) => cuts_made += u32::from(is_made),
                Err(error) => failures.push(error),
            }
        }
        failures.extend(Scenes::all().run().err());
        for error in &failures {
            println!("FAILED {error:#}");
        }
        ensure!(failures.is_empty(), "{} parts failed", failures.len());
        ensure!(
            cuts_made > 0 || !tools::is_root(),
            "root, but no power cut was made on any file system: see the reasons above"
        );
        if cuts_made == 0 {
            println!("SKIP all power cuts: they need root. Everything else has been played.");
        }
        Ok(())
    }
}
