//! Thinning of a flood where it is read. Most packet-ins that the inbox would shed are dropped
//! before they are copied, checked and classified, so that they take no time from other messages.
//!
//! While the inbox sheds half of a connection's packet-ins, one in [`ONE_OF`] packet-ins of the
//! flooding port is passed on. The rest are dropped and counted as shed. So the application still
//! sees the flood as it is now. Only packets between two hosts are thinned, never LLDP, ARP or
//! broadcast.

use clock::{Duration, Instant};

use super::lane::place;
use crate::edge;
use openflow::Version;

/// Number of packet-ins of the flooding port for each one passed on.
const ONE_OF: u32 = 16;
/// Time for which a flood is assumed after the inbox last shed half of the packet-ins it received.
const BELIEVED: Duration = Duration::from_millis(10);

/// The class and the port place whose packet-ins the inbox sheds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flood {
    pub(super) class: usize,
    pub(super) port: u8,
}

/// The thinning of one connection.
#[derive(Clone, Debug, Default)]
pub struct Thinning {
    flood: Option<(Flood, Instant)>,
    number: u32,
    dropped: u64,
}

impl Thinning {
    /// Notes the flood of this connection, if the inbox shed half of its packet-ins.
    pub(super) fn handle_delivered(&mut self, now: Instant, flood: Option<Flood>) {
        self.flood = flood.map(|flood| (flood, now + BELIEVED));
    }

    /// Decides whether to drop `packet_in`, a whole message of `version`.
    #[inline]
    pub fn drops(&mut self, now: Instant, version: Version, packet_in: &[u8]) -> bool {
        let Some((flood, until)) = self.flood else {
            return false;
        };
        let port = edge::port_of_plain(version, packet_in);
        if now >= until || port.is_none_or(|port| place(port) != flood.port) {
            return false;
        }
        self.number = (self.number + 1) % ONE_OF;
        self.dropped += u64::from(self.number != 0);
        self.number != 0
    }

    /// The flood and the number of its packet-ins dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> Option<(Flood, u64)> {
        let (flood, _) = self.flood?;
        let dropped = std::mem::take(&mut self.dropped);
        (dropped > 0).then_some((flood, dropped))
    }
}

#[cfg(test)]
mod tests {
    use openflow::message::PacketIn;
    use openflow::{Cookie, Frame, Message, PortNo, Xid, encode};

    use super::*;
    use crate::ConnectionId;
    use crate::inbox::{Inbox, InboxConfig};

    const A: ConnectionId = ConnectionId(1);
    const UNICAST: u8 = 2;
    const BROADCAST: u8 = 0xff;
    const IP: [u8; 2] = [8, 0];
    const ARP: [u8; 2] = [8, 6];
    const LLDP: [u8; 2] = [0x88, 0xcc];

    fn packet_in(version: Version, port: u32, dst: u8, eth_type: [u8; 2]) -> Frame {
        let data = [&[dst; 6][..], &[2, 0, 0, 0, 0, 1], &eth_type, &[0; 46]].concat();
        let message = Message::PacketIn(PacketIn {
            cookie: Cookie(if version == Version::V10 { u64::MAX } else { 0 }),
            ..PacketIn::new(PortNo(port), data.into())
        });
        encode(version, Xid(0), &message).expect("sayable")
    }

    fn inbox_of_eight() -> Inbox {
        Inbox::new(InboxConfig {
            packet_ins_max: 8,
            ..InboxConfig::default()
        })
    }

    /// Reads packet-ins of a port as the driver does, 16 that are left at a time. Returns the
    /// number passed on to the inbox.
    fn flood(inbox: &mut Inbox, thinning: &mut Thinning, now: Instant, count: usize) -> usize {
        let frame = packet_in(Version::V13, 1, UNICAST, IP);
        let dropped: Vec<bool> = (0..count)
            .map(|_| thinning.drops(now, Version::V13, frame.bytes()))
            .collect();
        let left = dropped.iter().filter(|dropped| !**dropped).count();
        inbox.thin(now, A, thinning, |inbox| {
            for _ in 0..left {
                inbox.handle_frame(now, A, frame.clone()).expect("taken");
            }
        });
        left
    }

    #[test]
    fn one_in_sixteen_of_a_flood_goes_on_and_all_are_counted() {
        let mut inbox = inbox_of_eight();
        let mut thinning = Thinning::default();
        let now = Instant::START;
        assert_eq!(
            flood(&mut inbox, &mut thinning, now, 16),
            16,
            "half are shed"
        );
        for _ in 0..10 {
            assert_eq!(flood(&mut inbox, &mut thinning, now, 160), 10);
        }
        let counters = inbox.counters();
        let waiting = inbox.backlog(A) as u64;
        assert_eq!(counters.packet_ins, 16 + 1600);
        assert_eq!(counters.packet_ins_shed, counters.packet_ins - waiting);
        assert_eq!(inbox.shed(A), counters.packet_ins_shed);
        let class = inbox.class_counters()[0];
        assert_eq!(class.messages_in, class.shed + class.waiting as u64);
    }

    #[test]
    fn what_is_no_flood_is_left_alone() {
        let mut inbox = inbox_of_eight();
        let mut thinning = Thinning::default();
        let now = Instant::START;
        flood(&mut inbox, &mut thinning, now, 100);
        for version in [Version::V10, Version::V13] {
            let mut drops = |port, dst, eth_type| {
                let frame = packet_in(version, port, dst, eth_type);
                (0..32).any(|_| thinning.drops(now, version, frame.bytes()))
            };
            assert!(drops(1, UNICAST, IP), "the flood");
            assert!(!drops(2, UNICAST, IP), "another port");
            assert!(!drops(1, BROADCAST, IP), "an announcement");
            assert!(!drops(1, UNICAST, ARP) && !drops(1, UNICAST, LLDP));
        }
        let frame = packet_in(Version::V13, 1, UNICAST, IP);
        let later = now + BELIEVED;
        assert!((0..32).all(|_| !thinning.drops(later, Version::V13, frame.bytes())));
        while inbox.poll_frame(now).is_some() {}
        assert_eq!(
            flood(&mut inbox, &mut thinning, later, 8),
            8,
            "nothing is shed"
        );
        assert_eq!(flood(&mut inbox, &mut thinning, later, 1), 1, "it is over");
    }
}
