//! What the engine uses its memory budget for.

use kvilt_base::Part;

/// Memory tables.
pub(crate) const TABLES: Part = Part::new(8, "memory tables");
/// Block indexes and filters of sorted tables.
pub(crate) const INDEXES: Part = Part::new(9, "table indexes");

/// All of them.
pub(crate) const ALL: &[Part] = &[TABLES, INDEXES];
