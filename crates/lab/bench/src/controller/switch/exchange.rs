//! Two hosts of a switch that do not know each other: one asks for the other by ARP. After the
//! reply each sends the other an IP packet. Every frame is a packet-in. The next frame follows when
//! the previous one has come out at its receiver. The arrival of the last one is the answer.
//!
//! The frames carry the number of their exchange, ARP in its padding. An ARP reply that the
//! controller makes itself is recognised by its addresses.

use bytes::Bytes;
use openflow::MacAddr;
use openflow::packet::build::{arp_reply, arp_request, udp};

use super::{Delays, Kind, Switch, Verdict, is_lldp};
use crate::controller::layout::Layout;
use crate::controller::wire::{self, Answer, MAGIC, NO_BUFFER, Output, Packet, UDP_PORTS};

const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ARP_REPLY: [u8; 2] = [0, 2];
/// Padding after the number, to the shortest frame of Ethernet.
const PADDING: [u8; 10] = [0; 10];

/// The frame of an exchange that is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Request,
    Reply,
    There,
    Back,
}

impl Step {
    fn next(self) -> Step {
        match self {
            Step::Request => Step::Reply,
            Step::Reply => Step::There,
            Step::There | Step::Back => Step::Back,
        }
    }

    /// Returns the sender and the receiver of the frame, given the host that asks and the host that
    /// is asked for.
    fn hosts(self, asker: u32, asked: u32) -> (u32, u32) {
        match self {
            Step::Request | Step::There => (asker, asked),
            Step::Reply | Step::Back => (asked, asker),
        }
    }
}

impl Switch {
    /// Begins an exchange; its wait counts from `since_ns`.
    pub(super) fn ask(&mut self, asker: u32, asked: u32, since_ns: u64, out: &mut Vec<u8>) {
        let opened = self.outstanding.open(asker, asked, since_ns);
        match opened.and_then(|tag| self.outstanding.find(tag)) {
            Some(at) => {
                self.tally.sent += 1;
                self.take_step(at, Step::Request, out);
            }
            None => self.tally.unsent += 1,
        }
    }

    fn take_step(&mut self, at: u32, step: Step, out: &mut Vec<u8>) {
        let at_index = at as usize;
        if self.steps.len() <= at_index {
            self.steps
                .resize(self.outstanding.slot_count(), Step::Request);
        }
        self.steps[at_index] = step;
        let hosts = (self.outstanding.source(at), self.outstanding.target(at));
        let (sender, _) = step.hosts(hosts.0, hosts.1);
        let frame = frame(&self.layout, step, hosts, self.outstanding.tag(at));
        let port = self.layout.port(sender);
        match wire::packet_in(self.profile.version, None, port, Bytes::from(frame)) {
            Ok(message) => out.extend(message),
            Err(_) => self.tally.errors += 1,
        }
    }

    /// Handles an answer of the controller: a frame that arrives, or an entry beside it.
    pub(super) fn handle_in_exchange(
        &mut self,
        now_ns: u64,
        message: &[u8],
        delays: &mut Delays,
        out: &mut Vec<u8>,
    ) {
        let Some(answer) = Answer::read(self.profile.version, message) else {
            return self.note_set_up(now_ns);
        };
        let arrived = match answer.is_flow_mod {
            true => Err(self.judge_entry(&answer)),
            false => self.judge_arrival(&answer, message),
        };
        let (at, step) = match arrived {
            Ok(arrived) => arrived,
            Err(verdict) => return self.count(now_ns, verdict),
        };
        let current = self.steps[at as usize];
        if step == Step::Back || !self.outstanding.is_waiting(at) {
            self.settle(now_ns, at, Kind::PacketOut, delays);
        } else if step < current {
            self.tally.duplicate += 1;
        } else {
            self.take_step(at, step.next(), out);
        }
    }

    /// Returns the frame and exchange that have arrived, if one has.
    fn judge_arrival(&self, answer: &Answer, message: &[u8]) -> Result<(u32, Step), Verdict> {
        if answer.buffer_id != NO_BUFFER {
            return Err(Verdict::WrongBuffer);
        }
        let packet = Packet::read(answer.data).ok_or(Verdict::Nonsense)?;
        let (at, step) = match packet.tag {
            Some(tag) => self.find_frame(tag, &packet, answer.data)?,
            None if is_lldp(answer.data) => return Err(Verdict::Discovery),
            None => (
                self.find_told(&packet, answer.data)
                    .ok_or(Verdict::Unsolicited)?,
                Step::Reply,
            ),
        };
        let (asker, asked) = (self.outstanding.source(at), self.outstanding.target(at));
        let (_, receiver) = step.hosts(asker, asked);
        let port = self.layout.port(receiver);
        match answer.output {
            _ if step == Step::Request && self.leaves_by(answer, message, port) => Ok((at, step)),
            Output::Flood if step != Step::Request => Err(Verdict::Flooded),
            Output::Port(out_port) if out_port == port => Ok((at, step)),
            _ => Err(Verdict::WrongPort),
        }
    }

    fn find_frame(&self, tag: u32, packet: &Packet, data: &[u8]) -> Result<(u32, Step), Verdict> {
        let is_arp = data.get(12..14) == Some(&ETHERTYPE_ARP[..]);
        let is_broadcast = packet.eth_dst == MacAddr::BROADCAST.to_u64();
        if self.layout.host_of(packet.eth_src).is_none() {
            // A frame of another switch. A controller that joins switches sends their broadcasts
            // here too.
            return Err(match is_arp && is_broadcast {
                true => Verdict::Companion,
                false => Verdict::Flooded,
            });
        }
        let at = self.outstanding.find(tag).ok_or(Verdict::Unsolicited)?;
        let asker = self.layout.mac(self.outstanding.source(at));
        let asked = self.layout.mac(self.outstanding.target(at));
        let step = match (packet.eth_src, packet.eth_dst) {
            (src, _) if src == asker && is_arp && is_broadcast => Step::Request,
            // A controller may know the receiver of the broadcast.
            (src, dst) if src == asker && dst == asked && is_arp => Step::Request,
            (src, dst) if src == asked && dst == asker && is_arp => Step::Reply,
            (src, dst) if src == asker && dst == asked => Step::There,
            (src, dst) if src == asked && dst == asker => Step::Back,
            _ => return Err(Verdict::WrongPacket),
        };
        match step > self.steps[at as usize] {
            true => Err(Verdict::Unsolicited),
            false => Ok((at, step)),
        }
    }

    /// Returns the exchange that the controller's own ARP reply answers, if the reply gives the
    /// right address to a host that asked.
    fn find_told(&self, packet: &Packet, data: &[u8]) -> Option<u32> {
        let (operation, told) = (data.get(20..22)?, data.get(22..28)?);
        if data[12..14] != ETHERTYPE_ARP || operation != ARP_REPLY {
            return None;
        }
        let asker = self.layout.host_of(packet.eth_dst)?;
        let at = self.outstanding.find_latest(asker)?;
        let asked = MacAddr::from_u64(self.layout.mac(self.outstanding.target(at)));
        (told == asked.0).then_some(at)
    }
}

fn frame(layout: &Layout, step: Step, (asker, asked): (u32, u32), tag: u32) -> Vec<u8> {
    let (from, to) = step.hosts(asker, asked);
    let (from, to) = (layout.host(from), layout.host(to));
    let number = [&MAGIC.to_be_bytes()[..], &tag.to_be_bytes(), &PADDING].concat();
    match step {
        Step::Request => [arp_request(from, to.ip), number].concat(),
        Step::Reply => [arp_reply(from, to), number].concat(),
        Step::There | Step::Back => udp(from, to, UDP_PORTS, &number),
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
