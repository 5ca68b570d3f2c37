//! `Poison`: once a sync failed or a bug was seen, no more writes until the store is opened again.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use kvilt_base::{Error, ErrorKind, Result};

/// Held over steps that must not be left half done. Dropped before [`HalfDone::done`], which only a panic
/// does, it poisons: what is half done in memory must reach no file and no reader's trust.
pub(crate) struct HalfDone<'a> {
    poison: &'a Poison,
    what: &'static str,
}

impl HalfDone<'_> {
    /// The steps are complete.
    pub(crate) fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for HalfDone<'_> {
    fn drop(&mut self) {
        let message = format!("a panic left {} half done", self.what);
        self.poison.poison(&Error::new(ErrorKind::Poisoned, message));
    }
}

/// Whether writes are still allowed.
#[derive(Default)]
pub(crate) struct Poison {
    first: OnceLock<Error>,
    is_closed: AtomicBool,
}

impl Poison {
    /// Fails if the store is poisoned or closed.
    pub(crate) fn allow_write(&self) -> Result<()> {
        self.allow_apply()?;
        self.allow_read()
    }

    /// Fails if the store is poisoned: what is already durable may be applied while the store is being
    /// closed.
    pub(crate) fn allow_apply(&self) -> Result<()> {
        self.first.get().map_or(Ok(()), |first| Err(first.clone()))
    }

    /// Fails if the store is closed.
    pub(crate) fn allow_read(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the store was closed"));
        }
        Ok(())
    }

    /// Remembers the first cause; later ones follow from it.
    pub(crate) fn poison(&self, cause: &Error) {
        let cause = match cause.kind() {
            ErrorKind::Poisoned => cause.clone(),
            _ => Error::new(ErrorKind::Poisoned, format!("an earlier failure stopped all writes: {cause}")),
        };
        let _ = self.first.set(cause);
    }

    /// Poisons unless `done` is said: for steps of which some may panic.
    pub(crate) fn unless_done(&self, what: &'static str) -> HalfDone<'_> {
        HalfDone { poison: self, what }
    }

    /// The cause, if it is poisoned.
    pub(crate) fn cause(&self) -> Option<&Error> {
        self.first.get()
    }

    /// Closes; true the first time.
    pub(crate) fn close(&self) -> bool {
        !self.is_closed.swap(true, Ordering::AcqRel)
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}
