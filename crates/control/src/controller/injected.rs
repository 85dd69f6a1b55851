//! Packets that applications send. All packets are checked before the first is sent. A long list is
//! handled in parts, between which switches have their turns.

use std::collections::VecDeque;

use clock::Instant;
use openflow::message::PacketOut;
use openflow::{Action, DatapathId, Message, PortNo, Version, Xid, encode};

use crate::tap::{Injected, NotSent};

use super::Controller;

/// Number of packets in one part.
const PART: usize = 8;

/// Packets that are being sent.
pub struct Sending {
    packets: std::iter::Enumerate<std::vec::IntoIter<Injected>>,
    ready: VecDeque<(DatapathId, Message)>,
    wrong: Vec<(usize, NotSent)>,
}

impl Sending {
    pub fn new(packets: Vec<Injected>) -> Sending {
        Sending {
            packets: packets.into_iter().enumerate(),
            ready: VecDeque::new(),
            wrong: Vec::new(),
        }
    }
}

impl Controller {
    /// Continues to send packets, all or none. Returns `None` while there is more to do.
    ///
    /// # Errors
    /// The reasons why none is sent, with the place of each packet in the list.
    pub fn send_packets(
        &mut self,
        now: Instant,
        sending: &mut Sending,
    ) -> Option<Result<(), Vec<(usize, NotSent)>>> {
        self.outbox.now = now;
        if sending.packets.len() > 0 {
            for (place, packet) in sending.packets.by_ref().take(PART) {
                let dpid = packet.dpid;
                match self.prepare(packet) {
                    Ok(message) => sending.ready.push_back((dpid, message)),
                    Err(why) => {
                        let why = why.into_iter().map(|why| (place, why));
                        sending.wrong.extend(why);
                    }
                }
            }
            return None;
        }
        if !sending.wrong.is_empty() {
            return Some(Err(std::mem::take(&mut sending.wrong)));
        }
        for (dpid, message) in sending.ready.drain(..PART.min(sending.ready.len())) {
            self.outbox.counters.packet_outs += 1;
            self.outbox.send(dpid, message);
        }
        sending.ready.is_empty().then_some(Ok(()))
    }

    /// Whether a switch has a port.
    pub(super) fn has_port(&self, dpid: DatapathId, port: PortNo) -> bool {
        let switch = self.network.switch(dpid);
        switch.is_some_and(|it| it.ports.contains_key(&port))
    }

    fn prepare(&self, packet: Injected) -> Result<Message, Vec<NotSent>> {
        let dpid = packet.dpid;
        let version = self.network.version(dpid);
        let version = version.filter(|_| self.network.is_connected(dpid));
        let Some(version) = version else {
            return Err(vec![NotSent::Away]);
        };
        let is_there = |port: PortNo| !port.is_ordinary() || self.has_port(dpid, port);
        let outputs = packet.actions.iter().filter_map(|action| match action {
            Action::Output { port, .. } => Some(*port),
            _ => None,
        });
        let mut wrong: Vec<NotSent> = outputs
            .filter(|port| !is_there(*port))
            .map(NotSent::NoPort)
            .collect();
        let in_port = packet.in_port.filter(|port| !is_there(*port));
        wrong.extend(in_port.map(NotSent::NoInPort));
        let none = match version {
            Version::V10 => PortNo::ANY,
            _ => PortNo::CONTROLLER,
        };
        let message = Message::PacketOut(PacketOut::new(
            packet.in_port.unwrap_or(none),
            packet.actions,
            packet.data,
        ));
        if wrong.is_empty() && encode(version, Xid(0), &message).is_err() {
            wrong.push(NotSent::NotInVersion);
        }
        match wrong.is_empty() {
            true => Ok(message),
            false => Err(wrong),
        }
    }
}
