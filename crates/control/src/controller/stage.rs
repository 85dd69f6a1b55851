//! Changes of several switches: the changes sent together, and the condition under which each is
//! still sent.

use clock::Duration;
use openflow::DatapathId;

use crate::entry::{Entry, EntryKey};

use super::entries::{DRAIN, SETTLE};
use super::fabric::change::{FabricChange, TreeChange};
use super::links::Pair;
use super::outbox::Outbox;

/// Names entries that are under way.
pub(super) type Token = u64;

/// Changes that may be sent at once.
#[derive(Default)]
pub(super) struct Stage {
    /// The delay between the confirmation of the previous stage and this stage.
    pub delay: Duration,
    pub changes: Vec<Change>,
    /// Switches changed by others than this stage: they are asked for a barrier as well.
    pub confirm: Vec<DatapathId>,
    /// Changes of the fabric.
    pub fabric: Vec<FabricChange>,
    /// A revision of the fabric that is in use with this stage.
    pub publish: Option<u64>,
    /// A change of a tree of broadcasts that all its switches have confirmed with this stage.
    pub tree: Option<TreeChange>,
    /// A name to report as taken: every switch has taken the entries sent before.
    pub taken: Option<Token>,
    /// A name to release: the entries sent before are active with this stage.
    pub release: Option<Token>,
}

impl Stage {
    pub(super) fn of(changes: Vec<Change>) -> Stage {
        Stage {
            changes,
            ..Stage::default()
        }
    }

    /// Deletes entries that no packet should use any more.
    pub(super) fn drain(changes: Vec<Change>) -> Stage {
        Stage {
            delay: DRAIN,
            changes,
            ..Stage::default()
        }
    }

    pub(super) fn confirm(dpid: DatapathId) -> Stage {
        Stage {
            confirm: vec![dpid],
            ..Stage::default()
        }
    }

    /// Reports a name to the parts that wait for the entries sent before: when the entries were
    /// taken, and when they have settled.
    pub(super) fn tell(token: Token) -> [Stage; 2] {
        let taken = Stage {
            taken: Some(token),
            ..Stage::default()
        };
        let release = Stage {
            delay: SETTLE,
            release: Some(token),
            ..Stage::default()
        };
        [taken, release]
    }

    /// Takes the switches that are to confirm the stage.
    pub(super) fn take_switches(&mut self) -> Switches {
        let confirm = std::mem::take(&mut self.confirm);
        let changed = self.changes.iter().map(|change| change.dpid);
        let changed = changed.chain(self.fabric.iter().map(|change| change.dpid));
        let mut all: Vec<DatapathId> = changed.chain(confirm.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        Switches { all, confirm }
    }

    pub(super) fn is_empty(&self) -> bool {
        let is_told = self.taken.is_some() || self.release.is_some();
        let is_told = is_told || self.publish.is_some() || self.tree.is_some();
        let has_changes = !self.changes.is_empty() || !self.fabric.is_empty();
        !has_changes && self.confirm.is_empty() && !is_told
    }
}

/// The switches that are to confirm a stage.
pub(super) struct Switches {
    all: Vec<DatapathId>,
    /// The switches among them that others than the stage have changed.
    confirm: Vec<DatapathId>,
}

impl Switches {
    /// Makes an update wait for the switches' barriers. Returns the number of barriers that it
    /// waits for.
    pub(super) fn ask(&self, id: u64, outbox: &mut Outbox) -> usize {
        let asked = |dpid: &&DatapathId| outbox.wait_for(**dpid, id, self.confirm.contains(dpid));
        self.all.iter().filter(asked).count()
    }
}

pub(super) struct Change {
    pub dpid: DatapathId,
    pub step: Step,
    pub guard: Guard,
}

#[derive(Clone, Copy)]
pub(super) enum Step {
    Add(Entry),
    Delete(EntryKey),
}

/// The condition under which a change is still wanted when it is to be sent.
#[derive(Clone, Copy)]
pub(super) enum Guard {
    /// An entry of this revision of a path.
    Path(Pair, u64),
    /// An entry of a path, unless it is wanted again.
    Stale(Pair),
    /// A successor of a path, unless it waits for another pause.
    Turned(Pair),
    /// An entry of a rule, unless it is wanted again.
    Ended(Pair),
    /// An entry of this computation of the routes.
    Routes(u64),
    /// A coarse entry, or an entry of a pair that the coarse entry carries.
    Coarse,
}
