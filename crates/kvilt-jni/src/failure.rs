//! `Failure`: what went wrong in a call, on its way to become an exception.

use std::any::Any;

use jni::EnvUnowned;
use kvilt::Error;

use crate::border::throw;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the store's, which becomes an exception with its kind and its whole text.
    Store(Error),
    /// Java's own; if it has thrown, as without memory for an array, that stays.
    Java(jni::errors::Error),
    /// A bug here or below.
    Panic(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

impl From<jni::errors::Error> for Failure {
    fn from(error: jni::errors::Error) -> Self {
        Failure::Java(error)
    }
}

impl Failure {
    /// A panic, by what it said.
    pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Failure::Panic(text.unwrap_or_else(|| "a panic that said nothing".to_owned()))
    }

    /// The name of the kind, a line break, and the text; none if Java has thrown already.
    fn message(&self) -> Option<String> {
        match self {
            Failure::Store(error) => Some(format!("{}\n{error}", error.kind().name())),
            Failure::Java(jni::errors::Error::JavaException) => None,
            Failure::Java(error) => Some(format!("bug\nJava's native interface: {error}")),
            Failure::Panic(text) => Some(format!(
                "bug\na bug in Kvilt, please report it: {text}; close the store and open it again"
            )),
        }
    }
}

/// Throws: when it returns, an exception is pending, or the call would look as if it had succeeded.
#[cold]
pub(crate) fn raise(env: &mut EnvUnowned<'_>, failure: &Failure) {
    let Some(message) = failure.message() else { return };
    let outcome = env.with_env(|env| -> jni::errors::Result<()> {
        throw(env, &message);
        Ok(())
    });
    drop(outcome.into_outcome());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_tells_its_kind_and_the_whole_text() {
        let error = Error::invalid("the key is too long").by_setting("key");
        let message = Failure::from(error.clone()).message().unwrap();
        assert_eq!(message, format!("invalid-argument\n{error}"));
        assert!(Failure::from(jni::errors::Error::JavaException).message().is_none());
    }

    #[test]
    fn a_panic_is_told_with_its_words() {
        for payload in [Box::new("one") as Box<dyn Any + Send>, Box::new("one".to_owned())] {
            let message = Failure::panicked(&*payload).message().unwrap();
            assert!(message.starts_with("bug\n") && message.contains("one"), "{message}");
        }
        assert!(Failure::panicked(&7).message().unwrap().contains("said nothing"));
    }
}
