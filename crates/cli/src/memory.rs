//! Sets how the C library returns memory to the system.
//!
//! The default of glibc adapts its threshold for mappings. After a large block was freed, the next
//! block of that size comes from a heap. A buffer that grows there is copied, and the heap keeps
//! the freed memory. Peers that send large messages then hold twice their limit. With a fixed
//! threshold a large block is a mapping of its own: it grows in place, and its memory is returned
//! when it is freed (mallopt(3)).
#![allow(unsafe_code)] // The call has no wrapper.

/// Blocks of at least this size are mappings. Buffers of the hot paths are smaller.
#[cfg(target_env = "gnu")]
const MAPPED_FROM_BYTES: nix::libc::c_int = 1 << 20;

/// Makes large blocks mappings of their own. Call it before there are threads.
pub fn give_back_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: two numbers are passed, and no other thread allocates meanwhile.
    let is_done = unsafe { nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES) };
    #[cfg(target_env = "gnu")]
    debug_assert_eq!(is_done, 1, "the bound is below half of a heap");
}
