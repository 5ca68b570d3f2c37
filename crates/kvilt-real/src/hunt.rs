//! `Hunt`: starts a child and kills it at a chosen place.

use std::{
    io::Read,
    process::{Child as Process, Command},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kvilt_sim::dice::Dice;

use crate::child::{CLOSING, Child, OPENING, WRITING};

/// System calls that change something on the disk. A child behind strace is killed at one of these.
const CALLS: &str = "openat,pwrite64,pwritev,fdatasync,fsync,ftruncate,fallocate,unlinkat,renameat,renameat2,linkat,mkdir,flock";

/// Where a child is to be killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// So long after it has said this.
    After(u8, Duration),
    /// By strace, on its n-th system call of a kind that changes the disk (counted per thread).
    AtCall(usize),
    /// Nowhere: it lives to its end.
    Never,
}

/// How a hunt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Catch {
    /// The last thing the child said; none if it was killed before.
    pub(crate) said: Option<u8>,
    /// Whether it came to its end by itself, with everything closed.
    pub(crate) is_closed: bool,
    /// Whether a signal ended it that nobody can catch.
    pub(crate) is_killed: bool,
}

/// A process that is killed and reaped whatever happens.
struct Leash(Process);

impl Drop for Leash {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Aim {
    /// Some place in a life: open and close are met as often as the writing between them.
    pub(crate) fn throw(dice: &mut Dice, has_strace: bool) -> Aim {
        if has_strace && dice.chance(1, 12) {
            return Aim::AtCall(dice.between(1, 60));
        }
        let (said, micros_max) = match dice.below(8) {
            0 | 1 => (OPENING, 3_000),
            2 => (CLOSING, 2_500),
            _ => (WRITING, 15_000),
        };
        Aim::After(said, Duration::from_micros(dice.below(micros_max) as u64))
    }
}

/// Starts `child` and kills it there.
pub(crate) fn hunt(child: &Child, aim: &Aim) -> Result<Catch> {
    let wrapper = match aim {
        Aim::After(..) | Aim::Never => Vec::new(),
        Aim::AtCall(n) => strace(CALLS, &format!("{CALLS}:signal=KILL:when={n}")),
    };
    let catch = strike(child.command(&wrapper)?, aim, || Ok(()))?;
    ensure!(catch.is_closed || catch.is_killed, "the child failed");
    Ok(catch)
}

/// Starts a child, deals the `blow` when it is where the aim says, kills it, and waits for its end.
pub(crate) fn strike(mut command: Command, aim: &Aim, mut blow: impl FnMut() -> Result<()>) -> Result<Catch> {
    use std::os::unix::process::ExitStatusExt as _;
    let mut leash = Leash(command.spawn().context("start the child")?);
    let mut out = leash.0.stdout.take().expect("it was started with a pipe");
    let mut said = None;
    let mut byte = [0];
    // The pipe ends when the child does, by itself or by strace's hand.
    while out.read(&mut byte)? == 1 {
        said = Some(byte[0]);
        if let Aim::After(at, delay) = aim
            && byte[0] == *at
        {
            // A random moment: nothing is waited for here.
            std::thread::sleep(*delay);
            blow()?;
            leash.0.kill().context("kill the child")?;
        }
    }
    let status = leash.0.wait().context("wait for the child")?;
    let is_killed = status.signal() == Some(9);
    Ok(Catch { said, is_closed: status.success(), is_killed })
}

/// The words that put a command behind strace, which injects this.
pub(crate) fn strace(traced: &str, inject: &str) -> Vec<String> {
    // With `-D` the child is ours and strace beside it: who waits for the child then waits for all its
    // threads, whereas strace may be gone before the kernel has given back the locks of a child that it
    // killed.
    let words = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e"].map(String::from);
    words
        .into_iter()
        .chain([format!("trace={traced}"), "-e".to_string(), format!("inject={inject}")])
        .collect()
}
