//! `Engine`: which engine keeps the rows; the one list of all engines that there are.

use kvilt_base::{Descriptor, Listed, Recognised, disk::Kind};

use crate::even;

/// Which engine keeps the rows, with its own settings. It is chosen when a store is made, and the same ever
/// after.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Engine {
    /// EvenDB (EuroSys '20): for data with spatial locality, where popular keys lie side by side. Chunks of
    /// the key order are cached in memory whole; writes go to one log a chunk; opening reads metadata only.
    Even(even::Options),
}

impl Default for Engine {
    /// [`Engine::Even`], with its defaults.
    fn default() -> Self {
        Engine::Even(even::Options::default())
    }
}

impl Engine {
    pub(crate) fn descriptor(&self) -> &dyn Descriptor {
        match self {
            Engine::Even(options) => &options.0,
        }
    }
}

/// The kinds of files of all engines.
pub(crate) const KINDS: &[Kind] = kvilt_even::KINDS;

/// Every engine, with its defaults.
fn all() -> [Engine; 1] {
    [Engine::default()]
}

/// The engine whose store has these files, if any has.
pub(crate) fn of(listed: &[Listed]) -> Option<&'static str> {
    let all = all();
    let found = all.iter().find(|engine| engine.descriptor().recognise(listed) != Recognised::Nothing);
    found.map(|engine| engine.descriptor().name())
}
