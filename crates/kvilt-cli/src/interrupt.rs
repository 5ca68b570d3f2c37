//! Ctrl-C as a flag: a long command looks at it between two steps and ends cleanly.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_PRESSED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C sets the flag instead of ending the process. Pressed again, it ends the process: the store
/// survives that, too.
pub(crate) fn listen() {
    let press = || {
        // Relaxed: the flag carries nothing with it.
        if IS_PRESSED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // Without a handler Ctrl-C does what it always did: that is no reason to refuse the command.
    let _ = ctrlc::set_handler(press);
}

/// Whether Ctrl-C was pressed.
pub(crate) fn is_pressed() -> bool {
    IS_PRESSED.load(Ordering::Relaxed)
}
