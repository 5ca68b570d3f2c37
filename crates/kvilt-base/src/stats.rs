//! `Stats`: figures about every part of a store, as plain values: those that every engine has, and a list of
//! its own.

use std::ops::Index;

/// One figure. Name, unit and help come from one declaration, so that text, JSON and exporters say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name, the same for ever.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// The value.
    pub value: u64,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Microseconds.
    Micros,
    /// Anything else, by number.
    Count,
}

impl Figure {
    /// Its unit, which stands in its name.
    pub fn unit(&self) -> Unit {
        let has = |part| self.name.split('_').any(|word| word == part);
        match (has("bytes"), has("us")) {
            (true, _) => Unit::Bytes,
            (false, true) => Unit::Micros,
            (false, false) => Unit::Count,
        }
    }

    /// Whether it says how something is at this moment; if not, it counts from the open on and never falls.
    pub fn is_gauge(&self) -> bool {
        self.name.ends_with("_now") || self.name == "budget_bytes" || self.name == "open_us"
    }
}

/// Declares a struct of figures together with their list, so that none can be left out of either.
#[macro_export]
macro_rules! declare_figures {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Name:ident {
            $($(#[doc = $help:literal])+ $name:ident,)+
        }
        $(and { $($(#[$other_meta:meta])* $other:ident: $Other:ty,)* })?
    ) => {
        $(#[$meta])*
        $vis struct $Name {
            $($(#[doc = $help])+ pub $name: u64,)+
            $($($(#[$other_meta])* pub $other: $Other,)*)?
        }

        impl $Name {
            /// Every declared figure, in the order of the fields.
            $vis fn declared(&self) -> Vec<$crate::Figure> {
                vec![$($crate::Figure {
                    name: stringify!($name),
                    help: concat!($($help),+).trim_ascii(),
                    value: self.$name,
                },)+]
            }
        }
    };
}

declare_figures! {
    /// Figures since the store was opened, or at this moment where the name says so (`_now`).
    /// Units stand in the names: `_bytes`, `_us`; all others count.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Stats {
        /// Tables, logs, commit logs and the manifest; replaced files until they are removed.
        files_now,
        /// Length of the tables and logs that are not replaced; without commit logs and manifest.
        disk_bytes_now,
        /// Of these, about how many hold rows that were overwritten or deleted, or that are no rows.
        dead_bytes_now,
        /// Snapshots and scans that are open.
        open_views_now,
        /// Age of the oldest of them that keeps old versions.
        oldest_view_age_us_now,
        /// Memory budget.
        budget_bytes,
        /// Memory in use that counts against it.
        memory_bytes_now,
        /// Values of all stores of the process that were replaced and that some reader still sees.
        waiting_values_now,
        /// Memory that these alone keep; what of it was in munks is in `munk_bytes_now` as well.
        waiting_bytes_now,
        /// Gets, in all.
        gets,
        /// Puts and deletes, those in batches included.
        puts,
        /// Write batches of more than one operation.
        batches,
        /// Scans opened, snapshots included.
        views,
        /// Of these, how many were kept beyond the limit on their age and expired.
        views_expired,
        /// Rows that scans returned.
        scanned_rows,
        /// Entries that scans had to pass over: old versions and tombstones.
        scanned_skips,
        /// Steps that the background has taken, those included that found nothing to do: none in a store in
        /// which nothing changes.
        background_steps,
        /// Keys and values given by puts, and keys of deletes.
        user_bytes,
        /// Bytes that the engine wrote to files.
        bytes_written,
        /// Bytes read from files.
        bytes_read,
        /// Reads of files.
        reads,
        /// Of these, how many took so long that the drive must have been waited for, not the page cache.
        reads_waited,
        /// Writes that waited for the background, for any reason.
        stalls,
        /// Time they waited.
        stalls_us,
        /// Time from the start of open to ready.
        open_us,
    }
    and {
        /// Figures of the engine's own, in its order.
        own: Vec<Figure>,
    }
}

impl Stats {
    /// Every figure: those that all engines have, then the engine's own.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = self.declared();
        figures.extend_from_slice(&self.own);
        figures
    }

    /// A figure of the engine's own, if it has one of this name.
    pub fn own(&self, name: &str) -> Option<u64> {
        self.own.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// Bytes written for each byte the user wrote; zero before the first put.
    pub fn write_amplification(&self) -> f64 {
        if self.user_bytes == 0 { 0.0 } else { self.bytes_written as f64 / self.user_bytes as f64 }
    }
}

/// A figure of the engine's own, such as `stats["munk_loads"]`. Panics if it has none of this name; see
/// [`Stats::own`].
impl Index<&str> for Stats {
    type Output = u64;

    fn index(&self, name: &str) -> &u64 {
        let found = self.own.iter().find(|figure| figure.name == name);
        &found.unwrap_or_else(|| panic!("the engine has no figure `{name}`")).value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_own_figures_stand_behind_those_of_all() {
        let own = vec![Figure { name: "shard_queue_us", help: "Time in queues.", value: 7 }];
        let stats = Stats { user_bytes: 100, bytes_written: 200, own, ..Stats::default() };
        assert_eq!(stats.write_amplification(), 2.0);
        assert_eq!(Stats::default().write_amplification(), 0.0);
        assert_eq!(
            (stats.own("shard_queue_us"), stats["shard_queue_us"], stats.own("user_bytes")),
            (Some(7), 7, None)
        );
        let figures = stats.figures();
        let by_name =
            |name: &str| *figures.iter().find(|figure| figure.name == name).expect("it is declared");
        assert_eq!((by_name("user_bytes").value, by_name("user_bytes").unit()), (100, Unit::Bytes));
        assert_eq!(by_name("user_bytes").help, "Keys and values given by puts, and keys of deletes.");
        assert_eq!((by_name("bytes_read").unit(), by_name("stalls").unit()), (Unit::Bytes, Unit::Count));
        assert!(by_name("files_now").is_gauge() && !by_name("puts").is_gauge());
        assert_eq!(figures.last().map(Figure::unit), Some(Unit::Micros));
    }
}
