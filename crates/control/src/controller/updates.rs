//! Ordered changes of several switches: each stage is sent when the previous one is confirmed.
//!
//! A stage ends with a barrier to every switch it touched, which it may share with others. The
//! replies show that the entries were taken, not that packets already follow them (Open vSwitch: up
//! to 17 ms later). So a stage that deletes entries waits another [`DRAIN`](super::entries::DRAIN),
//! and the controller repairs a packet that misses in between.

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};
use openflow::DatapathId;

use super::outbox::{Outbox, Timer};
use super::stage::{Stage, Switches};

/// Maximum number of updates under way. Above this number, packet-ins are shed: each could only add
/// another update.
const UPDATES_MAX: usize = 16_384;

/// The updates with stages that have not been sent.
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
    /// A switch that failed to confirm its messages.
    lacking: Option<DatapathId>,
}

impl Updates {
    /// Starts an update. Returns its id, unless there is nothing to do.
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
            lacking: None,
        };
        self.under_way.insert(id, update);
        Some(id)
    }

    /// Whether packet-ins may cause more updates.
    pub(super) fn has_room(&self) -> bool {
        self.under_way.len() < UPDATES_MAX
    }

    /// Whether there is room to mend paths: mending leaves half of the room to packet-ins.
    pub(super) fn has_room_to_mend(&self) -> bool {
        self.under_way.len() < UPDATES_MAX / 2
    }

    /// Takes the next stage of an update, which is to be sent now, and the switches that must
    /// confirm it.
    pub(super) fn next(&mut self, id: u64) -> Option<(Stage, Switches)> {
        let update = self.under_way.get_mut(&id)?;
        let Some(mut stage) = update.stages.pop_front() else {
            self.under_way.remove(&id);
            return None;
        };
        if update.lacking.is_some() {
            stage.taken = None;
            if let Some(tree) = &mut stage.tree {
                tree.lacking = update.lacking;
            }
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

    /// Notes that a switch has confirmed a stage or, if it is `lacking`, will not. Returns whether
    /// the next one follows at once.
    pub(super) fn handle_barrier(
        &mut self,
        now: Instant,
        (id, lacking): (u64, Option<DatapathId>),
        outbox: &mut Outbox,
    ) -> bool {
        let Some(update) = self.under_way.get_mut(&id) else {
            return false;
        };
        if lacking.is_some() {
            update.lacking = lacking;
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

#[cfg(test)]
mod tests {
    use clock::SplitMix64;
    use openflow::{Version, Xid};

    use crate::ConnectionId;
    use crate::controller::config::ControllerConfig;
    use crate::controller::output::ControllerOutput;
    use crate::requests::Requests;

    use super::*;

    const SWITCH: DatapathId = DatapathId(1);

    fn outbox() -> Outbox {
        let config = ControllerConfig::default();
        let mut outbox = Outbox::new(&config, 1, SplitMix64::new(1));
        let limits = config.requests;
        let requests = || Requests::new(limits, 1);
        outbox.open(SWITCH, (ConnectionId(1), Version::V13), requests);
        outbox
    }

    /// Sends the barriers, and returns the xid of the last message.
    fn barrier(outbox: &mut Outbox) -> Option<Xid> {
        outbox.flush();
        let outputs = std::iter::from_fn(|| outbox.pop());
        let xid = |output| match output {
            ControllerOutput::Send { frame, .. } => Some(frame.xid()),
            _ => None,
        };
        outputs.filter_map(xid).last()
    }

    /// The first stage waits for a barrier, and the last one for its delay.
    #[test]
    fn a_stage_follows_the_confirmation_of_the_one_before_and_its_delay() {
        let (mut updates, mut outbox) = (Updates::default(), outbox());
        let now = Instant::START;
        let [taken, release] = Stage::tell(7);
        let stages = vec![Stage::confirm(SWITCH), taken, Stage::default(), release];
        let id = updates.start(now, stages).expect("it has changes");
        let (_, switches) = updates.next(id).expect("the first stage");
        assert!(!updates.handle_sent(now, id, &switches, &mut outbox));
        assert!(!updates.is_due(now, id), "a barrier is not answered");
        let xid = barrier(&mut outbox).expect("a barrier");
        assert_eq!(outbox.finish_barrier(SWITCH, xid), Some(vec![id]));

        assert!(updates.handle_barrier(now, (id, None), &mut outbox));
        let (stage, switches) = updates.next(id).expect("the second stage");
        assert_eq!(stage.taken, Some(7));
        assert!(!updates.handle_sent(now, id, &switches, &mut outbox));
        let (due, timer) = outbox.poll_timeout().expect("a delay");
        assert_eq!(timer, Timer::Update(id));
        assert!(!updates.is_due(now, id) && updates.is_due(due, id));

        let (stage, switches) = updates.next(id).expect("the third stage");
        assert_eq!(stage.release, Some(7));
        assert!(!updates.handle_sent(due, id, &switches, &mut outbox));
        assert!(updates.next(id).is_none());
    }

    #[test]
    fn what_a_switch_has_not_confirmed_is_not_said_to_be_taken() {
        let (mut updates, mut outbox) = (Updates::default(), outbox());
        let now = Instant::START;
        let [taken, release] = Stage::tell(7);
        let id = updates.start(now, vec![Stage::confirm(SWITCH), taken, release]);
        let id = id.expect("it has changes");
        let (_, switches) = updates.next(id).expect("the first stage");
        updates.handle_sent(now, id, &switches, &mut outbox);
        assert!(updates.handle_barrier(now, (id, Some(SWITCH)), &mut outbox));
        assert_eq!(outbox.counters.stages_unconfirmed, 1);
        let (stage, _) = updates.next(id).expect("the second stage");
        assert_eq!(stage.taken, None);
    }

    #[test]
    fn an_update_without_changes_has_nothing_to_settle() {
        let mut updates = Updates::default();
        assert_eq!(updates.start(Instant::START, vec![Stage::default()]), None);
        let [taken, _] = Stage::tell(7);
        assert_eq!(updates.start(Instant::START, vec![taken]), None);
    }
}
