//! The hosts and links of the serving member, as copied to a standby member.
//!
//! Hosts are in the controller's own table from the beginning: see [`crate::controller::known`].
//! Links are kept beside it until this member takes over, as the controller knows no switches
//! before.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use openflow::DatapathId;

use crate::Location;
use crate::controller::Controller;
use crate::controller::known::{HostCursor, Link};
use crate::vlan::VlanId;

use super::wire::{Batch, Record};

/// The number of link directions that are kept, unless switches may have fewer ports.
const LINKS_MAX: usize = 262_144;
/// The number of hosts whose mark is checked in one step.
const STEP_MAX: usize = 16_384;
/// How long links count after the previous member's last message.
const SAID_FOR: Duration = Duration::from_secs(3);

/// The state of a copy.
#[derive(Default)]
pub(super) struct Replica {
    /// The number of the connection that carries the copy.
    number: u64,
    phase: Phase,
    said_at: Option<Instant>,
    links_max: usize,
    /// Each link, and whether it was confirmed since the copy began.
    links: BTreeMap<Link, bool>,
    counts: CopyCounts,
}

#[derive(Default)]
enum Phase {
    #[default]
    None,
    /// Marks of earlier copies are being removed.
    Unmarking(HostCursor),
    Taking,
    /// Hosts without a mark are being forgotten.
    Sweeping(HostCursor),
    Whole,
}

/// A connection that carries a copy; nothing has arrived on a new one yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listener {
    number: u64,
}

/// The result of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Pass the rest of the batch again: more at once would take too long.
    More,
    Done,
    /// Close the connection: its sender does not serve the switches, this member serves them, or
    /// another connection has replaced this one.
    Refused,
}

/// Counters since the start, and the state now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// Hosts and links taken over from other members, counted each time.
    pub learned: u64,
    /// Hosts and links passed over: of another member's switches, of unknown VLANs, or without
    /// room.
    pub passed_over: u64,
    /// Whole copies that have begun.
    pub begun: u64,
    /// Whether this member has a whole copy, and its sender keeps sending.
    pub is_whole: bool,
}

impl Replica {
    pub(super) fn new(ports_max: usize) -> Replica {
        Replica {
            links_max: ports_max.min(LINKS_MAX),
            ..Replica::default()
        }
    }

    pub(super) fn counts(&self, now: Instant) -> CopyCounts {
        let is_recent = self.said_at.is_some_and(|at| now.since(at) < SAID_FOR);
        CopyCounts {
            is_whole: is_recent && matches!(self.phase, Phase::Whole),
            ..self.counts
        }
    }

    /// Applies a batch from the member that serves these switches.
    pub(super) fn learn(
        &mut self,
        now: Instant,
        controller: &mut Controller,
        listener: &mut Listener,
        batch: &mut Batch,
        is_of_sender: impl Fn(DatapathId) -> bool,
    ) -> Learned {
        if std::mem::take(&mut batch.begins) {
            self.number += 1;
            listener.number = self.number;
            self.counts.begun += 1;
            self.links.values_mut().for_each(|mark| *mark = false);
            self.phase = Phase::Unmarking(HostCursor::default());
        }
        if listener.number != self.number || self.number == 0 {
            return Learned::Refused;
        }
        self.said_at = Some(now);
        if let Phase::Unmarking(cursor) = &mut self.phase {
            if controller.unmark_hosts(cursor, STEP_MAX) {
                return Learned::More;
            }
            self.phase = Phase::Taking;
        }
        self.take(
            now,
            controller,
            std::mem::take(&mut batch.records),
            is_of_sender,
        );
        if std::mem::take(&mut batch.ends) {
            self.links.retain(|_, mark| *mark);
            self.phase = Phase::Sweeping(HostCursor::default());
        }
        if let Phase::Sweeping(cursor) = &mut self.phase {
            if controller.sweep_hosts(now, cursor, STEP_MAX) {
                return Learned::More;
            }
            self.phase = Phase::Whole;
        }
        Learned::Done
    }

    fn take(
        &mut self,
        now: Instant,
        controller: &mut Controller,
        records: Vec<Record>,
        is_of_sender: impl Fn(DatapathId) -> bool,
    ) {
        let mut vlans: BTreeSet<VlanId> = BTreeSet::new();
        for record in records {
            let is_taken = match record {
                Record::Link { link, is_there } => {
                    is_of_sender(link.0.dpid) && self.take_link(link, is_there)
                }
                Record::Host(host, known) => {
                    let of_sender = |at: Location| is_of_sender(at.dpid);
                    vlans.insert(host.vlan);
                    known.as_ref().is_none_or(|known| of_sender(known.at))
                        && controller.learn_host(now, host, known.as_ref())
                }
            };
            match is_taken {
                true => self.counts.learned += 1,
                false => self.counts.passed_over += 1,
            }
        }
        for vlan in vlans {
            controller.settle_learned(now, vlan);
        }
    }

    fn take_link(&mut self, link: Link, is_there: bool) -> bool {
        if !is_there {
            self.links.remove(&link);
            return true;
        }
        let has_room = self.links.len() < self.links_max || self.links.contains_key(&link);
        if has_room {
            self.links.insert(link, true);
        }
        has_room
    }

    /// Notes that a port has changed: another switch may be behind it now.
    pub(super) fn port_changed(&mut self, at: Location) {
        let from = |(from, _): &&Link| *from == at;
        let least = Location::new(DatapathId(0), openflow::PortNo(0));
        let links = self.links.range((at, least)..).map(|(link, _)| link);
        let gone: Vec<Link> = links.take_while(from).copied().collect();
        for (from, to) in gone {
            self.links.remove(&(from, to));
            self.links.remove(&(to, from));
        }
    }

    /// Takes the links for a take-over; none if the previous member has sent nothing lately.
    pub(super) fn take_links(&mut self, now: Instant) -> Option<BTreeSet<Link>> {
        // Batches on earlier connections are refused until one begins a copy.
        self.number += 1;
        self.phase = Phase::None;
        let links = std::mem::take(&mut self.links);
        let is_recent = self
            .said_at
            .take()
            .is_some_and(|at| now.since(at) < SAID_FOR);
        (is_recent && !links.is_empty()).then(|| links.into_keys().collect())
    }
}
