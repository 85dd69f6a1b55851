//! Switches in a line: a packet is for the destination of another switch, several links away, and
//! is answered when it comes out there. Frames sent out of a port with a link arrive at the other
//! end, LLDP first of all, so that a controller can find the links.
//!
//! A switch keeps no entries. A packet that a controller forwards only to the next switch becomes a
//! packet-in again there.

use bytes::Bytes;
use openflow::EncodeError;

use super::{Delays, Kind, Stage, Switch, Verdict, is_lldp};
use crate::controller::layout::DESTINATION;
use crate::controller::links::{Crosses, Crossing};
use crate::controller::wire::{self, Answer, NO_BUFFER, Output, Packet};

impl Switch {
    /// Whether LLDP has arrived over every link, or the controller sends none.
    pub(super) fn has_heard_links(&self) -> bool {
        let mut links = self.layout.links();
        self.tally.discovery == 0 || links.all(|link| self.links_heard.contains(&link.port))
    }

    /// Handles an answer of the controller: a packet in transit, or an entry beside it.
    pub(super) fn handle_on_line(&mut self, now_ns: u64, message: &[u8]) {
        let Some(answer) = Answer::read(self.profile.version, message) else {
            return self.note_set_up(now_ns);
        };
        let verdict = match answer.is_flow_mod {
            true => Some(self.judge_entry(&answer)),
            false => self.send_on(now_ns, &answer, message),
        };
        if let Some(verdict) = verdict {
            self.count(now_ns, verdict);
        }
    }

    /// Forwards an answer's packet and returns the verdict to count here. `None` if the packet has
    /// reached its destination, because its sender counts it then.
    fn send_on(&mut self, now_ns: u64, answer: &Answer, message: &[u8]) -> Option<Verdict> {
        if answer.buffer_id != NO_BUFFER {
            return Some(Verdict::WrongBuffer);
        }
        let Some(packet) = Packet::read(answer.data) else {
            return Some(Verdict::Nonsense);
        };
        for link in self.layout.links() {
            if self.leaves_by(answer, message, link.port) {
                let data = Bytes::copy_from_slice(answer.data);
                let port = link.peer_port;
                let what = Crosses::Frame { port, data };
                self.crossings.push(Crossing {
                    to: link.peer,
                    what,
                });
            }
        }
        let Some(tag) = packet.tag else {
            return Some(match is_lldp(answer.data) {
                true => Verdict::Discovery,
                false => Verdict::Unsolicited,
            });
        };
        let Some(towards) = self.layout.port_towards(packet.eth_dst) else {
            return Some(Verdict::WrongPacket);
        };
        match answer.output {
            Output::Flood => Some(Verdict::Flooded),
            Output::Port(port) if port != towards => Some(Verdict::WrongPort),
            Output::Nowhere => Some(Verdict::WrongPort),
            // One hop further.
            Output::Port(_) if self.layout.host_of(packet.eth_dst).is_none() => {
                Some(Verdict::Companion)
            }
            Output::Port(_) => {
                self.crossings.push(Crossing {
                    to: (packet.eth_src >> 24) as u16,
                    what: Crosses::Delivered {
                        at_ns: now_ns,
                        tag,
                        eth_src: packet.eth_src,
                        eth_dst: packet.eth_dst,
                    },
                });
                None
            }
        }
    }

    /// Handles a frame or notice from another switch.
    pub fn handle_crossing(
        &mut self,
        what: Crosses,
        delays: &mut Delays,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match what {
            // The controller does not know this switch yet.
            Crosses::Frame { .. } if self.stage == Stage::Handshake => {}
            Crosses::Frame { port, data } => {
                if is_lldp(&data) && !self.links_heard.contains(&port) {
                    self.links_heard.push(port);
                }
                out.extend(wire::packet_in(self.profile.version, None, port, data)?);
            }
            Crosses::Delivered {
                at_ns,
                tag,
                eth_src,
                eth_dst,
            } => match self.outstanding.find(tag) {
                Some(at)
                    if eth_src == self.layout.mac(self.outstanding.source(at))
                        && eth_dst == self.layout.far().mac(DESTINATION) =>
                {
                    self.settle(at_ns, at, Kind::PacketOut, delays);
                }
                Some(_) => self.count(at_ns, Verdict::WrongPacket),
                None => self.count(at_ns, Verdict::Unsolicited),
            },
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
