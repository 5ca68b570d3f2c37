//! What went wrong, where, and how to see it again; and panics turned into failures.

use std::{
    cell::{Cell, RefCell},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Once,
};

use kvilt_base::Error;

use crate::script::Script;

/// Why a step did not go well.
#[derive(Clone, Debug)]
pub enum Complaint {
    /// The store did or said something wrong.
    Wrong(String),
    /// The store refused an operation with an error; that is right only if the disk failed.
    Refused(&'static str, Error),
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Complaint::Wrong(message) => f.write_str(message),
            Complaint::Refused(operation, error) => write!(f, "{operation} failed: {error:?}"),
        }
    }
}

impl From<String> for Complaint {
    fn from(message: String) -> Self {
        Complaint::Wrong(message)
    }
}

impl From<&str> for Complaint {
    fn from(message: &str) -> Self {
        Complaint::Wrong(message.into())
    }
}

/// Names the operation that an error came from.
pub fn refused(operation: &'static str) -> impl FnOnce(Error) -> Complaint {
    move |error| Complaint::Refused(operation, error)
}

/// A run that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The position of the step in the script.
    pub step: usize,
    /// What was found.
    pub message: String,
    /// For a crash: when and how the power went, life by life.
    pub crash: Option<String>,
}

impl Failure {
    /// A failure that was seen at a step.
    pub fn at_step(step: usize, message: String) -> Self {
        Failure { step, message, crash: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.message)?;
        if let Some(crash) = &self.crash {
            write!(f, "\n  after {crash}")?;
        }
        Ok(())
    }
}

/// A failure with everything needed to see it again.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was tested, with its options.
    pub subject: String,
    /// The seed of the run.
    pub seed: u64,
    /// What went wrong in the whole script.
    pub failure: Failure,
    /// The script, reduced as far as it still fails, and how that one fails.
    pub reduced: Option<(Script, Failure)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "FAILED: seed {}, {}", self.seed, self.subject)?;
        writeln!(f, "  {}", self.failure)?;
        if let Some((script, failure)) = &self.reduced {
            writeln!(f, "  reduced to {} steps, which fail so: {failure}", script.steps.len())?;
            write!(f, "{script}")?;
        }
        Ok(())
    }
}

thread_local! {
    /// Whether a panic on this thread is caught and told by us.
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
    /// Message and place of the last panic caught.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `body`; a panic comes back as an error with its message and place, and nothing is printed.
pub fn catching_panics<T, E: From<String>>(body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IS_CATCHING.get() {
                LAST_PANIC.set(Some(panic.to_string()));
            } else {
                others(panic);
            }
        }));
    });
    let was_catching = IS_CATCHING.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(body));
    IS_CATCHING.set(was_catching);
    outcome.unwrap_or_else(|_| {
        Err(LAST_PANIC.take().unwrap_or_else(|| String::from("a panic without a message")).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_that_names_its_place() {
        let caught = catching_panics::<(), String>(|| panic!("seven is not eight"));
        let message = caught.unwrap_err();
        assert!(message.contains("seven is not eight"), "{message}");
        assert!(message.contains("report.rs"), "{message}");
    }
}
