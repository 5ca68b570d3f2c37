//! `--engine`: which engine keeps a store that a command makes.

use clap::{Args, ValueEnum};
use kvilt::{Builder, Engine, even, kvell, teks};

/// `--engine`, of every command that may make a store.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct EngineOption {
    /// The engine of a store that is made: even (popular keys lie side by side; the default), kvell (random
    /// reads and updates far beyond memory) or teks (keys in no order, most of them in memory, scanned while
    /// they are written). A store that is there has its own, and no other is accepted.
    #[arg(long, value_enum)]
    engine: Option<EngineChoice>,
}

/// What `--engine` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum EngineChoice {
    Even,
    Kvell,
    Teks,
}

impl EngineOption {
    /// The builder with the engine that was chosen, if one was.
    pub(crate) fn apply(self, builder: Builder) -> Builder {
        match self.engine {
            Some(choice) => builder.engine(choice.engine()),
            None => builder,
        }
    }
}

impl EngineChoice {
    /// The engine, with its defaults.
    pub(crate) fn engine(self) -> Engine {
        match self {
            EngineChoice::Even => Engine::Even(even::Options::default()),
            EngineChoice::Kvell => Engine::Kvell(kvell::Options::default()),
            EngineChoice::Teks => Engine::Teks(teks::Options::default()),
        }
    }

    /// As it is typed.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EngineChoice::Even => "even",
            EngineChoice::Kvell => "kvell",
            EngineChoice::Teks => "teks",
        }
    }
}
