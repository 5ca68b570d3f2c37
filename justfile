# Names for humans; each line calls cargo or xtask, and works without just too.

# list these
default:
    @just --list

# what must hold before a change lands
ci:
    cargo xtask ci

# the same in a minute or two, on a warm build
quick:
    cargo xtask ci --quick

# mend the format, then look at the rules
tidy:
    cargo fmt --all
    cargo xtask floors
    cargo xtask tidy

# all tests
test:
    cargo test

# the interleavings of the version protocol
loom:
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --package kvilt-sync --test models

# the pages of the public crate
docs:
    cargo doc --no-deps --package kvilt --open

# the tour: flights in, scans, snapshots, a crash, figures out
demo:
    cargo run --release -- demo

# mistakes that no test would notice: one part of N of a crate's (needs cargo-mutants)
mutants shard="0/20" package="kvilt-format":
    cargo mutants --package {{package}} --shard {{shard}} --sharding round-robin

# licences, advisories and sources of third-party crates (needs cargo-deny)
deny:
    cargo deny check
