//! `figures`: the paper's figures on this machine, from measuring to the page.
//!
//! | file | what |
//! | --- | --- |
//! | [`plan`] | the experiments: which stores do what, with how much |
//! | [`rounds`] | measuring, round by round, within the minutes that there are |
//! | [`records`] | measurements read again, and medians |
//! | [`goals`] | what is to be reached, and whether it is |
//! | [`atlas`], [`teks`] | the figures: what each shows, and of which experiments |
//! | [`plot`] | drawing, which `kvilt-bench` has |
//! | [`page`] | the page that has it all |

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::Args;
use kvilt_bench::plot;

use self::{
    plan::{Experiment, experiments},
    records::{Measured, Records},
    rounds::Rounds,
};

mod atlas;
mod goals;
mod page;
mod plan;
mod records;
mod rounds;
mod teks;

/// The command's arguments.
#[derive(Args)]
pub(crate) struct Figures {
    /// Where measurements, plots and the page go.
    #[arg(long, default_value = "docs/figures")]
    out: PathBuf,
    /// Where stores lie while they are measured.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The whole run takes no longer: phases become shorter, then rounds fewer. Without it, it takes what it
    /// takes.
    #[arg(long)]
    minutes: Option<f64>,
    /// How often each store runs: medians are of so many.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Figures or experiments to make, by the beginnings of their names; all without it.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Measure again what is measured already.
    #[arg(long)]
    again: bool,
    /// Hardly any data, one round: shows that it works, in minutes. Never compare what it prints.
    #[arg(long)]
    quick: bool,
    /// Draw and judge what is there, measure nothing.
    #[arg(long)]
    draw: bool,
    /// The goals as JSON lines instead of a table.
    #[arg(long)]
    json: bool,
}

impl Figures {
    /// Measures what is missing, draws everything, and prints the goals with what was reached.
    pub(crate) fn run(&self) -> Result<()> {
        if self.quick && self.out == Path::new("docs/figures") {
            bail!("what --quick measures is worth nothing: give it a directory of its own with --out");
        }
        if !self.draw {
            self.measure()?;
        }
        let mut measured = Measured::new();
        for experiment in experiments() {
            let path = rounds::path(&self.out, &experiment);
            if path.exists() {
                measured.insert(experiment.name, Records::read(&path)?);
            }
        }
        fs::create_dir_all(&self.out)?;
        page::write(&measured, &self.out)?;
        self.tell(&measured)
    }

    fn measure(&self) -> Result<()> {
        let begun = Instant::now();
        let wanted = self.wanted()?;
        let missing: Vec<Experiment> =
            wanted.into_iter().filter(|one| self.again || !rounds::path(&self.out, one).exists()).collect();
        let rounds = if self.quick { 1 } else { self.rounds };
        let minutes = self.minutes.map(|minutes| Duration::try_from_secs_f64(minutes * 60.0)).transpose()?;
        let fitted = match minutes {
            Some(time) => fitted(&missing, rounds, time),
            None => missing,
        };
        let experiments: Vec<Experiment> =
            if self.quick { fitted.into_iter().map(Experiment::tiny).collect() } else { fitted };
        let end = minutes.map(|time| begun + time);
        Rounds { experiments: &experiments, out: &self.out, directory: &self.dir, rounds, end }.run()
    }

    /// The experiments that were named, or that the figures need that were named.
    fn wanted(&self) -> Result<Vec<Experiment>> {
        if self.only.is_empty() {
            return Ok(experiments());
        }
        let is_named = |name: &str| self.only.iter().any(|only| name.starts_with(only.as_str()));
        let figures = atlas::figures().into_iter().filter(|figure| is_named(figure.name));
        let needed: Vec<&str> = figures.flat_map(|figure| figure.experiments.iter().copied()).collect();
        let is_wanted = |one: &Experiment| is_named(one.name) || needed.contains(&one.name);
        let wanted: Vec<Experiment> = experiments().into_iter().filter(is_wanted).collect();
        let is_known = |only: &String| {
            atlas::figures().iter().any(|figure| figure.name.starts_with(only.as_str()))
                || experiments().iter().any(|one| one.name.starts_with(only.as_str()))
        };
        if let Some(unknown) = self.only.iter().find(|only| !is_known(only)) {
            let names: Vec<&str> = atlas::figures().iter().map(|figure| figure.name).collect();
            bail!("no figure or experiment begins with {unknown}; figures: {}", names.join(", "));
        }
        Ok(wanted)
    }

    fn tell(&self, measured: &Measured) -> Result<()> {
        let verdicts = page::verdicts(measured);
        let mut out = io::stdout().lock();
        match self.json {
            true => verdicts.iter().try_for_each(|verdict| writeln!(out, "{}", page::to_json(verdict)))?,
            false => write!(out, "{}", page::goals_table(&verdicts))?,
        }
        eprintln!("{} has the page, the plots and the data", self.out.join("README.md").display());
        Ok(())
    }
}

/// Shorter phases, if what the goals need does not fit into the time; never shorter than two fifths, for
/// caches and compactions take their time. What still does not fit will have fewer rounds.
fn fitted(experiments: &[Experiment], rounds: u32, time: Duration) -> Vec<Experiment> {
    const SHORTEST: f64 = 0.4;

    let needed = |factor: f64| {
        let of_one = |one: &Experiment| {
            let turns = (1..=rounds).filter(|round| one.is_in_round(*round)).count() * one.stores.len();
            one.clone().shortened(factor).estimate() * turns as u32
        };
        experiments.iter().filter(|one| one.is_asked).map(of_one).sum::<Duration>()
    };
    let mut factor = 1.0;
    while factor > SHORTEST && needed(factor) > time {
        factor = f64::max(factor - 0.1, SHORTEST);
    }
    experiments.iter().map(|one| one.clone().shortened(factor)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_become_shorter_only_if_time_is_short() {
        let all = experiments();
        let seconds = |minutes: u64| {
            let fitted = fitted(&all, 5, Duration::from_secs(60 * minutes));
            fitted.iter().find(|one| one.name == "limited").unwrap().seconds
        };
        assert_eq!(seconds(10_000), 5.0);
        assert!(seconds(40) < 5.0);
        assert!((1.9..=2.1).contains(&seconds(1)), "{}", seconds(1));
    }
}
