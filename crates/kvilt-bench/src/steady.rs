//! Steady state: what a store takes and writes once its data have been put over several times. The first
//! seconds of puts say little about either, because a store may put the removal of dead rows off.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::{
    compare::median,
    driver::{Stage, Until, play},
    keys::KEY_BYTES,
    meter::{Meter, disk_bytes},
    work::NamedWork,
};

/// How steady state is reached before a phase, and how long the store rests behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// The phase's own work puts this many times the bytes of all rows before it is measured.
    pub put_over: f64,
    /// How long nobody calls the store before space is looked at once more.
    pub rest: Duration,
}

impl Default for Steady {
    fn default() -> Self {
        Steady { put_over: 3.0, rest: Duration::from_secs(10) }
    }
}

/// The moment from which on a phase in steady state is measured.
pub struct Reached {
    steady: Steady,
    seconds: f64,
    put_bytes: u64,
    meter: Meter,
    store_written: Option<u64>,
}

impl Steady {
    /// Lets the work put its rows over until steady state is reached; it must be one that puts.
    ///
    /// # Errors
    ///
    /// The first error of the store, or records that should be there and are not.
    pub fn reach(self, stage: &Stage, work: &NamedWork, progress: &ProgressBar) -> Result<Reached> {
        let begun = Instant::now();
        let played = play(stage, &work.work, self.until(stage), progress)?;
        // What is still owed for these puts belongs to them, not to the phase that is measured.
        stage.store.settle()?;
        Ok(Reached {
            steady: self,
            seconds: begun.elapsed().as_secs_f64(),
            put_bytes: played.put_bytes,
            meter: Meter::now(),
            store_written: stage.store.written_bytes(),
        })
    }

    /// When it is reached.
    pub fn until(self, stage: &Stage) -> Until {
        Until::PutBytes((live_bytes(stage) as f64 * self.put_over) as u64)
    }
}

impl Reached {
    /// Space and bytes written of the phase that was played and settled since, and the same after a rest.
    ///
    /// # Errors
    ///
    /// If the phase put nothing.
    pub fn figures(self, stage: &Stage, phase: &Value) -> Result<Value> {
        let put_bytes = phase["put_bytes"].as_u64().filter(|bytes| *bytes > 0).context("nothing was put")?;
        let live_bytes = live_bytes(stage);
        let of_live = |bytes: f64| bytes / live_bytes as f64;
        let of_put = |bytes: u64| bytes as f64 / put_bytes as f64;
        // A phase of less than a second was never looked at, so how it ended counts, too.
        let seen = |name: &str, at_end: Option<u64>| -> Vec<f64> {
            let each_second = phase[name].as_array().into_iter().flatten().filter_map(Value::as_f64);
            each_second.chain(at_end.map(|bytes| bytes as f64)).collect()
        };
        let disk = seen("disk_bytes", Some(disk_bytes(stage.directory)));
        let kept = seen("kept_bytes", stage.store.kept_bytes());
        let most = |bytes: &[f64]| bytes.iter().copied().max_by(f64::total_cmp).map(of_live);
        let store_written = || Some(stage.store.written_bytes()?.saturating_sub(self.store_written?));
        let store_written_in_phase = store_written();
        thread::sleep(self.steady.rest);
        Ok(json!({
            "put_over": self.steady.put_over,
            "reached_seconds": self.seconds,
            "reached_put_bytes": self.put_bytes,
            "live_bytes": live_bytes,
            "space_max": most(&disk),
            "kept_space_max": most(&kept),
            "space_median": of_live(median(&disk)),
            "store_write_amplification": store_written_in_phase.map(of_put),
            "rest_seconds": self.steady.rest.as_secs_f64(),
            "space_at_rest": of_live(disk_bytes(stage.directory) as f64),
            "store_write_amplification_with_rest": store_written().map(of_put),
            "write_amplification_with_rest": of_put(Meter::now().since(&self.meter).written_bytes),
        }))
    }
}

/// Bytes of keys and values of all rows that there are.
fn live_bytes(stage: &Stage) -> u64 {
    let rows = stage.newest.load(std::sync::atomic::Ordering::Relaxed);
    rows * (KEY_BYTES + stage.value_bytes) as u64
}
