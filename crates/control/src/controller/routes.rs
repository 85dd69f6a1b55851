//! Entries towards hosts, set before anybody asks (proactive and hybrid mode).
//!
//! They are computed whole from the places of the hosts and the links, compared with what the
//! switches hold, and the difference is sent, nearest to the host first. Proactive: one entry per
//! host and switch, from any port. Hybrid: one per host and link port, so that a packet from an
//! edge port still comes up once per pair of hosts, and its sender is checked.

use std::collections::BTreeMap;

use openflow::time::{Duration, Instant};
use openflow::{DatapathId, MacAddr};

use crate::entry::{Entry, EntryKey, EntryKind};

use super::links::Distances;
use super::updates::{Change, Guard, Stage, Step};
use super::{Controller, Location, Mode, Timer};
use crate::mix;

/// Learned hosts are gathered for this long before routes are computed.
const GATHER: Duration = Duration::from_millis(20);

/// Entries of hosts that nobody has heard are kept this long after their switch connected: their
/// host's own switch may still be on its way.
const ADOPTED_KEPT: Duration = Duration::from_secs(30);

impl Controller {
    pub(super) fn routes_soon(&mut self, now: Instant) {
        if self.config.mode == Mode::Reactive {
            return;
        }
        if !std::mem::replace(&mut self.routes_pending, true) {
            self.timer(now + GATHER, Timer::Routes);
        }
    }

    pub(super) fn refresh_routes(&mut self, now: Instant) {
        if self.config.mode == Mode::Reactive {
            return;
        }
        self.routes_revision += 1;
        let guard = Guard::Routes(self.routes_revision);
        let wanted = self.wanted_routes();
        let mut by_distance: BTreeMap<u32, Vec<Change>> = BTreeMap::new();
        let mut stale = Vec::new();
        for (dpid, switch) in &self.switches {
            if !switch.synced {
                continue;
            }
            let none = BTreeMap::new();
            let wanted = wanted.get(dpid).unwrap_or(&none);
            for (key, (entry, distance)) in wanted {
                if switch.entries.get(key).map(|held| held.out) != Some(entry.out) {
                    let change = Change {
                        dpid: *dpid,
                        step: Step::Add(*entry),
                        guard,
                    };
                    by_distance.entry(*distance).or_default().push(change);
                }
            }
            let young = now.since(switch.up_since) < ADOPTED_KEPT;
            for (key, entry) in &switch.entries {
                // Where a host is that only entries tell of may be a port towards a switch that is
                // not here yet.
                let unknown = !key.eth_dst.is_some_and(|mac| self.hosts.is_heard(mac));
                let kept = wanted.contains_key(key) || (young && unknown);
                if entry.kind == EntryKind::Destination && !kept {
                    stale.push(Change {
                        dpid: *dpid,
                        step: Step::Delete(*key),
                        guard,
                    });
                }
            }
        }
        let adds = by_distance.into_values();
        let mut stages: Vec<Stage> = adds.map(Stage::of).collect();
        stages.push(Stage::release(self.first.routes_token()));
        stages.push(Stage::drain(stale));
        self.start_update(now, stages);
    }

    /// Per switch, every route entry it should hold, and how far its host is.
    fn wanted_routes(&self) -> BTreeMap<DatapathId, BTreeMap<EntryKey, (Entry, u32)>> {
        let mut wanted: BTreeMap<DatapathId, BTreeMap<EntryKey, (Entry, u32)>> = BTreeMap::new();
        let mut trees: BTreeMap<DatapathId, Distances> = BTreeMap::new();
        for (mac, home) in self.hosts.placed() {
            let search = || {
                self.links
                    .distances(home.dpid, |dpid| self.is_connected(dpid))
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
            self.links.next_port(dpid, distances, mix(mac.to_u64()))
        };
        let Some(out) = out else {
            return Vec::new();
        };
        let entry = |in_port| Entry {
            key: EntryKey::destination(in_port, mac),
            kind: EntryKind::Destination,
            out,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            notify: false,
        };
        if self.config.mode == Mode::Proactive {
            return vec![entry(None)];
        }
        let links = self.links.ports(dpid).filter(|port| *port != out);
        links.map(|port| entry(Some(port))).collect()
    }
}
