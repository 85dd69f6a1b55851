//! The path of one packet through the network, from the entries on the real switches.
//!
//! A [`Course`] names the switch whose tables it needs next, and its caller reads them. So it asks
//! for no switch that the packet does not reach. Hops form a graph: copies that reach the same port
//! of a switch with the same bytes become one hop, and a path that leads back to itself is a loop.

pub mod probe;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openflow::packet::PacketFields;
use openflow::table::explain::{Allowance, Choice, Report, Step};
use openflow::table::{DropReason, FlowEntry};
use openflow::{DatapathId, Instruction, MacAddr, PortNo};

use crate::Location;
use crate::entry::is_tap;

/// Maximum number of hops of one course, copies included.
pub const HOPS_MAX: usize = 256;
/// Maximum work and bytes of all walks of a course. A walk that needs more is not judged.
const WALKS_MAX: Allowance = Allowance {
    work: 4 * Allowance::WALK.work,
    bytes: 4 * Allowance::WALK.bytes,
};

/// The known facts about a switch on the path.
#[derive(Clone, Debug)]
pub struct Around {
    pub report: Report,
    /// Its links, with the ports at their other ends.
    pub links: BTreeMap<PortNo, Location>,
}

/// The host that a packet is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// Its Ethernet address, if it is known.
    pub mac: Option<MacAddr>,
    /// The ports where it is: several with a bond, none if they are unknown.
    pub ports: Vec<Location>,
    /// The VLAN id in the tag of packets that the host accepts there; `None`: they have no tag.
    pub tag: Option<u16>,
}

/// A packet that comes in at a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    pub at: Location,
    pub packet: Bytes,
    pub steps: Vec<Step>,
    /// The leads behind the outputs among the steps, by the number of the step.
    pub leads: BTreeMap<usize, Lead>,
    /// Why the switch could not be read.
    pub problem: Option<String>,
}

/// The thing behind an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// A switch: the hop with this number.
    Switch(usize),
    /// A port without a switch behind it.
    Edge { is_destination: bool },
    /// A port that receives the copies of a mirror. They do not count for the packet's fate.
    Mirror,
    /// A switch, but the course already has [`HOPS_MAX`] hops.
    TooFar,
}

/// The end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// All that is left of the packet is dropped.
    Dropped,
    /// The packet leaves the network, but not at its destination.
    Elsewhere,
    /// The controller receives the packet and decides.
    Controller,
    Loops,
    /// A switch could not be read, or an entry could not be judged.
    Unknown,
    /// The hash of a switch decides whether the packet is delivered.
    Depends,
    Delivered,
}

/// An outcome, and the step that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    pub outcome: Outcome,
    pub hop: usize,
    pub step: Option<usize>,
}

/// The path of a packet, as far as it has been followed.
#[derive(Debug)]
pub struct Course {
    destination: Destination,
    /// The ports that receive copies of mirrors.
    mirrors: BTreeSet<Location>,
    hops: Vec<Hop>,
    /// Hops by their port and packet.
    known: BTreeMap<(Location, Bytes), usize>,
    /// Switches with their contents, or with the reason why they were not read.
    switches: BTreeMap<DatapathId, Result<Around, String>>,
    /// The number of hops that have been walked.
    walked: usize,
    /// The remainder of [`WALKS_MAX`].
    left: Allowance,
}

impl Course {
    /// The course of a packet that comes in at a port.
    pub fn new(at: Location, packet: Bytes, destination: Destination) -> Course {
        let mut course = Course {
            destination,
            mirrors: BTreeSet::new(),
            hops: Vec::new(),
            known: BTreeMap::new(),
            switches: BTreeMap::new(),
            walked: 0,
            left: WALKS_MAX,
        };
        course.hop(at, packet);
        course
    }

    /// Sets the ports that receive the copies of mirrors.
    #[must_use]
    pub fn with_mirrors(mut self, mirrors: BTreeSet<Location>) -> Course {
        self.mirrors = mirrors;
        self
    }

    /// Follows the packet as far as switches are known. Returns the next switch to read.
    pub fn wants(&mut self) -> Option<DatapathId> {
        while let Some(hop) = self.hops.get(self.walked) {
            let dpid = hop.at.dpid;
            if !self.switches.contains_key(&dpid) {
                return Some(dpid);
            }
            self.walk(self.walked);
            self.walked += 1;
        }
        None
    }

    /// Adds the contents of a switch, or the reason why it was not read.
    pub fn give(&mut self, dpid: DatapathId, read: Result<Around, String>) {
        self.switches.insert(dpid, read);
    }

    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// The contents of a switch that was read.
    pub fn around(&self, dpid: DatapathId) -> Option<&Around> {
        self.switches.get(&dpid)?.as_ref().ok()
    }

    /// Returns the number of the hop with this port and packet. Creates the hop if there is none.
    fn hop(&mut self, at: Location, packet: Bytes) -> Option<usize> {
        let next = self.hops.len();
        match self.known.entry((at, packet.clone())) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(_) if next >= HOPS_MAX => None,
            Entry::Vacant(free) => {
                free.insert(next);
                self.hops.push(Hop {
                    at,
                    packet,
                    steps: Vec::new(),
                    leads: BTreeMap::new(),
                    problem: None,
                });
                Some(next)
            }
        }
    }

    fn walk(&mut self, number: usize) {
        let (at, packet) = (self.hops[number].at, self.hops[number].packet.clone());
        let around = match self.switches.get(&at.dpid) {
            Some(Ok(around)) => around,
            Some(Err(problem)) => {
                self.hops[number].problem = Some(problem.clone());
                return;
            }
            None => return,
        };
        let steps = around.report.walk(at.port, &packet, &mut self.left);
        let outputs = steps.iter().enumerate().filter_map(|(step, it)| match it {
            Step::Output { port, packet, .. } => {
                Some((step, *port, packet.clone(), around.links.get(port).copied()))
            }
            _ => None,
        });
        let outputs: Vec<_> = outputs.collect();
        let mut leads = BTreeMap::new();
        for (step, port, packet, far) in outputs {
            let dpid = at.dpid;
            let lead = match far {
                _ if self.mirrors.contains(&Location { dpid, port }) => Lead::Mirror,
                Some(far) => self.hop(far, packet).map_or(Lead::TooFar, Lead::Switch),
                None => Lead::Edge {
                    is_destination: self.is_destination(Location { dpid, port }, &packet),
                },
            };
            leads.insert(step, lead);
        }
        let hop = &mut self.hops[number];
        (hop.steps, hop.leads) = (steps, leads);
    }

    /// Whether the destination is at a port and accepts a packet.
    fn is_destination(&self, at: Location, packet: &Bytes) -> bool {
        let wanted = self.destination.mac;
        let fields = PacketFields::parse(at.port, packet);
        let is_its = wanted.is_none() || fields.eth_dst() == wanted;
        // A label of the fabric that no switch has removed is not the host's tag.
        let has_its_tag = fields.vlan_id() == self.destination.tag;
        is_its && has_its_tag && self.destination.ports.contains(&at)
    }

    /// The end of the packet.
    pub fn fate(&self) -> Fate {
        self.fate_of(0, &mut vec![None; self.hops.len()])
    }

    /// Whether the controller receives a copy of the packet.
    pub fn has_copies_to_controller(&self) -> bool {
        let mut steps = self.hops.iter().flat_map(|hop| &hop.steps);
        steps.any(|step| matches!(step, Step::Controller { .. }))
    }

    /// `fates` has the known fates. The fate of a hop on the path to this one is a loop.
    fn fate_of(&self, number: usize, fates: &mut Vec<Option<Fate>>) -> Fate {
        let fate = |outcome, step| Fate {
            outcome,
            hop: number,
            step,
        };
        if let Some(known) = fates[number] {
            return known;
        }
        fates[number] = Some(fate(Outcome::Loops, None));
        let hop = &self.hops[number];
        let mut ends: Vec<Ending> = Vec::new();
        let mut is_copying = false;
        for (at, step) in hop.steps.iter().enumerate() {
            let here = |outcome| fate(outcome, Some(at));
            let end = match step {
                Step::Entry { entry, .. } => {
                    is_copying = is_copying_tap(entry);
                    continue;
                }
                // An application's copy does not count for the packet's fate.
                Step::Controller { .. } if is_copying => continue,
                Step::Controller { only_if, .. } => (only_if, here(Outcome::Controller)),
                Step::Drop { only_if, .. } => (only_if, here(Outcome::Dropped)),
                Step::Unknown { only_if, .. } => (only_if, here(Outcome::Unknown)),
                Step::Output { only_if, .. } => {
                    let end = match hop.leads.get(&at) {
                        Some(Lead::Switch(next)) => match self.fate_of(*next, fates) {
                            // The step that closes the loop says more than where it began.
                            Fate {
                                outcome: Outcome::Loops,
                                step: None,
                                ..
                            } => here(Outcome::Loops),
                            fate => fate,
                        },
                        Some(Lead::Edge { is_destination }) => here(match is_destination {
                            true => Outcome::Delivered,
                            false => Outcome::Elsewhere,
                        }),
                        Some(Lead::Mirror) => continue,
                        Some(Lead::TooFar) | None => here(Outcome::Unknown),
                    };
                    (only_if, end)
                }
                _ => continue,
            };
            ends.push((end.0, end.1));
        }
        let nothing = match hop.problem {
            Some(_) => fate(Outcome::Unknown, None),
            // The last entry forwards the packet nowhere.
            None => fate(
                Outcome::Dropped,
                hop.steps
                    .iter()
                    .rposition(|step| matches!(step, Step::Entry { .. })),
            ),
        };
        let whole = combine(&ends).unwrap_or(nothing);
        fates[number] = Some(whole);
        whole
    }
}

/// Whether an entry gives an application a copy, and lets the packet continue.
fn is_copying_tap(entry: &FlowEntry) -> bool {
    let mut steps = entry.instructions.iter();
    is_tap(entry.cookie) && steps.any(|step| matches!(step, Instruction::GotoTable(_)))
}

/// The fate of a copy of a packet, and the choices under which the copy exists.
type Ending<'a> = (&'a [Choice], Fate);

/// The fate of a packet whose copies have these fates, each under its choices.
fn combine(ends: &[Ending<'_>]) -> Option<Fate> {
    let mut fates: Vec<Fate> = Vec::new();
    let mut groups: BTreeMap<_, BTreeMap<usize, Vec<Ending>>> = BTreeMap::new();
    for (choices, fate) in ends {
        match choices.split_first() {
            None => fates.push(*fate),
            Some((choice, rest)) => {
                let buckets = groups.entry((choice.group, choice.of)).or_default();
                buckets
                    .entry(choice.bucket)
                    .or_default()
                    .push((rest, *fate));
            }
        }
    }
    for ((_, of), buckets) in groups {
        let is_whole = buckets.len() >= of;
        let all = buckets.values().filter_map(|ends| combine(ends));
        let all: Vec<Fate> = all.collect();
        let arrives = |fate: &Fate| fate.outcome == Outcome::Delivered;
        let may_arrive = |fate: &Fate| fate.outcome >= Outcome::Depends;
        let first = all.iter().copied().find(may_arrive);
        let worst = all.iter().copied().max_by_key(|fate| fate.outcome);
        fates.extend(match first {
            Some(first) if is_whole && all.iter().all(arrives) => Some(first),
            // The branch that does not deliver decides.
            Some(first) => {
                let other = all.iter().copied().find(|fate| !arrives(fate));
                let outcome = Outcome::Depends;
                Some(Fate {
                    outcome,
                    ..other.unwrap_or(first)
                })
            }
            None => worst,
        });
    }
    // If one copy arrives, the other copies may end anywhere.
    let mut best: Option<Fate> = None;
    for fate in fates {
        if best.is_none_or(|best| fate.outcome > best.outcome) {
            best = Some(fate);
        }
    }
    best
}

/// Why a packet goes no further, in words.
pub fn drop_text(reason: DropReason) -> &'static str {
    match reason {
        DropReason::InPortClosed => "the port it comes in by is down or unknown",
        DropReason::TableMiss => "no entry of the table matches",
        DropReason::NoOutput => "its entries lead to no output",
        DropReason::OutPortClosed => "the port it should leave by is down or unknown",
        DropReason::BackToInPort => "it would leave by the port it came in by",
        DropReason::NoBucket => "the group is gone, or none of its buckets is live",
        DropReason::Expired => "its TTL has run out",
        _ => "for another reason",
    }
}
