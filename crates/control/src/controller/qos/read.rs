//! Reads the entries of a switch once when it connects. Finds in them the circuits that an earlier
//! process set up.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use openflow::multipart::{FlowStats, MultipartRequest, ReplyBody, RequestBody};
use openflow::{DatapathId, Message, MeterId, Version};

use crate::entry::{Entry, EntryKind};
use crate::pipeline::{PATH_TABLE, POLICY_TABLE};
use crate::qos::circuits::Hop;
use crate::qos::flow::{Flow, FlowKey, Matching, OPENS, Then};
use crate::qos::plan::{Owner, SwitchPlan, circuit_of, is_our_meter};
use crate::qos::{Circuit, Meter, MeterFacts};

use super::super::entries::delete_row;
use super::super::outbox::Request;
use super::super::{Location, Timer};
use super::{Around, QUEUES_WAIT, QosState, SETTLE, SwitchQos, View, two_ways};

/// The bit in the band types of METER_FEATURES.
const DSCP_REMARK: u32 = 1 << 2;

/// A route with more hops is a loop.
const HOPS_MAX: usize = 64;

/// The entries in a switch's report that matter here.
pub(in crate::controller) struct QosRows {
    /// Entries of policies and circuits.
    pub qos: Vec<FlowStats>,
    /// Entries of this switch's paths: those that continue to the policy table, and the others.
    pub leading: BTreeSet<crate::entry::EntryKey>,
    pub plain: BTreeSet<crate::entry::EntryKey>,
}

impl QosRows {
    /// Takes these rows out of `rows`. Reads paths that do not continue to the policy table only if
    /// some should (`wants_plain`).
    pub(in crate::controller) fn of(rows: &mut Vec<FlowStats>, wants_plain: bool) -> QosRows {
        let mut told = QosRows {
            qos: rows
                .extract_if(.., |row| Flow::is_its(row.cookie))
                .collect(),
            leading: BTreeSet::new(),
            plain: BTreeSet::new(),
        };
        for row in rows {
            if !wants_plain && !Entry::is_led_on(&row.instructions) {
                continue;
            }
            let entry = Entry::from_stats(row);
            let Some(entry) = entry.filter(|entry| EntryKind::leads_on(entry.kind)) else {
                continue;
            };
            match Entry::is_led_on(&row.instructions) {
                true => told.leading.insert(entry.key),
                false => told.plain.insert(entry.key),
            };
        }
        told
    }
}

impl QosState {
    pub(in crate::controller) fn qos_up(&mut self, now: Instant, dpid: DatapathId, tables: u8) {
        let ready_at = now + self.port_hold + SETTLE;
        let fresh = || SwitchQos {
            ready_at,
            ..SwitchQos::default()
        };
        let switch = self.switches.entry(dpid).or_insert_with(fresh);
        switch.table_count = tables;
        switch.cannot_lead = false;
        switch.waiting_since = None;
        switch.sent.clear();
        switch.resend.clear();
        (switch.has_entries, switch.has_meters, switch.meters_asked) = (false, false, false);
        switch.is_told = false;
        self.qos_counts_restart(dpid);
    }

    /// Handles a switch that did not reconnect.
    pub(in crate::controller) fn qos_lost(&mut self, around: &mut Around<'_>, dpid: DatapathId) {
        self.switches.remove(&dpid);
        self.held.remove(&dpid);
        around.outbox.set_qos_used(self.is_used());
        self.unsettled.all = true;
        self.qos_counts_restart(dpid);
    }

    /// Reads a switch's entries. Must run before paths are compared, since it decides the form of
    /// their entries. `is_first`: the switch has just connected; later only counters and forms are
    /// new.
    pub(in crate::controller) fn read_qos(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        told: &QosRows,
        is_first: bool,
    ) {
        let was_used = self.is_used();
        let mut held = SwitchPlan::default();
        let mut counts = BTreeMap::new();
        for row in &told.qos {
            match Flow::from_stats(row) {
                Some(flow) => {
                    counts.insert(flow.key.clone(), (row.packet_count, row.byte_count));
                    held.insert_held(flow);
                }
                None => around.outbox.send_flow_mod(dpid, delete_row(row)),
            }
        }
        let has_miss = held.flows.contains_key(&Flow::policy_miss().key);
        let wants_policies = !self.asked.qos().policies.is_empty();
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        if is_first {
            let led = switch.leads_on || !told.leading.is_empty();
            let leads_on = led && has_miss && wants_policies;
            switch.leads_on = leads_on;
            switch.has_entries = true;
            self.unsettled.all = true;
            if held != SwitchPlan::default() || self.held.contains_key(&dpid) {
                self.held.insert(dpid, held);
            }
            around.outbox.set_qos_used(self.is_used());
            around.outbox.set_leads_on(dpid, leads_on);
            if leads_on {
                // Entries that its edge has set until now are read once more.
                around
                    .outbox
                    .tell_edge(dpid, crate::edge::EdgeUpdate::LeadOn(true));
                around.tables.ask_entries(now, dpid, around.outbox);
            }
        }
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        switch.note_counts(self.held.get(&dpid), counts);
        let other = match switch.leads_on {
            true => &told.plain,
            false => &told.leading,
        };
        switch.resend.extend(other.iter().copied());
        switch.is_plain = !switch.leads_on && told.leading.is_empty();
        match !was_used && self.is_used() {
            true => self.ask_all_meters(around, now),
            false => self.ask_meters(around, now, dpid),
        }
    }

    /// Deletes the lowest entries of policy tables without other entries, once no path continues
    /// there.
    pub(super) fn drop_bases(&mut self, around: &mut Around<'_>) {
        let key = Flow::policy_miss().key;
        let is_alone = |dpid: &DatapathId| {
            let held = self.held.get(dpid);
            held.is_some_and(|held| {
                let mut flows = held.flows.keys().filter(|key| key.table == POLICY_TABLE);
                let is_base = flows.next() == Some(&key) && flows.next().is_none();
                is_base && held.meters.is_empty()
            })
        };
        let is_done = |dpid: &DatapathId, switch: &SwitchQos| {
            let planned = self.plan.switches.get(dpid);
            let is_wanted = planned.is_some_and(SwitchPlan::has_policies);
            let is_read = switch.is_told && switch.has_entries && switch.has_meters;
            is_read && switch.is_plain && switch.resend.is_empty() && !is_wanted
        };
        let switches = self.switches.iter();
        let done = switches.filter(|(dpid, switch)| is_done(dpid, switch) && is_alone(dpid));
        for dpid in done.map(|(dpid, _)| *dpid).collect::<Vec<_>>() {
            around.outbox.send_flow_mod(dpid, key.to_delete());
            if let Some(held) = self.held.get_mut(&dpid) {
                held.flows.remove(&key);
            }
        }
        around.outbox.set_qos_used(self.is_used());
    }

    /// Notes that all entries have their proper form. If that is the plain form, reads once more
    /// whether any entry still continues to the policy table.
    pub(super) fn after_resend(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) {
        let key = Flow::policy_miss().key;
        let holds_miss = |held: &SwitchPlan| held.flows.contains_key(&key);
        let is_left = self.held.get(&dpid).is_some_and(holds_miss);
        if is_left && !self.leads_on(dpid) {
            around.tables.ask_entries(now, dpid, around.outbox);
        }
    }

    pub(super) fn ask_all_meters(&mut self, around: &mut Around<'_>, now: Instant) {
        for dpid in self.switches.keys().copied().collect::<Vec<_>>() {
            self.ask_meters(around, now, dpid);
        }
    }

    /// Asks for a switch's meters, once for each connection, and only if something depends on them.
    pub(super) fn ask_meters(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) {
        let is_used = self.is_used();
        let version = around.view.net.version(dpid);
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        if !is_used || !switch.has_entries || std::mem::replace(&mut switch.meters_asked, true) {
            return;
        }
        if version == Some(Version::V10) {
            (switch.has_meters, switch.meters) = (true, Some(None));
            return self.note_ready(around, now);
        }
        let asks = [
            (Request::MeterFeatures, RequestBody::MeterFeatures),
            (Request::Meters, RequestBody::MeterConfig(MeterId::ALL)),
        ];
        for (request, body) in asks {
            let message = Message::MultipartRequest(MultipartRequest { more: false, body });
            if around
                .outbox
                .request(now, dpid, request, &message)
                .is_none()
            {
                self.handle_qos_answer(around, now, dpid, request, Vec::new());
            }
        }
    }

    /// Handles a switch's report of its meters; `None` if it refused.
    pub(in crate::controller) fn handle_qos_answer(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        request: Request,
        bodies: Vec<ReplyBody>,
    ) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        match request {
            Request::MeterFeatures => {
                let facts = bodies.into_iter().find_map(|body| match body {
                    ReplyBody::MeterFeatures(told) if told.max_meter > 0 => Some(MeterFacts {
                        max: told.max_meter,
                        can_remark: told.band_types & DSCP_REMARK != 0,
                    }),
                    _ => None,
                });
                switch.meters = Some(facts);
            }
            Request::Meters => {
                switch.has_meters = true;
                let max = switch.meters.flatten().map_or(0, |facts| facts.max);
                let configs = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::MeterConfig(configs) => configs,
                    _ => Vec::new(),
                });
                let ours = configs.filter(|config| is_our_meter(config.meter_id, max));
                let meters = ours.filter_map(|c| Some((c.meter_id, Meter::from_config(&c)?)));
                let meters: BTreeMap<MeterId, Meter> = meters.collect();
                self.unsettled.all = true;
                if !meters.is_empty() || self.held.contains_key(&dpid) {
                    self.held.entry(dpid).or_default().meters = meters;
                }
                around.outbox.set_qos_used(self.is_used());
            }
            _ => {}
        }
        self.note_ready(around, now);
    }

    /// Adds the switches whose facts are all known by now to the network.
    pub(super) fn note_ready(&mut self, around: &mut Around<'_>, now: Instant) {
        let mut is_any = false;
        let mut later = Vec::new();
        let asked = self.asked.qos();
        let has_own = |circuit: &Circuit| circuit.rate.is_some() || circuit.queue.is_some();
        let has_own = asked.circuits.iter().any(has_own);
        for (dpid, switch) in &mut self.switches {
            let is_read = switch.has_entries && switch.has_meters && switch.meters.is_some();
            if !is_read || switch.is_known && switch.is_told {
                continue;
            }
            let has_queues = has_own || asked.ports_of(*dpid).next().is_some();
            let ready_at = match has_queues && !self.queues.contains_key(dpid) {
                true => switch.ready_at + QUEUES_WAIT,
                false => switch.ready_at,
            };
            if ready_at > now {
                later.push(ready_at);
                continue;
            }
            (switch.is_known, switch.is_told) = (true, true);
            is_any = true;
        }
        for due in later {
            around.outbox.timer(due, Timer::Qos);
        }
        if is_any {
            self.qos_soon(around, now);
        }
    }

    /// Finds the owners of held circuit entries that had none.
    pub(super) fn claim_held(&mut self) {
        let qos = &mut *self;
        let flows = qos.held.values_mut().flat_map(SwitchPlan::ways_mut);
        for (key, planned) in flows {
            if planned.owner == Owner::Nobody
                && planned.rank > 0
                && let Some((circuit, _)) = circuit_of(qos.asked.qos(), key)
            {
                planned.owner = Owner::Circuit(circuit.name.clone());
            }
        }
    }

    /// Adopts wanted circuits that the switches have from an earlier process: otherwise their
    /// hosts, which send only over these entries, may not be found for a long time.
    pub(super) fn adopt_circuits(&mut self, around: &mut Around<'_>) {
        self.claim_held();
        let links = two_ways(&around.view.net.links);
        let mut found: Vec<(Circuit, Vec<Hop>)> = Vec::new();
        for (dpid, held) in &self.held {
            let openings = held.ways().filter(|(_, planned)| planned.rank == OPENS);
            for (key, _) in openings {
                let Some((circuit, is_back)) = circuit_of(self.asked.qos(), key) else {
                    continue;
                };
                if is_back || self.circuits.route(&circuit.name).is_some() {
                    continue;
                }
                if let Some(hops) = self.trace_circuit(around.view, &links, *dpid, key) {
                    found.push((circuit.clone(), hops));
                }
            }
        }
        for (circuit, hops) in found {
            if let (Some(first), Some(last)) = (hops.first(), hops.last()) {
                self.adopted.insert(circuit.from, first.inlet());
                self.adopted.insert(circuit.to, last.outlet());
            }
            self.circuits.adopt(circuit, hops);
        }
    }

    /// The hops from the entry that lets packets in to their exit; `None` if a part is missing.
    fn trace_circuit(
        &self,
        view: View<'_>,
        links: &BTreeMap<Location, Location>,
        dpid: DatapathId,
        opening: &FlowKey,
    ) -> Option<Vec<Hop>> {
        let plain = opening.matching.loose();
        let mut hops = Vec::new();
        let mut at = Location::new(dpid, opening.matching.in_port()?);
        for _ in 0..HOPS_MAX {
            let held = self.held.get(&at.dpid)?;
            let is_its = |key: &FlowKey| {
                key.table == PATH_TABLE
                    && key.priority == opening.priority
                    && key.matching.in_port() == Some(at.port)
                    && key.matching.loose() == plain
            };
            let (_, planned) = held.flows.iter().find(|(key, _)| is_its(key))?;
            let Then::Output(out_port) = planned.does.then else {
                return None;
            };
            let hop = Hop {
                dpid: at.dpid,
                in_port: at.port,
                out_port,
            };
            hops.push(hop);
            match links.get(&hop.outlet()) {
                Some(next) => at = *next,
                None if view.net.is_end(hop.outlet()) => return None,
                None => return Some(hops),
            }
        }
        None
    }
}

impl Matching {
    /// The match without the in-port and the code point, which may change on the route.
    fn loose(&self) -> Matching {
        self.without(openflow::Field::InPort)
            .without(openflow::Field::IpDscp)
    }
}
