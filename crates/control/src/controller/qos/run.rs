//! Sends a difference stage by stage, in bounded portions, each confirmed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Duration, Instant};
use openflow::{DatapathId, ErrorKind, Message, Xid};

use crate::edge::EdgeUpdate;
use crate::entry::EntryKey;
use crate::qos::diff::{Change, Diff, Stage};
use crate::qos::flow::{Flow, FlowKey};
use crate::qos::plan::Owner;

use super::super::Timer;
use super::super::entries::DRAIN;
use super::super::outbox::Request;
use super::{Around, LEAD_ON_AFTER, QosState, REFUSED_PAUSE, Sent};

/// Maximum number of messages to one switch before a barrier.
const PORTION: usize = 256;
/// Maximum number of messages to all switches at one time.
const PORTIONS_MAX: usize = 4096;

/// How long a switch may take to confirm before routes avoid it.
pub(super) const BARRIER_WAIT: Duration = Duration::from_millis(500);

/// The rest of a difference that is being sent.
#[derive(Default)]
pub(super) struct Run {
    steps: VecDeque<Step>,
    /// The rest of the present stage.
    current: BTreeMap<DatapathId, VecDeque<Change>>,
    resume_at: Option<Instant>,
    has_drained: bool,
    /// Whether a switch has refused a message: nothing more is sent before there is a new plan.
    is_void: bool,
    /// Switches that do not confirm, which the plan avoids.
    pub late: BTreeSet<DatapathId>,
}

enum Step {
    Stage(Stage),
    /// Makes the paths of these switches continue to the policy table, or stop doing so.
    Lead(BTreeSet<DatapathId>, bool),
}

impl Run {
    pub(super) fn start(
        &mut self,
        diff: Diff,
        on: BTreeSet<DatapathId>,
        off: BTreeSet<DatapathId>,
    ) {
        let (before, after): (Vec<Stage>, Vec<Stage>) = diff
            .stages
            .into_iter()
            .partition(|stage| stage.order <= LEAD_ON_AFTER);
        let lead = |switches: BTreeSet<DatapathId>, is_on| {
            (!switches.is_empty()).then_some(Step::Lead(switches, is_on))
        };
        let before = before.into_iter().map(Step::Stage);
        let after = after.into_iter().map(Step::Stage);
        let off = lead(off, false);
        let steps = before.chain(lead(on, true)).chain(off).chain(after);
        *self = Run {
            steps: steps.collect(),
            ..Run::default()
        };
    }

    pub(super) fn is_over(&self) -> bool {
        self.steps.is_empty() && self.current.is_empty()
    }

    pub(super) fn void(&mut self) {
        self.is_void = true;
    }
}

impl QosState {
    /// Sends the messages that may be sent by now.
    pub(in crate::controller) fn advance_qos(&mut self, around: &mut Around<'_>, now: Instant) {
        loop {
            self.send_portions(around, now);
            let run = &self.run;
            let is_waiting = self
                .switches
                .iter()
                .any(|(dpid, switch)| switch.waiting_since.is_some() && !run.late.contains(dpid));
            let pauses = run.resume_at.is_some_and(|at| at > now);
            if run.is_void || is_waiting || pauses || !run.current.is_empty() {
                return;
            }
            let run = &mut self.run;
            run.resume_at = None;
            let drains = match run.steps.front() {
                Some(Step::Stage(stage)) => stage.order.drains(),
                _ => false,
            };
            if drains && !std::mem::replace(&mut run.has_drained, true) {
                let due = now + DRAIN;
                run.resume_at = Some(due);
                return around.outbox.timer(due, Timer::Qos);
            }
            run.has_drained = false;
            match run.steps.pop_front() {
                None if self.plan_at.is_none() => return self.drop_bases(around),
                None => return,
                Some(Step::Stage(stage)) => {
                    for (dpid, change) in stage.changes {
                        run.current.entry(dpid).or_default().push_back(change);
                    }
                }
                Some(Step::Lead(switches, is_on)) => {
                    for dpid in switches {
                        self.lead(around, now, dpid, is_on);
                    }
                }
            }
        }
    }

    /// Sends a portion to each switch that has confirmed the one before.
    fn send_portions(&mut self, around: &mut Around<'_>, now: Instant) {
        let mut left = PORTIONS_MAX;
        let switches: Vec<DatapathId> = self.switches.keys().copied().collect();
        for dpid in switches {
            let Some(switch) = self.switches.get(&dpid) else {
                continue;
            };
            if !around.view.net.is_connected(dpid) {
                // The switch is planned for again when it reconnects.
                self.run.current.remove(&dpid);
                continue;
            }
            let has_changes = self.run.current.contains_key(&dpid) && !self.run.is_void;
            let has_more = has_changes || !switch.resend.is_empty();
            if switch.waiting_since.is_some() || !has_more || left == 0 {
                continue;
            }
            let portion = PORTION.min(left);
            around.outbox.begin_change();
            let sent = match has_changes {
                true => self.send_changes(around, now, dpid, portion),
                false => self.send_again(around, dpid, portion),
            };
            around.outbox.end_change();
            left -= sent;
            let asked = around
                .outbox
                .request(now, dpid, Request::Qos, &Message::BarrierRequest);
            if let Some(switch) = self.switches.get_mut(&dpid).filter(|_| asked.is_some()) {
                switch.waiting_since = Some(now);
                around.outbox.timer(now + BARRIER_WAIT, Timer::Qos);
            }
        }
    }

    fn send_changes(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        portion: usize,
    ) -> usize {
        let Some(changes) = self.run.current.get_mut(&dpid) else {
            return 0;
        };
        let portion: Vec<Change> = changes.drain(..portion.min(changes.len())).collect();
        if changes.is_empty() {
            self.run.current.remove(&dpid);
        }
        let count = portion.len();
        for change in portion {
            let Some(version) = around.view.net.version(dpid) else {
                continue;
            };
            let message = change.to_message(version, around.outbox.generation);
            around.outbox.counters.flow_mods += u64::from(matches!(message, Message::FlowMod(_)));
            match around.outbox.send(dpid, message) {
                Some(xid) => {
                    let held = self.held.entry(dpid).or_default();
                    let key = change.key();
                    let before = key.and_then(|key| held.flows.get(key)).cloned();
                    held.apply(&change);
                    if let Some(switch) = self.switches.get_mut(&dpid) {
                        switch.sent.insert(xid, Sent { change, before });
                    }
                }
                None => {
                    let why = format!("switch {dpid} of {version} cannot be told that");
                    self.qos_failed(around, now, dpid, &change, why);
                }
            }
        }
        around.outbox.set_qos_used(self.is_used());
        count
    }

    /// Sends entries of paths again, in their proper form.
    fn send_again(&mut self, around: &mut Around<'_>, dpid: DatapathId, portion: usize) -> usize {
        let Some(state) = self.switches.get_mut(&dpid) else {
            return 0;
        };
        let mut left = std::mem::take(&mut state.resend).into_iter();
        let portion: Vec<EntryKey> = left.by_ref().take(portion).collect();
        state.resend = left.collect();
        state.is_resending = true;
        let count = portion.len();
        for key in portion {
            around.tables.send_again(dpid, &key, around.outbox);
        }
        count
    }

    /// Handles a switch's confirmation of its messages.
    pub(in crate::controller) fn qos_confirmed(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
    ) {
        let was_late = !self.is_in_time(dpid, now);
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        switch.waiting_since = None;
        switch.sent.clear();
        let is_resent = std::mem::take(&mut switch.is_resending) && switch.resend.is_empty();
        if is_resent {
            self.after_resend(around, now, dpid);
        }
        if was_late {
            self.qos_soon(around, now);
        }
        self.advance_qos(around, now);
    }

    /// Handles a confirmation that is late: whether the switch has the messages is unknown, so they
    /// are sent once more.
    pub(in crate::controller) fn qos_unconfirmed(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
    ) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        if switch.waiting_since.take().is_none() {
            return;
        }
        self.undo_sent(around, now, dpid);
    }

    /// Forgets the effect of messages that are not confirmed.
    fn undo_sent(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) {
        let switch = self.switches.get_mut(&dpid);
        let sent = switch.map(|switch| std::mem::take(&mut switch.sent));
        self.unsettled.all = true;
        if let (Some(held), Some(sent)) = (self.held.get_mut(&dpid), sent) {
            for sent in sent.values().rev() {
                sent.undo(held);
            }
        }
        around.outbox.set_qos_used(self.is_used());
        self.qos_soon(around, now);
    }

    /// Handles the end of a connection: unconfirmed messages may have taken effect or not.
    pub(in crate::controller) fn qos_down(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
    ) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        switch.waiting_since = None;
        switch.resend.clear();
        (switch.has_entries, switch.has_meters, switch.meters_asked) = (false, false, false);
        switch.is_told = false;
        self.undo_sent(around, now, dpid);
        if self.is_used() {
            self.advance_qos(around, now);
        }
    }

    /// Handles a refusal, if the refused message was one of these.
    pub(in crate::controller) fn qos_refused(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        xid: Xid,
        error: ErrorKind,
    ) {
        let switch = self.switches.get_mut(&dpid);
        let Some(sent) = switch.and_then(|switch| switch.sent.remove(&xid)) else {
            return;
        };
        self.unsettled.all = true;
        let held = self.held.entry(dpid).or_default();
        sent.undo(held);
        let change = sent.change;
        if let Change::AddMeter(id, _) = &change {
            held.meters.remove(id);
        }
        around.outbox.set_qos_used(self.is_used());
        let why = format!("switch {dpid} refuses it: {error}");
        self.qos_failed(around, now, dpid, &change, why);
    }

    fn qos_failed(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        change: &Change,
        why: String,
    ) {
        let until = now + REFUSED_PAUSE;
        let owners: Vec<Owner> = match change {
            Change::Set(key, _) if *key == Flow::policy_miss().key => {
                let switch = self.switches.get_mut(&dpid);
                switch
                    .into_iter()
                    .for_each(|switch| switch.cannot_lead = true);
                Vec::new()
            }
            Change::Set(_, planned) => vec![planned.owner.clone()],
            Change::AddMeter(id, _) | Change::ModifyMeter(id, _) => {
                let flows = self.plan.switches.get(&dpid).map(|switch| &switch.flows);
                let flows = flows.into_iter().flat_map(|flows| flows.values());
                let named = flows.filter(|planned| planned.does.meter == Some(*id));
                named.map(|planned| planned.owner.clone()).collect()
            }
            Change::DeleteMeter(_) | Change::Delete(_) => return,
        };
        for owner in owners {
            self.refused.insert(owner, (why.clone(), until));
        }
        self.run.void();
        self.qos_soon(around, now);
    }

    /// Makes the paths of a switch continue to its policies, or stop doing so. Reads its entries,
    /// since its edge has set some that only the edge knows, and sends them again.
    fn lead(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId, is_on: bool) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        switch.leads_on = is_on;
        switch.is_plain = false;
        around.outbox.set_leads_on(dpid, is_on);
        around.outbox.tell_edge(dpid, EdgeUpdate::LeadOn(is_on));
        if around.view.net.is_connected(dpid) {
            around.tables.ask_entries(now, dpid, around.outbox);
        }
    }
}

impl Change {
    /// The key of the entry that the change sets or deletes.
    pub(super) fn key(&self) -> Option<&FlowKey> {
        match self {
            Change::Set(key, _) | Change::Delete(key) => Some(key),
            _ => None,
        }
    }
}
