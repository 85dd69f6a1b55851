//! Questions for next hops, and the packets that wait for the answers.
//!
//! The controller asks for a next hop three times. Then it returns the waiting packets, so that
//! their senders are informed. Everything is bounded: the next hops, those of one port, and the
//! packets that wait for each next hop.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use clock::{Duration, Instant};

use crate::Location;
use crate::vlan::VlanId;

use super::Hop;

/// Questions for a next hop, and the time between two (RFC 4861, 10).
const QUESTIONS: u32 = 3;
const QUESTION_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of next hops asked for at a time, in all and for the hosts of one port.
pub const HOPS_MAX: usize = 1024;
pub const HOPS_PER_PORT_MAX: usize = 64;
/// Maximum number of packets that wait for one next hop; a newer one replaces the oldest (RFC 4861,
/// 7.2.2).
pub const PACKETS_MAX: usize = 4;
/// Longer packets do not wait.
pub const PACKET_LEN_MAX: usize = 2048;

/// A packet that waits for its next hop, without its tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The port where the packet came in.
    pub at: Location,
    pub vlan: VlanId,
    pub frame: Bytes,
}

struct Asked {
    /// The port of the host that caused the question.
    at: Location,
    left: u32,
    due: Instant,
    packets: VecDeque<Waiting>,
}

/// The fate of a packet whose next hop is not known.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The packet waits, and the next hop must be asked for now.
    Asks,
    /// The packet waits for a question that is already open.
    Waits,
    /// There is no room.
    Full,
}

/// The outcome of a question that is due.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// Ask again, for a host of this port.
    Ask { hop: Hop, at: Location },
    /// No answer has arrived.
    Failed { packets: VecDeque<Waiting> },
}

#[derive(Default)]
pub struct Neighbours {
    asked: BTreeMap<Hop, Asked>,
    /// The number of questions for the hosts of each port.
    by_port: BTreeMap<Location, usize>,
}

impl Neighbours {
    /// Holds a packet until its next hop is known.
    pub fn hold(&mut self, now: Instant, hop: Hop, packet: Waiting) -> Held {
        if packet.frame.len() > PACKET_LEN_MAX {
            return Held::Full;
        }
        if let Some(asked) = self.asked.get_mut(&hop) {
            if asked.packets.len() >= PACKETS_MAX {
                asked.packets.pop_front();
            }
            asked.packets.push_back(packet);
            return Held::Waits;
        }
        let at = packet.at;
        let of_port = self.by_port.get(&at).copied().unwrap_or(0);
        if self.asked.len() >= HOPS_MAX || of_port >= HOPS_PER_PORT_MAX {
            return Held::Full;
        }
        *self.by_port.entry(at).or_default() += 1;
        let asked = Asked {
            at,
            left: QUESTIONS - 1,
            due: now + QUESTION_INTERVAL,
            packets: [packet].into(),
        };
        self.asked.insert(hop, asked);
        Held::Asks
    }

    /// Ends the question for a next hop. Returns the packets that wait for it.
    pub fn found(&mut self, hop: Hop) -> VecDeque<Waiting> {
        let Some(asked) = self.asked.remove(&hop) else {
            return VecDeque::new();
        };
        if let Some(count) = self.by_port.get_mut(&asked.at) {
            *count -= 1;
            if *count == 0 {
                self.by_port.remove(&asked.at);
            }
        }
        asked.packets
    }

    /// Whether a question for a next hop is open.
    pub fn asks(&self, hop: Hop) -> bool {
        self.asked.contains_key(&hop)
    }

    /// Repeats or ends the questions that are due.
    pub fn due(&mut self, now: Instant) -> Vec<Due> {
        let due = self.asked.iter().filter(|(_, asked)| asked.due <= now);
        let due: Vec<Hop> = due.map(|(hop, _)| *hop).collect();
        let mut outcomes = Vec::new();
        for hop in due {
            match self.asked.get_mut(&hop).filter(|asked| asked.left > 0) {
                Some(asked) => {
                    (asked.left, asked.due) = (asked.left - 1, now + QUESTION_INTERVAL);
                    let at = asked.at;
                    outcomes.push(Due::Ask { hop, at });
                }
                None => outcomes.push(Due::Failed {
                    packets: self.found(hop),
                }),
            }
        }
        outcomes
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.asked.values().map(|asked| asked.due).min()
    }

    /// Forgets the questions for next hops for which `is_kept` is false, with their packets.
    pub fn retain(&mut self, is_kept: impl Fn(Hop) -> bool) {
        let gone: Vec<Hop> = self.asked.keys().copied().collect();
        for hop in gone.into_iter().filter(|hop| !is_kept(*hop)) {
            self.found(hop);
        }
    }

    /// The number of open questions for next hops.
    pub fn len(&self) -> usize {
        self.asked.len()
    }

    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }
}
