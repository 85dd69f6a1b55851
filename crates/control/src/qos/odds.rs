//! Finds policies that can match the same packets. The search uses the fields in which policies
//! differ, so a policy is compared with its few candidates and not with all policies.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use openflow::{DatapathId, Field};

use super::flow::Matching;
use super::{On, Policy, Treatment};

/// Policies or circuits under a name or number `K`, by the fields that separate their packets.
#[derive(Clone, Debug)]
pub struct Odds<K> {
    by_priority: BTreeMap<u16, Equals<K>>,
    priorities: BTreeMap<K, u16>,
    compared: u64,
}

/// The policies of one priority.
#[derive(Clone, Debug)]
struct Equals<K> {
    members: BTreeMap<K, Member>,
    /// The owner of each match, by the match's number.
    matchings: BTreeMap<u32, K>,
    fields: BTreeMap<Field, Values>,
    /// Matches of policies that name switches, by switch, and all others.
    named: BTreeMap<DatapathId, BTreeSet<u32>>,
    anywhere: BTreeSet<u32>,
    next: u32,
}

#[derive(Clone, Debug)]
struct Member {
    /// Policies with the same treatment are never at odds.
    treatment: Option<Treatment>,
    on: On,
    matchings: Vec<(u32, Matching)>,
}

/// The values of one field in all matches.
#[derive(Clone, Debug, Default)]
struct Values {
    /// Matches by the mask and the value of the field.
    said: BTreeMap<u128, BTreeMap<u128, BTreeSet<u32>>>,
    /// Matches without the field.
    free: BTreeSet<u32>,
}

impl<K> Default for Odds<K> {
    fn default() -> Odds<K> {
        Odds {
            by_priority: BTreeMap::new(),
            priorities: BTreeMap::new(),
            compared: 0,
        }
    }
}

impl<K> Default for Equals<K> {
    fn default() -> Equals<K> {
        Equals {
            members: BTreeMap::new(),
            matchings: BTreeMap::new(),
            fields: BTreeMap::new(),
            named: BTreeMap::new(),
            anywhere: BTreeSet::new(),
            next: 0,
        }
    }
}

impl<K: Clone + Ord> Odds<K> {
    /// Inserts a policy, and replaces the policy of the same name.
    pub fn insert_policy(&mut self, name: K, policy: &Policy, matchings: Vec<Matching>) {
        let treatment = Some(&policy.treatment);
        self.insert(name, policy.priority, treatment, &policy.on, matchings);
    }

    pub fn insert(
        &mut self,
        name: K,
        priority: u16,
        treatment: Option<&Treatment>,
        on: &On,
        matchings: Vec<Matching>,
    ) {
        self.remove(&name);
        self.priorities.insert(name.clone(), priority);
        let equals = self.by_priority.entry(priority).or_default();
        equals.insert(name, treatment, on, matchings);
    }

    pub fn remove<Q>(&mut self, name: &Q)
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let Some(priority) = self.priorities.remove(name) else {
            return;
        };
        if let Some(equals) = self.by_priority.get_mut(&priority) {
            equals.remove(name);
            if equals.members.is_empty() {
                self.by_priority.remove(&priority);
            }
        }
    }

    /// The policies of the same priority and another treatment that may match the packets of
    /// `name`.
    pub fn against<Q>(&mut self, name: &Q) -> BTreeSet<K>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let priority = self.priorities.get(name);
        let equals = priority.and_then(|priority| self.by_priority.get(priority));
        let Some((equals, member)) = equals.and_then(|e| Some((e, e.members.get(name)?))) else {
            return BTreeSet::new();
        };
        let mut found = BTreeSet::new();
        for (_, matching) in &member.matchings {
            for id in equals.candidates(&member.on, matching) {
                let other = equals.matchings.get(&id).filter(|k| (*k).borrow() != name);
                let Some((other, them)) = other.and_then(|k| equals.members.get_key_value::<K>(k))
                else {
                    continue;
                };
                self.compared += 1;
                let is_it = |(number, _): &&(u32, Matching)| *number == id;
                let theirs = them.matchings.iter().find(is_it);
                let is_same = member.treatment.is_some() && them.treatment == member.treatment;
                if !is_same
                    && member.on.meets(&them.on)
                    && theirs.is_some_and(|(_, theirs)| matching.overlaps(theirs))
                {
                    found.insert(other.clone());
                }
            }
        }
        found
    }

    /// The number of pairs of matches ever compared.
    pub fn compared(&self) -> u64 {
        self.compared
    }
}

impl<K: Clone + Ord> Equals<K> {
    fn insert(
        &mut self,
        name: K,
        treatment: Option<&Treatment>,
        on: &On,
        matchings: Vec<Matching>,
    ) {
        let switches = on.named_switches();
        let mut numbered = Vec::new();
        for matching in matchings {
            let id = self.next;
            self.next = self.next.wrapping_add(1);
            self.place(id, &switches, &matching);
            self.matchings.insert(id, name.clone());
            numbered.push((id, matching));
        }
        let member = Member {
            treatment: treatment.cloned(),
            on: on.clone(),
            matchings: numbered,
        };
        self.members.insert(name, member);
    }

    fn place(&mut self, id: u32, switches: &BTreeSet<DatapathId>, matching: &Matching) {
        for (field, value, mask) in matching.fields() {
            let all = self.matchings.keys();
            let values = self.fields.entry(field).or_insert_with(|| Values {
                // Earlier matches do not have a field that appears for the first time.
                free: all.copied().collect(),
                ..Values::default()
            });
            let by_value = values.said.entry(mask).or_default();
            by_value.entry(value).or_default().insert(id);
        }
        for (field, values) in &mut self.fields {
            if !matching.has(*field) {
                values.free.insert(id);
            }
        }
        for dpid in switches {
            self.named.entry(*dpid).or_default().insert(id);
        }
        if switches.is_empty() {
            self.anywhere.insert(id);
        }
    }

    fn remove<Q>(&mut self, name: &Q)
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let Some(member) = self.members.remove(name) else {
            return;
        };
        let switches = member.on.named_switches();
        for (id, matching) in member.matchings {
            self.matchings.remove(&id);
            self.anywhere.remove(&id);
            for dpid in &switches {
                take(&mut self.named, dpid, id);
            }
            self.fields.values_mut().for_each(|values| {
                values.free.remove(&id);
            });
            for (field, value, mask) in matching.fields() {
                let Some(values) = self.fields.get_mut(&field) else {
                    continue;
                };
                if let Some(by_value) = values.said.get_mut(&mask) {
                    take(by_value, &value, id);
                    if by_value.is_empty() {
                        values.said.remove(&mask);
                    }
                }
                if values.said.is_empty() {
                    self.fields.remove(&field);
                }
            }
        }
    }

    /// Matches that may share packets with this one: the smallest set that any one of its fields
    /// leaves.
    fn candidates(&self, on: &On, matching: &Matching) -> Vec<u32> {
        let switches = on.named_switches();
        let here: Vec<&BTreeSet<u32>> = switches
            .iter()
            .filter_map(|dpid| self.named.get(dpid))
            .chain((!switches.is_empty()).then_some(&self.anywhere))
            .collect();
        let mut limit = match switches.is_empty() {
            true => self.matchings.len(),
            false => here.iter().map(|ids| ids.len()).sum(),
        };
        let mut best = None;
        for (field, value, mask) in matching.fields() {
            let values = self.fields.get(&field);
            if let Some(fewer) = values.and_then(|values| values.meeting(value, mask, limit)) {
                limit = fewer.len();
                best = Some(fewer);
            }
        }
        best.unwrap_or_else(|| match switches.is_empty() {
            true => self.matchings.keys().copied().collect(),
            false => here.into_iter().flatten().copied().collect(),
        })
    }
}

impl Values {
    /// Matches that agree with `value` under `mask`, if there are fewer than `limit`.
    fn meeting(&self, value: u128, mask: u128, limit: usize) -> Option<Vec<u32>> {
        if self.free.len() >= limit {
            return None;
        }
        let mut found: Vec<u32> = self.free.iter().copied().collect();
        for (other, by_value) in &self.said {
            let common = other & mask;
            let agrees = |theirs: &u128| (theirs ^ value) & common == 0;
            if common == *other {
                found.extend(by_value.get(&(value & other)).into_iter().flatten());
            } else {
                // All values that agree are in this range; for prefixes they fill the range.
                let range = value & common..=value & common | !common & other;
                let alike = by_value.range(range).filter(|(theirs, _)| agrees(theirs));
                found.extend(alike.flat_map(|(_, ids)| ids).take(limit));
            }
            if found.len() >= limit {
                return None;
            }
        }
        Some(found)
    }
}

fn take<T: Ord>(sets: &mut BTreeMap<T, BTreeSet<u32>>, key: &T, id: u32) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(&id);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::policy;
    use super::*;

    fn marks(mark: u8) -> Treatment {
        Treatment {
            mark: Some(mark),
            ..Treatment::default()
        }
    }

    fn any_matching() -> impl Strategy<Value = Matching> {
        let masks = prop_oneof![
            Just(0u32),
            Just(0xff00_0000),
            Just(0xffff_0000),
            Just(0x00ff_00ff),
            Just(u32::MAX)
        ];
        let ip = (0u32..4, 0u32..3, masks).prop_map(|(a, b, mask)| (a << 24 | b, mask));
        (ip, prop::option::of(1u16..4), prop::option::of(0u16..3)).prop_map(
            |((ip, mask), port, vlan)| {
                let m = Matching::any();
                let m = m.and_masked(Field::Ipv4Dst, ip, mask.into()).unwrap();
                let m = port.map_or(Some(m.clone()), |p| m.and(Field::UdpDst, p));
                let m = m.unwrap();
                vlan.map_or(Some(m.clone()), |v| m.and(Field::VlanVid, v))
                    .unwrap()
            },
        )
    }

    fn any_on() -> impl Strategy<Value = On> {
        prop_oneof![
            Just(On::Everywhere),
            prop::collection::btree_set((1u64..4).prop_map(DatapathId), 1..3)
                .prop_map(On::Switches),
        ]
    }

    proptest! {
        /// Compares the result with a check of every pair, while policies are added, changed and
        /// removed.
        #[test]
        fn those_at_odds_are_found_as_by_comparing_all(
            steps in prop::collection::vec(
                (0usize..12, 0u8..2, 0u16..2, any_on(),
                 prop::option::weighted(0.8, prop::collection::vec(any_matching(), 1..3))),
                1..40,
            )
        ) {
            let mut odds: Odds<String> = Odds::default();
            let mut all: BTreeMap<String, (Policy, Vec<Matching>)> = BTreeMap::new();
            for (n, mark, priority, on, matchings) in steps {
                let name = format!("p{n}");
                let Some(matchings) = matchings else {
                    odds.remove(&name);
                    all.remove(&name);
                    continue;
                };
                let policy = Policy { priority, ..policy(&name, "s", marks(mark), on) };
                odds.insert_policy(name.clone(), &policy, matchings.clone());
                all.insert(name, (policy, matchings));
            }
            for (name, (policy, matchings)) in &all {
                let expected: BTreeSet<String> = all
                    .iter()
                    .filter(|(other, (them, theirs))| {
                        *other != name
                            && them.priority == policy.priority
                            && them.treatment != policy.treatment
                            && policy.on.meets(&them.on)
                            && matchings.iter().any(|m| theirs.iter().any(|t| m.overlaps(t)))
                    })
                    .map(|(other, _)| other.clone())
                    .collect();
                prop_assert_eq!(odds.against(name), expected);
            }
        }
    }
}
