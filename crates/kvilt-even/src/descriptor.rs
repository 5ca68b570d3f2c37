//! The engine as the façade knows it: options are its descriptor.

use std::{any::Any, sync::Arc};

use kvilt_base::{
    Capabilities, Descriptor, Disk, Engine, FileName, Level, Listed, Part, Recognised, Remainder,
    RepairReport, Result, Salvaged, Settings, World,
};
use kvilt_format::names::{COMMIT, LOG, MANIFEST, TABLE};

use crate::{Options, salvage};

impl Options {
    fn with(&self, settings: &Settings) -> Options {
        Options { settings: settings.clone(), ..self.clone() }
    }
}

impl Descriptor for Options {
    fn name(&self) -> &'static str {
        crate::NAME
    }

    fn parts(&self) -> &'static [Part] {
        crate::parts::ALL
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
        self.with(settings).check(budget_bytes).map(drop)
    }

    fn recognise(&self, listed: &[Listed]) -> Recognised {
        let ours = || {
            listed.iter().filter_map(|item| match item {
                Listed::Ours(name) => Some(*name),
                Listed::Foreign(_) => None,
            })
        };
        if ours().any(|name| matches!(name, FileName::Of(MANIFEST, _))) {
            return Recognised::Store;
        }
        let mut of_rows = ours().filter(|name| matches!(name, FileName::Of(TABLE | LOG | COMMIT, _)));
        of_rows.next().map_or(Recognised::Nothing, Recognised::Pieces)
    }

    fn open(&self, disk: Arc<dyn Disk>, world: World, settings: &Settings) -> Result<Arc<dyn Engine>> {
        crate::open(disk, world, self.with(settings))
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

#[cfg(test)]
mod tests {
    use kvilt_format::names::{MANIFEST_TEMP, WITNESS};

    use super::*;

    #[test]
    fn a_store_is_recognised_by_its_manifest_and_pieces_by_what_has_rows() {
        let ours = |names: &[FileName]| names.iter().map(|name| Listed::Ours(*name)).collect::<Vec<_>>();
        let recognised = |names: &[FileName]| Options::default().recognise(&ours(names));
        assert_eq!(recognised(&[FileName::Of(LOG, 1), FileName::Of(MANIFEST, 2)]), Recognised::Store);
        assert_eq!(
            recognised(&[WITNESS, FileName::Of(TABLE, 3)]),
            Recognised::Pieces(FileName::Of(TABLE, 3))
        );
        assert_eq!(recognised(&[FileName::LOCK, FileName::Of(MANIFEST_TEMP, 1)]), Recognised::Nothing);
        assert_eq!(
            Options::default().recognise(&[Listed::Foreign("1.log".to_string())]),
            Recognised::Nothing
        );
    }
}
