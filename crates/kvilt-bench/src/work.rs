//! What the threads of a phase do: YCSB's mixes A to F, EvenDB's P, the events of [`crate::events`], and a
//! whole scan. Written as in the paper, with the pattern behind an at sign: `A@composite`, `E100@zipf`,
//! `P@uniform`. `C64` gets 64 keys in one call, `S10` scans ten rows; `C@uniform*64` has 64 threads of its
//! own, and in `C&P@uniform*2` the first of two threads does P, which counts for nothing but latencies.

use std::{fmt, num::NonZeroUsize, str::FromStr};

use anyhow::{Result, bail};

use crate::keys::Pattern;

/// The exponent of YCSB.
const THETA: f64 = 0.99;

/// Shares of the operations, in per cent; together 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Puts of existing keys.
    pub put: u32,
    /// Gets.
    pub get: u32,
    /// Gets of several keys in one call.
    pub get_many: u32,
    /// Scans.
    pub scan: u32,
    /// A get, then a put of the same key.
    pub change: u32,
    /// Puts of new keys behind all others.
    pub insert: u32,
}

/// What a phase does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Operations on keys drawn by a pattern.
    Keys {
        /// Which operations.
        mix: Mix,
        /// What the first thread does instead.
        beside: Option<Mix>,
        /// On which keys.
        pattern: Pattern,
        /// Rows of a scan: any number from this …
        rows_min: u64,
        /// … to this; keys of a call that gets several: this number.
        rows_max: u64,
    },
    /// Events written in the order of time.
    Ingest,
    /// 95 % scans of an app's latest events, 5 % puts of events.
    Analytics(Latest),
    /// Scans of the whole store, one row an operation.
    ReadSeq,
}

/// Which events are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latest {
    /// The latest minute of an app: of many apps it has few events.
    Minute,
    /// The latest of a popular app: as many events each time, about.
    Popular,
}

/// Work, and how it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedWork {
    /// As in the tables.
    pub name: String,
    /// The work.
    pub work: Work,
    /// Threads, if other than the scenario's.
    pub threads: Option<usize>,
}

impl fmt::Display for NamedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for NamedWork {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        let (of_work, threads) = match name.split_once('*') {
            Some((of_work, threads)) => (of_work, Some(threads.parse::<NonZeroUsize>()?.get())),
            None => (name, None),
        };
        let work = match of_work {
            "ingest" => Work::Ingest,
            "analytics" => Work::Analytics(Latest::Minute),
            "popular" => Work::Analytics(Latest::Popular),
            "readseq" => Work::ReadSeq,
            // TeksDB's words for what the others call C and E.
            "readrandom" => keys("C", None, Pattern::Uniform)?,
            "seekrandom" => keys("S", None, Pattern::Uniform)?,
            _ => {
                let (mix, pattern) = of_work.split_once('@').unwrap_or((of_work, default_pattern(of_work)));
                let (mix, beside) = mix.split_once('&').map_or((mix, None), |(mix, one)| (mix, Some(one)));
                keys(mix, beside, pattern_named(pattern)?)?
            }
        };
        Ok(NamedWork { name: name.to_owned(), work, threads })
    }
}

fn default_pattern(mix: &str) -> &'static str {
    if mix == "D" { "latest" } else { "composite" }
}

/// The pattern of this name, as it stands behind the at sign.
pub(crate) fn pattern_named(text: &str) -> Result<Pattern> {
    let (name, theta) = match text.split_once(':') {
        Some((name, theta)) => (name, theta.parse()?),
        None => (text, THETA),
    };
    Ok(match name {
        "uniform" => Pattern::Uniform,
        "composite" => Pattern::Composite { theta },
        "zipf" => Pattern::Zipf { theta },
        "latest" => Pattern::Latest { theta },
        _ => bail!(
            "no pattern is called {name}: uniform, composite, zipf, latest, each with an exponent as in zipf:0.9"
        ),
    })
}

fn keys(name: &str, beside: Option<&str>, pattern: Pattern) -> Result<Work> {
    let (mix, rows_min, rows_max) = mix(name)?;
    let beside = beside.map(|name| Ok::<_, anyhow::Error>(self::mix(name)?.0)).transpose()?;
    Ok(Work::Keys { mix, beside, pattern, rows_min, rows_max })
}

/// A mix by its name, and the fewest and the most rows of its scans.
fn mix(name: &str) -> Result<(Mix, u64, u64)> {
    let none = Mix::default();
    Ok(match name {
        "P" => (Mix { put: 100, ..none }, 0, 0),
        "I" => (Mix { insert: 100, ..none }, 0, 0),
        "A" => (Mix { put: 50, get: 50, ..none }, 0, 0),
        "B" => (Mix { put: 5, get: 95, ..none }, 0, 0),
        "C" => (Mix { get: 100, ..none }, 0, 0),
        "D" => (Mix { insert: 5, get: 95, ..none }, 0, 0),
        "F" => (Mix { get: 50, change: 50, ..none }, 0, 0),
        // A seek: a scan of one row, and no puts.
        "S" => (Mix { scan: 100, ..none }, 1, 1),
        _ => match (name.get(..1), name.get(1..).and_then(|rows| rows.parse().ok())) {
            (Some("E"), Some(rows)) if rows > 0 => (Mix { scan: 95, put: 5, ..none }, 1, rows),
            (Some("S"), Some(rows)) if rows > 0 => (Mix { scan: 100, ..none }, rows, rows),
            (Some("C"), Some(keys)) if keys > 0 => (Mix { get_many: 100, ..none }, keys, keys),
            _ => bail!(
                "no work is called {name}: P, I, A, B, C, C64, D, E10, E100, E1000, F, S, S10, ingest, analytics, \
                 popular, readseq"
            ),
        },
    })
}

impl Work {
    /// Whether anything is written.
    pub fn writes(&self) -> bool {
        match self {
            Work::Keys { mix, beside, .. } => beside.is_some() || mix.put + mix.change + mix.insert > 0,
            Work::Ingest | Work::Analytics(_) => true,
            Work::ReadSeq => false,
        }
    }

    /// Whether it puts rows again and again that are there, so that it has a steady state.
    pub fn puts_over(&self) -> bool {
        match self {
            Work::Keys { mix, .. } => mix.put + mix.change > 0,
            Work::Ingest | Work::Analytics(_) | Work::ReadSeq => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_mix_and_the_pattern() {
        let work: NamedWork = "E100@zipf:0.9".parse().unwrap();
        let mix = Mix { scan: 95, put: 5, ..Mix::default() };
        let pattern = Pattern::Zipf { theta: 0.9 };
        assert_eq!(work.work, Work::Keys { mix, beside: None, pattern, rows_min: 1, rows_max: 100 });
        assert!(work.work.writes() && work.work.puts_over());
        let reads: NamedWork = "C".parse().unwrap();
        assert!(!reads.work.writes() && !reads.work.puts_over());
        assert!(matches!(reads.work, Work::Keys { pattern: Pattern::Composite { .. }, .. }));
        let many: NamedWork = "C64@uniform*2".parse().unwrap();
        let mix = Mix { get_many: 100, ..Mix::default() };
        let pattern = Pattern::Uniform;
        assert_eq!(many.work, Work::Keys { mix, beside: None, pattern, rows_min: 64, rows_max: 64 });
        let beside: NamedWork = "S10&I@uniform*2".parse().unwrap();
        let (mix, insert) = (Mix { scan: 100, ..Mix::default() }, Mix { insert: 100, ..Mix::default() });
        let expected = Work::Keys { mix, beside: Some(insert), pattern, rows_min: 10, rows_max: 10 };
        assert_eq!((beside.work, beside.work.writes(), beside.threads), (expected, true, Some(2)));
        assert_eq!((many.threads, reads.threads), (Some(2), None));
        for name in ["D", "ingest", "analytics", "popular", "readseq"] {
            assert!(!name.parse::<NamedWork>().unwrap().work.puts_over(), "{name}");
        }
        for wrong in
            ["", "Z", "E", "E0", "C0", "S0", "C&", "C&Z", "C@uniform*0", "C*", "A@", "A@sideways", "A@zipf:x"]
        {
            assert!(wrong.parse::<NamedWork>().is_err(), "{wrong}");
        }
    }
}
