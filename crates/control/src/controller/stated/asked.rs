//! Requests of the programs around the controller about static entries, and the reports that the
//! controller's other modules pass on.

use std::collections::BTreeMap;
use std::ops::Bound;

use clock::Instant;
use openflow::message::FlowRemoved;
use openflow::multipart::{FlowStats, ReplyBody};
use openflow::{DatapathId, PortNo};

use crate::entry::EntryKind;
use crate::flows::parts::{
    PartEdit, PartId, PartKind, PartMod, PartName, PartProblem, PartView, StaticPart,
};
use crate::flows::{Chosen, FlowEdit, FlowName, FlowPage, FlowProblem, FlowState, FlowView};
use crate::flows::{StaticEntry, ports_of};

use super::super::Controller;
use super::super::outbox::Request;

/// The statements that cannot be applied, by name, and the reason.
pub type LeftOut<N> = Vec<(N, String)>;

impl Controller {
    /// Changes only static entries, like [`Controller::edit_stated`].
    ///
    /// # Errors
    /// All reasons, by entry and field.
    pub fn edit_flows(
        &mut self,
        now: Instant,
        edits: Vec<FlowEdit>,
    ) -> Result<(), Vec<FlowProblem>> {
        let edited = self.edit_stated(now, Vec::new(), edits);
        edited.map_err(|(_, problems)| problems)
    }

    /// Makes `wanted` the lasting entries, as far as possible. Returns the entries left out, with
    /// the reason.
    fn fit_flows(
        &mut self,
        now: Instant,
        wanted: Vec<(FlowName, StaticEntry)>,
    ) -> Vec<(FlowName, String)> {
        self.outbox.now = now;
        let (edits, left_out) = self.stated.fitting(wanted);
        self.stated.edit(edits, &mut self.outbox);
        left_out
    }

    /// Static entries by name: the first ones after a name, of one owner or of all.
    pub fn flows(&self, owner: Option<&str>, after: Option<&FlowName>, limit: usize) -> FlowPage {
        let (stated, first) = (&self.stated, FlowName::first(owner.unwrap_or_default()));
        let from = match after {
            Some(after) if *after >= first => Bound::Excluded(after),
            _ => Bound::Included(&first),
        };
        let later = stated.wanted.range((from, Bound::Unbounded));
        let mut its = later.take_while(|(name, _)| owner.is_none_or(|owner| name.owner == owner));
        let flows = its.by_ref().take(limit);
        FlowPage {
            flows: flows
                .map(|(name, entry)| self.flow_view(name, entry))
                .collect(),
            total: match owner {
                Some(owner) => stated.owners.get(owner).map_or(0, |owner| owner.count),
                None => stated.wanted.len(),
            },
            has_more: its.next().is_some(),
        }
    }

    /// The names of an owner's static entries.
    pub fn flow_names(&self, owner: &str) -> Vec<FlowName> {
        let later = self.stated.wanted.range(FlowName::first(owner)..);
        let its = later.take_while(|(name, _)| name.owner == owner);
        its.map(|(name, _)| name.clone()).collect()
    }

    /// An owner's static entries on a switch whose places are chosen.
    pub fn flows_at(&self, owner: &str, dpid: DatapathId, chosen: &Chosen) -> Vec<FlowView> {
        let switch = self.stated.switches.get(&dpid);
        let places = switch.into_iter().flat_map(|switch| &switch.places);
        let names = places.filter_map(|(key, place)| {
            let name = place.wanted.as_ref().filter(|name| name.owner == owner)?;
            let is_it = chosen.has(key, place.last.priority);
            is_it.then_some(name)
        });
        let named = names.filter_map(|name| self.stated.wanted.get_key_value(name));
        named
            .map(|(name, entry)| self.flow_view(name, entry))
            .collect()
    }

    /// The static entry that a switch reports in this row, in the switch's own table numbers.
    pub fn flow_of(&self, dpid: DatapathId, row: &FlowStats) -> Option<(&FlowName, &StaticEntry)> {
        if EntryKind::of(row.cookie) != Some(EntryKind::Static) {
            return None;
        }
        let row = self.outbox.numbering(dpid).read(row.clone());
        let name = self.stated.owner_of(dpid, &row)?;
        Some((name, self.stated.wanted.get(name)?))
    }

    /// Whether a static entry lasts; `None` if there is none.
    pub fn is_lasting_flow(&self, name: &FlowName) -> Option<bool> {
        Some(self.stated.wanted.get(name)?.is_lasting())
    }

    /// One static entry, with the entries of other owners that overlap it.
    pub fn flow(&self, name: &FlowName) -> Option<FlowView> {
        let entry = self.stated.wanted.get(name)?;
        Some(FlowView {
            overlaps: self.stated.overlaps(name, entry),
            ..self.flow_view(name, entry)
        })
    }

    fn flow_view(&self, name: &FlowName, entry: &StaticEntry) -> FlowView {
        let view = self.stated.view(name, entry);
        FlowView {
            state: self.with_ports(entry.dpid, view.state, entry.ports()),
            ..view
        }
    }

    /// The state of a statement that sends packets out of these ports.
    fn with_ports(
        &self,
        dpid: DatapathId,
        state: FlowState,
        mut ports: impl Iterator<Item = PortNo>,
    ) -> FlowState {
        let missing = match state {
            FlowState::InUse => ports.find(|port| !self.has_port(dpid, *port)),
            _ => None,
        };
        missing.map_or(state, FlowState::NoPort)
    }

    pub(in super::super) fn static_due(&mut self, now: Instant) {
        self.stated.handle_due(now, &mut self.outbox);
    }

    pub(in super::super) fn static_confirmed(&mut self, dpid: DatapathId) {
        self.stated.handle_confirmed(dpid, &mut self.outbox);
    }

    pub(in super::super) fn static_removed(&mut self, dpid: DatapathId, removed: &FlowRemoved) {
        self.stated.handle_removed(dpid, removed, &mut self.outbox);
    }

    pub(in super::super) fn static_rows_read(&mut self, dpid: DatapathId, bodies: Vec<ReplyBody>) {
        self.stated.handle_rows(dpid, bodies, &mut self.outbox);
    }

    pub(in super::super) fn reconcile_static(
        &mut self,
        dpid: DatapathId,
        is_known: bool,
        rows: &mut Vec<FlowStats>,
    ) -> [usize; 3] {
        self.stated
            .reconcile(dpid, is_known, rows, &mut self.outbox)
    }

    /// All reasons not to make these changes together.
    pub fn check_stated(
        &self,
        parts: &[PartEdit],
        flows: &[FlowEdit],
    ) -> (Vec<PartProblem>, Vec<FlowProblem>) {
        let outbox = Some(&self.outbox);
        let of_parts = self.stated.check_parts(parts, flows, outbox);
        (of_parts, self.stated.check(flows, parts, outbox))
    }

    /// Changes stated groups and meters, and static entries, all of them or none. Deleting one that
    /// does not exist is not an error.
    ///
    /// # Errors
    /// All reasons, by name and field.
    pub fn edit_stated(
        &mut self,
        now: Instant,
        parts: Vec<PartEdit>,
        flows: Vec<FlowEdit>,
    ) -> Result<(), (Vec<PartProblem>, Vec<FlowProblem>)> {
        self.outbox.now = now;
        let problems = self.check_stated(&parts, &flows);
        if !(problems.0.is_empty() && problems.1.is_empty()) {
            return Err(problems);
        }
        let goes_on = |edit: &FlowEdit| matches!(edit, FlowEdit::Put(_, entry) if entry.goes_on);
        let may_renumber = flows.iter().any(goes_on);
        self.outbox.begin_change();
        self.stated.stage_parts(parts, now);
        self.stated.edit(flows, &mut self.outbox);
        self.outbox.end_change();
        if may_renumber {
            self.renumber(now);
        }
        Ok(())
    }

    /// Makes these groups, meters and entries the lasting ones, as far as possible. Returns those
    /// left out, with the reason.
    pub fn fit_stated(
        &mut self,
        now: Instant,
        parts: Vec<(PartName, StaticPart)>,
        flows: Vec<(FlowName, StaticEntry)>,
    ) -> (LeftOut<PartName>, LeftOut<FlowName>) {
        self.outbox.now = now;
        self.outbox.begin_change();
        let mut puts: BTreeMap<PartName, StaticPart> = parts.into_iter().collect();
        let mut left_out = Vec::new();
        loop {
            let put = |(name, part): (&PartName, &StaticPart)| {
                PartEdit::Put(name.clone(), Box::new(part.clone()))
            };
            let gone = self
                .stated
                .parts
                .keys()
                .filter(|name| !puts.contains_key(*name));
            let gone: Vec<PartEdit> = gone.cloned().map(PartEdit::Delete).collect();
            let edits: Vec<PartEdit> = puts.iter().map(put).collect();
            let whole: Vec<PartEdit> = edits.iter().chain(&gone).cloned().collect();
            let before = puts.len();
            for problem in self.stated.check_parts(&whole, &[], None) {
                if puts.remove(&problem.name).is_some() {
                    left_out.push((problem.name, problem.text));
                }
            }
            if puts.len() != before {
                continue;
            }
            // Entries to be deleted still use groups and meters to be deleted.
            let is_other = |edit: &PartEdit| match edit {
                PartEdit::Put(name, part) => self
                    .stated
                    .parts
                    .get(name)
                    .is_none_or(|there| **there != **part),
                PartEdit::Delete(_) => true,
            };
            let edits = edits.into_iter().filter(is_other).collect();
            self.stated.stage(edits, now, true);
            let flows = self.fit_flows(now, flows);
            self.stated.stage_parts(gone, now);
            self.stated.edit(Vec::new(), &mut self.outbox);
            self.outbox.end_change();
            self.renumber(now);
            return (left_out, flows);
        }
    }

    /// The stated groups, or meters.
    pub fn parts(&self, kind: PartKind) -> Vec<PartView> {
        let all = self
            .stated
            .parts
            .iter()
            .filter(|(name, _)| name.kind == kind);
        all.map(|(name, part)| self.part_view(name, part)).collect()
    }

    fn part_view(&self, name: &PartName, part: &StaticPart) -> PartView {
        let view = self.stated.part_view(name, part);
        let buckets = match &part.add {
            PartMod::Group(group) => &group.buckets[..],
            PartMod::Meter(_) => &[],
        };
        let ports = buckets.iter().flat_map(|bucket| ports_of(&bucket.actions));
        PartView {
            state: self.with_ports(part.dpid, view.state, ports),
            ..view
        }
    }

    /// One stated group or meter.
    pub fn part(&self, name: &PartName) -> Option<PartView> {
        let part = self.stated.parts.get(name)?;
        Some(self.part_view(name, part))
    }

    /// Whether there is a stated group or meter of this name.
    pub fn has_stated(&self, name: &PartName) -> bool {
        self.stated.parts.contains_key(name)
    }

    /// The name of the stated group or meter with this number.
    pub fn part_of(&self, dpid: DatapathId, id: PartId) -> Option<PartName> {
        self.stated.part_holder(dpid, id).cloned()
    }

    pub(in super::super) fn static_parts_read(
        &mut self,
        dpid: DatapathId,
        request: Request,
        bodies: Vec<ReplyBody>,
    ) {
        self.stated
            .handle_parts(dpid, request, Some(bodies), &mut self.outbox);
    }
}
