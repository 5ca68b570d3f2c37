//! What a repair would copy of a damaged store: right, or reported as lost.

use std::collections::BTreeMap;

use kvilt_base::{FileName, RepairReport, Salvaged};
use kvilt_io::MemoryDisk;

use super::reference::Reference;

/// Rescues what there is, and compares it with what was; if the engine can rescue anything.
pub(super) fn rescue(disk: &MemoryDisk, reference: &Reference, is_hurt: bool) -> Result<(), String> {
    let Some(descriptor) = reference.subject.descriptor() else { return Ok(()) };
    let files =
        || disk.snapshot().into_iter().filter(|(name, _)| *name != FileName::LOCK).collect::<Vec<_>>();
    let before = files();
    let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut save = |salvaged: Salvaged<'_>| {
        match salvaged {
            Salvaged::Row(key, value) => {
                rows.insert(key.to_vec(), value.to_vec());
            }
            Salvaged::Delete(key) => {
                rows.remove(key);
            }
            Salvaged::DeleteRange(range) => rows.retain(|key, _| !range.contains(key)),
        }
        Ok(())
    };
    let report =
        descriptor.salvage(disk, &mut save, &mut |_, _| {}).map_err(|e| format!("a rescue fails: {e:?}"))?;
    if files() != before {
        return Err("a rescue wrote to the damaged store".into());
    }
    if report.losses.is_empty() && !report.is_proven {
        return Err("a rescue without proof reports no loss".into());
    }
    if !is_hurt && report.is_proven && !report.losses.is_empty() {
        return Err(format!("a rescue reports a loss where none is: {:?}", report.losses[0]));
    }
    let is_lost = |key: &[u8]| is_reported(&report, key);
    for (key, value) in &reference.rows {
        let is_right = rows.get(key) == Some(value);
        if !is_right && !is_lost(key) {
            return Err(format!("a rescue has {:?} for {key:?} and does not report it", rows.get(key)));
        }
    }
    if report.is_proven {
        for (key, value) in &rows {
            if reference.rows.get(key) != Some(value) {
                return Err(format!("a rescue gives {key:?} a value that it did not have last"));
            }
        }
    } else if !is_lost(b"") {
        return Err("a rescue without proof must report every key".into());
    }
    Ok(())
}

fn is_reported(report: &RepairReport, key: &[u8]) -> bool {
    report.losses.iter().any(|loss| loss.range.as_ref().is_none_or(|range| range.contains(key)))
}
