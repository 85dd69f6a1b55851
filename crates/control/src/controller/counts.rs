//! Counts by port and by switch.

use std::collections::BTreeMap;

use openflow::DatapathId;

use crate::Location;

#[derive(Default)]
pub(super) struct Counts {
    ports: BTreeMap<Location, usize>,
    switches: BTreeMap<DatapathId, usize>,
}

impl Counts {
    pub(super) fn of_port(&self, at: Location) -> usize {
        self.ports.get(&at).copied().unwrap_or(0)
    }

    pub(super) fn of_switch(&self, dpid: DatapathId) -> usize {
        self.switches.get(&dpid).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, at: Location) {
        *self.ports.entry(at).or_default() += 1;
        *self.switches.entry(at.dpid).or_default() += 1;
    }

    pub(super) fn remove(&mut self, at: Location) {
        lower(&mut self.ports, at);
        lower(&mut self.switches, at.dpid);
    }
}

fn lower<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
