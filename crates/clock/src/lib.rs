//! Time as an argument, and numbers that are the same on every machine.
//!
//! Code that reads no clock gets the time from its caller: a real clock in production, a virtual
//! one in a simulation. Random numbers come from a seed. Hashes are equal in every process, unlike
//! those of the standard library.
//!
//! ```
//! use clock::{Duration, Instant, SplitMix64};
//!
//! let mut now = Instant::START;
//! let mut random = SplitMix64::new(1);
//! for _ in 0..3 {
//!     now += Duration::from_micros(random.next() % 100);
//! }
//! assert_eq!(now, Instant(174_000));
//! ```

#![warn(missing_docs)]

mod budget;
mod hash;
mod random;
mod time;

pub use budget::Budget;
pub use hash::Fnv1a;
pub use random::{SplitMix64, mix};
pub use time::{Duration, Instant, ms};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
