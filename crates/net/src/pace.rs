//! Limits sending to a stated rate, where the bottleneck is not our own interface.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Instant;

use crate::clock::Clock;

/// Ethernet, IPv4 and TCP with time stamps, for each segment or part of one.
const TCP_HEADERS_BYTES: u64 = 14 + 20 + 32;
/// Ethernet, IPv4 and UDP.
const UDP_HEADERS_BYTES: u64 = 14 + 20 + 8;
const SEGMENT_BYTES: u64 = 1448;
/// The time by which sending may run ahead of the rate, or catch up after a task woke late.
const AHEAD: Duration = Duration::from_micros(250);

/// The time that one piece from the queues takes: an urgent message waits for one piece at most.
const PIECE: Duration = Duration::from_micros(300);
/// The greatest size of a piece, a segment or datagram.
const PIECE_BYTES_MAX: u64 = 1100;

/// Reports when there is time to send again. Everything that one relay sends over its limited link
/// shares one pace.
#[derive(Debug)]
pub struct Pace {
    clock: Clock,
    meter: Mutex<Meter>,
}

impl Pace {
    pub fn new(bytes_per_second: u64) -> Pace {
        Pace {
            clock: Clock::start(),
            meter: Mutex::new(Meter::new(bytes_per_second)),
        }
    }

    /// The time until which nothing may be sent; `None` if the link is free.
    pub fn wait(&self) -> Option<std::time::Instant> {
        let at = self.meter().wait(self.clock.now())?;
        Some(self.clock.deadline(at).into_std())
    }

    /// The bytes of messages that shall leave the queues at a time; at least one message leaves.
    pub fn piece_bytes(&self) -> usize {
        self.meter().piece_bytes() as usize
    }

    /// Charges `bytes` that are written to a TCP socket in one piece.
    pub fn sent_segments(&self, bytes: usize) {
        let bytes = bytes as u64;
        let whole = bytes + bytes.div_ceil(SEGMENT_BYTES) * TCP_HEADERS_BYTES;
        self.meter().charge(self.clock.now(), whole);
    }

    /// Charges `bytes` of messages on their way to datagrams. The datagrams are charged for their
    /// other bytes when they leave.
    pub fn promised(&self, bytes: usize) {
        self.meter().promise(self.clock.now(), bytes as u64);
    }

    /// Counts a datagram with `bytes` that has left.
    pub fn sent_datagram(&self, bytes: usize) {
        let whole = bytes as u64 + UDP_HEADERS_BYTES;
        self.meter().deliver(self.clock.now(), whole);
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The arithmetic of [`Pace`].
#[derive(Debug)]
struct Meter {
    bytes_per_second: u64,
    /// The time at which all charged bytes have left.
    through: Instant,
    /// The bytes charged, and not yet seen to leave.
    promised: u64,
}

impl Meter {
    fn new(bytes_per_second: u64) -> Meter {
        Meter {
            bytes_per_second: bytes_per_second.max(1),
            through: Instant::START,
            promised: 0,
        }
    }

    fn piece_bytes(&self) -> u64 {
        let bytes = u128::from(self.bytes_per_second) * PIECE.as_micros() / 1_000_000;
        (bytes as u64).clamp(1, PIECE_BYTES_MAX)
    }

    fn wait(&self, now: Instant) -> Option<Instant> {
        let ahead = AHEAD.as_nanos() as u64;
        (self.through > now + AHEAD).then_some(Instant(self.through.0.saturating_sub(ahead)))
    }

    fn charge(&mut self, now: Instant, bytes: u64) {
        let takes = Duration::from_nanos(bytes * 1_000_000_000 / self.bytes_per_second);
        self.through = self.through.max(now) + takes;
    }

    fn promise(&mut self, now: Instant, bytes: u64) {
        self.promised += bytes;
        self.charge(now, bytes);
    }

    fn deliver(&mut self, now: Instant, bytes: u64) {
        let known = bytes.min(self.promised);
        self.promised -= known;
        self.charge(now, bytes - known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `pieces` as fast as allowed for a second of virtual time. Returns their number.
    fn pieces_in_a_second(mut send: impl FnMut(&mut Meter, Instant)) -> u64 {
        let mut meter = Meter::new(125_000);
        let end = Instant::START + Duration::from_secs(1);
        let (mut now, mut pieces) = (Instant::START, 0);
        while now < end {
            match meter.wait(now) {
                Some(at) => now = at.max(Instant(now.0 + 1)),
                None => {
                    send(&mut meter, now);
                    pieces += 1;
                }
            }
        }
        pieces
    }

    #[test]
    fn as_much_passes_in_a_second_as_the_rate_says() {
        let pieces = pieces_in_a_second(|meter, now| meter.charge(now, 500));
        assert!((249..=252).contains(&pieces), "{pieces}");
    }

    #[test]
    fn pieces_are_short_on_a_slow_line_and_datagrams_on_a_fast_one() {
        let piece = |mbit: u64| Meter::new(mbit * 125_000).piece_bytes();
        assert_eq!([20, 10, 100_000].map(piece), [750, 375, PIECE_BYTES_MAX]);
        assert_eq!(Meter::new(0).piece_bytes(), 1);
    }

    #[test]
    fn what_datagrams_have_beyond_what_was_promised_is_charged_once() {
        // Two messages of 220 bytes in a datagram of 500, and an acknowledgement of 60 besides.
        let pieces = pieces_in_a_second(|meter, now| {
            meter.promise(now, 440);
            meter.deliver(now, 500);
            meter.deliver(now, 60);
        });
        assert!((222..=225).contains(&pieces), "{pieces}");
    }
}
