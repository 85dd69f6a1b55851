//! Packets that applications send: checked, all of them, before the first leaves.

use clock::Instant;
use openflow::message::PacketOut;
use openflow::{Action, Message, PortNo, Version, Xid, encode};

use crate::tap::{Injected, NotSent};

use super::Controller;

impl Controller {
    /// Sends packets, all or none.
    ///
    /// # Errors
    /// The reasons, with the place of each packet in the list.
    pub fn send_packets(
        &mut self,
        now: Instant,
        packets: Vec<Injected>,
    ) -> Result<(), Vec<(usize, NotSent)>> {
        self.outbox.now = now;
        let mut ready = Vec::new();
        let mut wrong = Vec::new();
        for (place, packet) in packets.into_iter().enumerate() {
            let dpid = packet.dpid;
            match self.prepare(packet) {
                Ok(message) => ready.push((dpid, message)),
                Err(why) => wrong.extend(why.into_iter().map(|why| (place, why))),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        for (dpid, message) in ready {
            self.outbox.counters.packet_outs += 1;
            self.outbox.send(dpid, message);
        }
        Ok(())
    }

    fn prepare(&self, packet: Injected) -> Result<Message, Vec<NotSent>> {
        let dpid = packet.dpid;
        let version = self.network.version(dpid);
        let version = version.filter(|_| self.network.is_connected(dpid));
        let Some(version) = version else {
            return Err(vec![NotSent::Away]);
        };
        let is_there = |port: PortNo| {
            let switch = self.network.switch(dpid);
            !port.is_ordinary() || switch.is_some_and(|it| it.ports.contains_key(&port))
        };
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
