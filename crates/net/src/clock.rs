//! The one place where real time becomes the virtual time of the pure crates.

use std::time::Duration;

use clock::Instant;

/// A clock that counts from its creation. Copies agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

impl Clock {
    pub fn start() -> Clock {
        Clock {
            start: std::time::Instant::now(),
        }
    }

    pub fn now(self) -> Instant {
        Instant::START + self.start.elapsed()
    }

    /// The deadline `at` for a tokio timer.
    pub fn deadline(self, at: Instant) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.start + at.since(Instant::START))
    }

    /// The time until `at`; zero if it is past.
    pub fn until(self, at: Instant) -> Duration {
        at.since(self.now())
    }
}
