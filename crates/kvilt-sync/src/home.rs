//! `Home`: the process that a handle belongs to. A child made by `fork` has a copy of every handle, of the
//! locks that other threads held, and of the descriptors, but not of the threads: it may use none of it.
//!
//! Asking for the process id is a system call, too much for each get. So a word stands in a page of its own
//! that the kernel hands to a child full of zeros (`MADV_WIPEONFORK`, Linux 4.14). A process writes a number
//! into it that none of its ancestors wrote; a handle remembers the number that was there when it was made.
//! What is always true:
//!
//! - S-60: in a process that did not make a handle, the handle is never taken for one of its own: by
//!   [`Home::allow_read`] where the kernel wipes the page, by [`Home::allow_write`] everywhere.
//!
//! Where the kernel refuses the advice, the word is an ordinary one, reads in a child are not refused, and
//! all else asks for the process id. What was rejected: `docs/design/0025-forks-and-old-views.md`.
#![expect(unsafe_code, reason = "owns a page that the kernel changes")]

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use kvilt_base::{Error, ErrorKind, Result};

use crate::published;

/// Where a handle was made. Any thread may ask it.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    mark: &'static Mark,
    generation: u64,
    process: u32,
}

/// The word that tells a process from its children.
#[derive(Debug)]
struct Mark {
    word: &'static AtomicU64,
    /// Whether the kernel sets it to zero in a child.
    is_wiped: bool,
}

/// In the word while what a process needs before its first handle is made.
const BEGINNING: u64 = u64::MAX;

/// The last number that this process, or the ancestor it was forked from, wrote into the word.
static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);

impl Home {
    /// This process.
    ///
    /// ```
    /// let home = kvilt_sync::Home::here();
    /// assert!(home.is_here() && home.allow_read().is_ok());
    /// ```
    pub fn here() -> Home {
        static MARK: OnceLock<Mark> = OnceLock::new();
        let mark = MARK.get_or_init(Mark::new);
        Home { mark, generation: mark.generation(), process: std::process::id() }
    }

    /// Whether this process is the one that made the handle. No system call where the kernel wipes the page.
    pub fn is_here(&self) -> bool {
        self.looks_like_here() && (self.mark.is_wiped || self.process == std::process::id())
    }

    /// Fails in a child, at the price of one load.
    pub fn allow_read(&self) -> Result<()> {
        if self.looks_like_here() { Ok(()) } else { Err(self.forked()) }
    }

    /// Fails in a child, whatever the kernel can do.
    pub fn allow_write(&self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(self.forked()) }
    }

    fn looks_like_here(&self) -> bool {
        // Relaxed: between threads of one process a handle is passed on by other means, and between processes
        // nothing is.
        self.mark.word.load(Ordering::Relaxed) == self.generation
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::new(
            ErrorKind::Forked,
            format!("the store was opened by process {}, and this is a process forked from it", self.process),
        )
    }
}

impl Mark {
    fn new() -> Mark {
        static ORDINARY: AtomicU64 = AtomicU64::new(0);
        match wiped_word() {
            Some(word) => Mark { word, is_wiped: true },
            None => Mark { word: &ORDINARY, is_wiped: false },
        }
    }

    /// The number of this process, which it writes down if no thread of it has yet.
    fn generation(&self) -> u64 {
        loop {
            // Acquire: pairs with the store below, so that no handle is used before all is ready for it.
            match self.word.load(Ordering::Acquire) {
                0 => self.begin(),
                BEGINNING => std::thread::yield_now(),
                generation => return generation,
            }
        }
    }

    fn begin(&self) {
        if self.word.compare_exchange(0, BEGINNING, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let ancestors = LAST_GENERATION.fetch_add(1, Ordering::Relaxed);
            if ancestors > 0 {
                published::begin_process();
            }
            self.word.store(ancestors + 1, Ordering::Release);
        }
    }
}

/// A word of zero that reads as zero in every child, whatever is written to it; none if the kernel has no
/// such thing. It is never given back.
fn wiped_word() -> Option<&'static AtomicU64> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    /// Rounded up to a page by the kernel.
    const BYTES: usize = 4096;
    if cfg!(miri) {
        return None;
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), BYTES, access, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the page is ours, and nobody has a reference into it yet.
    if unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: as above; nobody will have one.
        let _ = unsafe { munmap(page, BYTES) };
        return None;
    }
    // SAFETY: a page is aligned for a word, initialised, mapped for good, and accessed only as this atomic.
    // What the kernel changes, it changes in a process that did not run before.
    Some(unsafe { AtomicU64::from_ptr(page.cast()) })
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;
    use crate::forked::in_child;

    /// S-60, in real children.
    #[test]
    fn a_child_and_its_child_are_not_at_home_with_what_they_inherited() {
        let parents = Home::here();
        assert!(parents.mark.is_wiped, "this test needs a kernel that wipes pages");
        let code = in_child(|| {
            if parents.is_here() || parents.allow_read().is_ok() || parents.allow_write().is_ok() {
                return 1;
            }
            let own = Home::here();
            if !own.is_here() || own.allow_read().is_err() || parents.is_here() {
                return 2;
            }
            in_child(|| if own.is_here() || parents.is_here() || !Home::here().is_here() { 3 } else { 0 })
        });
        assert_eq!(code, 0);
        assert!(parents.is_here() && Home::here().generation == parents.generation);
    }

    /// What a child replaces waits for pins of its own threads only.
    #[test]
    fn a_child_destroys_what_it_replaces_though_a_thread_of_its_parent_was_pinned() {
        let _parents = Home::here();
        let (is_pinned, is_over) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let _pin = published::pin();
                is_pinned.wait();
                is_over.wait();
            });
            is_pinned.wait();
            let code = in_child(|| {
                let _own = Home::here();
                let value = std::sync::Arc::new(());
                let published = published::Published::new(std::sync::Arc::clone(&value));
                published.replace(std::sync::Arc::new(()));
                published::settle();
                u8::from(std::sync::Arc::strong_count(&value) > 1)
            });
            is_over.wait();
            assert_eq!(code, 0);
        });
    }

    #[test]
    fn without_the_kernels_help_writes_ask_for_the_process() {
        static WORD: AtomicU64 = AtomicU64::new(7);
        static MARK: Mark = Mark { word: &WORD, is_wiped: false };
        let home = Home { mark: &MARK, generation: 7, process: std::process::id() };
        assert!(home.allow_write().is_ok());
        let code = in_child(|| u8::from(home.allow_write().is_ok() || home.is_here()));
        assert_eq!(code, 0);
    }
}
