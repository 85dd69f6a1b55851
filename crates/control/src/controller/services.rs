//! Services: some of the packets between two hosts, with a class of their own.
//!
//! The switch where the pair's path begins distinguishes services. Besides the pair's entry it has
//! a higher entry for each rule, with the lifetime of the rule's class, and with the same output or
//! a drop. After the first switch all packets of the pair use the same entries, which last as long
//! as the longest of these lifetimes.
//!
//! The entries are set together, dropping entries before forwarding ones, and are deleted together
//! when no forwarding entry is left. The pair's entry takes over from a forwarding entry that ends.
//! Where a dropping entry would take the packets, the ended entry is set again as long as another
//! entry of the pair is in use: an *exception* ends with its pair. A dropping entry has no timeout,
//! so that no packet slips through because it ended before the forwarding entries.

use std::collections::BTreeSet;

use clock::Instant;
use openflow::packet::PacketFields;
use openflow::{DatapathId, PortNo};

use crate::entry::{Entry, EntryKey, EntryKind, Family, Rule};
use crate::timeouts::FlowClass;

use super::entries::Entries;
use super::facts::Facts;
use super::links::{Hop, Pair};
use super::packet::Packet;
use super::stage::{Change, Guard, Step};
use super::{Controller, Mode};

/// A rule of a pair in the form that its path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairRule {
    pub rule: Rule,
    pub drops: bool,
    /// Whether the rule's entry was set again without use: its presence does not show that the pair
    /// is in use.
    pub kept: bool,
}

/// The new entries at a path's first switch: dropping entries are set before all others.
#[derive(Default)]
pub(super) struct Beginning {
    pub drops: Vec<Change>,
    pub leads: Vec<Change>,
}

impl<'a> Facts<'a> {
    /// The rules of a pair whose packets have a class of their own.
    pub(super) fn rules_of(&self, pair: Pair) -> Vec<PairRule> {
        let timeouts = self.timeouts;
        if !timeouts.has_rules() {
            return Vec::new();
        }
        let has_ip = |mac, within| self.hosts.has_ip(mac, within);
        let families = self.families(pair);
        let rules = timeouts.rules_of(pair.0, pair.1, has_ip, &families);
        let rules = rules.into_iter().map(|(rule, drops)| PairRule {
            rule,
            drops,
            kept: false,
        });
        rules.collect()
    }

    /// The address families in which at least one of the two hosts has an address; both families,
    /// if no address is known.
    fn families(&self, (src, dst): Pair) -> Vec<Family> {
        let ips = [src, dst].map(|mac| self.hosts.ips(mac)).concat();
        let mut families = Vec::new();
        if ips.is_empty() || ips.iter().any(|ip| ip.is_ipv4()) {
            families.push(Family::Ipv4);
        }
        if ips.is_empty() || ips.iter().any(|ip| ip.is_ipv6()) {
            families.push(Family::Ipv6);
        }
        families
    }

    /// Whether any packet may go from one host to the other.
    pub(super) fn admits(&self, pair: Pair) -> bool {
        !self.forbids(pair) || self.rules_of(pair).iter().any(|rule| !rule.drops)
    }

    /// Whether a packet's own IP addresses forbid it, whoever sends it.
    pub(super) fn guards_from(&self, pair: Pair, fields: &PacketFields) -> bool {
        match self.timeouts.guard_of(fields) {
            None => false,
            Some(None) => true,
            Some(Some(rank)) => {
                let rules = self.rules_of(pair);
                let its = rules.iter().find(|rule| rule.rule.is_of(fields));
                its.is_none_or(|rule| rule.drops || rule.rule.rank > rank)
            }
        }
    }

    pub(super) fn forbids_packet(&self, pair: Pair, fields: &PacketFields) -> bool {
        let rules = self.rules_of(pair);
        let its = rules.iter().find(|rule| rule.rule.is_of(fields));
        its.map_or_else(|| self.forbids(pair), |rule| rule.drops)
    }

    /// The class of the packets that an entry of a pair matches.
    pub(super) fn class_of_entry(&self, pair: Pair, rule: Option<Rule>) -> Option<&'a FlowClass> {
        self.hosts.class_of(self.timeouts, pair, rule)
    }

    /// All entries of a path's first hop.
    pub(super) fn beginning(
        &self,
        pair: Pair,
        revision: u64,
        hop: &Hop,
        rules: &[PairRule],
        table_s: Option<u16>,
    ) -> Beginning {
        let change = |entry| Change {
            dpid: hop.dpid,
            step: Step::Add(entry),
            guard: Guard::Path(pair, revision),
        };
        let entry = |rule: &PairRule| change(self.rule_entry(pair, hop, rule, rules, table_s));
        let (drops, leads): (Vec<&PairRule>, Vec<&PairRule>) =
            rules.iter().partition(|rule| rule.drops);
        let own = self.pair_entry(pair, hop, true, table_s);
        Beginning {
            drops: drops.into_iter().map(entry).collect(),
            leads: leads.into_iter().map(entry).chain([change(own)]).collect(),
        }
    }

    /// Whether a path was set before any packet, so that it must not time out without packets.
    pub(super) fn is_lasting(&self, pair: Pair) -> bool {
        self.mode == Mode::Hybrid && self.net.says_both(pair)
    }

    pub(super) fn pair_entry(
        &self,
        pair: Pair,
        hop: &Hop,
        ingress: bool,
        table_s: Option<u16>,
    ) -> Entry {
        if ingress && self.forbids(pair) {
            return barrier(hop.key(pair));
        }
        let (idle_timeout_s, hard_timeout_s) = match (self.is_lasting(pair), ingress) {
            (true, _) => (0, 0),
            (false, true) => self.timeouts_of(pair, None, true, table_s),
            (false, false) => self.timeouts_after_first(pair, table_s),
        };
        Entry {
            key: hop.key(pair),
            kind: EntryKind::Pair,
            out: hop.out_port,
            idle_timeout_s,
            hard_timeout_s,
            notify: ingress,
        }
    }

    fn rule_entry(
        &self,
        pair: Pair,
        hop: &Hop,
        rule: &PairRule,
        rules: &[PairRule],
        table_s: Option<u16>,
    ) -> Entry {
        let key = EntryKey::rule(hop.in_port, pair.0, pair.1, rule.rule);
        if rule.drops {
            return barrier(key);
        }
        let (idle_timeout_s, hard_timeout_s) = if self.is_lasting(pair) {
            (0, 0)
        } else {
            let (idle_s, hard_s) = self.timeouts_of(pair, Some(rule.rule), true, table_s);
            match self.is_exception(pair, rule.rule, rules) {
                // A lower dropping entry would take the packets while the entry is renewed.
                true => (if idle_s == 0 { hard_s } else { idle_s }, 0),
                false => (idle_s, hard_s),
            }
        };
        Entry {
            key,
            kind: EntryKind::Service,
            out: hop.out_port,
            idle_timeout_s,
            hard_timeout_s,
            notify: true,
        }
    }

    /// Whether the rule's packets would be dropped without its entry.
    fn is_exception(&self, pair: Pair, rule: Rule, rules: &[PairRule]) -> bool {
        let mut after = rules.iter().filter(|other| other.rule.rank > rule.rank);
        after.any(|other| other.drops && other.rule.overlaps(rule))
            || self.forbids(pair)
            || self.timeouts.excepts(rule)
    }

    /// Timeouts of a pair's entries after the first hop: no service outlasts them.
    pub(super) fn timeouts_after_first(&self, pair: Pair, table_s: Option<u16>) -> (u16, u16) {
        let rules = self.rules_of(pair).into_iter().filter(|rule| !rule.drops);
        let of_rules = rules.map(|rule| self.timeouts_of(pair, Some(rule.rule), false, table_s));
        let own = (!self.forbids(pair)).then(|| self.timeouts_of(pair, None, false, table_s));
        let longest = |a: u16, b: u16| if a == 0 || b == 0 { 0 } else { a.max(b) };
        let all = own.into_iter().chain(of_rules);
        let most = all.reduce(|(idle, hard), (i, h)| (longest(idle, i), longest(hard, h)));
        most.unwrap_or_default()
    }

    /// Whether the pair has an entry that ends by itself when unused.
    fn is_used(&self, pair: Pair, hop: &Hop, rules: &[PairRule]) -> bool {
        let Some(table) = self.tables.get(hop.dpid) else {
            return false;
        };
        let leads = |key: EntryKey| {
            let entry = table.entries().get(&key);
            entry.is_some_and(|entry| !entry.kind.is_drop())
        };
        let used = rules.iter().filter(|rule| !rule.kept && !rule.drops);
        let mut keys = used.map(|rule| EntryKey::rule(hop.in_port, pair.0, pair.1, rule.rule));
        leads(hop.key(pair)) || keys.any(leads)
    }

    /// Whether a pair's classes can be known: classes may name hosts by addresses that they have
    /// not announced yet.
    pub(super) fn is_judged(&self, (src, dst): Pair) -> bool {
        let has_told = |mac| !self.hosts.ips(mac).is_empty();
        !self.timeouts.names_ips() || (has_told(src) && has_told(dst))
    }
}

impl Controller {
    /// Drops a forbidden packet of a pair whose other packets are allowed: the entry that drops
    /// later packets is set with the pair's entries.
    pub(super) fn bar_by_path(&mut self, now: Instant, packet: &Packet<'_>) {
        let to = self.hosts.place(packet.dst).filter(|to| *to != packet.at);
        if let Some(to) = to.filter(|_| self.config.mode != Mode::Proactive) {
            self.ensure_path(now, packet.src, packet.dst, packet.at, to);
        }
    }

    /// Handles the end of a path's entry: it ended by itself, or was evicted for others
    /// (`is_evicted`).
    pub(super) fn entry_ended(
        &mut self,
        now: Instant,
        pair: Pair,
        dpid: DatapathId,
        key: EntryKey,
        is_evicted: bool,
    ) {
        let Some((hop, rules)) = self.paths.beginning(pair) else {
            return;
        };
        let is_first = (hop.dpid, Some(hop.in_port)) == (dpid, key.in_port);
        let gone = (!is_evicted).then_some(dpid);
        // A dropping entry has no timeout and is never evicted.
        if rules.is_empty() || !is_first {
            return self.drop_rest(now, pair, gone);
        }
        let (hop, rules) = (*hop, rules.to_vec());
        let is_used = self.facts().is_used(pair, &hop, &rules);
        let rule = key.rule.and_then(|rule| {
            let rule = rules.iter().find(|known| known.rule == rule)?;
            self.facts()
                .is_exception(pair, rule.rule, &rules)
                .then_some(*rule)
        });
        match rule {
            Some(rule) if is_used && !is_evicted => {
                self.paths.keep(pair, rule.rule);
                let entry = self.facts().rule_entry(pair, &hop, &rule, &rules, None);
                if let Some(table) = self.tables.get_mut(dpid) {
                    table.note_sent(now, entry);
                    table.handle_sent(now, &entry);
                }
                self.outbox
                    .send_flow_mod(dpid, entry.to_add(self.outbox.generation));
            }
            None if is_used => {}
            _ => self.drop_rest(now, pair, gone),
        }
    }

    /// Fits a path's rules after a change of classes or of a host's addresses. Deletes the path if
    /// no packet of it is allowed any more, or if its dropping entries cannot be set.
    pub(super) fn fit_rules(&mut self, now: Instant, pair: Pair) {
        if !self.facts().admits(pair) {
            return self.drop_path(now, pair);
        }
        let Some((hop, rules)) = self.paths.beginning(pair) else {
            return;
        };
        let (hop, rules) = (*hop, rules.to_vec());
        let wanted = self.facts().rules_of(pair);
        let own = self.tables.get(hop.dpid);
        let own = own.and_then(|table| table.entries().get(&hop.key(pair)));
        let is_right = own.is_none_or(|own| own.kind.is_drop() == self.facts().forbids(pair));
        if is_same(&rules, &wanted) && is_right {
            return;
        }
        if self.admit_rules(now, pair, &hop, &wanted) {
            self.renew_path(now, pair);
        } else {
            self.drop_path(now, pair);
        }
    }

    /// Adopts a path that was joined from entries, with the entries of its rules.
    pub(super) fn adopt_rules(&mut self, now: Instant, pair: Pair) {
        let Some((hop, _)) = self.paths.beginning(pair) else {
            return;
        };
        let Some(table) = self.tables.get(hop.dpid) else {
            return;
        };
        let its = of_rules(table.entries(), hop.key(pair));
        let rules = its.filter_map(|entry| {
            Some(PairRule {
                rule: entry.key.rule?,
                drops: entry.kind.is_drop(),
                kept: false,
            })
        });
        let rules: Vec<PairRule> = rules.collect();
        self.paths.set_rules(pair, rules);
        if self.facts().is_judged(pair) {
            self.fit_rules(now, pair);
        }
    }
}

/// The entries of a pair's rules besides its own entry, starting with the last rule. Looks once at
/// each priority in use by rules, and not at the rules of all other pairs.
pub(super) fn of_rules(entries: &Entries, key: EntryKey) -> impl Iterator<Item = &Entry> {
    let in_use = |from: EntryKey| {
        let next = entries.rules_from(from).next()?.key;
        Some(next.priority)
    };
    let above = move |priority: &u16| {
        in_use(EntryKey {
            priority: priority + 1,
            ..EntryKey::RULES_FROM
        })
    };
    let priorities = std::iter::successors(in_use(EntryKey::RULES_FROM), above);
    priorities.flat_map(move |priority| {
        let from = entries.rules_from(EntryKey { priority, ..key });
        let is_its = move |its: EntryKey| its.priority == priority && its.without_rule() == key;
        from.take_while(move |entry| is_its(entry.key))
    })
}

/// Whether the rules are the same, apart from `kept`.
pub(super) fn is_same(rules: &[PairRule], others: &[PairRule]) -> bool {
    let plain = |rules: &[PairRule]| -> BTreeSet<(Rule, bool)> {
        rules.iter().map(|rule| (rule.rule, rule.drops)).collect()
    };
    plain(rules) == plain(others)
}

/// An entry that drops packets as long as others of the same pair are allowed.
pub(super) fn barrier(key: EntryKey) -> Entry {
    Entry {
        key,
        kind: EntryKind::Barrier,
        out: PortNo::ANY,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        notify: true,
    }
}
