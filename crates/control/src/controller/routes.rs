//! Entries towards hosts, set before any packet needs them (proactive and hybrid mode).
//!
//! The controller computes all of them from the places of the hosts and the links, compares them
//! with the switches' entries, and sends the difference, nearest to the host first. Proactive: one
//! entry per host and switch, from any port. Hybrid: one entry per host and link port, so that a
//! packet from an edge port still reaches the controller once per pair of hosts, and its sender is
//! checked.
//!
//! *Forward and report* is hybrid with one more entry per host and switch. Packets from any other
//! port, which is an edge port, take the same route. The beginning of each packet also goes to the
//! controller, which sets the pair's entry. This entry has the same output, so no packet after it
//! is faster than one before. Switches of 1.0 cannot name the entry of a packet-in; there, packets
//! go to the controller.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use openflow::{DatapathId, MacAddr, PortNo, Version};

use crate::entry::{Entry, EntryKey, EntryKind};

use super::facts::{Facts, facts};
use super::links::{Distances, destination_hash};
use super::network::ADOPTED_KEPT;
use super::outbox::{Outbox, Timer};
use super::stage::{Change, Guard, Stage, Step};
use super::{Controller, Location, Mode};
use crate::timeouts::FirstPackets;

/// Time to gather learned hosts before routes are computed.
const GATHER: Duration = Duration::from_millis(20);

/// When the routes are computed, and which of their changes are still wanted.
#[derive(Default)]
pub(super) struct Routes {
    revision: u64,
    /// Whether there have been routes, so that some may have to be deleted.
    has_been: bool,
    /// Whether the timer is set.
    is_pending: bool,
}

impl Routes {
    pub(super) fn soon(&mut self, facts: Facts<'_>, now: Instant, outbox: &mut Outbox) {
        if facts.has_routes() && !std::mem::replace(&mut self.is_pending, true) {
            outbox.timer(now + GATHER, Timer::Routes);
        }
    }

    /// Schedules the computation of the routes for now, whatever timer is set.
    pub(super) fn at_once(&mut self, now: Instant, outbox: &mut Outbox) {
        self.is_pending = true;
        outbox.timer(now, Timer::Routes);
    }

    /// Notes that the timer has fired, or is unknown.
    pub(super) fn handle_due(&mut self) {
        self.is_pending = false;
    }

    pub(super) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Whether nothing was computed since this revision.
    pub(super) fn is_current(&self, revision: u64) -> bool {
        self.revision == revision
    }

    /// Computes the routes: the stages that set entries, and the deletions after them. Entries that
    /// change direction do so `settle` after the entries they rely on were confirmed.
    fn changes(
        &mut self,
        facts: Facts<'_>,
        now: Instant,
        settle: Duration,
    ) -> Option<(Vec<Stage>, Vec<Change>)> {
        if !facts.has_routes() && !self.has_been {
            return None;
        }
        self.has_been = true;
        self.revision += 1;
        let guard = Guard::Routes(self.revision);
        let wanted = facts.wanted_routes();
        let mut by_distance: BTreeMap<u32, Vec<Change>> = BTreeMap::new();
        let mut turned = BTreeSet::new();
        let mut stale = Vec::new();
        for (dpid, table) in facts.tables.iter() {
            let known = facts.net.switch(*dpid);
            let Some(known) = known.filter(|known| known.synced) else {
                continue;
            };
            let none = BTreeMap::new();
            let wanted = wanted.get(dpid).unwrap_or(&none);
            for (key, (entry, distance)) in wanted {
                let held = table.entries().get(key).map(|held| held.out);
                if held != Some(entry.out) {
                    turned.extend(held.map(|_| *distance));
                    let change = Change {
                        dpid: *dpid,
                        step: Step::Add(*entry),
                        guard,
                    };
                    by_distance.entry(*distance).or_default().push(change);
                }
            }
            let young = now.since(known.up_since) < ADOPTED_KEPT;
            for entry in table.entries().values() {
                let key = &entry.key;
                // A host known only from entries may in truth be behind a port towards a switch
                // that has not connected yet.
                let unknown = !key.eth_dst.is_some_and(|mac| facts.hosts.is_heard(mac));
                let may_be = facts.has_routes() && young && unknown;
                let kept = wanted.contains_key(key) || may_be;
                if entry.kind.is_route() && !kept {
                    stale.push(Change {
                        dpid: *dpid,
                        step: Step::Delete(*key),
                        guard,
                    });
                }
            }
        }
        let adds = by_distance.into_iter().map(|(distance, changes)| Stage {
            delay: match turned.contains(&distance) {
                true => settle,
                false => Duration::ZERO,
            },
            ..Stage::of(changes)
        });
        Some((adds.collect(), stale))
    }
}

impl Facts<'_> {
    /// Whether there are entries towards hosts.
    pub(super) fn has_routes(&self) -> bool {
        self.mode != Mode::Reactive || self.reports()
    }

    /// Whether edge switches forward packets to known hosts, and report them.
    pub(super) fn reports(&self) -> bool {
        let policy = self.timeouts.first_packets;
        policy == FirstPackets::Report && self.mode != Mode::Proactive
    }

    /// The wanted route entries of each switch, with the distance of their hosts.
    fn wanted_routes(&self) -> BTreeMap<DatapathId, BTreeMap<EntryKey, (Entry, u32)>> {
        let mut wanted: BTreeMap<DatapathId, BTreeMap<EntryKey, (Entry, u32)>> = BTreeMap::new();
        let mut trees: BTreeMap<DatapathId, Distances> = BTreeMap::new();
        if !self.has_routes() {
            return wanted;
        }
        for (mac, home) in self.hosts.placed() {
            let search = || {
                self.net
                    .links
                    .distances(home.dpid, |dpid| self.net.is_connected(dpid))
            };
            let distances = trees.entry(home.dpid).or_insert_with(search);
            for (dpid, distance) in &*distances {
                let entries = wanted.entry(*dpid).or_default();
                for entry in self.routes_at(*dpid, mac, home, distances) {
                    entries.insert(entry.key, (entry, *distance));
                }
            }
        }
        wanted
    }

    fn routes_at(
        &self,
        dpid: DatapathId,
        mac: MacAddr,
        home: Location,
        distances: &Distances,
    ) -> Vec<Entry> {
        let out = if dpid == home.dpid {
            Some(home.port)
        } else {
            self.net
                .links
                .next_port(dpid, distances, destination_hash(mac))
        };
        let Some(out) = out else {
            return Vec::new();
        };
        let entry = |key, kind| Entry {
            key,
            kind,
            out,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            notify: false,
        };
        let from = |in_port: Option<PortNo>| {
            entry(EntryKey::destination(in_port, mac), EntryKind::Destination)
        };
        if self.mode == Mode::Proactive {
            return vec![from(None)];
        }
        let says_which = |dpid| {
            let version = self.net.version(dpid);
            version.is_some_and(|version| version != Version::V10)
        };
        let reports = self.reports() && says_which(dpid);
        if !reports && self.mode == Mode::Reactive {
            return Vec::new();
        }
        let links = self.net.links.ports(dpid).filter(|port| *port != out);
        let mut entries: Vec<Entry> = links.map(|port| from(Some(port))).collect();
        if reports {
            entries.push(entry(EntryKey::report(mac), EntryKind::Report));
            // Hosts behind one port receive each other's packets there, and need no report.
            entries.extend((dpid == home.dpid).then(|| from(Some(out))));
        }
        entries
    }
}

impl Controller {
    pub(super) fn routes_soon(&mut self, now: Instant) {
        self.routes.soon(facts!(self), now, &mut self.outbox);
    }

    pub(super) fn refresh_routes(&mut self, now: Instant) {
        self.change_routes(now, Duration::ZERO);
    }

    /// Computes and sends the routes.
    pub(super) fn change_routes(&mut self, now: Instant, settle: Duration) {
        let Some((mut stages, stale)) = self.routes.changes(facts!(self), now, settle) else {
            return;
        };
        if self.config.mode == Mode::Hybrid {
            let ingresses = Stage::of(self.paths.follow_routes(
                facts!(self),
                &self.coarse,
                now,
                &mut self.outbox.counters,
            ));
            stages.push(Stage {
                delay: settle,
                ..ingresses
            });
        }
        stages.extend(Stage::tell(self.first.routes_token()));
        stages.push(Stage::drain(stale));
        self.start_update(now, stages);
    }
}
