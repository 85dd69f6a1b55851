//! Reads counters of policies and circuits at intervals: of their entries, of their meters, and of
//! queues where the switch itself has them.

use clock::{Duration, Instant};
use openflow::multipart::{
    FlowStatsRequest, MeterStats, MultipartRequest, QueueStats, ReplyBody, RequestBody,
};
use openflow::{Cookie, DatapathId, Message, MeterId, PortNo, QueueId, Version};

use crate::qos::flow::{Flow, FlowKey};
use crate::qos::plan::{SwitchPlan, is_our_meter};
use crate::qos::verify::{Came, Counter, Readings};
use crate::qos::{Exceeding, QueuesBy};

use super::super::Timer;
use super::super::outbox::Request;
use super::{Around, QosState, SwitchQos};

/// Time between two regular readings of counters.
const COUNTS_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum time between two readings of one switch, whoever asks.
const READINGS_APART: Duration = Duration::from_millis(500);

/// One reading of a switch's counters, in several requests.
pub(super) struct Reading {
    left: usize,
    told: Readings,
    /// Whether a part was not answered.
    is_short: bool,
    /// Whether only entries were requested, or reported.
    is_bare: bool,
}

impl SwitchQos {
    /// Notes the counts of entries that the switch is known to have, and drops all other counts: a
    /// switch may report any number of rows.
    pub(super) fn note_counts(
        &mut self,
        held: Option<&SwitchPlan>,
        counts: impl IntoIterator<Item = (FlowKey, (u64, u64))>,
    ) {
        let is_held = |key: &FlowKey| held.is_some_and(|held| held.flows.contains_key(key));
        self.counts.retain(|key, _| is_held(key));
        for (key, count) in counts.into_iter().filter(|(key, _)| is_held(key)) {
            let before = self.counts.insert(key, count);
            self.has_begun_again |= before.is_some_and(|(packets, _)| count.0 < packets);
        }
    }
}

impl QosState {
    /// Starts the regular reading of counters.
    pub(super) fn qos_counts_later(&mut self, around: &mut Around<'_>, now: Instant) {
        if self.counts_at.is_none() && self.is_used() {
            let due = now + COUNTS_INTERVAL;
            self.counts_at = Some(due);
            around.outbox.timer(due, Timer::Qos);
        }
    }

    pub(super) fn qos_counts_due(&mut self, around: &mut Around<'_>, now: Instant) {
        if self.counts_at.is_some_and(|at| at <= now) {
            self.counts_at = None;
            self.read_qos_counts(around, now);
            self.qos_counts_later(around, now);
        }
    }

    /// Carries out [`crate::controller::Controller::read_qos_counts`].
    pub(super) fn read_qos_counts(&mut self, around: &mut Around<'_>, now: Instant) {
        let held = self.held.iter();
        let held = held.filter(|(_, held)| !held.flows.is_empty());
        let switches: Vec<DatapathId> = held.map(|(dpid, _)| *dpid).collect();
        for dpid in switches {
            let is_synced = around.view.net.is_synced(dpid);
            let switch = self.switches.get(&dpid);
            let may_read = |switch: &SwitchQos| {
                let is_fresh = |at: Instant| now < at + READINGS_APART;
                switch.reading.is_none() && !switch.read_at.is_some_and(is_fresh)
            };
            if is_synced && switch.is_some_and(may_read) {
                self.read_counts_of(around, now, dpid);
            }
        }
    }

    fn read_counts_of(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) {
        let Some(version) = around.view.net.version(dpid) else {
            return;
        };
        let rows = |cookie, cookie_mask| {
            let request = FlowStatsRequest {
                cookie,
                cookie_mask,
                ..FlowStatsRequest::all()
            };
            (Request::QosRows, RequestBody::Flow(request))
        };
        let mut asks = match version {
            Version::V10 => vec![rows(Cookie(0), Cookie(0))],
            _ => Flow::cookies()
                .map(|(cookie, mask)| rows(cookie, mask))
                .to_vec(),
        };
        // After the entries, so that every packet counted by an entry is counted here.
        let entries = asks.len();
        let plan = self.plan.switches.get(&dpid);
        if version != Version::V10 && plan.is_some_and(|plan| !plan.meters.is_empty()) {
            asks.push((Request::QosMeters, RequestBody::Meter(MeterId::ALL)));
        }
        let by = self.queues.get(&dpid).map(|queues| queues.by);
        let has_queues = plan.is_some_and(|plan| !plan.ports.is_empty());
        if by == Some(QueuesBy::SetQueue) && has_queues {
            let all = RequestBody::Queue {
                port: PortNo::ANY,
                queue: QueueId::ALL,
            };
            asks.push((Request::QosQueues, all));
        }
        let mut reading = Reading {
            left: 0,
            told: Readings::new(),
            is_short: false,
            is_bare: asks.len() == entries,
        };
        for (request, body) in asks {
            let message = Message::MultipartRequest(MultipartRequest { more: false, body });
            match around.outbox.request(now, dpid, request, &message) {
                Some(_) => reading.left += 1,
                None => reading.is_short = true,
            }
        }
        if let Some(switch) = self.switches.get_mut(&dpid).filter(|_| reading.left > 0) {
            (switch.reading, switch.read_at) = (Some(reading), Some(now));
        }
    }

    /// Handles one of the answers; `None` if there is none.
    pub(in crate::controller) fn handle_qos_counts(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        request: Request,
        bodies: Vec<ReplyBody>,
    ) {
        let plan = self.plan.switches.get(&dpid);
        let held = self.held.get(&dpid);
        let meters = |told: &mut Readings, rows: Vec<MeterStats>, switch: &SwitchQos| {
            let max = switch.meters.flatten().map_or(0, |facts| facts.max);
            let ours = rows.into_iter().filter(|row| {
                is_our_meter(row.meter_id, max) && has_meter(held, plan, row.meter_id)
            });
            told.extend(ours.map(|row| (Counter::Meter(row.meter_id), met(&row, plan))));
        };
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let Some(mut reading) = switch.reading.take() else {
            return;
        };
        reading.left = reading.left.saturating_sub(1);
        match (bodies.is_empty(), request) {
            (true, Request::QosRows) => reading.is_short = true,
            // A switch that does not report its meters or queues still has entries.
            (true, _) => reading.is_bare = true,
            (false, _) => {}
        }
        for body in bodies {
            match body {
                ReplyBody::Flow(rows) => {
                    let flows = rows.iter().filter_map(|row| {
                        let flow = Flow::from_stats(row)?;
                        Some((flow.key, (row.packet_count, row.byte_count)))
                    });
                    switch.note_counts(held, flows);
                }
                ReplyBody::Meter(rows) => meters(&mut reading.told, rows, switch),
                ReplyBody::Queue(rows) => {
                    // A switch may report any number of queues; only those asked for matter.
                    let is_planned = |row: &&QueueStats| {
                        plan.is_some_and(|plan| plan.ports.contains_key(&row.port_no))
                            && row.queue_id.0 <= u32::from(u8::MAX)
                    };
                    let rows = rows.iter().filter(is_planned);
                    reading.told.extend(rows.map(queued));
                }
                _ => {}
            }
        }
        if reading.left > 0 {
            switch.reading = Some(reading);
        } else if !reading.is_short {
            let told = (!reading.is_bare).then_some(reading.told);
            self.note_qos_counts(around, now, dpid, told);
        }
    }
}

fn has_meter(held: Option<&SwitchPlan>, plan: Option<&SwitchPlan>, id: MeterId) -> bool {
    let plans = [held, plan].into_iter().flatten();
    plans.into_iter().any(|plan| plan.meters.contains_key(&id))
}

fn met(row: &MeterStats, plan: Option<&SwitchPlan>) -> Came {
    let meter = plan.and_then(|plan| plan.meters.get(&row.meter_id));
    let drops = meter.is_some_and(|meter| meter.exceeding == Exceeding::Drop);
    let exceeding = row.bands.iter().map(|(packets, _)| *packets);
    Came {
        packets: row.packet_in_count,
        dropped: match drops {
            true => exceeding.fold(0, u64::saturating_add),
            false => 0,
        },
    }
}

fn queued(row: &QueueStats) -> (Counter, Came) {
    let came = Came {
        packets: row.tx_packets,
        dropped: row.tx_errors,
    };
    (Counter::Queue(row.port_no, row.queue_id.0), came)
}
