//! A thread that does something each half second: the rhythm of Kvilt's own checkpoints.

use std::{
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};

/// Time between two ticks.
const EACH: Duration = Duration::from_millis(500);

/// Ticks until it is stopped or dropped.
pub(crate) struct Ticker {
    /// Hangs up when it is dropped, which ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Ticker {
    /// Begins. A tick that fails is the last; [`Ticker::stop`] tells why.
    pub(crate) fn start(tick: impl Fn() -> Result<()> + Send + 'static) -> Ticker {
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            while ended.recv_timeout(EACH) == Err(RecvTimeoutError::Timeout) {
                tick()?;
            }
            Ok(())
        });
        Ticker { end: Some(end), thread: Some(thread) }
    }

    /// Ends it, and waits for a tick under way.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.join()
    }

    fn join(&mut self) -> Result<()> {
        self.end = None;
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(outcome)) => outcome.context("a sync in the background"),
            Some(Err(_)) => Err(anyhow!("a sync in the background panicked")),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // Whoever wants to know stops it.
        let _ = self.join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn it_ticks_until_it_is_stopped() {
        let (told, heard) = mpsc::channel();
        let ticker = Ticker::start(move || Ok(told.send(())?));
        heard.recv().unwrap();
        ticker.stop().unwrap();
        heard.try_iter().count();
        assert!(heard.recv().is_err(), "the thread is gone, and its end of the channel with it");
    }

    #[test]
    fn a_failed_tick_is_told() {
        let (told, heard) = mpsc::channel::<()>();
        let ticker = Ticker::start(move || {
            let _keeps_the_channel_open = &told;
            Err(anyhow!("no space"))
        });
        assert!(heard.recv().is_err());
        assert!(format!("{:#}", ticker.stop().unwrap_err()).contains("no space"));
    }
}
