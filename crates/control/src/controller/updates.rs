//! Changes of several switches in an order: each stage is sent when the one before is confirmed.
//!
//! A stage ends with a barrier to every switch it touched, which it may share with others. The
//! replies show that the entries were taken, not that packets already follow them (Open vSwitch: up
//! to 17 ms later). So a stage that deletes entries waits [`DRAIN`](super::entries::DRAIN) on top, and the controller
//! repairs a packet that misses in between.

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};
use openflow::{DatapathId, Message, Xid};

use crate::entry::EntryKind;

use super::Controller;
use super::links::Pair;
use super::outbox::{Request, Timer};
use super::paths::PauseOutcome;
use super::stage::{Change, Guard, Stage, Step};

/// Maximum number of updates under way. Above it packets that come up are shed: each could only add
/// another.
const UPDATES_MAX: usize = 16_384;

#[derive(Default)]
pub(super) struct Updates {
    next_id: u64,
    under_way: BTreeMap<u64, Update>,
}

struct Update {
    stages: VecDeque<Stage>,
    /// The number of switches that have not confirmed the last stage.
    waiting: usize,
    /// The end of a delay.
    due: Instant,
    /// Whether some switch has not confirmed its messages.
    is_unsure: bool,
}

impl Controller {
    pub(super) fn start_update(&mut self, now: Instant, stages: Vec<Stage>) {
        let mut stages: VecDeque<Stage> = stages
            .into_iter()
            .filter(|stage| !stage.is_empty())
            .collect();
        // An update without changes has nothing to settle.
        if stages.front().is_some_and(|stage| stage.taken.is_some()) {
            stages.pop_front();
        }
        if stages.is_empty() {
            return;
        }
        let id = self.updates.next_id;
        self.updates.next_id += 1;
        let update = Update {
            stages,
            waiting: 0,
            due: now,
            is_unsure: false,
        };
        self.updates.under_way.insert(id, update);
        self.next_stage(now, id);
    }

    /// Whether packets that come up may lead to more updates.
    pub(super) fn has_room_for_updates(&self) -> bool {
        self.updates.under_way.len() < UPDATES_MAX
    }

    /// Whether there is room to mend paths: mending leaves half of it to packets that come up.
    pub(super) fn has_room_to_mend(&self) -> bool {
        self.updates.under_way.len() < UPDATES_MAX / 2
    }

    /// Notes that a switch has confirmed a stage or, if not `taken`, will not.
    pub(super) fn barrier_passed(&mut self, now: Instant, id: u64, taken: bool) {
        let Some(update) = self.updates.under_way.get_mut(&id) else {
            return;
        };
        if !taken {
            update.is_unsure = true;
            self.outbox.counters.stages_unconfirmed += 1;
        }
        update.waiting -= 1;
        if update.waiting == 0 {
            self.delay_or_next_stage(now, id);
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
            self.barrier_passed(now, update, is_taken);
        }
        self.outbox.touch(dpid);
        self.make_room(now, dpid);
        true
    }

    /// Ends the waits for a connection that is gone.
    pub(super) fn pipe_down(&mut self, now: Instant, dpid: DatapathId) {
        let Some(waiting) = self.outbox.drop_pipe(dpid) else {
            return;
        };
        for update in waiting {
            self.barrier_passed(now, update, true);
        }
        self.make_room(now, dpid);
    }

    pub(super) fn update_due(&mut self, now: Instant, id: u64) {
        let update = self.updates.under_way.get(&id);
        if update.is_some_and(|update| update.waiting == 0 && update.due <= now) {
            self.next_stage(now, id);
        }
    }

    fn delay_or_next_stage(&mut self, now: Instant, id: u64) {
        let Some(update) = self.updates.under_way.get_mut(&id) else {
            return;
        };
        let delay = update
            .stages
            .front()
            .map_or(Duration::ZERO, |stage| stage.delay);
        if delay.is_zero() {
            return self.next_stage(now, id);
        }
        update.due = now + delay;
        let due = update.due;
        self.outbox.timer(due, Timer::Update(id));
    }

    fn next_stage(&mut self, now: Instant, id: u64) {
        let Some(update) = self.updates.under_way.get_mut(&id) else {
            return;
        };
        let Some(mut stage) = update.stages.pop_front() else {
            self.updates.under_way.remove(&id);
            return;
        };
        if update.is_unsure {
            stage.taken = None;
        }
        let last = update.stages.is_empty();
        let confirm = std::mem::take(&mut stage.confirm);
        let changed = stage.changes.iter().map(|change| change.dpid);
        let changed = changed.chain(stage.fabric.iter().map(|change| change.dpid));
        let mut touched: Vec<DatapathId> = changed.chain(confirm.iter().copied()).collect();
        touched.sort_unstable();
        touched.dedup();
        self.apply_stage(now, stage);
        if last {
            self.updates.under_way.remove(&id);
            return;
        }
        let asked = |dpid: &&DatapathId| self.outbox.wait_for(**dpid, id, confirm.contains(dpid));
        let waiting = touched.iter().filter(asked).count();
        let Some(update) = self.updates.under_way.get_mut(&id) else {
            return;
        };
        update.waiting = waiting;
        if waiting == 0 {
            self.delay_or_next_stage(now, id);
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

    /// Notes the wanted entries, and sends the changes to connected switches; the others get them
    /// when they come back.
    fn apply_stage(&mut self, now: Instant, stage: Stage) {
        for Change { dpid, step, guard } in stage.changes {
            let key = match step {
                Step::Add(entry) => entry.key,
                Step::Delete(key) => key,
            };
            let wanted = match guard {
                Guard::Path(pair, revision) => self.paths.revision(pair) == Some(revision),
                Guard::Stale(pair) => !self.paths.holds(pair, dpid, key),
                Guard::Turned(pair) => !self.paths.has_successor(pair, dpid, key),
                Guard::Ended(pair) => !self.paths.has_rule(pair, dpid, key),
                Guard::Routes(revision) => self.routes_revision == revision,
                Guard::Coarse => self.agrees_with_coarse(dpid, &step),
            };
            let Some(table) = self.tables.get_mut(dpid).filter(|_| wanted) else {
                continue;
            };
            // The refusal does not name the entry: a dropping one may be missing.
            if let (Guard::Path(pair, _), Step::Add(entry)) = (guard, step)
                && entry.notify
                && table.is_full(now)
                && self.paths.has_barrier(pair)
            {
                continue;
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
        for change in stage.fabric {
            self.fabric.apply(change, &mut self.outbox);
        }
        if let Some(revision) = stage.publish {
            self.fabric_settled(revision);
        }
        if let Some(token) = stage.taken {
            self.taken(now, token);
        }
        if let Some(token) = stage.release {
            self.release(now, token);
        }
    }
}
