//! Changes of several switches in an order: each stage is sent when the one before is confirmed.
//!
//! A stage ends with a barrier to every switch it touched, which it may share with others. The
//! replies show that the entries were taken, not that packets already follow them (Open vSwitch: up
//! to 17 ms later). So a stage that deletes entries waits [`DRAIN`](super::entries::DRAIN) on top,
//! and the controller repairs a packet that misses in between.

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};

use super::outbox::{Outbox, Timer};
use super::stage::{Stage, Switches};

/// Maximum number of updates under way. Above it packets that come up are shed: each could only add
/// another.
const UPDATES_MAX: usize = 16_384;

/// The updates of which some stages have not been sent.
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

impl Updates {
    /// Takes in an update. Returns its name, unless there is nothing to do.
    pub(super) fn start(&mut self, now: Instant, stages: Vec<Stage>) -> Option<u64> {
        let mut stages: VecDeque<Stage> = stages
            .into_iter()
            .filter(|stage| !stage.is_empty())
            .collect();
        // An update without changes has nothing to settle.
        if stages.front().is_some_and(|stage| stage.taken.is_some()) {
            stages.pop_front();
        }
        if stages.is_empty() {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        let update = Update {
            stages,
            waiting: 0,
            due: now,
            is_unsure: false,
        };
        self.under_way.insert(id, update);
        Some(id)
    }

    /// Whether packets that come up may lead to more updates.
    pub(super) fn has_room(&self) -> bool {
        self.under_way.len() < UPDATES_MAX
    }

    /// Whether there is room to mend paths: mending leaves half of it to packets that come up.
    pub(super) fn has_room_to_mend(&self) -> bool {
        self.under_way.len() < UPDATES_MAX / 2
    }

    /// Takes the next stage of an update, which is to be sent now, and the switches that are to
    /// confirm it.
    pub(super) fn next(&mut self, id: u64) -> Option<(Stage, Switches)> {
        let update = self.under_way.get_mut(&id)?;
        let Some(mut stage) = update.stages.pop_front() else {
            self.under_way.remove(&id);
            return None;
        };
        if update.is_unsure {
            stage.taken = None;
        }
        let switches = stage.take_switches();
        Some((stage, switches))
    }

    /// Notes that a stage was sent. Returns whether the next one follows at once.
    pub(super) fn handle_sent(
        &mut self,
        now: Instant,
        id: u64,
        switches: &Switches,
        outbox: &mut Outbox,
    ) -> bool {
        let Some(update) = self.under_way.get_mut(&id) else {
            return false;
        };
        if update.stages.is_empty() {
            self.under_way.remove(&id);
            return false;
        }
        update.waiting = switches.ask(id, outbox);
        update.waiting == 0 && update.is_next_due(now, id, outbox)
    }

    /// Notes that a switch has confirmed a stage or, if not `taken`, will not. Returns whether the
    /// next one follows at once.
    pub(super) fn handle_barrier(
        &mut self,
        now: Instant,
        (id, taken): (u64, bool),
        outbox: &mut Outbox,
    ) -> bool {
        let Some(update) = self.under_way.get_mut(&id) else {
            return false;
        };
        if !taken {
            update.is_unsure = true;
            outbox.counters.stages_unconfirmed += 1;
        }
        update.waiting -= 1;
        update.waiting == 0 && update.is_next_due(now, id, outbox)
    }

    /// Whether the delay before an update's next stage is over.
    pub(super) fn is_due(&self, now: Instant, id: u64) -> bool {
        let update = self.under_way.get(&id);
        update.is_some_and(|update| update.waiting == 0 && update.due <= now)
    }
}

impl Update {
    /// Whether the next stage follows at once. Sets a timer if it has a delay.
    fn is_next_due(&mut self, now: Instant, id: u64, outbox: &mut Outbox) -> bool {
        let next = self.stages.front();
        let delay = next.map_or(Duration::ZERO, |stage| stage.delay);
        if !delay.is_zero() {
            self.due = now + delay;
            outbox.timer(self.due, Timer::Update(id));
        }
        delay.is_zero()
    }
}
