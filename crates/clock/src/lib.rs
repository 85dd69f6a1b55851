//! The ground of all pure crates: time as an argument, and numbers that are the same everywhere.
//!
//! A pure core is told what time it is; only `net` and the simulator make instants. What it draws
//! comes from a seed, and what it hashes is the same in every process, as the standard library's
//! hashes are not.

mod budget;
mod hash;
mod random;
mod time;

pub use budget::Budget;
pub use hash::Fnv1a;
pub use random::{SplitMix64, mix};
pub use time::{Duration, Instant};
