//! The engine as the façade knows it: options are its descriptor.

use std::{any::Any, sync::Arc};

use kvilt_base::{
    Capabilities, Descriptor, Disk, Engine, Error, FileName, Level, Listed, Part, Recognised, Remainder,
    RepairReport, Result, Salvaged, Settings, World,
};
use kvilt_format::names::{LEVELS, REDO};

use crate::{NAME, Options, engine::Teks, parts, recovery};

impl Descriptor for Options {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parts(&self) -> &'static [Part] {
        parts::ALL
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            levels: &[Level::Async, Level::Sync],
            after_power_cut: Remainder::Prefix,
            has_read_only: true,
            has_repair: false,
        }
    }

    fn validate(&self, settings: &Settings, budget_bytes: u64) -> Result<()> {
        settings.validate()?;
        self.capabilities().allow(NAME, settings)?;
        self.check(budget_bytes)
    }

    fn recognise(&self, listed: &[Listed]) -> Recognised {
        let find = |kind| {
            listed.iter().find_map(|item| match item {
                Listed::Ours(name @ FileName::Of(found, _)) if *found == kind => Some(*name),
                Listed::Ours(_) | Listed::Foreign(_) => None,
            })
        };
        if find(LEVELS).is_some() {
            return Recognised::Store;
        }
        find(REDO).map_or(Recognised::Nothing, Recognised::Pieces)
    }

    fn open(&self, disk: Arc<dyn Disk>, world: World, settings: &Settings) -> Result<Arc<dyn Engine>> {
        self.validate(settings, world.budget.bytes_max())?;
        Ok(Arc::new(Teks::new(recovery::open(disk, &world, self, settings)?)))
    }

    fn lock_to_salvage(&self, _disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>> {
        Err(no_repair())
    }

    fn salvage(
        &self,
        _disk: &dyn Disk,
        _save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
        _progress: &mut dyn FnMut(u64, u64),
    ) -> Result<RepairReport> {
        Err(no_repair())
    }
}

fn no_repair() -> Error {
    Error::invalid("engine teks cannot repair a store")
}
