//! The rules that a path has beside its pair's entry at the first hop ([`super::super::services`]).

use std::cmp::Reverse;

use openflow::DatapathId;

use crate::controller::links::Hop;
use crate::controller::services::PairRule;
use crate::controller::stage::{Change, Guard, Step};
use crate::entry::{EntryKey, Rule};

use super::{Pair, Paths};

impl Paths {
    /// The first hop and the rules that have entries of their own there.
    pub(in crate::controller) fn beginning(&self, pair: Pair) -> Option<(&Hop, &[PairRule])> {
        let path = self.paths.get(pair)?;
        Some((path.hops.first()?, &path.rules))
    }

    /// Whether an entry belongs to a rule that the pair's path has now.
    pub(in crate::controller) fn has_rule(
        &self,
        pair: Pair,
        dpid: DatapathId,
        key: EntryKey,
    ) -> bool {
        self.beginning(pair).is_some_and(|(hop, rules)| {
            let is_it = |rule: &PairRule| Some(rule.rule) == key.rule;
            (hop.dpid, Some(hop.in_port)) == (dpid, key.in_port) && rules.iter().any(is_it)
        })
    }

    pub(in crate::controller) fn set_rules(&mut self, pair: Pair, rules: Vec<PairRule>) {
        if let Some(path) = self.paths.get_mut(pair) {
            path.rules = rules;
        }
    }

    /// Notes that the ended entry of a rule is set again.
    pub(in crate::controller) fn keep(&mut self, pair: Pair, rule: Rule) {
        let rules = self.paths.get_mut(pair).map(|path| &mut path.rules);
        let mut rules = rules.into_iter().flatten();
        if let Some(kept) = rules.find(|known| known.rule == rule) {
            kept.kept = true;
        }
    }

    /// Whether an entry at its ingress drops some of the pair's packets.
    pub(in crate::controller) fn has_barrier(&self, pair: Pair) -> bool {
        let path = self.paths.get(pair);
        path.is_some_and(|path| path.rules.iter().any(|rule| rule.drops))
    }
}

/// Deletes the entries of rules that a path no longer has at its first hop. Begins with the last
/// rule, so that no packet falls from an entry that drops to one that forwards.
pub(super) fn stale_rules(
    pair: Pair,
    (old_hops, old): (&[Hop], &[PairRule]),
    (hops, rules): (&[Hop], &[PairRule]),
) -> Vec<Change> {
    let place = |hop: &Hop| (hop.dpid, hop.in_port);
    let Some(hop) = old_hops.first() else {
        return Vec::new();
    };
    let is_same_place = hops.first().map(place) == Some(place(hop));
    let is_kept = |rule: Rule| is_same_place && rules.iter().any(|other| other.rule == rule);
    let ended = old.iter().map(|rule| rule.rule);
    let mut ended: Vec<Rule> = ended.filter(|rule| !is_kept(*rule)).collect();
    ended.sort_by_key(|rule| Reverse(rule.rank));
    let delete = |rule| Change {
        dpid: hop.dpid,
        step: Step::Delete(EntryKey::rule(hop.in_port, pair.0, pair.1, rule)),
        guard: Guard::Ended(pair),
    };
    ended.into_iter().map(delete).collect()
}
