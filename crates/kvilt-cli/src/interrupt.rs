//! Ctrl-C as a flag: a long command looks at it between two steps and ends cleanly.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

static IS_PRESSED: AtomicBool = AtomicBool::new(false);

/// What wakes somebody who waits for something else, and could not look at the flag.
static WAKER: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// From now on Ctrl-C sets the flag instead of ending the process. Pressed again, it ends the process: the
/// store survives that, too.
pub(crate) fn listen() {
    let press = || {
        // Relaxed: the flag carries nothing with it.
        if IS_PRESSED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        if let Some(wake) = &*WAKER.lock().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
    };
    // Without a handler Ctrl-C does what it always did: that is no reason to refuse the command.
    let _ = ctrlc::set_handler(press);
}

/// Has `wake` called when Ctrl-C is pressed. Who waits must look at the flag once more behind this call: it
/// may have been pressed before.
pub(crate) fn wake_by(wake: impl Fn() + Send + 'static) {
    *WAKER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(wake));
}

/// Whether Ctrl-C was pressed.
pub(crate) fn is_pressed() -> bool {
    IS_PRESSED.load(Ordering::Relaxed)
}
