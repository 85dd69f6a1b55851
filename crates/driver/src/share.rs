//! One connection's share of its thread: the messages that one turn takes, and the packet-ins that
//! the application receives.
//!
//! A thread serves many connections in turns, so a connection may wait for the longest turn of
//! another. A packet-in that the edge answers costs little. Any other message costs much: it is
//! checked, classified, copied and queued, and the application handles it. Therefore the cost of
//! messages limits a turn, not their number.

use clock::Budget;
use clock::{Duration, Instant};

/// The credit of one turn. A packet-in that the edge answers costs 1.
pub(super) const TURN_CREDIT: u32 = 1024;
/// The credit that any other message costs.
const MESSAGE_COST: u32 = 64;
/// The messages of any kind that one period takes from a peer that sends requests and does not
/// read.
const WALK_MESSAGES: u32 = 32;
/// The length of that period.
const WALK_PERIOD: Duration = Duration::from_millis(10);
/// The pause of a connection that has used up its packet-ins for the application.
const REST: Duration = Duration::from_millis(1);
/// The part of a second's packet-ins that may arrive at once, as a divisor.
const BURST_SHARE: u32 = 20;

/// The share of one connection.
pub(super) struct Share {
    packet_ins: Budget,
    /// The credit left in this turn.
    credit: u32,
    is_walking: bool,
    /// The time before which nothing more is taken.
    rests_until: Option<Instant>,
    rests: u64,
}

impl Share {
    /// Creates a share that lets the application receive `packet_in_rate_max` packet-ins a second.
    pub(super) fn new(now: Instant, packet_in_rate_max: u32) -> Share {
        let burst = (packet_in_rate_max / BURST_SHARE).max(1);
        Share {
            packet_ins: Budget::new(now, packet_in_rate_max, burst),
            credit: 0,
            is_walking: false,
            rests_until: None,
            rests: 0,
        }
    }

    /// Begins a turn. `is_unread` means that the peer does not read the messages sent to it.
    pub(super) fn begin(&mut self, now: Instant, is_unread: bool) {
        if self.is_walking && !is_unread {
            self.rests_until = None;
        }
        self.credit = 0;
        if self.rests_until.is_some_and(|due| now < due) {
            return;
        }
        self.is_walking = is_unread;
        self.rests_until = is_unread.then(|| now + WALK_PERIOD);
        self.credit = match is_unread {
            true => WALK_MESSAGES,
            false => TURN_CREDIT,
        };
    }

    /// Whether this turn is over.
    pub(super) fn is_spent(&self) -> bool {
        self.credit == 0
    }

    /// The time when the next turn may take something, if not at once.
    pub(super) fn due(&self) -> Option<Instant> {
        self.rests_until
    }

    /// Notes a packet-in that the edge has answered.
    pub(super) fn note_answered(&mut self) {
        self.credit = self.credit.saturating_sub(1);
    }

    /// Whether a message that the edge has not answered is taken now. If not, the message stays
    /// where it is until the next turn.
    pub(super) fn takes(&mut self, now: Instant, is_packet_in: bool) -> bool {
        if is_packet_in && !self.packet_ins.take(now) {
            self.credit = 0;
            self.rests_until = self.rests_until.max(Some(now + REST));
            self.rests += 1;
            return false;
        }
        let cost = if self.is_walking { 1 } else { MESSAGE_COST };
        self.credit = self.credit.saturating_sub(cost);
        true
    }

    /// The number of times that the connection was not read because it had used up its packet-ins.
    pub(super) fn rests(&self) -> u64 {
        self.rests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::START;

    fn at(ms: u64) -> Instant {
        NOW + Duration::from_millis(ms)
    }

    /// Returns the messages that one turn takes from a peer that has any number of them.
    fn turn(share: &mut Share, now: Instant, is_unread: bool, is_packet_in: bool) -> u32 {
        share.begin(now, is_unread);
        let mut taken = 0;
        while !share.is_spent() && share.takes(now, is_packet_in) {
            taken += 1;
        }
        taken
    }

    #[test]
    fn what_the_edge_answers_is_cheap_and_what_goes_on_is_not() {
        let mut share = Share::new(NOW, 1_000_000);
        share.begin(NOW, false);
        let mut answered = 0;
        while !share.is_spent() {
            share.note_answered();
            answered += 1;
        }
        assert_eq!(answered, 1024);
        for is_packet_in in [true, false] {
            assert_eq!(turn(&mut share, NOW, false, is_packet_in), 16);
            assert_eq!(share.due(), None, "the next turn may follow at once");
        }
    }

    #[test]
    fn a_flood_for_the_application_is_held_to_its_rate() {
        let mut share = Share::new(NOW, 200_000);
        let mut taken = 0;
        for ms in 0..1000 {
            while share.due().is_none_or(|due| due <= at(ms)) {
                taken += turn(&mut share, at(ms), false, true);
            }
        }
        // A twentieth at once, and the rate of a second less one millisecond.
        assert_eq!(taken, 10_000 + 199_800);
        assert_eq!(share.rests(), 1000);
        // Other messages have no such limit.
        assert_eq!(turn(&mut share, at(1000), false, false), 16);
    }

    #[test]
    fn who_does_not_read_is_read_at_a_walk_until_it_does() {
        let mut share = Share::new(NOW, 200_000);
        let taken = (0..1000).map(|ms| turn(&mut share, at(ms), true, true));
        assert_eq!(taken.sum::<u32>(), 100 * 32);
        assert_eq!(turn(&mut share, at(991), false, true), 16, "at once");
        assert_eq!(turn(&mut share, at(991), true, true), 32, "and not before");
    }
}
