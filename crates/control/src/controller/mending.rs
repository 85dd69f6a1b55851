//! Mends the paths that a change of the network has made wrong.
//!
//! All paths may be affected, and each takes several messages to several switches. The controller
//! sets paths as fast as their switches confirm. The other paths wait here or at the switch that is
//! behind, each pair once, however often the network changes meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use openflow::{DatapathId, MacAddr};

use super::Controller;
use super::entries::SETTLE;
use super::links::{Hop, Pair};
use super::paths::{self, How, PAUSE, has_moved};

/// A switch with a longer backlog is sent no mended path. This is less than the limit for new
/// paths, so that mending leaves room for them.
const BEHIND_MAX: usize = paths::BEHIND_MAX / 2;

/// Maximum number of paths examined again when a switch that was behind has confirmed something.
const UNPARKED: usize = 256;

/// The paths to be mended.
#[derive(Default)]
pub(super) struct Mending {
    pairs: BTreeMap<Pair, Mend>,
    /// Paths that wait until a switch is no longer behind.
    parked: BTreeMap<DatapathId, BTreeMap<Pair, Mend>>,
}

impl Mending {
    /// Notes that a revision of a path is to be mended.
    fn note(&mut self, pair: Pair, why: Why, revision: u64) {
        self.pairs.insert(pair, Mend { why, revision });
    }

    /// Takes the next path to mend.
    fn next(&mut self) -> Option<(Pair, Mend)> {
        self.pairs.pop_first()
    }

    fn park(&mut self, dpid: DatapathId, pair: Pair, mend: Mend) {
        self.parked.entry(dpid).or_default().insert(pair, mend);
    }

    /// Takes up a path that waits for a switch. Returns whether there was one.
    fn unpark(&mut self, dpid: DatapathId) -> bool {
        let Some(parked) = self.parked.get_mut(&dpid) else {
            return false;
        };
        if let Some((pair, mend)) = parked.pop_first() {
            self.pairs.entry(pair).or_insert(mend);
            return true;
        }
        self.parked.remove(&dpid);
        false
    }

    /// Forgets the paths that wait for a switch.
    pub(super) fn forget(&mut self, dpid: DatapathId) {
        self.parked.remove(&dpid);
    }
}

/// The reason to examine paths again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The port is dead: an entry that leads there is useless.
    PortDown,
    /// Only our knowledge is lost; packets may still get through.
    Unknown,
}

/// The reason to set a path again, and the path's revision.
#[derive(Clone, Copy)]
struct Mend {
    why: Why,
    /// The revision to mend: a path that was set since is right, or has been noted again.
    revision: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Why {
    /// The path leads nowhere; `moved`: one of its hosts is elsewhere.
    Broken { moved: bool, cause: Cause },
    /// The path uses a drained link or switch.
    Drained(How),
    /// The path passes through a switch whose session has ended.
    Around,
}

impl Controller {
    /// Moves the paths that use drained links or switches and have an alternative. The new route is
    /// active before the first packet takes it, so nothing is lost. If the new route is the faster
    /// one, its packets overtake packets on the old route, unless it begins after a pause.
    pub(super) fn drain_paths(&mut self, now: Instant) {
        let wait = self.network.links.drain_wait();
        let how = match wait >= PAUSE {
            true => How::InPause(wait),
            false => How::Moved(SETTLE),
        };
        let drained = self.paths.hops();
        let drained = drained.filter(|(_, hops)| self.network.links.is_drained(hops));
        let drained: Vec<Pair> = drained.map(|(pair, _)| pair).collect();
        for pair in drained {
            self.note_broken(pair, Why::Drained(how));
        }
        self.go_on_mending(now);
    }

    /// Moves the paths that pass through a switch and have an alternative.
    pub(super) fn lead_paths_around(&mut self, now: Instant, dpid: DatapathId) {
        let passes = |hops: &[Hop]| match hops {
            [_, middle @ .., _] => middle.iter().any(|hop| hop.dpid == dpid),
            _ => false,
        };
        let through = self.paths.hops().filter(|(_, hops)| passes(hops));
        let through: Vec<Pair> = through.map(|(pair, _)| pair).collect();
        for pair in through {
            self.note_broken(pair, Why::Around);
        }
        self.go_on_mending(now);
    }

    /// Examines every path after the network has changed, and moves those that are broken or whose
    /// hosts (`moved`) are elsewhere. Without another route, a path is deleted if its port is dead,
    /// and left unchanged if only our knowledge is lost. `moved` is sorted.
    pub(super) fn mend_paths(&mut self, now: Instant, cause: Cause, moved: &[MacAddr]) {
        let broken = self.paths.broken(&self.network, &self.hosts, moved);
        self.mend_all(now, cause, moved, broken);
    }

    /// The same where only the places of these hosts have changed: examines only their paths.
    pub(super) fn mend_paths_of(&mut self, now: Instant, cause: Cause, moved: &[MacAddr]) {
        let of_each = moved.iter().flat_map(|mac| self.paths.of_host(*mac));
        let broken: BTreeSet<Pair> = of_each.collect();
        self.mend_all(now, cause, moved, broken.into_iter().collect());
    }

    fn mend_all(&mut self, now: Instant, cause: Cause, moved: &[MacAddr], broken: Vec<Pair>) {
        let coarse = self.mend_coarse(now);
        for pair in broken.iter().copied() {
            let moved = has_moved(moved, pair);
            self.note_broken(pair, Why::Broken { moved, cause });
        }
        self.go_on_mending(now);
        if !coarse.is_empty() {
            self.mend_carried(now, &coarse, &BTreeSet::from_iter(broken));
        }
    }

    pub(super) fn note_broken(&mut self, pair: Pair, why: Why) {
        if let Some(revision) = self.paths.revision(pair) {
            self.mending.note(pair, why, revision);
        }
    }

    /// Mends paths as long as there is room.
    pub(super) fn go_on_mending(&mut self, now: Instant) {
        while self.updates.has_room_to_mend()
            && let Some((pair, mend)) = self.mending.next()
        {
            if self.paths.revision(pair) == Some(mend.revision) {
                self.mend(now, pair, mend);
            }
        }
    }

    fn mend(&mut self, now: Instant, pair: Pair, mend: Mend) {
        let places = self.hosts.place(pair.0).zip(self.hosts.place(pair.1));
        let hops =
            places.and_then(|(from, to)| self.facts().find_path(&self.coarse, pair, from, to));
        let behind = |hop: &Hop| self.outbox.is_behind(hop.dpid, BEHIND_MAX);
        let behind = hops.iter().flatten().find(|hop| behind(hop));
        if let Some(dpid) = behind.map(|hop| hop.dpid)
            && self.network.knows(dpid)
        {
            return self.mending.park(dpid, pair, mend);
        }
        let (moved, cause) = match mend.why {
            Why::Broken { moved, cause } => (moved, cause),
            Why::Drained(how) => {
                if let Some(hops) = hops.filter(|hops| !self.network.links.is_drained(hops)) {
                    self.reroute(now, pair, hops, how);
                }
                return;
            }
            Why::Around => {
                if let Some(hops) = hops {
                    self.reroute(now, pair, hops, How::Moved(SETTLE));
                }
                return;
            }
        };
        match hops {
            // The pair's packets go to the controller until there is room.
            Some(hops) if self.admit_all(now, pair, &hops).is_err() => self.drop_path(now, pair),
            Some(hops) => self.reroute(now, pair, hops, How::Moved(Duration::ZERO)),
            // No place is known, but the entries may still be right: wait until they are read.
            None if moved && places.is_none() && cause == Cause::Unknown => {
                self.paths.remove(pair);
                self.adopt_soon(now);
            }
            None if moved || cause == Cause::PortDown => self.drop_path(now, pair),
            None => {}
        }
    }

    /// Examines the paths that have waited for a switch that has confirmed something, or has
    /// disconnected.
    pub(super) fn make_room(&mut self, now: Instant, dpid: DatapathId) {
        let is_connected = self.network.is_connected(dpid);
        if is_connected && self.outbox.is_behind(dpid, BEHIND_MAX) {
            return;
        }
        let mut left = if is_connected { UNPARKED } else { usize::MAX };
        while left > 0 && self.mending.unpark(dpid) {
            left -= 1;
        }
        self.go_on_mending(now);
    }
}
