//! Telling the processor what will be used soon, so that it comes from memory while something else is done.
//!
//! Nothing but a hint: it changes no result, and on processors for which Rust has no such instruction it is
//! nothing at all.
#![expect(unsafe_code, reason = "an instruction of the processor")]

/// What processors fetch at once.
pub(crate) const CACHE_LINE_BYTES: usize = 64;

/// Has the processor fetch the beginning of `what`.
///
/// ```
/// let far_away = vec![1u64; 1000];
/// kvilt_sync::fetch_ahead(&far_away[500]);
/// ```
#[inline]
pub fn fetch_ahead<T>(what: &T) {
    fetch_line(std::ptr::from_ref(what).cast());
}

/// Has the processor fetch the line at an address, which need not be one that can be read.
#[inline]
pub(crate) fn fetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, allowed for every address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
