//! Engine `kvell`: items lie unsorted in slabs, and an index in memory says where
//! (`docs/design/0066-kvell.md`).
//!
//! Where it stands: floor 2. It sees the disk through the seams of floor 0 only.
#![forbid(unsafe_code)]

pub mod index;
pub mod place;
