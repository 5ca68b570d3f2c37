//! `Hunt`: starts a child and has it die at a chosen place.

use std::{
    io::Read,
    process::{Child as Process, Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use kvilt_sim::dice::Dice;

use crate::{
    child::{CLOSING, Child, OPENING, SYNCING, WRITING},
    death::{Death, MEMORY_BYTES},
    group::Group,
};

/// System calls that change something on the disk. A child behind strace is killed at one of these.
const CALLS: &str = "openat,pwrite64,pwritev,fdatasync,fsync,ftruncate,fallocate,unlinkat,renameat,renameat2,linkat,mkdir,flock";

/// Where a child is to die.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// So long after it has said this.
    After(u8, Duration),
    /// By strace, on its n-th system call of a kind that changes the disk (counted per thread).
    AtCall(usize),
    /// Of itself, in this way, so long after its writers have begun.
    Within(Death, Duration),
    /// Nowhere: it lives to its end.
    Never,
}

/// A writer is at work so long, in microseconds, if nothing comes between.
const WRITING_MICROS: usize = 15_000;

/// How a hunt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Catch {
    /// The last thing the child said; none if it was killed before.
    pub(crate) said: Option<u8>,
    /// Whether it came to its end by itself, with everything closed.
    pub(crate) is_closed: bool,
    /// What the kernel says of its end.
    pub(crate) status: ExitStatus,
    /// Which process it was.
    pub(crate) id: u32,
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
    /// Some place in a life, for a death of this kind: open, close and checkpoints are met as often as the
    /// writing between them.
    pub(crate) fn throw(dice: &mut Dice, death: Death, has_strace: bool) -> Aim {
        if death != Death::Kill {
            return Aim::Within(death, Duration::from_micros(dice.below(WRITING_MICROS) as u64));
        }
        if has_strace && dice.chance(1, 12) {
            return Aim::AtCall(dice.between(1, 60));
        }
        let (said, micros_max) = match dice.below(8) {
            0 | 1 => (OPENING, 3_000),
            2 => (CLOSING, 2_500),
            3 => (SYNCING, 2_500),
            _ => (WRITING, WRITING_MICROS),
        };
        Aim::After(said, Duration::from_micros(dice.below(micros_max) as u64))
    }

    fn death(&self) -> Death {
        match self {
            Aim::Within(death, _) => *death,
            Aim::After(..) | Aim::AtCall(_) | Aim::Never => Death::Kill,
        }
    }
}

/// Starts `child` and has it die there.
pub(crate) fn hunt(child: &Child, aim: &Aim) -> Result<Catch> {
    let mut child = child.clone();
    if let Aim::Within(death, delay) = aim {
        child.death = Some(*death);
        child.death_after_us = Some(delay.as_micros() as u64);
    }
    let group = if aim.death() == Death::OutOfMemory { Some(Group::new(MEMORY_BYTES)?) } else { None };
    let wrapper = match (aim, &group) {
        (_, Some(group)) => group.wrapper(),
        (Aim::AtCall(n), None) => strace(CALLS, &format!("{CALLS}:signal=KILL:when={n}")),
        (Aim::After(..) | Aim::Within(..) | Aim::Never, None) => Vec::new(),
    };
    let catch = strike(child.command(&wrapper)?, aim, || Ok(()))?;
    ensure!(catch.is_closed || aim.death().is_of(catch.status), "the child failed: {}", catch.status);
    if let Some(group) = group {
        ensure!(group.kills()? == 1, "something else than the kernel has killed the child");
    }
    Ok(catch)
}

/// Starts a child, deals the `blow` when it is where the aim says, kills it, and waits for its end.
pub(crate) fn strike(mut command: Command, aim: &Aim, mut blow: impl FnMut() -> Result<()>) -> Result<Catch> {
    let mut leash = Leash(command.spawn().context("start the child")?);
    let mut out = leash.0.stdout.take().expect("it was started with a pipe");
    let mut said = None;
    let mut is_dealt = false;
    let mut byte = [0];
    // The pipe ends when the child does, by itself or by strace's hand.
    while out.read(&mut byte)? == 1 {
        said = Some(byte[0]);
        if let Aim::After(at, delay) = aim
            && byte[0] == *at
            && !is_dealt
        {
            // It may have said this again before it dies.
            is_dealt = true;
            // A random moment: nothing is waited for here.
            std::thread::sleep(*delay);
            blow()?;
            leash.0.kill().context("kill the child")?;
        }
    }
    let status = leash.0.wait().context("wait for the child")?;
    Ok(Catch { said, is_closed: status.success(), status, id: leash.0.id() })
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
