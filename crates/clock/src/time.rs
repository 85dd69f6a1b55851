//! Virtual time.

use std::ops::{Add, AddAssign, Sub};
pub use std::time::Duration;

/// A duration in milliseconds.
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A point in virtual time: nanoseconds since the start of the process or of the simulation.
///
/// ```
/// use clock::{Duration, Instant};
///
/// let later = Instant::START + Duration::from_secs(2);
/// assert_eq!(later - Instant::START, Duration::from_secs(2));
/// assert_eq!(Instant::START - later, Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Time zero: the start of the process or of the simulation.
    pub const START: Instant = Instant(0);

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds since [`Instant::START`].
    pub fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, d: Duration) -> Instant {
        Instant(
            self.0
                .saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}
