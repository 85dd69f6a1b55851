//! Packet forwarding: hop by hop through the tables of the switches and over the links, until no
//! copy is left.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use clock::Instant;
use openflow::Frame;
use openflow::table::Output;
use testbed::topology::Attachment;

use super::net::{Behind, Net};
use super::switch::{Effect, Switch};
use crate::controller::switch::{Broken, is_lldp};

/// Copies of one packet that are followed. A flood in a network with loops makes copies without
/// end.
const COPIES_MAX: usize = 1 << 16;

/// A packet that came out at a port with hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub at: Attachment,
    pub packet: Bytes,
}

/// The result of a walk that changes no counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Arrives,
    /// No output of the last switch reaches the destination.
    Stops,
    Loops,
}

/// A packet about to enter a switch.
struct Copy {
    at: Attachment,
    packet: Bytes,
    hops: u32,
}

/// The network with its switches.
pub struct Fabric {
    pub net: Net,
    pub switches: Vec<Switch>,
    /// Whether each link carries packets, by its index in the network.
    link_is_up: Vec<bool>,
    /// Copies dropped because of a loop, or because there were too many.
    pub looped: u64,
    queue: VecDeque<Copy>,
}

impl Fabric {
    pub fn new(net: Net) -> Fabric {
        let switch = |number| Switch::new(number, net.ports(number));
        Fabric {
            switches: (0..net.switch_count()).map(switch).collect(),
            link_is_up: vec![true; net.links.len()],
            net,
            looped: 0,
            queue: VecDeque::new(),
        }
    }

    /// Handles the complete messages at the front of `bytes`, and calls `then` for the effect of
    /// each beyond the tables of the switch. Forwards the controller's packets until no copy is
    /// left.
    ///
    /// # Errors
    /// The reason why this connection cannot continue; other connections can.
    pub fn handle_bytes(
        &mut self,
        now: Instant,
        switch: usize,
        bytes: &mut BytesMut,
        arrivals: &mut Vec<Arrival>,
        mut then: impl FnMut(Effect),
    ) -> Result<(), Broken> {
        while let Some(frame) = Frame::split_from(bytes).map_err(|_| Broken::Framing)? {
            match self.switches[switch].handle(now, &frame)? {
                Effect::Nothing => {}
                Effect::Outputs(outputs) => {
                    self.leave(switch, outputs, 0, arrivals);
                    self.follow(now, arrivals);
                }
                effect => then(effect),
            }
        }
        Ok(())
    }

    /// Forwards a packet that enters at a port until no copy is left.
    pub fn carry(
        &mut self,
        now: Instant,
        at: Attachment,
        packet: Bytes,
        arrivals: &mut Vec<Arrival>,
    ) {
        let hops = 0;
        self.queue.push_back(Copy { at, packet, hops });
        self.follow(now, arrivals);
    }

    fn follow(&mut self, now: Instant, arrivals: &mut Vec<Arrival>) {
        let mut copies = 0;
        while let Some(Copy { at, packet, hops }) = self.queue.pop_front() {
            copies += 1;
            if hops > self.hops_max() || copies > COPIES_MAX {
                self.looped += 1;
                continue;
            }
            let tables = &mut self.switches[at.switch].tables;
            let outputs = tables.process(now, at.port, &packet);
            self.leave(at.switch, outputs, hops, arrivals);
        }
    }

    fn leave(
        &mut self,
        switch: usize,
        outputs: Vec<Output>,
        hops: u32,
        arrivals: &mut Vec<Arrival>,
    ) {
        for output in outputs {
            match output {
                Output::Controller(packet_in) => self.switches[switch].packet_in(packet_in),
                Output::Port { port, packet, .. } => {
                    let at = Attachment { switch, port };
                    match self.net.behind(at) {
                        Some(Behind::Hosts) => arrivals.push(Arrival { at, packet }),
                        Some(Behind::Link { link, far }) if self.link_is_up[link] => {
                            if is_lldp(&packet) {
                                self.net.note_lldp(link, at);
                            }
                            self.queue.push_back(Copy {
                                at: far,
                                packet,
                                hops: hops + 1,
                            });
                        }
                        Some(Behind::Link { .. }) | None => {}
                    }
                }
            }
        }
    }

    /// The maximum number of hops: a path may visit a switch twice, where a group sends a packet
    /// back, but no more often.
    fn hops_max(&self) -> u32 {
        2 * self.switches.len() as u32
    }

    /// Follows a packet from one port with hosts to another as `carry` would, and changes nothing.
    /// `visited` receives the switches on the packet's path.
    pub fn trace(
        &self,
        from: Attachment,
        to: Attachment,
        packet: Bytes,
        visited: &mut Vec<u32>,
    ) -> Verdict {
        visited.clear();
        let mut open = vec![(from, packet)];
        let mut verdict = Verdict::Stops;
        while let Some((at, packet)) = open.pop() {
            if visited.len() as u32 > self.hops_max() {
                verdict = Verdict::Loops;
                break;
            }
            visited.push(at.switch as u32);
            let tables = &self.switches[at.switch].tables;
            for output in tables.output_of(at.port, &packet) {
                let Output::Port {
                    port, packet: sent, ..
                } = output
                else {
                    continue;
                };
                let switch = at.switch;
                let out = Attachment { switch, port };
                if out == to {
                    return Verdict::Arrives;
                }
                if let Some(Behind::Link { link, far }) = self.net.behind(out)
                    && self.link_is_up[link]
                {
                    open.push((far, sent));
                }
            }
        }
        visited.sort_unstable();
        visited.dedup();
        verdict
    }

    pub fn link_is_up(&self, link: usize) -> bool {
        self.link_is_up[link]
    }

    /// Takes a link down or up. No packet passes a link that is down, and both switches see the
    /// change.
    pub fn set_link(&mut self, link: usize, up: bool) {
        self.link_is_up[link] = up;
        for end in self.net.links[link].ends {
            self.switches[end.switch].set_link(end.port, up);
        }
    }
}

#[cfg(test)]
#[path = "walk_tests.rs"]
mod tests;
