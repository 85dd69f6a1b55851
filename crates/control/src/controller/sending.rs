//! Sends updates stage by stage: turns the changes of the forwarding machines into messages.

use clock::Instant;
use openflow::message::BundleControl;
use openflow::{DatapathId, Message, Xid};

use crate::ConnectionId;
use crate::entry::{EntryKey, EntryKind};

use super::links::Pair;
use super::outbox::Request;
use super::paths::PauseOutcome;
use super::stage::{Change, Guard, Stage, Step};
use super::{Controller, RefusedReason};

impl Controller {
    pub(super) fn start_update(&mut self, now: Instant, stages: Vec<Stage>) {
        if let Some(id) = self.updates.start(now, stages) {
            self.advance(now, id);
        }
    }

    /// Sends the stages of an update that may be sent now.
    fn advance(&mut self, now: Instant, id: u64) {
        while let Some((stage, switches)) = self.updates.next(id) {
            self.apply_stage(now, stage);
            let outbox = &mut self.outbox;
            if !self.updates.handle_sent(now, id, &switches, outbox) {
                return;
            }
        }
    }

    /// Notes that a switch has confirmed a stage or, if it is `lacking`, will not confirm it.
    fn barrier_passed(&mut self, now: Instant, id: u64, lacking: Option<DatapathId>) {
        let outbox = &mut self.outbox;
        if self.updates.handle_barrier(now, (id, lacking), outbox) {
            self.advance(now, id);
        }
    }

    /// Ends the barrier `xid`. Returns whether updates could wait for it. `is_taken`: the switch
    /// has answered it.
    pub(super) fn barrier_over(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        xid: Xid,
        is_taken: bool,
    ) -> bool {
        let Some(passed) = self.outbox.finish_barrier(dpid, xid) else {
            return false;
        };
        for update in passed {
            self.barrier_passed(now, update, (!is_taken).then_some(dpid));
        }
        if self.outbox.handle_bundle_fence(dpid, xid, is_taken)
            && let Some(connection) = self.network.switch(dpid).and_then(|s| s.connection)
        {
            self.close_unknown(now, connection, RefusedReason::CommitUnanswered);
        }
        self.outbox.touch(dpid);
        self.make_room(now, dpid);
        true
    }

    /// Makes changes that take effect together on each switch that accepts bundles.
    pub fn as_one<T>(&mut self, change: impl FnOnce(&mut Controller) -> T) -> T {
        self.outbox.begin_change();
        let changed = change(self);
        self.outbox.end_change();
        changed
    }

    pub(super) fn handle_bundle(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        xid: Xid,
        answer: &BundleControl,
    ) {
        match self.outbox.handle_bundle(dpid, xid, answer) {
            Some(refused) => {
                for (xid, error) in refused {
                    self.handle_refusal(now, dpid, xid, &error);
                }
            }
            None => self.outbox.counters.unsolicited += 1,
        }
    }

    /// Closes the connection of a switch whose entries are not the assumed ones. The entries are
    /// compared when it reconnects.
    pub(super) fn close_unknown(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        reason: RefusedReason,
    ) {
        if self.connections.contains_key(&connection) {
            self.outbox.close(connection, reason);
            self.handle_down(now, connection);
        }
    }

    /// Ends the waits for a connection that has ended.
    pub(super) fn pipe_down(&mut self, now: Instant, dpid: DatapathId) {
        let Some(waiting) = self.outbox.drop_pipe(dpid) else {
            return;
        };
        for update in waiting {
            self.barrier_passed(now, update, None);
        }
        self.make_room(now, dpid);
    }

    pub(super) fn update_due(&mut self, now: Instant, id: u64) {
        if self.updates.is_due(now, id) {
            self.advance(now, id);
        }
    }

    pub(super) fn fabric_due(&mut self, now: Instant) {
        let stages = self.fabric.due(now, &self.network, &mut self.outbox);
        self.start_update(now, stages);
    }

    pub(super) fn trees_due(&mut self, now: Instant) {
        let (net, outbox) = (&self.network, &mut self.outbox);
        let updates = self.fabric.trees_due(now, net, &mut self.ingress, outbox);
        for stages in updates {
            self.start_update(now, stages);
        }
    }

    /// Measures, for some paths, the delay until the first entry exists.
    fn measure(&mut self, now: Instant, dpid: DatapathId, pair: Pair, revision: u64) {
        if let Some(since) = self.paths.sent_at(pair, revision)
            && self.tables.wants_delay(now)
        {
            let request = Request::Delay { since };
            self.outbox
                .request(now, dpid, request, &Message::BarrierRequest);
        }
    }

    /// Notes the wanted entries, and sends the changes to connected switches; the others receive
    /// them when they reconnect.
    fn apply_stage(&mut self, now: Instant, stage: Stage) {
        for change in stage.changes {
            self.apply(now, change);
        }
        self.outbox.begin_change();
        for change in stage.fabric {
            self.fabric.apply(change, &mut self.outbox);
        }
        self.outbox.end_change();
        if let Some(revision) = stage.publish
            && self.fabric.publish(revision, &mut self.outbox)
        {
            self.multicast.update_all(&self.fabric, &mut self.outbox);
        }
        if let Some(change) = stage.tree {
            self.fabric.tree_changed(change, &mut self.outbox);
        }
        if let Some(token) = stage.taken {
            self.taken(now, token);
        }
        if let Some(token) = stage.release {
            self.release(now, token);
        }
    }

    fn is_wanted(&self, dpid: DatapathId, key: EntryKey, step: &Step, guard: Guard) -> bool {
        match guard {
            Guard::Path(pair, revision) => self.paths.revision(pair) == Some(revision),
            Guard::Stale(pair) => !self.paths.holds(pair, dpid, key),
            Guard::Turned(pair) => !self.paths.has_successor(pair, dpid, key),
            Guard::Ended(pair) => !self.paths.has_rule(pair, dpid, key),
            Guard::Routes(revision) => self.routes.is_current(revision),
            Guard::Coarse => self
                .coarse
                .agrees(dpid, step, |key| self.paths.way(dpid, key)),
        }
    }

    fn apply(&mut self, now: Instant, Change { dpid, step, guard }: Change) {
        let key = match step {
            Step::Add(entry) => entry.key,
            Step::Delete(key) => key,
        };
        if !self.is_wanted(dpid, key, &step, guard) {
            return;
        }
        let Some(table) = self.tables.get_mut(dpid) else {
            return;
        };
        // The refusal does not name the entry: a dropping entry may be missing.
        if let (Guard::Path(pair, _), Step::Add(entry)) = (guard, step)
            && entry.notify
            && table.is_full(now)
            && self.paths.has_barrier(pair)
        {
            return;
        }
        match step {
            Step::Add(entry) => {
                let old = table.note_sent(now, entry);
                table.handle_sent(now, &entry);
                if old.is_some_and(|old| old.out != entry.out) {
                    self.ingress.note_ended(now, dpid, key.in_port);
                }
                self.outbox
                    .send_flow_mod(dpid, entry.to_add(self.outbox.generation));
                if let Guard::Path(pair, revision) = guard {
                    let is_awaited = self.paths.handle_set(pair, dpid, &entry);
                    self.outbox.counters.paths_moved_under_traffic +=
                        u64::from(is_awaited == PauseOutcome::InVain);
                    let is_first = entry.notify && entry.kind == EntryKind::Pair;
                    if is_first && is_awaited == PauseOutcome::Not {
                        self.measure(now, dpid, pair, revision);
                    }
                }
            }
            Step::Delete(key) => {
                table.forget(&key);
                table.handle_removed(key);
                self.ingress.note_ended(now, dpid, key.in_port);
                self.outbox.send_flow_mod(dpid, key.to_delete());
            }
        }
    }
}
