//! The shared link as a capture shows it: what passed, by what it was and by its code point.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::pso::packet::Label;
use testbed::capture::Listener;

/// The kind of a frame on the shared link. The run in its label separates the kinds of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Between the relays.
    Tunnel,
    Data,
    /// Data that was sent with a code point of its own.
    Marked,
    /// Data that was sent with a code point of control.
    Hostile,
    /// ARP and the like.
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

/// Frames by kind and code point; a frame without one counts as 0.
pub type Counts = BTreeMap<(What, u8), Count>;

/// Runs of labels are numbers of trials, four to each.
pub const RUNS_PER_TRIAL: u32 = 4;
pub const RUN_FLOWS: u32 = 0;
pub const RUN_DATA: u32 = 1;
pub const RUN_MARKED: u32 = 2;
pub const RUN_HOSTILE: u32 = 3;

#[derive(Debug)]
pub struct WireListener {
    tunnel_port: u16,
    pub counts: Counts,
}

impl WireListener {
    /// `tunnel_port` is where the controller's relay listens.
    pub fn new(tunnel_port: u16) -> WireListener {
        WireListener {
            tunnel_port,
            counts: Counts::new(),
        }
    }
}

impl Listener for WireListener {
    fn hear(&mut self, frame: &[u8], _at_ns: u64) -> bool {
        let key = what(frame, self.tunnel_port).unwrap_or((What::Other, 0));
        let count = self.counts.entry(key).or_default();
        count.packets += 1;
        count.bytes += frame.len() as u64;
        key.0 != What::Other
    }
}

/// The kind of an IPv4 frame, and its code point.
fn what(frame: &[u8], tunnel_port: u16) -> Option<(What, u8)> {
    const ETHERNET_BYTES: usize = 14;
    const IPV4: [u8; 2] = [0x08, 0x00];
    const PROTOCOLS: [u8; 2] = [6, 17];
    let (ethernet, packet) = frame.split_at_checked(ETHERNET_BYTES)?;
    if ethernet[12..] != IPV4 || !PROTOCOLS.contains(packet.get(9)?) {
        return None;
    }
    let code_point = packet[1] >> 2;
    if let Some(label) = Label::read(frame) {
        let what = match label.run % RUNS_PER_TRIAL {
            RUN_MARKED => What::Marked,
            RUN_HOSTILE => What::Hostile,
            _ => What::Data,
        };
        return Some((what, code_point));
    }
    let transport = packet.get(usize::from(packet[0] & 15) * 4..)?;
    let ports = transport.first_chunk::<4>()?;
    let is_tunnel = [[ports[0], ports[1]], [ports[2], ports[3]]]
        .iter()
        .any(|port| u16::from_be_bytes(*port) == tunnel_port);
    is_tunnel.then_some((What::Tunnel, code_point))
}

/// `counts` and what was seen before, together.
pub fn add(counts: &mut Counts, more: &Counts) {
    for (key, count) in more {
        let sum = counts.entry(*key).or_default();
        sum.packets += count.packets;
        sum.bytes += count.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pso::packet::{Stream, Template};
    use openflow::MacAddr;
    use openflow::packet::build::{self, Host};

    fn tunnel(tos: u8, ports: (u16, u16)) -> Vec<u8> {
        let host = |n| Host {
            mac: MacAddr([2, 0, 0, 0, 0, n]),
            ip: [10, 0, 0, n].into(),
        };
        let mut frame = build::udp(host(4), host(6), ports, b"quic");
        frame[15] = tos;
        frame
    }

    #[test]
    fn control_and_each_kind_of_data_are_told_apart_with_their_code_points() {
        let mut listener = WireListener::new(6654);
        listener.hear(&tunnel(0xc0, (40_000, 6654)), 1);
        listener.hear(&tunnel(0xe2, (6654, 40_000)), 1);
        assert!(!listener.hear(&tunnel(0xc0, (40_000, 53)), 1), "somebody's");
        for run in [RUN_DATA, RUN_MARKED, RUN_HOSTILE] {
            let mut template = Template::new(100);
            template.set_dscp(run as u8 * 10);
            let label = Label {
                run: 3 * RUNS_PER_TRIAL + run,
                stream: Stream::Cross,
                number: 0,
                sent_ns: 0,
            };
            // Even to the tunnel's port it is data.
            listener.hear(template.packet((1, 6654), label), 1);
        }
        let packets: Vec<((What, u8), u64)> = listener
            .counts
            .iter()
            .map(|(key, count)| (*key, count.packets))
            .collect();
        assert_eq!(
            packets,
            [
                ((What::Tunnel, 48), 1),
                ((What::Tunnel, 56), 1),
                ((What::Data, 10), 1),
                ((What::Marked, 20), 1),
                ((What::Hostile, 30), 1),
                ((What::Other, 0), 1),
            ]
        );
    }

    #[test]
    fn frames_cut_anywhere_are_no_harm() {
        let whole = tunnel(0, (1, 6654));
        for cut in 0..whole.len() {
            WireListener::new(6654).hear(&whole[..cut], 1);
        }
    }
}
