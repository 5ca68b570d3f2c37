//! `Doze`: somebody who rests until there is work, and is woken once by whoever makes some.
//!
//! To wake somebody takes a lock and maybe a call to the system; a put must not do that each time. So who is
//! about to rest for long says so, looks once more for work, and only then rests; and who makes work looks at
//! what it said.
//!
//! ```text
//!      makes work                            rests
//!   1  makes it: a locked section, or     1  says that it dozes
//!      a SeqCst read-modify-write         2  fence
//!   2  wakes who says that it dozes       3  looks for work; rises if there is some, else rests
//! ```
//!
//! What is always true:
//! - S-80: work is seen by 3, or who made it finds 1 and wakes. Of two that make work at once, one wakes.
//!
//! Why: if work is a locked section, and the look is one of the same lock, then of the two sections one comes
//! first, and what was before it is seen behind the other. If it is a SeqCst read-modify-write W, and the
//! load behind it does not see the store of 1, then W comes before that store in the order of all SeqCst
//! operations, hence before the fence, and the look sees W.

use std::sync::atomic::Ordering;

use crate::shim::{AtomicUsize, IS_EXPLORED, fence};

/// Whether somebody rests until woken. One rests; any thread makes work for it.
#[derive(Debug)]
pub struct Doze(AtomicUsize);

const AWAKE: usize = 0;
const DOZING: usize = 1;

impl Default for Doze {
    fn default() -> Self {
        Doze(AtomicUsize::new(AWAKE))
    }
}

impl Doze {
    /// Said by who is about to rest, before it looks for work once more.
    pub fn lie_down(&self) {
        // Pairs with the accesses in `must_wake`; comes before whatever the look reads.
        self.0.store(DOZING, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Said by who does not rest, or does no longer. Who makes work from here on wakes nobody.
    pub fn rise(&self) {
        // Relaxed: who sees it late wakes somebody who is awake, which costs a step.
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Asked by who has made work, in a locked section or by a SeqCst read-modify-write: whether it must wake
    /// who rests. True for one of all that ask. As long as nobody dozes it is a load of what hardly anybody
    /// writes.
    #[inline]
    pub fn must_wake(&self) -> bool {
        if IS_EXPLORED {
            // loom takes SeqCst accesses for weaker than they are. A fence in each put would cost as much as
            // all else here.
            fence(Ordering::SeqCst);
        }
        // SeqCst: not before the work that was made.
        self.0.load(Ordering::SeqCst) == DOZING && self.rouse()
    }

    /// Not a swap: one that comes late must not write over what who rests says next.
    #[cold]
    fn rouse(&self) -> bool {
        self.0.compare_exchange(DOZING, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
