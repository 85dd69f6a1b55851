//! The timeouts of the entries that the controller and its edges set, and forbidden packets.

use clock::Instant;
use openflow::{DatapathId, MacAddr, PortNo};

use crate::entry::{Entry, EntryKey, EntryKind, Rule};
use crate::timeouts::{FlowClass, Lifetime, Timeouts};

use super::facts::Facts;
use super::links::{Hop, Pair};
use super::packet::Packet;
use super::{Controller, Location, Mode, TimeoutsView};

/// Idle timeout of an entry that drops forbidden packets.
const BARRED_IDLE_S: u16 = 10;

impl<'a> Facts<'a> {
    /// Idle and hard timeout of an entry of a pair, or of one of its rules. `table_s` is the idle
    /// timeout for which the tables on its path have room, where they are limited.
    pub(super) fn timeouts_of(
        &self,
        pair: Pair,
        rule: Option<Rule>,
        ingress: bool,
        table_s: Option<u16>,
    ) -> (u16, u16) {
        let class = self.class_of_entry(pair, rule);
        let lifetime = self.timeouts.lifetime(class);
        self.timeouts_at(lifetime, class, ingress, table_s)
    }

    /// The timeouts of entries past the first switch, for pairs without a class.
    pub(super) fn timeouts_past_ingress(&self) -> (u16, u16) {
        self.timeouts_at(self.timeouts.default, None, false, None)
    }

    /// The timeouts of entries that edges set between two hosts of one switch.
    pub(super) fn timeouts_of_edges(&self, table_s: Option<u16>) -> (u16, u16) {
        self.timeouts_at(self.timeouts.default, None, true, table_s)
    }

    fn timeouts_at(
        &self,
        lifetime: Lifetime,
        class: Option<&FlowClass>,
        ingress: bool,
        table_s: Option<u16>,
    ) -> (u16, u16) {
        let timeouts = self.timeouts;
        let kind = (lifetime, class);
        self.tables.timeouts_at(timeouts, kind, ingress, table_s)
    }

    pub(super) fn class_of(&self, pair: Pair) -> Option<&'a FlowClass> {
        self.hosts.class_of(self.timeouts, pair, None)
    }

    /// Whether a class names the host. If so, its edge does not learn of the host.
    pub(super) fn is_in_class(&self, mac: MacAddr) -> bool {
        let has_ip = |mac, within| self.hosts.has_ip(mac, within);
        self.timeouts.names(mac, has_ip)
    }

    pub(super) fn forbids(&self, pair: Pair) -> bool {
        self.class_of(pair).is_some_and(|class| class.forbid)
    }
}

impl Controller {
    /// Replaces the timeouts. Existing entries keep theirs, but newly forbidden paths end, and
    /// newly named services get entries of their own.
    pub fn set_timeouts(&mut self, now: Instant, timeouts: Timeouts) {
        if timeouts == self.config.timeouts {
            return;
        }
        let reported = self.facts().reports();
        self.tables.set_timeouts(now, &timeouts);
        let before = std::mem::replace(&mut self.config.timeouts, timeouts);
        self.change_guards(&before);
        if self.facts().reports() != reported {
            self.routes.at_once(now, &mut self.outbox);
        }
        self.fit_tables(now);
        let placed = self.hosts.placed().filter(|(mac, at)| {
            self.facts().is_in_class(*mac) || !self.facts().edge_may_answer(at.dpid)
        });
        for (mac, at) in placed.collect::<Vec<_>>() {
            self.hosts.set_kept(mac, true);
            self.forget_host(now, mac, at);
        }
        self.enforce(now, |_| true);
        self.tell_edges_timeouts(now);
    }

    /// Notes the controller's load, as defined by [`Timeouts::load`], over the last
    /// [`Timeouts::sample_interval`].
    pub fn handle_load(&mut self, now: Instant, percent: f64) {
        self.tables.handle_load(now, percent);
        self.tell_edges_timeouts(now);
    }

    /// The present timeouts of all switches, for status tables.
    pub fn timeouts_view(&self) -> TimeoutsView {
        self.tables.timeouts_view(&self.config.timeouts)
    }

    fn tell_edges_timeouts(&mut self, now: Instant) {
        for dpid in self.network.dpids() {
            self.tell_edge_timeouts(now, dpid);
        }
    }

    /// Drops a forbidden packet, and sets an entry that drops the packets after it.
    pub(super) fn bar(&mut self, now: Instant, packet: &Packet<'_>) {
        self.outbox.counters.packets_forbidden += 1;
        let Location { dpid, port } = packet.at;
        let pair = (packet.src, packet.dst);
        if self.facts().admits(pair) {
            return self.bar_by_path(now, packet);
        }
        let key = EntryKey::pair(port, packet.src, packet.dst);
        let known = self.tables.get(dpid);
        let is_set = known.is_some_and(|table| {
            let entry = table.entries().get(&key);
            entry.is_some_and(|entry| entry.kind == EntryKind::Barred) || table.is_full(now)
        });
        let hop = Hop {
            dpid,
            in_port: port,
            out_port: PortNo::ANY,
        };
        if is_set || self.config.mode == Mode::Proactive {
            return;
        }
        if self.admit_path(now, pair, &[hop]).is_err() {
            return;
        }
        let entry = Entry {
            key,
            kind: EntryKind::Barred,
            out: PortNo::ANY,
            idle_timeout_s: BARRED_IDLE_S,
            hard_timeout_s: 0,
            notify: true,
        };
        if let Some(table) = self.tables.get_mut(dpid) {
            table.note_sent(now, entry);
            self.outbox
                .send_flow_mod(dpid, entry.to_add(self.outbox.generation));
        }
    }

    /// Handles a host's claim to an address that a class names: from now on the controller may have
    /// to decide its pairs.
    pub(super) fn host_classified(&mut self, now: Instant, mac: MacAddr, at: Location) {
        self.forget_host(now, mac, at);
        self.enforce(now, |(src, dst)| src == mac || dst == mac);
    }

    /// Deletes entries of forbidden pairs, and entries that drop packets of pairs that are now
    /// allowed. Sets the entries that services need.
    fn enforce(&mut self, now: Instant, is_concerned: impl Fn(Pair) -> bool) {
        let pairs = self.paths.pairs().filter(|pair| is_concerned(*pair));
        for pair in pairs.collect::<Vec<Pair>>() {
            self.fit_rules(now, pair);
        }
        let mut allowed: Vec<(DatapathId, EntryKey)> = Vec::new();
        for (dpid, table) in self.tables.iter() {
            let barred = table.entries().values();
            for entry in barred.filter(|entry| entry.kind == EntryKind::Barred) {
                let pair = entry.key.eth_src.zip(entry.key.eth_dst);
                if pair.is_some_and(|pair| is_concerned(pair) && self.facts().admits(pair)) {
                    allowed.push((*dpid, entry.key));
                }
            }
        }
        for (dpid, key) in allowed {
            if let Some(table) = self.tables.get_mut(dpid) {
                table.forget(&key);
                table.handle_removed(key);
                self.ingress.note_ended(now, dpid, key.in_port);
                self.outbox.send_flow_mod(dpid, key.to_delete());
            }
        }
    }
}
