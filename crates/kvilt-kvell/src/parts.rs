//! What the engine uses its memory budget for.

use kvilt_base::Part;

/// Keys and places; occupancy maps.
pub(crate) const INDEX: Part = Part::new(5, "index");
/// Cached blocks.
pub(crate) const CACHE: Part = Part::new(6, "page cache");
/// Blocks in flight, and what keys had before, for views.
pub(crate) const WORK: Part = Part::new(7, "in flight and views");

/// All of them.
pub(crate) const ALL: &[Part] = &[INDEX, CACHE, WORK];
