//! A path that is to move waits for a pause of its packets: then nothing can be overtaken, however
//! much faster the new way is.
//!
//! The switch itself sees the pause, by an entry's idle timeout. A controller cannot: statistics lag
//! (by half a second on Open vSwitch), and between a reading and the change anything may come. Where
//! the ways part:
//!
//! 1. the *successor*, which leads on by the new way, is set one priority below the old entry;
//! 2. the old entry is set again with an idle timeout of a second. When it ends, the next packet finds
//!    the successor, and nobody had to be asked;
//! 3. after the wait the path's own entry is set with the new way. If the old one was still there,
//!    packets turn off under traffic, and that is counted;
//! 4. the successor is taken out.

use openflow::DatapathId;
use openflow::time::Duration;

use crate::controller::Controller;
use crate::controller::links::Hop;
use crate::controller::updates::{Change, Guard, Stage, Step};
use crate::entry::{Entry, EntryKey};

use super::{Pair, Paths};

/// A pause of packets, as a switch sees it: by the idle timeout of an entry, in whole seconds.
const PAUSE_S: u16 = 1;
pub(super) const PAUSE: Duration = Duration::from_secs(PAUSE_S as u64);

/// An entry that ends with the first pause of its packets. The switch itself sees the pause, where
/// nobody else could: between two readings of statistics anything may have come.
pub(super) struct Yielding {
    dpid: DatapathId,
    key: EntryKey,
    /// The old way.
    pub(super) hops: Vec<Hop>,
    /// The switch has told of its end.
    pub(super) has_ended: bool,
}

/// What an entry that is set ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::controller) enum Waited {
    Not,
    /// The wait goes on.
    Still,
    /// There was a pause.
    ForPause,
    /// There was none.
    InVain,
}

impl Yielding {
    pub(super) fn is_at(&self, hop: &Hop, pair: Pair) -> bool {
        self.dpid == hop.dpid && self.key == hop.key(pair)
    }

    /// The entry that was to take over.
    pub(super) fn delete_successor(&self, guard: Guard) -> Change {
        Change {
            dpid: self.dpid,
            step: Step::Delete(self.key.successor()),
            guard,
        }
    }
}

impl Paths {
    /// An entry of a path is set: what that means for one that waits for a pause.
    pub(in crate::controller) fn handle_set(
        &mut self,
        pair: Pair,
        dpid: DatapathId,
        entry: &Entry,
    ) -> Waited {
        let Some(path) = self.paths.get_mut(&pair) else {
            return Waited::Not;
        };
        let Some(yielding) = &path.yielding else {
            return Waited::Not;
        };
        let leads_on = |hop: &Hop| (hop.dpid, hop.out_port) == (dpid, entry.out);
        let is_over =
            (dpid, entry.key) == (yielding.dpid, yielding.key) && path.hops.iter().any(leads_on);
        if !is_over {
            return Waited::Still;
        }
        match path.yielding.take().is_some_and(|y| y.has_ended) {
            true => Waited::ForPause,
            false => Waited::InVain,
        }
    }

    /// The end of an entry that waited for a pause; false if it is another one's.
    pub(super) fn handle_pause(&mut self, pair: Pair, dpid: DatapathId, key: EntryKey) -> bool {
        let path = self.paths.get_mut(&pair);
        let yielding = path.and_then(|path| path.yielding.as_mut());
        let Some(yielding) = yielding.filter(|y| (y.dpid, y.key) == (dpid, key)) else {
            return false;
        };
        !std::mem::replace(&mut yielding.has_ended, true)
    }
}

impl Controller {
    /// Has the last of these stages, by which packets take another way, wait for a pause: what
    /// comes after the pause takes the new way. Answers what is to be taken out in the end.
    pub(super) fn turn_in_pause(
        &mut self,
        pair: Pair,
        revision: u64,
        (stages, old): (&mut Vec<Stage>, Vec<Hop>),
        wait: Duration,
    ) -> Option<Change> {
        let &[
            Change {
                dpid,
                step: Step::Add(entry),
                guard,
            },
        ] = &stages.last()?.changes[..]
        else {
            return None;
        };
        let is_it = |hop: &&Hop| hop.dpid == dpid && hop.key(pair) == entry.key;
        let before = *old.iter().find(is_it)?;
        // One entry more, for some time.
        if self.switches.get(&dpid)?.table.is_filling() {
            return None;
        }
        let path = self.paths.paths.get_mut(&pair)?;
        debug_assert_eq!(path.revision, revision);
        let successor = Entry {
            key: entry.key.successor(),
            notify: false,
            ..entry
        };
        let yielding = Entry {
            out: before.out_port,
            idle_timeout_s: PAUSE_S,
            notify: true,
            ..entry
        };
        let turn = stages.pop()?;
        let set = |entry| {
            let step = Step::Add(entry);
            Stage::of(vec![Change { dpid, step, guard }])
        };
        stages.push(Stage {
            delay: turn.delay,
            ..set(successor)
        });
        stages.push(set(yielding));
        stages.push(Stage {
            delay: wait,
            ..turn
        });
        let yielding = Yielding {
            dpid,
            key: entry.key,
            hops: old,
            has_ended: false,
        };
        let last = yielding.delete_successor(guard);
        path.yielding = Some(yielding);
        Some(last)
    }
}
