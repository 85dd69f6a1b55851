//! Packets that are too late for the switch's previous master: the switch has a new master by the
//! time they are to be sent. The new master sends them.
//!
//! A switch sends a packet to its master alone. If that master is replaced before its answer
//! arrives, the switch refuses the answer, and no other member has the packet. A refusal proves
//! that the packet was not sent out, so it may be sent once more, and no packet is sent out twice.
//!
//! The bounds: [`SENT_MAX`] packets that may be refused, each of [`PACKET_BYTES_MAX`] at most, for
//! [`LATE_MAX`]; [`EARLY_MAX`] packets for all switches whose new master does not know its role
//! yet, for [`EARLY_FOR`]; [`PACKETS_PER_SECOND_MAX`] packets handed over, and as many received.

use std::collections::VecDeque;

use clock::{Duration, Instant};
use openflow::message::{ErrorMessage, PacketIn, PacketOut};
use openflow::{ErrorKind, Frame, Message, MessageKind, decode};

use crate::ConnectionId;

/// Larger packets are not handed over.
pub const PACKET_BYTES_MAX: usize = 4096;
/// The number of packets that a member hands over per second, and in one burst, to all others
/// together. It accepts as many from them. Hosts can flood, and heartbeats use the same
/// connections.
pub const PACKETS_PER_SECOND_MAX: u32 = 300;
/// The age above which a packet is not handed over: its sender has noticed.
pub(super) const LATE_MAX: Duration = Duration::from_millis(250);
/// The number of packets that are remembered until then.
const SENT_MAX: usize = 1024;
/// The minimum number of bytes of a message that an error quotes.
const QUOTED_MIN: usize = 64;
/// The number of packets that wait until this member is the master of their switches.
const EARLY_MAX: usize = 1024;
/// How long such packets wait.
const EARLY_FOR: Duration = Duration::from_secs(1);
/// How long a member hands nothing over after it has stood still: it answers old messages.
const OLD_FOR: Duration = Duration::from_secs(1);

/// The packets sent last, oldest first.
#[derive(Default)]
pub(super) struct Sent {
    packets: VecDeque<(Instant, ConnectionId, Frame)>,
    /// When this member resumed after it had stood still.
    woken_at: Option<Instant>,
}

impl Sent {
    /// Notes a message that is sent.
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

    /// Notes a tick of the application. The previous tick was at `last`.
    pub(super) fn tick(&mut self, now: Instant, last: Instant) {
        if now.since(last) > LATE_MAX {
            self.woken_at = Some(now);
        }
    }

    /// Whether the messages answered now are new. `ticked`: the last tick.
    pub(super) fn is_new(&self, now: Instant, ticked: Instant) -> bool {
        let has_slept = self.woken_at.is_some_and(|at| now.since(at) < OLD_FOR);
        !has_slept && now.since(ticked) <= LATE_MAX
    }

    /// Takes the packet that a switch refused to send because another member is its master.
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

/// Packets for switches whose master this member is without knowing it yet; oldest first.
#[derive(Default)]
pub(super) struct Early(VecDeque<(Instant, ConnectionId, Frame)>);

impl Early {
    /// Keeps a packet. Returns the number of packets dropped for it.
    pub(super) fn keep(&mut self, now: Instant, connection: ConnectionId, frame: Frame) -> u64 {
        let mut dropped = self.age(now);
        if self.0.len() >= EARLY_MAX {
            self.0.pop_front();
            dropped += 1;
        }
        self.0.push_back((now, connection, frame));
        dropped
    }

    /// Drops the packets that have waited too long. Returns their number.
    pub(super) fn age(&mut self, now: Instant) -> u64 {
        let is_old = |(at, ..): &(Instant, ConnectionId, Frame)| now.since(*at) > EARLY_FOR;
        let mut dropped = 0;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
            dropped += 1;
        }
        dropped
    }

    /// Takes the packets for a switch.
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

/// Whether it is a packet of a host. Packets from one device to the next (LLDP, LACP, BPDUs) carry
/// information about the member that sent them.
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
