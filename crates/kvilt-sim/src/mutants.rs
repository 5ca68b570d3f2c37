//! Would the tests notice? Planted bugs ([`kvilt_base::Mutant`]), the layer that should find each, and,
//! behind the feature `mutants`, the hunt: each is brought to life, and its layer looks.
//!
//! What a layer runs is what a campaign runs, on the same configurations in turn, only thinner: of about each
//! sixteenth crash one image, of each sixteenth disk call the faults, of each damage a thousandth, so that a
//! few thousand cases see many scripts. Before any bug is planted, the healthy engine must pass the very same
//! cases.
//!
//! What is always true here: one bug at a time in the whole process, and none when a hunt has ended; the seed
//! decides everything, so a bug is found in the same case each time.

#[cfg(feature = "mutants")]
mod hunt;

use kvilt_base::Mutant;

#[cfg(feature = "mutants")]
pub use self::hunt::{Hunt, hunt, hunt_for};

/// No bug may need more cases than this.
pub const CASES_MAX: u64 = 20_000;

/// A planted bug, and what an engine's tests promise about it.
#[derive(Debug)]
pub struct Planted {
    /// The bug.
    pub mutant: &'static Mutant,
    /// The layer that should find it.
    pub layer: Layer,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// A way to look for bugs, and what one case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// A script of some 2,400 operations against the model.
    Model,
    /// An image that a crash left, opened and held to the promise.
    Crash,
    /// The same at every disk call, for a bug that few crashes show: stores at rest take no checkpoints, so
    /// few crashes fall between a recovery and the first checkpoint behind it.
    EveryCrash,
    /// A script with a disk call that fails.
    Faults,
    /// A reference store with one damage.
    Damage,
    /// A state that crashes of a canonical script, and of its recoveries, left.
    Nested,
}

impl Layer {
    /// All of them.
    pub const ALL: [Layer; 6] =
        [Layer::Model, Layer::Crash, Layer::EveryCrash, Layer::Faults, Layer::Damage, Layer::Nested];

    /// So many cases the healthy engine passes before a hunt, and so many a hunt has at most: no more than
    /// needed, for they cost a minute in all.
    pub fn cases_max(self) -> u64 {
        match self {
            Layer::Model => 200,
            Layer::Crash | Layer::EveryCrash => 10_000,
            Layer::Nested => CASES_MAX,
            Layer::Faults => 6_000,
            Layer::Damage => 1_000,
        }
    }

    /// A bug that this layer should find, and the rule that it breaks.
    pub const fn finds(self, mutant: &'static Mutant, rule: &'static str) -> Planted {
        Planted { mutant, layer: self, rule }
    }
}
