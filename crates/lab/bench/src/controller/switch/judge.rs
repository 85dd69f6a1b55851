//! The judgement of a controller's answer: the packet-in that it answers, and whether it is right.

use bytes::Bytes;
use openflow::{Action, Frame, Message, PortNo};

use super::{Switch, Traffic};
use crate::controller::layout::DESTINATION;
use crate::controller::wire::{Answer, NO_BUFFER, Output, Packet};

/// The verdict on an answer before it is known whether it is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Of(u32),
    Companion,
    Flooded,
    WrongPort,
    WrongBuffer,
    WrongMatch,
    WrongPacket,
    Unsolicited,
    Discovery,
    Nonsense,
}

impl Switch {
    /// Finds the packet-in that an answer is for, and judges whether the answer is right for it.
    pub(super) fn judge(&mut self, answer: &Answer) -> Verdict {
        let found = if answer.buffer_id != NO_BUFFER {
            match self.outstanding.find(answer.buffer_id) {
                Some(at) if self.profile.is_buffered => Verdict::Of(at),
                _ => Verdict::WrongBuffer,
            }
        } else if answer.is_flow_mod {
            self.find_flow(answer)
        } else {
            self.find_packet(answer)
        };
        let Verdict::Of(at) = found else {
            return found;
        };
        let source = self.outstanding.source(at);
        let target = self.outstanding.target(at);
        let fits = |field: Option<u64>, value: u64| field.is_none_or(|field| field == value);
        let matches = fits(answer.eth_src, self.layout.mac(source))
            && fits(answer.eth_dst, self.layout.mac(target))
            && answer
                .in_port
                .is_none_or(|port| port == self.layout.port(source));
        match answer.output {
            _ if !matches => Verdict::WrongMatch,
            Output::Flood => Verdict::Flooded,
            Output::Port(port) if port == self.layout.port(target) => found,
            Output::Port(_) | Output::Nowhere => Verdict::WrongPort,
        }
    }

    /// Finds the packet that a FLOW_MOD without a buffer is for, by the match of the FLOW_MOD.
    fn find_flow(&mut self, answer: &Answer) -> Verdict {
        let layout = self.layout;
        let host_of = |mac: u64| layout.host_of(mac);
        match (answer.eth_src.map(host_of), answer.eth_dst.map(host_of)) {
            // The reverse path.
            (Some(Some(DESTINATION)), _) => Verdict::Companion,
            (Some(Some(source)), Some(Some(target))) if self.is_way_back(source, target) => {
                Verdict::Companion
            }
            (Some(Some(source)), _) => match self.outstanding.find_source(source) {
                Some(at) => Verdict::Of(at),
                None => Verdict::Unsolicited,
            },
            // An entry for every packet to the destination: its packet-in is known if only one
            // waits.
            (None, Some(Some(DESTINATION))) => match self.outstanding.find_only() {
                Some(at) => Verdict::Of(at),
                None => Verdict::Companion,
            },
            (None, Some(Some(_))) => Verdict::Companion,
            _ => Verdict::Unsolicited,
        }
    }

    /// Whether, between hosts, the entry is for the reverse path of a packet from `target` to
    /// `source`.
    fn is_way_back(&self, source: u32, target: u32) -> bool {
        let sends = |from, to| {
            let latest = self.outstanding.find_latest(from);
            latest.is_some_and(|at| self.outstanding.target(at) == to)
        };
        self.profile.traffic == Traffic::Paired && !sends(source, target) && sends(target, source)
    }

    /// Finds the packet-in of a PACKET_OUT without a buffer by the packet that it carries.
    fn find_packet(&self, answer: &Answer) -> Verdict {
        let Some(packet) = Packet::read(answer.data) else {
            return Verdict::Nonsense;
        };
        let Some(tag) = packet.tag else {
            return if is_lldp(answer.data) {
                Verdict::Discovery
            } else {
                Verdict::Unsolicited
            };
        };
        let destination = self.layout.mac(DESTINATION);
        if packet.eth_dst >> 24 != destination >> 24 && answer.buffer_id == NO_BUFFER {
            // Another switch's packet, sent everywhere.
            return Verdict::Flooded;
        }
        let Some(at) = self.outstanding.find(tag) else {
            return Verdict::Unsolicited;
        };
        let source = self.layout.mac(self.outstanding.source(at));
        let target = self.layout.mac(self.outstanding.target(at));
        if packet.eth_src != source || packet.eth_dst != target {
            return Verdict::WrongPacket;
        }
        Verdict::Of(at)
    }

    /// Judges a FLOW_MOD that is not an awaited answer. It is right if it sends its packets
    /// where they should go.
    pub(super) fn judge_entry(&self, answer: &Answer) -> Verdict {
        let towards = |mac: u64| self.layout.port_towards(mac);
        let Some(out) = answer.eth_dst.and_then(towards) else {
            return Verdict::Unsolicited;
        };
        let comes_in = answer.eth_src.and_then(towards);
        let is_nobodys = answer.eth_src.is_some() && comes_in.is_none();
        let is_elsewhere = (answer.in_port.zip(comes_in)).is_some_and(|(port, is)| port != is);
        match answer.output {
            _ if is_nobodys || is_elsewhere => Verdict::WrongMatch,
            Output::Flood => Verdict::Flooded,
            Output::Port(port) if port == out => Verdict::Companion,
            Output::Port(_) | Output::Nowhere => Verdict::WrongPort,
        }
    }

    /// Whether a PACKET_OUT leaves by this port; `message` is the whole PACKET_OUT.
    pub(super) fn leaves_by(&self, answer: &Answer, message: &[u8], port: u32) -> bool {
        match answer.output {
            Output::Nowhere => return false,
            Output::Port(out) => return out == port,
            Output::Flood => {}
        }
        let frame = Frame::new(Bytes::copy_from_slice(message)).ok();
        let decoded = frame.and_then(|frame| openflow::decode(&frame).ok());
        let Some(Message::PacketOut(packet_out)) = decoded else {
            return false;
        };
        packet_out.actions.iter().any(|action| match action {
            Action::Output { port: out, .. } if matches!(*out, PortNo::FLOOD | PortNo::ALL) => {
                packet_out.in_port.0 != port
            }
            Action::Output { port: out, .. } => out.0 == port,
            _ => false,
        })
    }
}

/// Whether a packet is link-layer discovery, of 802.1AB or of Floodlight and ONOS, with a tag or
/// without.
pub fn is_lldp(packet: &[u8]) -> bool {
    let at = match packet.get(12..14) {
        Some([0x81, 0x00] | [0x88, 0xa8]) => 16,
        _ => 12,
    };
    matches!(packet.get(at..at + 2), Some([0x88, 0xcc] | [0x89, 0x42]))
}
