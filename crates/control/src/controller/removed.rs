//! Handles reports of removed entries.

use clock::{Duration, Instant};
use openflow::DatapathId;
use openflow::message::{FlowRemoved, FlowRemovedReason};

use crate::entry::{Entry, EntryKey, EntryKind, is_own};
use crate::fabric::form;
use crate::pipeline::PATH_TABLE;

use super::Controller;
use super::entries::FRESH_MAX;
use super::ingress::outlasts_flows;
use super::outbox::Timer;
use super::paths::PauseOutcome;

/// Time from the report that a switch has lost entries it needs to the end of its connection.
/// Entries mended by themselves are reported at the same moment, and have their events first.
const EMPTIED_AFTER: Duration = Duration::from_millis(100);

impl Controller {
    /// Handles the removal of an entry. A path ends with the removal of its ingress entry. Foreign
    /// entries, and those that the controller deleted itself, change nothing.
    pub(super) fn handle_flow_removed(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        removed: &FlowRemoved,
    ) {
        let is_known = is_own(removed.cookie) && self.network.knows(dpid);
        match EntryKind::of(removed.cookie).filter(|_| is_known) {
            Some(EntryKind::Infrastructure) => {
                return self.infrastructure_removed(now, dpid, removed);
            }
            Some(EntryKind::Fabric) => return self.fabric_removed(now, dpid, removed),
            Some(EntryKind::Guard) => return self.guard_removed(dpid, removed),
            Some(EntryKind::Sender) => return self.sender_removed(dpid, removed),
            Some(EntryKind::Routed) => return self.routed_removed(now, dpid, removed),
            Some(EntryKind::Static) => return self.static_removed(dpid, removed),
            Some(EntryKind::Access) => {
                return self.access.handle_removed(dpid, removed, &mut self.outbox);
            }
            Some(EntryKind::Tap) => {
                return self.taps.handle_removed(dpid, removed, &mut self.outbox);
            }
            Some(EntryKind::Guest) => {
                return self.guests.handle_removed(dpid, removed, &mut self.outbox);
            }
            _ => {}
        }
        if is_known && removed.table_id == PATH_TABLE {
            self.handle_put_out(now, dpid, removed.reason);
        }
        let key = EntryKey::from_match(removed.priority, &removed.r#match);
        let Some(key) = key.filter(|_| is_known) else {
            self.outbox.counters.unsolicited += 1;
            return;
        };
        let is_idle = removed.reason == FlowRemovedReason::IDLE_TIMEOUT;
        if !is_idle || !outlasts_flows(removed.idle_timeout, 0) {
            self.ingress.note_ended(now, dpid, key.in_port);
        }
        if key.is_coarse() {
            return self.coarse_ended(dpid, key, removed.reason);
        }
        let Some(table) = self.tables.get_mut(dpid) else {
            return;
        };
        let Some(pair) = key.eth_src.zip(key.eth_dst) else {
            return;
        };
        let is_earlier = table.entries().is_earlier(now, &key, removed);
        if let Some(kind) = EntryKind::of(removed.cookie).filter(|kind| kind.is_drop()) {
            self.outbox.counters.packets_forbidden += removed.packet_count.min(FRESH_MAX);
            let is_it = |entry: &Entry| entry.kind == kind;
            if !is_earlier && table.entries().get(&key).is_some_and(is_it) {
                table.forget(&key);
                table.handle_removed(key);
                // Someone else has deleted the entry: no packet may pass without it.
                if kind == EntryKind::Barrier && self.paths.holds(pair, dpid, key) {
                    self.drop_path(now, pair);
                }
            }
            return;
        }
        if is_earlier {
            return;
        }
        // A switch also reports the entries that we deleted, perhaps after the entry was set again.
        if removed.reason == FlowRemovedReason::DELETE && !self.paths.holds(pair, dpid, key) {
            return;
        }
        table.handle_removed(key);
        let waited = self.paths.handle_pause(pair, dpid, key, is_idle);
        if waited != PauseOutcome::Not {
            table.forget(&key);
            let counters = &mut self.outbox.counters;
            counters.paths_moved_in_pause += u64::from(waited == PauseOutcome::ForPause);
            counters.paths_moved_under_traffic += u64::from(waited == PauseOutcome::InVain);
            return;
        }
        if table.forget(&key).is_some() && self.paths.holds(pair, dpid, key) {
            self.entry_ended(now, pair, dpid, key, false);
        }
    }

    /// Handles the deletion by someone else of an entry that every switch has.
    /// `ovs-ofctl del-flows` deletes all other entries too, most of them without a report. The
    /// switch must reconnect, so that its entries are compared.
    fn infrastructure_removed(&mut self, now: Instant, dpid: DatapathId, removed: &FlowRemoved) {
        let key = EntryKey::from_match(removed.priority, &removed.r#match);
        let mut wanted = Entry::infrastructure(self.config.is_forwarding).into_iter();
        if removed.reason == FlowRemovedReason::DELETE
            && removed.table_id == PATH_TABLE
            && wanted.any(|entry| Some(entry.key) == key)
        {
            self.emptied(now, dpid);
        }
    }

    /// Does the same for entries that every switch of the fabric has in its further tables, and for
    /// an entry whose group was deleted: the controller deletes entries before their group.
    fn fabric_removed(&mut self, now: Instant, dpid: DatapathId, removed: &FlowRemoved) {
        let is_lost = match removed.reason {
            FlowRemovedReason::GROUP_DELETE => true,
            FlowRemovedReason::DELETE => form::is_base(removed.priority, &removed.r#match),
            _ => false,
        };
        if is_lost && self.fabric.has_tables(dpid) {
            self.emptied(now, dpid);
        }
    }

    fn emptied(&mut self, now: Instant, dpid: DatapathId) {
        if let Some(connection) = self.network.note_emptied(dpid) {
            let timer = Timer::Emptied(connection);
            self.outbox.timer(now + EMPTIED_AFTER, timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use openflow::{Message, Version, Xid, encode};

    use super::*;
    use crate::ConnectionId;
    use crate::controller::fixture::up;
    use crate::controller::{
        Admission, ControllerConfig, ControllerOutput, PeerIdentity, RefusedReason,
    };

    /// However often a switch reports the deletion, its connection ends once, and not before the
    /// entries mended by themselves are handled.
    #[test]
    fn a_switch_that_somebody_empties_connects_again() {
        let mut controller = Controller::new(ControllerConfig::default(), [7; 32]);
        let mut now = Instant::START + Duration::from_secs(1);
        let connect = |controller: &mut Controller, now, number| {
            let admission =
                controller.handle_up(now, ConnectionId(number), up(1), PeerIdentity::default());
            assert_eq!(admission, Admission::Admitted);
        };
        let ends = |controller: &mut Controller, now| {
            controller.handle_timeout(now);
            let outputs = std::iter::from_fn(|| controller.poll_output());
            let ends = outputs.filter_map(|output| match output {
                ControllerOutput::Close { reason, .. } => Some(reason),
                _ => None,
            });
            ends.collect::<Vec<RefusedReason>>()
        };
        connect(&mut controller, now, 1);
        let timers = controller.outbox.timer_count();
        let sent = Entry::infrastructure(true)[0].to_add(1);
        let gone = Message::FlowRemoved(FlowRemoved {
            cookie: sent.cookie,
            priority: sent.priority,
            reason: FlowRemovedReason::DELETE,
            table_id: sent.table_id,
            duration_sec: 1,
            duration_nsec: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            packet_count: 0,
            byte_count: 0,
            r#match: sent.r#match,
            stats: Vec::new(),
        });
        for _ in 0..1000 {
            now += Duration::from_micros(50);
            let frame = encode(Version::V13, Xid(0), &gone).expect("sayable");
            controller.handle_frame(now, ConnectionId(1), frame);
        }
        assert_eq!(controller.outbox.timer_count(), timers + 1);
        assert_eq!(ends(&mut controller, now), []);
        now += EMPTIED_AFTER;
        assert_eq!(ends(&mut controller, now), [RefusedReason::Emptied]);
        connect(&mut controller, now, 2);
        now += EMPTIED_AFTER * 2;
        assert_eq!(ends(&mut controller, now), [], "the next connection stays");
    }
}
