//! What the engine uses its memory budget for.

use kvilt_base::Part;

/// Runs and tails of munks.
pub const MUNKS: Part = Part::new(0, "munks");
/// Rows of munk-less chunks.
pub const ROW_CACHE: Part = Part::new(1, "row cache");
/// Indexes and filters of logs.
pub const LOG_INDEXES: Part = Part::new(2, "log indexes");
/// Block indexes and filters of tables.
pub const TABLES: Part = Part::new(3, "tables");
/// Write buffers of logs.
pub const LOG_BUFFERS: Part = Part::new(4, "log buffers");

/// Rows of munk-less chunks beyond the row cache's share, while nobody else wants their memory.
pub const SPARE_ROWS: Part = Part::new(10, "row cache beyond its share");

/// All of them.
pub const ALL: &[Part] = &[MUNKS, ROW_CACHE, LOG_INDEXES, TABLES, LOG_BUFFERS, SPARE_ROWS];
