//! `Descriptor`: what is known of an engine before any store of it is open; `World`: what an engine is given
//! beside its disk.
//!
//! A descriptor carries the engine's own settings. The façade, the simulation and the command know engines by
//! their descriptors alone, so a new engine is a new descriptor in the façade's list.

use std::{any::Any, fmt, sync::Arc};

use crate::{
    Budget, Clock, Disk, Engine, Error, FileName, KeyRange, Level, Listed, Part, RepairReport, Result, Rng,
    Settings, Spawn,
};

/// What an engine is given of the world, beside its disk.
#[derive(Clone)]
pub struct World {
    /// Time, for scheduling and statistics.
    pub clock: Arc<dyn Clock>,
    /// Random numbers, for identities.
    pub rng: Arc<dyn Rng>,
    /// Threads, for background work.
    pub spawn: Arc<dyn Spawn>,
    /// Memory; may be shared with other stores.
    pub budget: Arc<Budget>,
}

/// What a power cut leaves of the writes that are not yet durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// A prefix in real-time order (B-5).
    Prefix,
    /// Any subset of them; each write or batch whole or not at all.
    Subset,
}

/// What an engine promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Its levels of durability.
    pub levels: &'static [Level],
    /// What a power cut leaves.
    pub after_power_cut: Remainder,
    /// Whether a store can be opened to be read only.
    pub has_read_only: bool,
    /// Whether what is left of a damaged store can be copied into a new one.
    pub has_repair: bool,
}

impl Capabilities {
    /// Refuses settings that ask for what the engine does not have.
    ///
    /// Errors: `InvalidArgument`, by the name of the setting.
    pub fn allow(&self, engine: &str, settings: &Settings) -> Result<()> {
        let level = settings.durability.level();
        if !self.levels.contains(&level) {
            let reason =
                format!("engine `{engine}` does not have the level {level:?}; it has {:?}", self.levels);
            return Err(Error::invalid(reason).by_setting("durability"));
        }
        if settings.read_only && !self.has_read_only {
            let reason = format!("engine `{engine}` cannot open a store to be read only");
            return Err(Error::invalid(reason).by_setting("read_only"));
        }
        Ok(())
    }
}

/// What the files of a directory say of an engine's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// No file is one of a store, but maybe what an open has left that was cut short.
    Nothing,
    /// There is a store.
    Store,
    /// There are files of a store, such as this, but not the one by which it is opened.
    Pieces(FileName),
}

/// What a salvage gives away, in this order: rows, then changes to be made to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Salvaged<'a> {
    /// A key and its value.
    Row(&'a [u8], &'a [u8]),
    /// A later change: this key was deleted.
    Delete(&'a [u8]),
    /// A later change: these keys were deleted.
    DeleteRange(KeyRange),
}

/// An engine, with its own settings, before a store of it is open.
pub trait Descriptor: fmt::Debug + Send + Sync {
    /// Its name: short, of lowercase letters, the same for ever.
    fn name(&self) -> &'static str;

    /// What it uses its memory budget for.
    fn parts(&self) -> &'static [Part];

    /// What it promises.
    fn capabilities(&self) -> Capabilities;

    /// Refuses settings that make no sense, its own among them, before anything is made.
    ///
    /// Errors: `InvalidArgument`.
    fn validate(&self, settings: &Settings, budget_bytes: u64) -> Result<()>;

    /// Whether there is a store of it in a directory, by the names of the files.
    fn recognise(&self, listed: &[Listed]) -> Recognised;

    /// Opens the store in `disk`, or makes one there.
    ///
    /// Errors: `Busy` if somebody has it open, with the process id; `InvalidArgument` if the settings make no
    /// sense or the directory holds something else; `UnsupportedVersion` if a newer Kvilt wrote it;
    /// `Corrupted`, `Io`.
    fn open(&self, disk: Arc<dyn Disk>, world: World, settings: &Settings) -> Result<Arc<dyn Engine>>;

    /// Takes the reader's lock on the store in `disk`, held until the returned value is dropped. A repair
    /// takes it before it makes the new store.
    ///
    /// Errors: `Busy`; `InvalidArgument` if there is nothing of a store; `UnsupportedVersion`; `Io`.
    fn lock_to_salvage(&self, disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>>;

    /// Gives all that can be saved of a damaged store to `save`. `progress` is given the bytes read and those
    /// there are.
    ///
    /// Errors: those of `save`; `Busy`; `InvalidArgument` if there is nothing of a store; `Io` if a file
    /// cannot be read for a reason other than damage; `UnsupportedVersion`.
    fn salvage(
        &self,
        disk: &dyn Disk,
        save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<RepairReport>;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Durability;

    #[test]
    fn what_an_engine_does_not_have_is_refused_by_the_name_of_the_setting() {
        let interval = Duration::from_secs(1);
        let can_little = Capabilities {
            levels: &[Level::Sync],
            after_power_cut: Remainder::Subset,
            has_read_only: false,
            has_repair: false,
        };
        let mut settings = Settings { durability: Durability::Sync { interval }, ..Settings::default() };
        can_little.allow("little", &settings).unwrap();
        settings.read_only = true;
        let error = can_little.allow("little", &settings).unwrap_err();
        assert!(error.message().contains("`little`") && error.setting() == Some("read_only"), "{error}");
        settings = Settings { durability: Durability::Async { interval }, ..Settings::default() };
        let error = can_little.allow("little", &settings).unwrap_err();
        assert_eq!((error.kind(), error.setting()), (crate::ErrorKind::InvalidArgument, Some("durability")));
        assert!(error.message().contains("Async") && error.message().contains("[Sync]"), "{error}");
    }
}
