//! Every input that fuzzing begins with, or once failed on, through its target: the part of fuzzing that
//! needs no fuzzer and runs for ever. Inputs in `fuzz/pinned` were findings; each is named after what it
//! found.
#![expect(clippy::disallowed_methods, reason = "reads the inputs that are kept in files")]

use std::{fs, path::Path};

use kvilt_sim::{engines, fuzzing::Target};

/// Panics inside a worker are caught by those who step it, so they are counted where they happen.
fn panics_of(body: impl FnOnce() + std::panic::UnwindSafe) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = PANICS.load(SeqCst);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, SeqCst);
        hook(panic);
    }));
    let _ = std::panic::catch_unwind(body);
    let _ = std::panic::take_hook();
    PANICS.load(SeqCst) - before
}

/// F-3, for every file kind, and whole directories; B-1 to B-6 for scripts.
#[test]
fn no_input_that_is_kept_fails() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut replayed = 0;
    let mut failed = Vec::new();
    let targets: Vec<&Target> = engines::fuzz_targets().collect();
    for target in &targets {
        for kept in ["corpus", "pinned"] {
            let Ok(inputs) = fs::read_dir(root.join(kept).join(target.name)) else {
                assert_eq!(kept, "pinned", "{} has no corpus", target.name);
                continue;
            };
            for input in inputs {
                let path = input.expect("a directory that can be read").path();
                let bytes = fs::read(&path).expect("an input that can be read");
                if panics_of(|| (target.body)(&bytes)) > 0 {
                    failed.push(path);
                }
                replayed += 1;
            }
        }
    }
    assert!(replayed >= targets.len(), "only {replayed} inputs were found");
    assert!(failed.is_empty(), "inputs that fail: {failed:?}");
}
