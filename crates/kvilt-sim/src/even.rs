//! All that the workshop knows of the engine `even`.

mod mutants;

pub use mutants::PLANTED;
