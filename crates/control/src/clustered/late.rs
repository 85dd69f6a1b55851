//! Packets that come too late for the member that had the switch: the switch has another master by
//! the time they are to be sent. That member sends them.
//!
//! A switch sends a packet to its master alone. If that one is replaced before its answer has come
//! back, the switch refuses the answer, and nobody else has the packet. A refusal proves that the
//! packet has not gone out, so it may be sent once more, and no packet goes out twice.
//!
//! The bounds: [`SENT_MAX`] packets that may be refused, of [`PACKET_BYTES_MAX`], for [`LATE_MAX`];
//! [`EARLY_MAX`] packets for all switches whose new master has not heard of its role, for
//! [`EARLY_FOR`]; [`PACKETS_PER_SECOND_MAX`] that are handed over, and as many that are heard.

use std::collections::VecDeque;

use clock::{Duration, Instant};
use openflow::message::{ErrorMessage, PacketIn, PacketOut};
use openflow::{ErrorKind, Frame, Message, MessageKind, decode};

use crate::ConnectionId;

/// Packets that are larger are not handed over.
pub const PACKET_BYTES_MAX: usize = 4096;
/// Packets that a member hands over in a second, and at once, to all others together. It hears as
/// many from them. Hosts can flood, and heartbeats go over the same connections.
pub const PACKETS_PER_SECOND_MAX: u32 = 300;
/// The age above which a packet is not handed over: its sender has noticed.
pub(super) const LATE_MAX: Duration = Duration::from_millis(250);
/// The packets that are remembered until then.
const SENT_MAX: usize = 1024;
/// The bytes of a message that an error quotes at least.
const QUOTED_MIN: usize = 64;
/// Packets that wait until this member is the master of their switches.
const EARLY_MAX: usize = 1024;
/// How long they wait.
const EARLY_FOR: Duration = Duration::from_secs(1);
/// How long a member that has stood still hands nothing over: it answers what is old.
const OLD_FOR: Duration = Duration::from_secs(1);

/// The packets that were sent last, oldest first.
#[derive(Default)]
pub(super) struct Sent {
    packets: VecDeque<(Instant, ConnectionId, Frame)>,
    /// Since when this member runs again after it has stood still.
    woken_at: Option<Instant>,
}

impl Sent {
    /// Takes note of a message that leaves.
    pub(super) fn note(&mut self, now: Instant, connection: ConnectionId, frame: &Frame) {
        if frame.kind() != MessageKind::PacketOut || frame.len() > PACKET_BYTES_MAX {
            return;
        }
        let is_old = |(at, ..): &(Instant, ConnectionId, Frame)| now.since(*at) > LATE_MAX;
        while self.packets.len() >= SENT_MAX || self.packets.front().is_some_and(is_old) {
            self.packets.pop_front();
        }
        self.packets.push_back((now, connection, frame.clone()));
    }

    /// The application ticks, for the first time since `last`.
    pub(super) fn tick(&mut self, now: Instant, last: Instant) {
        if now.since(last) > LATE_MAX {
            self.woken_at = Some(now);
        }
    }

    /// Whether what is answered now is new. `ticked`: the last tick.
    pub(super) fn is_new(&self, now: Instant, ticked: Instant) -> bool {
        let has_slept = self.woken_at.is_some_and(|at| now.since(at) < OLD_FOR);
        !has_slept && now.since(ticked) <= LATE_MAX
    }

    /// The packet that a switch has refused to send since another member is its master.
    pub(super) fn take_refused(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        error: &ErrorMessage,
    ) -> Option<Frame> {
        if error.kind != ErrorKind::IS_SLAVE {
            return None;
        }
        let at = self.packets.iter().position(|(at, of, frame)| {
            *of == connection
                && now.since(*at) <= LATE_MAX
                && error.data.len() >= frame.len().min(QUOTED_MIN)
                && frame.bytes().starts_with(&error.data)
        })?;
        let (_, _, frame) = self.packets.remove(at)?;
        may_be_handed_over(&frame).then_some(frame)
    }
}

/// Packets for switches whose master this member is, but does not know it yet; oldest first.
#[derive(Default)]
pub(super) struct Early(VecDeque<(Instant, ConnectionId, Frame)>);

impl Early {
    /// Keeps a packet. Returns how many were dropped for it.
    pub(super) fn keep(&mut self, now: Instant, connection: ConnectionId, frame: Frame) -> u64 {
        let mut dropped = self.age(now);
        if self.0.len() >= EARLY_MAX {
            self.0.pop_front();
            dropped += 1;
        }
        self.0.push_back((now, connection, frame));
        dropped
    }

    /// Drops the packets that have waited too long. Returns how many.
    pub(super) fn age(&mut self, now: Instant) -> u64 {
        let is_old = |(at, ..): &(Instant, ConnectionId, Frame)| now.since(*at) > EARLY_FOR;
        let mut dropped = 0;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
            dropped += 1;
        }
        dropped
    }

    /// The packets for a switch.
    pub(super) fn take(&mut self, connection: ConnectionId) -> Vec<Frame> {
        let mut taken = Vec::new();
        self.0.retain(|(_, of, frame)| {
            let is_taken = *of == connection;
            if is_taken {
                taken.push(frame.clone());
            }
            !is_taken
        });
        taken
    }
}

/// Whether it is a packet of a host. What goes from one device to the next (LLDP, LACP, BPDUs)
/// says something about the member that has sent it.
pub(super) fn may_be_handed_over(frame: &Frame) -> bool {
    if frame.len() > PACKET_BYTES_MAX {
        return false;
    }
    let data = match decode(frame) {
        Ok(
            Message::PacketOut(PacketOut { data, .. }) | Message::PacketIn(PacketIn { data, .. }),
        ) => data,
        _ => return false,
    };
    data.len() >= 14 && !data.starts_with(&[0x01, 0x80, 0xc2, 0, 0])
}

#[cfg(test)]
mod tests {
    use openflow::{Version, Xid, encode};

    use super::*;

    #[test]
    fn early_packets_are_bounded_for_all_switches_together_and_by_time() {
        let barrier = |n: usize| {
            let xid = Xid(u32::try_from(n).unwrap());
            encode(Version::V13, xid, &Message::BarrierRequest).unwrap()
        };
        let switch = |n: usize| ConnectionId(n as u64);
        let start = Instant::START;
        let mut early = Early::default();
        let dropped: u64 = (0..3 * EARLY_MAX)
            .map(|n| early.keep(start, switch(n), barrier(n)))
            .sum();
        assert_eq!(early.0.len(), EARLY_MAX);
        assert_eq!(dropped, 2 * EARLY_MAX as u64);
        assert_eq!(early.take(switch(0)), [], "the oldest have made room");
        let last = 3 * EARLY_MAX - 1;
        assert_eq!(early.take(switch(last)), [barrier(last)]);
        assert_eq!(early.take(switch(last)), [], "taken once");

        assert_eq!(early.age(start + EARLY_FOR), 0);
        let later = start + EARLY_FOR + Duration::from_millis(1);
        let dropped = early.keep(later, switch(1), barrier(1));
        assert_eq!(
            dropped,
            EARLY_MAX as u64 - 1,
            "a packet drops those too old"
        );
        assert_eq!(early.age(later + EARLY_FOR), 0);
        assert_eq!(early.age(later + EARLY_FOR + Duration::from_millis(1)), 1);
        assert!(early.0.is_empty());
    }
}
