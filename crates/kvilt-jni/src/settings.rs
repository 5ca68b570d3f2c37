//! Settings: names and values that Java's `Options` wrote, as those of a `Builder`.
//!
//! Names are those of the builder's methods, so an error that names a setting names Java's, too.

use std::time::Duration;

use kvilt::{Builder, Durability, Engine, Error, Result, even, kvell, teks};

/// What was chosen for engines; each belongs to one of them.
#[derive(Default)]
struct Chosen {
    even: even::Options,
    kvell: kvell::Options,
    teks: teks::Options,
    /// The last setting of each engine, to name it where it does not belong.
    named: Vec<(&'static str, String)>,
}

/// Puts settings, name and value in turns, into a builder.
pub(crate) fn apply(mut builder: Builder, settings: &[&str]) -> Result<Builder> {
    let mut chosen = Chosen::default();
    let mut engine = None;
    for pair in settings.chunks(2) {
        let [name, value] = pair else { return Err(Error::invalid("a setting has no value")) };
        builder = match *name {
            "engine" => {
                engine = Some(*value);
                builder
            }
            "create_if_missing" => builder.create_if_missing(flag(name, value)?),
            "error_if_exists" => builder.error_if_exists(flag(name, value)?),
            "read_only" => builder.read_only(flag(name, value)?),
            "memory_budget" => builder.memory_budget(number(name, value)?),
            "durability_sync" => builder.durability(Durability::Sync),
            "durability_async_us" => {
                let interval = Duration::from_micros(number(name, value)?);
                builder.durability(Durability::Async { interval })
            }
            "snapshot_age_max_ms" => builder.snapshot_age_max(Duration::from_millis(number(name, value)?)),
            "batch_operations_max" => builder.batch_operations_max(number(name, value)? as usize),
            "batch_bytes_max" => builder.batch_bytes_max(number(name, value)? as usize),
            _ => {
                chosen.choose(name, value)?;
                builder
            }
        };
    }
    match engine {
        Some(name) => Ok(builder.engine(chosen.engine(name)?)),
        None if chosen.named.is_empty() => Ok(builder),
        None => {
            let (of, setting) = &chosen.named[0];
            Err(Error::invalid(format!(
                "`{setting}` is a setting of engine `{of}`, and no engine was chosen; choose it"
            )))
        }
    }
}

impl Chosen {
    fn choose(&mut self, name: &str, value: &str) -> Result<()> {
        let of = match name {
            "compression" => {
                let compression = match value {
                    "none" => even::Compression::None,
                    "lz4" => even::Compression::Lz4,
                    _ => return Err(senseless(name, value)),
                };
                self.even = self.even.clone().compression(compression);
                "even"
            }
            "chunk_bytes_max" => self.of_even(name, value, even::Options::chunk_bytes_max)?,
            "chunk_bytes_rebalance" => self.of_even(name, value, even::Options::chunk_bytes_rebalance)?,
            "chunk_bytes_min" => self.of_even(name, value, even::Options::chunk_bytes_min)?,
            "log_bytes_max_cold" => self.of_even(name, value, even::Options::log_bytes_max_cold)?,
            "log_bytes_max_cached" => self.of_even(name, value, even::Options::log_bytes_max_cached)?,
            "block_bytes" => self.of_even(name, value, |options, n| options.block_bytes(n as usize))?,
            "shards" => {
                let shards = u32::try_from(number(name, value)?).map_err(|_| senseless(name, value))?;
                self.kvell = self.kvell.clone().shards(shards);
                "kvell"
            }
            "queue_depth" => {
                self.kvell = self.kvell.clone().queue_depth(number(name, value)? as usize);
                "kvell"
            }
            "row_bytes" => {
                self.teks = self.teks.clone().row_bytes(number(name, value)? as usize);
                "teks"
            }
            _ => return Err(Error::invalid(format!("there is no setting `{name}`"))),
        };
        self.named.push((of, name.to_owned()));
        Ok(())
    }

    fn of_even(
        &mut self,
        name: &str,
        value: &str,
        set: impl FnOnce(even::Options, u64) -> even::Options,
    ) -> Result<&'static str> {
        self.even = set(self.even.clone(), number(name, value)?);
        Ok("even")
    }

    fn engine(self, name: &str) -> Result<Engine> {
        if let Some((of, setting)) = self.named.iter().find(|(of, _)| *of != name) {
            return Err(Error::invalid(format!(
                "`{setting}` is a setting of engine `{of}`, and engine `{name}` was chosen"
            )));
        }
        match name {
            "even" => Ok(Engine::Even(self.even)),
            "kvell" => Ok(Engine::Kvell(self.kvell)),
            "teks" => Ok(Engine::Teks(self.teks)),
            _ => Err(Error::invalid(format!("there is no engine `{name}`"))),
        }
    }
}

fn flag(name: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| senseless(name, value))
}

fn number(name: &str, value: &str) -> Result<u64> {
    value.parse().map_err(|_| senseless(name, value))
}

fn senseless(name: &str, value: &str) -> Error {
    Error::invalid(format!("`{value}` is no value of setting `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(settings: &[&str]) -> String {
        apply(kvilt::Db::builder("nowhere"), settings).unwrap_err().to_string()
    }

    #[test]
    fn each_setting_reaches_the_builder() {
        let settings = [
            ["engine", "even"],
            ["create_if_missing", "false"],
            ["error_if_exists", "true"],
            ["read_only", "true"],
            ["memory_budget", "12345678"],
            ["durability_async_us", "250000"],
            ["snapshot_age_max_ms", "61000"],
            ["batch_operations_max", "77"],
            ["batch_bytes_max", "88888"],
            ["compression", "lz4"],
            ["block_bytes", "8192"],
        ];
        let builder = apply(kvilt::Db::builder("nowhere"), settings.as_flattened()).unwrap();
        let told = format!("{builder:?}");
        let parts = [
            "create_if_missing: false",
            "error_if_exists: true",
            "read_only: true",
            "Some(12345678)",
            "250ms",
            "61s",
            "batch_operations_max: 77",
            "batch_bytes_max: 88888",
            "Lz4",
            "block_bytes: 8192",
        ];
        for part in parts {
            assert!(told.contains(part), "{part} in {told}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (settings, part) in [
            (["read_only", "maybe"], "`maybe` is no value of setting `read_only`"),
            (["memory_budget", "-1"], "`memory_budget`"),
            (["engine", "none"], "there is no engine `none`"),
            (["speed", "more"], "there is no setting `speed`"),
            (["row_bytes", "64"], "`row_bytes` is a setting of engine `teks`, and no engine was chosen"),
        ] {
            assert!(refusal(&settings).contains(part), "{settings:?}: {}", refusal(&settings));
        }
        assert!(refusal(&["engine", "kvell", "row_bytes", "64"]).contains("engine `kvell` was chosen"));
        assert!(refusal(&["engine"]).contains("no value"));
    }
}
