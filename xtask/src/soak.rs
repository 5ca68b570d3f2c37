//! `cargo xtask soak`: goes round all campaigns for as long as it is told, and goes on where it ended.
//!
//! Each campaign gets a turn of at most some minutes, so that none waits for the others; what it did, and the
//! seed that it goes on with, is written down behind each turn. So a soak may be ended at any moment, and the
//! same command with the same seed goes on; with another seed it is another soak. It ends in one line, and
//! fails if any turn of it ever did.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{arguments::Arguments, workspace::Workspace};

/// The longest turn.
const TURN_MAX: Duration = Duration::from_secs(5 * 60);
/// The shortest: most campaigns' pieces of work end within it.
const TURN_MIN: Duration = Duration::from_secs(10);
/// Fuzz targets share a turn.
const FUZZ_TARGETS: u64 = 6;
/// Schedules of each model in a turn of shuttle, by seconds of the turn.
const SCHEDULES_A_SECOND: u64 = 200;
/// Kills in a second, about.
const KILLS_A_SECOND: u64 = 20;
/// Power cuts in a second, about.
const CUTS_A_SECOND: u64 = 2;

/// A campaign: its name, and what to hand to cargo for a turn.
struct Campaign {
    name: &'static str,
    command: fn(&Turn) -> String,
    /// What of its summary is counted as cases.
    counted: &'static str,
}

/// What a turn may take, and where it begins.
struct Turn {
    next: u64,
    seconds: u64,
    threads: usize,
}

const CAMPAIGNS: [Campaign; 11] = [
    Campaign { name: "crash", command: |turn| turn.simulate("crash"), counted: "crash_cases" },
    // To depth four one script may take longer than a turn.
    Campaign { name: "nested", command: |turn| turn.simulate("nested --depth 3"), counted: "cases" },
    Campaign { name: "model", command: |turn| turn.simulate("model"), counted: "operations" },
    Campaign { name: "faults", command: |turn| turn.simulate("faults"), counted: "fault_runs" },
    Campaign { name: "damage", command: |turn| turn.simulate("damage"), counted: "damaged_stores" },
    Campaign { name: "history", command: |turn| turn.simulate("history"), counted: "operations" },
    Campaign {
        name: "fuzz",
        command: |turn| format!("xtask fuzz --seconds {} --json", (turn.seconds / FUZZ_TARGETS).max(1)),
        counted: "executions",
    },
    Campaign {
        name: "shuttle",
        command: |turn| {
            let schedules = turn.seconds * SCHEDULES_A_SECOND;
            format!("xtask shuttle --schedules {schedules} --seed {} --release", turn.next)
        },
        counted: "",
    },
    Campaign {
        name: "kills",
        command: |turn| {
            let cycles = turn.seconds * KILLS_A_SECOND;
            format!("xtask real kill --cycles {cycles} --seed {} --json", turn.next)
        },
        counted: "cycles",
    },
    Campaign { name: "cuts-ext4", command: |turn| turn.cut("ext4"), counted: "cycles" },
    Campaign { name: "cuts-xfs", command: |turn| turn.cut("xfs"), counted: "cycles" },
];

impl Turn {
    fn simulate(&self, what: &str) -> String {
        let Turn { next, seconds, threads } = self;
        let minutes = *seconds as f64 / 60.0;
        format!(
            "run --release --quiet --package kvilt-sim -- {what} --seeds {next}..{} --minutes {minutes} \
             --threads {threads} --json",
            u64::MAX
        )
    }

    fn cut(&self, kind: &str) -> String {
        let cycles = (self.seconds * CUTS_A_SECOND).max(10);
        format!("xtask real cut --kind {kind} --cycles {cycles} --seed {} --json", self.next)
    }
}

/// What all turns of a campaign came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    next: u64,
    turns: u64,
    cases: u64,
    /// Turns that were skipped, for the machine lacks something.
    skipped: u64,
    violations: u64,
}

impl Tally {
    /// Adds a turn: the objects that it printed, and whether it succeeded.
    fn add(&mut self, counted: &str, printed: &str, is_good: bool) {
        let objects: Vec<Value> =
            printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let figure = |object: &Value, name: &str| object.get(name).and_then(Value::as_u64).unwrap_or(0);
        self.turns += 1;
        self.cases += objects.iter().map(|object| figure(object, counted)).sum::<u64>();
        self.skipped += u64::from(printed.lines().any(|line| line.starts_with("SKIP")) && objects.is_empty());
        let failed: usize =
            objects.iter().filter_map(|object| object.get("failed_seeds")?.as_array().map(Vec::len)).sum();
        self.violations += (failed as u64).max(u64::from(!is_good));
        // Simulations begin seeds in order and end what they began; others say where to go on, or take one
        // seed.
        let seeds: u64 = objects.iter().map(|object| figure(object, "seeds")).sum();
        let told = objects.iter().map(|object| figure(object, "next_seed")).max().unwrap_or(0);
        self.next = (self.next + seeds.max(1)).max(told);
    }

    fn json(&self) -> Value {
        let Tally { next, turns, cases, skipped, violations } = self;
        json!({ "next": next, "turns": turns, "cases": cases, "skipped": skipped, "violations": violations })
    }

    fn of(value: &Value) -> Self {
        let figure = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
        Tally {
            next: figure("next"),
            turns: figure("turns"),
            cases: figure("cases"),
            skipped: figure("skipped"),
            violations: figure("violations"),
        }
    }
}

/// A soak, as it is written down.
struct Soak {
    path: PathBuf,
    seed: u64,
    seconds: u64,
    tallies: BTreeMap<String, Tally>,
}

impl Soak {
    /// The soak of this seed, as far as it has come.
    fn resumed(workspace: &Workspace, seed: u64) -> Result<Self> {
        let path = workspace.target_directory().join("soak").join(format!("{seed}.json"));
        let mut soak = Soak { path, seed, seconds: 0, tallies: BTreeMap::new() };
        if soak.path.is_file() {
            let text = fs::read_to_string(&soak.path).with_context(|| soak.path.display().to_string())?;
            let value: Value = serde_json::from_str(&text)
                .with_context(|| format!("{} is damaged; remove it to begin anew", soak.path.display()))?;
            soak.seconds = value["seconds"].as_u64().unwrap_or(0);
            let tallies = value["campaigns"].as_object().into_iter().flatten();
            soak.tallies = tallies.map(|(name, tally)| (name.clone(), Tally::of(tally))).collect();
        }
        Ok(soak)
    }

    /// Written under another name first, so that an end at any moment leaves one or the other.
    fn save(&self) -> Result<()> {
        let campaigns: serde_json::Map<String, Value> =
            self.tallies.iter().map(|(name, tally)| (name.clone(), tally.json())).collect();
        let value = json!({ "seed": self.seed, "seconds": self.seconds, "campaigns": campaigns });
        let directory = self.path.parent().expect("the path has a directory");
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, format!("{value:#}\n")).with_context(|| fresh.display().to_string())?;
        fs::rename(&fresh, &self.path).with_context(|| self.path.display().to_string())
    }

    fn violations(&self) -> u64 {
        self.tallies.values().map(|tally| tally.violations).sum()
    }

    /// The one line.
    fn summary(&self) -> String {
        let told = |(name, tally): (&String, &Tally)| {
            let skipped =
                if tally.skipped > 0 { format!(" ({} turns skipped)", tally.skipped) } else { String::new() };
            let count =
                if tally.cases > 0 { tally.cases.to_string() } else { format!("{} turns", tally.turns) };
            format!("{name} {count}{skipped}")
        };
        let campaigns: Vec<String> = self.tallies.iter().map(told).collect();
        format!(
            "soak: seed {}, {:.1} minutes: {}; {} violations",
            self.seed,
            self.seconds as f64 / 60.0,
            campaigns.join(", "),
            self.violations()
        )
    }
}

/// `soak --minutes N [--seed S] [--only NAME] [--threads N]`.
pub(crate) fn run(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let arguments = Arguments::of(words, &["--minutes", "--seed", "--only", "--threads"], &[])?;
    let time = Duration::from_secs(60 * arguments.number("--minutes", 60)?);
    let seed = arguments.number("--seed", 0)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let threads = arguments.number("--threads", threads)?.max(1) as usize;
    let is_wanted =
        |campaign: &&Campaign| arguments.text("--only").is_none_or(|only| campaign.name.starts_with(only));
    let campaigns: Vec<&Campaign> = CAMPAIGNS.iter().filter(is_wanted).collect();
    let names: Vec<&str> = CAMPAIGNS.iter().map(|campaign| campaign.name).collect();
    ensure!(!campaigns.is_empty(), "no such campaign; there are {names:?}, and `cuts` for both kinds");

    let mut soak = Soak::resumed(workspace, seed)?;
    println!("soak: goes on from, and is written down in, {}", soak.path.display());
    let turn_max = (time / campaigns.len() as u32).clamp(TURN_MIN, TURN_MAX);
    let begun = Instant::now();
    let mut round = campaigns.iter().cycle();
    while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        let campaign = round.next().expect("there is a campaign, and round it goes");
        let turn = turn_max.min(left.max(TURN_MIN));
        take_turn(workspace, &mut soak, campaign, turn.as_secs(), threads)?;
        soak.save()?;
    }
    println!("{}", soak.summary());
    ensure!(soak.violations() == 0, "{} violations; the output above has their seeds", soak.violations());
    Ok(())
}

/// One turn of one campaign. A turn that fails is a violation, and the soak goes on.
fn take_turn(
    workspace: &Workspace,
    soak: &mut Soak,
    campaign: &Campaign,
    seconds: u64,
    threads: usize,
) -> Result<()> {
    let seed = soak.seed;
    let begun = Instant::now();
    let tally = soak
        .tallies
        .entry(campaign.name.to_owned())
        .or_insert_with(|| Tally { next: seed, ..Tally::default() });
    let words = (campaign.command)(&Turn { next: tally.next, seconds, threads });
    println!("$ cargo {words}");
    let output = workspace.cargo().args(words.split_whitespace()).stderr(Stdio::inherit()).output();
    let output = output.context("start cargo")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    print!("{printed}");
    tally.add(campaign.counted, &printed, output.status.success());
    soak.seconds += begun.elapsed().as_secs();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_counts_its_cases_goes_on_behind_its_seeds_and_keeps_its_failures() {
        let mut tally = Tally { next: 100, ..Tally::default() };
        let printed = "some text\n{\"seeds\": 7, \"crash_cases\": 900, \"failed_seeds\": []}\n";
        tally.add("crash_cases", printed, true);
        assert_eq!(tally, Tally { next: 107, turns: 1, cases: 900, skipped: 0, violations: 0 });
        tally.add("crash_cases", "{\"seeds\": 2, \"crash_cases\": 10, \"failed_seeds\": [107, 108]}", false);
        assert_eq!(tally, Tally { next: 109, turns: 2, cases: 910, skipped: 0, violations: 2 });
        // It died without a word, and is not tried again from the same seed.
        tally.add("crash_cases", "", false);
        assert_eq!((tally.next, tally.violations), (110, 3));
    }

    #[test]
    fn other_summaries_are_understood_too() {
        let mut kills = Tally::default();
        kills.add("cycles", "{\"cycles\": 40, \"next_seed\": 12, \"violations\": 0}", true);
        assert_eq!((kills.next, kills.cases), (12, 40));
        let mut fuzz = Tally::default();
        fuzz.add("executions", "{\"executions\": 5}\n{\"executions\": 6}\n", true);
        assert_eq!((fuzz.next, fuzz.cases), (1, 11));
        let mut cuts = Tally::default();
        cuts.add("cycles", "SKIP cut on xfs: there is no mkfs.xfs\n", true);
        assert_eq!((cuts.skipped, cuts.violations), (1, 0));
    }

    #[test]
    fn a_soak_comes_back_as_it_was_written_down() {
        let tally = Tally { next: 9, turns: 3, cases: 1_000, skipped: 1, violations: 2 };
        assert_eq!(Tally::of(&tally.json()), tally);
        let soak = Soak {
            path: PathBuf::new(),
            seed: 5,
            seconds: 90,
            tallies: BTreeMap::from([("crash".to_owned(), tally)]),
        };
        assert_eq!(soak.summary(), "soak: seed 5, 1.5 minutes: crash 1000 (1 turns skipped); 2 violations");
    }
}
