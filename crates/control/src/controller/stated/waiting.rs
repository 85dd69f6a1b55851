//! Changes of one owner that wait for its rate.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use openflow::DatapathId;

use crate::flows::FlowKey;
use crate::flows::parts::PartId;

/// A change that a switch may need, in the order in which changes are made: entries may use only
/// existing groups and meters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    SetPart(PartId),
    Set(FlowKey),
    Empty(FlowKey),
    DropPart(PartId),
}

/// Places that may have to be changed, each listed once. Switches take turns, so that a switch
/// whose entries change all the time does not delay the others.
#[derive(Default)]
pub(super) struct Waiting {
    places: BTreeMap<DatapathId, BTreeSet<Work>>,
    served: Option<DatapathId>,
}

impl Waiting {
    pub(super) fn insert(&mut self, dpid: DatapathId, work: Work) {
        self.places.entry(dpid).or_default().insert(work);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The switch whose turn it is.
    fn turn(&self) -> Option<DatapathId> {
        let after = self.served.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.places.range((after, Bound::Unbounded)).next();
        let next = later.or_else(|| self.places.first_key_value());
        next.map(|(dpid, _)| *dpid)
    }

    pub(super) fn first(&self) -> Option<(DatapathId, Work)> {
        let dpid = self.turn()?;
        let work = self.places.get(&dpid)?.first()?;
        Some((dpid, work.clone()))
    }

    pub(super) fn pop_first(&mut self) {
        let Some(dpid) = self.turn() else {
            return;
        };
        if let Some(places) = self.places.get_mut(&dpid) {
            places.pop_first();
            if places.is_empty() {
                self.places.remove(&dpid);
            }
        }
        self.served = Some(dpid);
    }
}
