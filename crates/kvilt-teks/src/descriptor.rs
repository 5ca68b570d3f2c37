//! The engine as the façade knows it: options are its descriptor.

use std::{any::Any, sync::Arc};

use kvilt_base::{
    Capabilities, Descriptor, Disk, Engine, FileName, Level, Listed, Part, Recognised, Remainder,
    RepairReport, Result, Salvaged, Settings, World,
};
use kvilt_format::names::{LEVELS, REDO, TABLE};

use crate::{NAME, Options, engine::Teks, parts, recovery, salvage};

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
            has_repair: true,
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
        find(REDO).or_else(|| find(TABLE)).map_or(Recognised::Nothing, Recognised::Pieces)
    }

    fn open(&self, disk: Arc<dyn Disk>, world: World, settings: &Settings) -> Result<Arc<dyn Engine>> {
        self.validate(settings, world.budget.bytes_max())?;
        Ok(Arc::new(Teks::new(recovery::open(disk, &world, self, settings)?)))
    }

    fn lock_to_salvage(&self, disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>> {
        salvage::lock_to_salvage(disk)
    }

    fn salvage(
        &self,
        disk: &dyn Disk,
        save: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<RepairReport> {
        salvage::salvage(disk, save, progress)
    }
}
