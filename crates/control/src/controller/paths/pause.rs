//! Moves a path in a pause of its packets: then no packet can be overtaken, however much faster the
//! new route is.
//!
//! The switch itself detects the pause, by an entry's idle timeout. A controller cannot: statistics
//! lag (by half a second on Open vSwitch), and packets may arrive between a reading and the change.
//! Where the routes part:
//!
//! 1. the *successor*, which forwards along the new route, is set one priority below the old entry;
//! 2. the old entry is set again with an idle timeout of a second. When it ends, the next packet
//!    finds the successor, without asking the controller;
//! 3. after the wait the path's own entry is set with the new route. If the old entry still
//!    existed, the path moves under traffic, and that is counted;
//! 4. the successor is deleted.
//!
//! Where the routes part at the first switch, the entries of the pair's rules move in the same way.
//! Each has a successor of its own just below it, above the dropping entry from which the rule is
//! an exception.

use clock::Duration;
use openflow::DatapathId;

use crate::controller::links::Hop;
use crate::controller::stage::{Change, Guard, Stage, Step};
use crate::controller::tables::Tables;
use crate::entry::{Entry, EntryKey};

use super::{Pair, Paths};

/// The length of a pause, as a switch detects it: by the idle timeout of an entry, in whole
/// seconds.
const PAUSE_S: u16 = 1;
pub(in crate::controller) const PAUSE: Duration = Duration::from_secs(PAUSE_S as u64);

/// How long successors outlive the wait, until the entries that take over are set.
const SUCCESSOR_EXTRA_S: u64 = 2;

/// Entries that end with the first pause of their packets. Only the switch can detect the pause:
/// packets may arrive between two readings of statistics.
pub(super) struct PauseWait {
    dpid: DatapathId,
    entries: Vec<PauseEntry>,
    /// The entry that is set last, when the wait is over.
    last: EntryKey,
    /// Whether all entries that have ended did so in a pause.
    in_pause: bool,
    /// The old route.
    pub(super) hops: Vec<Hop>,
}

struct PauseEntry {
    key: EntryKey,
    /// Whether the switch has reported its end.
    has_ended: bool,
}

/// The effect of a newly set entry on a wait for a pause.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::controller) enum PauseOutcome {
    Not,
    /// The wait continues.
    Still,
    /// The wait ended with a pause.
    ForPause,
    /// The wait ended without a pause.
    InVain,
}

impl PauseWait {
    pub(super) fn is_at(&self, hop: &Hop, pair: Pair) -> bool {
        self.dpid == hop.dpid && self.last.without_rule() == hop.key(pair)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.entries.iter().all(|entry| entry.has_ended)
    }

    /// Deletes the entries that were to take over, whatever has happened to the path meanwhile.
    pub(super) fn delete_successors(&self, pair: Pair) -> Vec<Change> {
        let delete = |entry: &PauseEntry| Change {
            dpid: self.dpid,
            step: Step::Delete(entry.key.successor()),
            guard: Guard::Turned(pair),
        };
        self.entries.iter().map(delete).collect()
    }
}

impl Paths {
    /// Whether an entry of the path waits for a pause after which this entry takes over.
    pub(in crate::controller) fn has_successor(
        &self,
        pair: Pair,
        dpid: DatapathId,
        key: EntryKey,
    ) -> bool {
        let path = self.paths.get(pair);
        let yielding = path.and_then(|path| path.yielding.as_ref());
        yielding.is_some_and(|yielding| {
            let is_its = |entry: &PauseEntry| entry.key.successor() == key;
            yielding.dpid == dpid && yielding.entries.iter().any(is_its)
        })
    }

    /// Handles a newly set entry of a path: returns its effect on a wait for a pause.
    pub(in crate::controller) fn handle_set(
        &mut self,
        pair: Pair,
        dpid: DatapathId,
        entry: &Entry,
    ) -> PauseOutcome {
        let Some(path) = self.paths.get_mut(pair) else {
            return PauseOutcome::Not;
        };
        let Some(yielding) = &path.yielding else {
            return PauseOutcome::Not;
        };
        let leads_on = |hop: &Hop| (hop.dpid, hop.out_port) == (dpid, entry.out);
        let is_over =
            (dpid, entry.key) == (yielding.dpid, yielding.last) && path.hops.iter().any(leads_on);
        if !is_over {
            return PauseOutcome::Still;
        }
        match path.yielding.take().is_some_and(|y| y.has_ended()) {
            true => PauseOutcome::ForPause,
            false => PauseOutcome::InVain,
        }
    }

    /// Handles the end of an entry that may have waited for a pause.
    pub(in crate::controller) fn handle_pause(
        &mut self,
        pair: Pair,
        dpid: DatapathId,
        key: EntryKey,
        is_idle: bool,
    ) -> PauseOutcome {
        let path = self.paths.get_mut(pair);
        let yielding = path.and_then(|path| path.yielding.as_mut());
        let Some(yielding) = yielding.filter(|yielding| yielding.dpid == dpid) else {
            return PauseOutcome::Not;
        };
        let mut waiting = yielding.entries.iter_mut().filter(|entry| !entry.has_ended);
        let Some(entry) = waiting.find(|entry| entry.key == key) else {
            return PauseOutcome::Not;
        };
        entry.has_ended = true;
        yielding.in_pause &= is_idle;
        match (yielding.has_ended(), yielding.in_pause) {
            (false, _) => PauseOutcome::Still,
            (true, true) => PauseOutcome::ForPause,
            (true, false) => PauseOutcome::InVain,
        }
    }

    /// Makes the last of these stages, by which packets take another route, wait for a pause:
    /// packets after the pause take the new route. `first` is sent before these stages. Returns the
    /// deletions to make at the end.
    pub(super) fn turn_in_pause(
        &mut self,
        tables: &Tables,
        (pair, revision): (Pair, u64),
        (first, stages, old): (&mut Stage, &mut Vec<Stage>, Vec<Hop>),
        wait: Duration,
    ) -> Option<Vec<Change>> {
        let changes = &stages.last()?.changes;
        let dpid = changes.first()?.dpid;
        let mut leads: Vec<Entry> = changes.iter().filter_map(leading_entry).collect();
        let last = leads.last()?.key;
        let is_it = |hop: &&Hop| hop.dpid == dpid && hop.key(pair) == last.without_rule();
        let before = *old.iter().find(is_it)?;
        let table = tables.get(dpid)?;
        // Packets whose entry is missing now match another entry, and must not match a successor
        // before that entry ends.
        leads.retain(|entry| table.entries().contains_key(&entry.key));
        // Successors are extra entries for some time.
        if leads.is_empty() || table.is_filling() {
            return None;
        }
        let path = self.paths.get_mut(pair)?;
        debug_assert_eq!(path.revision, revision);
        let guard = Guard::Path(pair, revision);
        let set = |entry: Entry| Change {
            dpid,
            step: Step::Add(entry),
            guard,
        };
        let waiting_s = u16::try_from(wait.as_secs() + SUCCESSOR_EXTRA_S).unwrap_or(u16::MAX);
        let successor = |entry: &Entry| {
            set(Entry {
                key: entry.key.successor(),
                notify: false,
                ..outlasting(entry, waiting_s)
            })
        };
        let yielding = |entry: &Entry| {
            set(Entry {
                out: before.out_port,
                idle_timeout_s: PAUSE_S,
                notify: true,
                ..*entry
            })
        };
        let turn = stages.pop()?;
        // No packet may take the new route before the wait is over.
        let before = std::iter::once(first).chain(stages.iter_mut());
        for change in before.flat_map(|stage| &mut stage.changes) {
            if let (Step::Add(entry), Guard::Path(..)) = (&mut change.step, change.guard) {
                *entry = outlasting(entry, waiting_s);
            }
        }
        stages.push(Stage {
            delay: turn.delay,
            ..Stage::of(leads.iter().map(successor).collect())
        });
        stages.push(Stage::of(leads.iter().map(yielding).collect()));
        stages.push(Stage {
            delay: wait,
            ..turn
        });
        let entries = leads.iter().map(|entry| PauseEntry {
            key: entry.key,
            has_ended: false,
        });
        let yielding = PauseWait {
            dpid,
            entries: entries.collect(),
            last,
            in_pause: true,
            hops: old,
        };
        let successors = yielding.delete_successors(pair);
        path.yielding = Some(yielding);
        Some(successors)
    }
}

/// The same entry, with timeouts longer than a wait of this length.
fn outlasting(entry: &Entry, wait_s: u16) -> Entry {
    let if_any = |timeout_s: u16, longer_s| if timeout_s == 0 { 0 } else { longer_s };
    let (idle_s, hard_s) = (entry.idle_timeout_s, entry.hard_timeout_s);
    Entry {
        idle_timeout_s: if_any(idle_s, idle_s.max(wait_s)),
        hard_timeout_s: if_any(hard_s, hard_s.saturating_add(wait_s)),
        ..*entry
    }
}

/// The entry that a change sets, if it forwards packets.
fn leading_entry(change: &Change) -> Option<Entry> {
    match change.step {
        Step::Add(entry) if !entry.kind.is_drop() => Some(entry),
        _ => None,
    }
}
