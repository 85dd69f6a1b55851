//! Mends the paths that a change of the network has made wrong.
//!
//! There may be as many as there are paths, and each takes several messages to several switches.
//! The controller sets them as fast as their switches confirm. The others wait here or at the
//! switch that is behind, each pair once, however often the network changes meanwhile.

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use openflow::DatapathId;

use super::Controller;
use super::first::SETTLE;
use super::links::{Hop, Pair};
use super::paths::How;
use super::ports::Cause;

/// A switch with a longer backlog is sent no mended path. This is less than the limit for new
/// paths, so that mending leaves room for them.
const BEHIND_MAX: usize = super::updates::BEHIND_MAX / 2;

/// Paths that are examined again when a switch that was behind has confirmed something.
const UNPARKED: usize = 256;

#[derive(Default)]
pub(super) struct Mending {
    pairs: BTreeMap<Pair, Mend>,
    /// Paths that wait until a switch is no longer behind.
    parked: BTreeMap<DatapathId, BTreeMap<Pair, Mend>>,
}

impl Mending {
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

    /// Forgets what waits for a switch.
    pub(super) fn forget(&mut self, dpid: DatapathId) {
        self.parked.remove(&dpid);
    }
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
    pub(super) fn note_broken(&mut self, pair: Pair, why: Why) {
        if let Some(revision) = self.paths.revision(pair) {
            self.mending.pairs.insert(pair, Mend { why, revision });
        }
    }

    /// Mends paths as long as there is room.
    pub(super) fn go_on_mending(&mut self, now: Instant) {
        while self.has_room_to_mend()
            && let Some((pair, mend)) = self.mending.pairs.pop_first()
        {
            if self.paths.revision(pair) == Some(mend.revision) {
                self.mend(now, pair, mend);
            }
        }
    }

    fn mend(&mut self, now: Instant, pair: Pair, mend: Mend) {
        let places = self.hosts.place(pair.0).zip(self.hosts.place(pair.1));
        let hops = places.and_then(|(from, to)| self.find_path(pair, from, to));
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
            // The pair's packets come up until there is room.
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

    /// Examines the paths that have waited for a switch that has confirmed something, or is gone.
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
