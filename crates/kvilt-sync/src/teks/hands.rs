//! Weaving: nodes on their way from the hash to the list.
//!
//! ```text
//!   put ─► queue ─► hand of whoever weaves ─► list
//! ```
//!
//! Each thread that weaves has a hand. It says in it that it is about to take nodes from the queue, then
//! which ones it has, then that it is about to take the next. So a scan that has seen the queue come to its
//! end, as far as it went when the scan began, knows from the hands what is still on its way; it brings these
//! nodes into the list itself, and leaves the weaver to find that done.
//!
//! What is always true:
//! - T-3: when [`Weaving::catch_up`] returns, each node that was queued before it was called is in the list.
//!   It takes no more nodes than there were then, and waits for a hand only between its two statements.
//! - A node comes out of the queue once, and the thread that took it brings it into all levels.

use crossbeam_utils::CachePadded;
use kvilt_base::planted;

use super::{
    arena::{Arena, Node},
    list::List,
};
use crate::shim::{
    AtomicU32, AtomicU64, AtomicUsize, IS_EXPLORED, Ordering, Patience, Queue, fence, thread_number,
};

/// Threads that weave at once; one more waits for a hand.
const HANDS: usize = if IS_EXPLORED { 2 } else { 32 };
/// Nobody has this hand.
const FREE: u64 = u64::MAX;
/// In the lower half of a hand: its thread is about to take nodes. Else how many it has.
const ABOUT_TO_TAKE: u32 = 0;
/// Nodes that a hand holds at once: their places are searched for side by side. More make a scan wait longer
/// for a hand that is about to take some. One under loom, which with two does not come to an end.
const HELD: usize = if cfg!(loom) {
    1
} else if IS_EXPLORED {
    2
} else {
    8
};

pub(super) struct Weaving {
    queue: Queue<u32>,
    /// Each is `FREE`, or a turn (upper half) and a number of nodes or `ABOUT_TO_TAKE` (lower half).
    hands: Box<[CachePadded<Hand>]>,
    /// Hands below this one have been used at least once.
    looked_at: AtomicUsize,
}

struct Hand {
    says: AtomicU64,
    /// The places of the nodes that it has; of later ones, if it has gone on.
    places: [AtomicU32; HELD],
    /// How often it has taken some. Used by the thread that has the hand.
    turns: AtomicU64,
}

impl Weaving {
    pub(super) fn new() -> Self {
        let hand = |_| {
            let places = std::array::from_fn(|_| AtomicU32::new(0));
            CachePadded::new(Hand { says: AtomicU64::new(FREE), places, turns: AtomicU64::new(0) })
        };
        Weaving { queue: Queue::new(), hands: (0..HANDS).map(hand).collect(), looked_at: AtomicUsize::new(0) }
    }

    /// A node that is in the hash waits for its place in the list.
    pub(super) fn push(&self, node: Node<'_>) {
        self.queue.push(node.place());
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Brings `most` nodes into the list, or as many as there are; returns their number.
    pub(super) fn weave<'a>(
        &self,
        most: usize,
        list: &List,
        arena: &'a Arena,
        node_at: impl Fn(u32) -> Node<'a>,
    ) -> usize {
        if most == 0 {
            return 0;
        }
        let hand = self.claim();
        let mut woven = 0;
        while woven < most {
            let places = hand.take(&self.queue, most - woven);
            if places.is_empty() {
                break;
            }
            let nodes: Vec<Node<'_>> = places.iter().map(|place| node_at(*place)).collect();
            list.link(arena, &nodes);
            woven += nodes.len();
        }
        // Release: pairs with `each`; the nodes are in the list.
        hand.says.store(FREE, Ordering::Release);
        woven
    }

    /// See T-3.
    pub(super) fn catch_up<'a>(&self, list: &List, arena: &'a Arena, node_at: impl Fn(u32) -> Node<'a>) {
        let queued = planted!(WeavesWholeHands, self.queue.len() => self.queue.len() / HELD * HELD);
        self.weave(queued, list, arena, &node_at);
        // Pairs with the fence in `Hand::take`: whoever took a node that this thread did not find in the
        // queue any more said so in its hand before, and that, or something later, is seen below.
        fence(Ordering::SeqCst);
        // Relaxed: stored before the claim, and ordered with it.
        for hand in &self.hands[..self.looked_at.load(Ordering::Relaxed)] {
            hand.each(|place| list.help(arena, node_at(place)));
        }
    }

    fn claim(&self) -> &Hand {
        let first = thread_number() % HANDS;
        let mut patience = Patience::new();
        loop {
            for probe in 0..HANDS {
                let index = (first + probe) % HANDS;
                let hand = &self.hands[index];
                // Relaxed: a wrong guess costs a try; the exchange decides.
                if hand.says.load(Ordering::Relaxed) != FREE {
                    continue;
                }
                // Before the claim, hence before the fence in `Hand::take`. Relaxed: that orders it.
                if self.looked_at.load(Ordering::Relaxed) <= index {
                    self.looked_at.fetch_max(index + 1, Ordering::Relaxed);
                }
                // Acquire: pairs with the store that freed it, for `turns`.
                let about = hand.about_to_take();
                if hand.says.compare_exchange(FREE, about, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return hand;
                }
            }
            patience.wait();
        }
    }
}

impl Hand {
    /// Relaxed: only the thread that has the hand changes the number; before the claim it may be old.
    fn about_to_take(&self) -> u64 {
        self.turns.load(Ordering::Relaxed) << 32 | u64::from(ABOUT_TO_TAKE)
    }

    /// Takes up to `most` nodes and says so. Its thread has the hand.
    fn take(&self, queue: &Queue<u32>, most: usize) -> Vec<u32> {
        // Another turn: whoever waits for the one before sees that it is over. The upper bits may overflow.
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Release: the nodes before are in the list.
        self.says.store(self.about_to_take(), Ordering::Release);
        // Pairs with the fence in `catch_up`.
        fence(Ordering::SeqCst);
        let places: Vec<u32> = (0..most.min(HELD)).map_while(|_| queue.pop()).collect();
        for (held, place) in self.places.iter().zip(&places) {
            // Release: a thread that reads it in a later turn than it wanted finds a whole node, too.
            held.store(*place, Ordering::Release);
        }
        // Release: pairs with `each`; the nodes are read.
        self.says.store(self.about_to_take() | places.len() as u64, Ordering::Release);
        places
    }

    /// Gives `help` the nodes that it had when this was called, as far as they are not in the list yet; or
    /// others, if it has gone on.
    fn each(&self, mut help: impl FnMut(u32)) {
        // Acquire, twice: pairs with the stores above and in `weave`.
        let first = self.says.load(Ordering::Acquire);
        let mut says = first;
        let mut patience = Patience::new();
        while says == first && says as u32 == ABOUT_TO_TAKE {
            patience.wait();
            says = self.says.load(Ordering::Acquire);
        }
        // Of a later turn it does not matter: what it had then it had taken later.
        if says != FREE && says >> 32 == first >> 32 {
            for held in &self.places[..says as u32 as usize] {
                // Acquire: pairs with `take`.
                help(held.load(Ordering::Acquire));
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl Weaving {
    /// Stands still with a node in hand while this runs.
    pub(super) fn with_a_node_in_hand<R>(&self, run: impl FnOnce() -> R) -> R {
        let hand = self.claim();
        assert!(!hand.take(&self.queue, 1).is_empty(), "there is something to weave");
        let done = run();
        // Whoever came by has brought it into the list; the levels above are lost, which costs steps only.
        hand.says.store(FREE, Ordering::Release);
        done
    }

    /// Stands still between taking a node and saying so while this runs.
    pub(super) fn between_the_statements<R>(&self, run: impl FnOnce() -> R) -> R {
        let hand = self.claim();
        hand.says.store(hand.about_to_take(), Ordering::Release);
        fence(Ordering::SeqCst);
        let place = self.queue.pop().expect("there is something to weave");
        let done = run();
        hand.places[0].store(place, Ordering::Release);
        hand.says.store(hand.about_to_take() | 1, Ordering::Release);
        done
    }
}
