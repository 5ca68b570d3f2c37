//! Chance: numbers seeded by the kernel, and numbers seeded by a test. Not for cryptography.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use kvilt_base::Rng;
use rustix::rand::{GetRandomFlags, getrandom};

/// SplitMix64 (Steele, Lea, Flood 2014): a counter and a mixing of its bits, so that one atomic add is all
/// the state that threads share.
#[derive(Debug)]
struct SplitMix(AtomicU64);

impl SplitMix {
    fn next(&self) -> u64 {
        // Relaxed: only that no two callers get the same counter matters.
        mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(counter: u64) -> u64 {
    let z = (counter ^ (counter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Random numbers that start at a place chosen by the kernel. Shared freely.
///
/// ```
/// use kvilt_base::Rng;
/// let rng = kvilt_io::NativeRng::new()?;
/// assert_ne!(rng.next_u64(), rng.next_u64());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct NativeRng(SplitMix);

impl NativeRng {
    /// Asks the kernel for a seed.
    pub fn new() -> io::Result<Self> {
        let mut seed = [0; 8];
        // Requests of up to 256 bytes are answered whole, unless a signal comes before the kernel's own pool
        // is ready.
        rustix::io::retry_on_intr(|| getrandom(&mut seed, GetRandomFlags::empty()))?;
        Ok(NativeRng(SplitMix(AtomicU64::new(u64::from_le_bytes(seed)))))
    }
}

impl Rng for NativeRng {
    fn next_u64(&self) -> u64 {
        self.0.next()
    }
}

/// Random numbers that are the same for the same seed. Shared freely; which thread gets which number is
/// theirs to settle.
///
/// ```
/// use kvilt_base::Rng;
/// let (a, b) = (kvilt_io::SeededRng::new(7), kvilt_io::SeededRng::new(7));
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!(a.below(10) < 10);
/// ```
#[cfg(feature = "test-disk")]
#[derive(Debug)]
pub struct SeededRng(SplitMix);

#[cfg(feature = "test-disk")]
impl SeededRng {
    /// The numbers of `seed`.
    pub fn new(seed: u64) -> Self {
        // Mixed, so that neighbouring seeds do not give the same numbers one step apart.
        SeededRng(SplitMix(AtomicU64::new(mix(seed))))
    }

    /// A number smaller than `limit`, which must not be zero.
    pub fn below(&self, limit: u64) -> u64 {
        self.0.next() % limit
    }
}

#[cfg(feature = "test-disk")]
impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        self.0.next()
    }
}
