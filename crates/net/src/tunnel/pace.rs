//! Holds sending to a stated rate, where the narrow place is not our own interface.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use openflow::time::Instant;

/// Ethernet, IPv4 and TCP with time stamps, for each segment or part of one.
const HEADERS_BYTES: u64 = 14 + 20 + 32;
const SEGMENT_BYTES: u64 = 1448;
/// What may be sent ahead of the rate: a timer's grain.
const AHEAD: Duration = Duration::from_millis(1);

/// Says when there is time to send again.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_second: u64,
    /// When what has been sent is through.
    through: Mutex<Instant>,
}

impl Pace {
    pub fn new(bytes_per_second: u64) -> Pace {
        Pace {
            bytes_per_second: bytes_per_second.max(1),
            through: Mutex::new(Instant::START),
        }
    }

    /// Until when nothing may be sent; `None` when something may now.
    pub fn wait(&self, now: Instant) -> Option<Instant> {
        let through = *self.through.lock().unwrap_or_else(PoisonError::into_inner);
        (through > now + AHEAD)
            .then_some(Instant(through.0.saturating_sub(AHEAD.as_nanos() as u64)))
    }

    /// `bytes` are being sent in one piece.
    pub fn sent(&self, now: Instant, bytes: usize) {
        let bytes = bytes as u64;
        let whole = bytes + bytes.div_ceil(SEGMENT_BYTES) * HEADERS_BYTES;
        let takes = Duration::from_nanos(whole * 1_000_000_000 / self.bytes_per_second);
        let mut through = self.through.lock().unwrap_or_else(PoisonError::into_inner);
        *through = (*through).max(now) + takes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_passes_in_a_second_as_the_rate_says() {
        let pace = Pace::new(125_000);
        let end = Instant::START + Duration::from_secs(1);
        let (mut now, mut bytes) = (Instant::START, 0);
        while now < end {
            match pace.wait(now) {
                Some(at) => now = at.max(Instant(now.0 + 1)),
                None => {
                    pace.sent(now, 434);
                    bytes += 434 + HEADERS_BYTES;
                }
            }
        }
        assert!((124_000..=126_000).contains(&bytes), "{bytes}");
    }
}
