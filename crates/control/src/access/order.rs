//! Priorities for the rules of one place: they follow the order of the rules, and rules that stay
//! keep theirs.

use std::collections::BTreeMap;

/// The priority above all rules.
pub const TOP: u16 = 60_000;
/// The priority below all rules.
pub const BOTTOM: u16 = 1;

/// The distance between rules that are set for the first time, so that others fit in between.
const GAP: u16 = 16;

/// The maximum number of rules of one place.
pub const RULES_MAX: usize = 16_384;

/// Returns the priorities of `rules`; the first rule has the highest. Rules that are in `before`,
/// in the same order as here, keep theirs. If there is no room for a new rule between two of them,
/// all rules get new priorities. There are at most [`RULES_MAX`] rules.
pub fn priorities<T: Ord>(before: &[(T, u16)], rules: &[T]) -> Vec<u16> {
    let kept = kept(before, rules);
    let mut priorities = Vec::with_capacity(rules.len());
    let mut above = TOP;
    let mut at = 0;
    while at < rules.len() {
        if let Some(priority) = kept.get(&at) {
            priorities.push(*priority);
            above = *priority;
            at += 1;
            continue;
        }
        let next = kept.range(at..).next();
        let end = next.map_or(rules.len(), |(end, _)| *end);
        let below = next.map_or(BOTTOM, |(_, priority)| *priority);
        let count = (end - at) as u32;
        let room = u32::from(above.saturating_sub(below)).saturating_sub(1);
        if room < count {
            return afresh(rules.len());
        }
        let gap = ((room + 1) / (count + 1)).clamp(1, u32::from(GAP));
        let place = |n: u32| above - ((n + 1) * gap) as u16;
        priorities.extend((0..count).map(place));
        above = place(count - 1);
        at = end;
    }
    priorities
}

fn afresh(count: usize) -> Vec<u16> {
    let room = usize::from(TOP - BOTTOM);
    let gap = (room / (count + 1)).clamp(1, usize::from(GAP));
    let place = |n: usize| TOP - ((n + 1) * gap).min(room - 1) as u16;
    (0..count).map(place).collect()
}

/// The priorities that stay, by the index of their rules: those of a longest sequence of rules that
/// is in the same order in both lists.
fn kept<T: Ord>(before: &[(T, u16)], rules: &[T]) -> BTreeMap<usize, u16> {
    let mut places = BTreeMap::new();
    for (place, (rule, _)) in before.iter().enumerate() {
        places.entry(rule).or_insert(place);
    }
    // Each rule has one place before, so this is a longest increasing sequence of places.
    let mut rows: Vec<(usize, usize)> = Vec::new();
    let mut previous = vec![None; rules.len()];
    for (at, rule) in rules.iter().enumerate() {
        let Some(place) = places.remove(rule) else {
            continue;
        };
        let len = rows.partition_point(|(end, _)| *end < place);
        previous[at] = len.checked_sub(1).map(|len| rows[len].1);
        match rows.get_mut(len) {
            Some(row) => *row = (place, at),
            None => rows.push((place, at)),
        }
    }
    let priority = |place: usize| before[place].1;
    let ends: BTreeMap<&T, usize> = before
        .iter()
        .enumerate()
        .map(|(n, (t, _))| (t, n))
        .collect();
    let mut kept = BTreeMap::new();
    let mut at = rows.last().map(|(_, at)| *at);
    while let Some(here) = at {
        if let Some(place) = ends.get(&rules[here]) {
            kept.insert(here, priority(*place));
        }
        at = previous[here];
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(priorities: &[u16], rules: &[u32]) -> Vec<(u32, u16)> {
        rules
            .iter()
            .copied()
            .zip(priorities.iter().copied())
            .collect()
    }

    proptest! {
        /// Each list in any sequence of lists has descending priorities.
        #[test]
        fn priorities_are_in_the_order_of_the_rules(
            lists in prop::collection::vec(prop::collection::btree_set(0u32..40, 0..30), 1..12),
            seed in any::<u64>(),
        ) {
            let mut before = Vec::new();
            for list in lists {
                let mut rules: Vec<u32> = list.into_iter().collect();
                rules.sort_by_key(|rule| clock::mix(seed ^ u64::from(*rule)) % 7);
                let found = priorities(&before, &rules);
                prop_assert_eq!(found.len(), rules.len());
                prop_assert!(found.windows(2).all(|pair| pair[0] > pair[1]), "{:?}", found);
                prop_assert!(found.iter().all(|p| (BOTTOM + 1..TOP).contains(p)));
                before = row(&found, &rules);
            }
        }

        /// A rule that is added, removed or moved changes no other.
        #[test]
        fn one_change_leaves_all_others(count in 1u32..200, at in any::<prop::sample::Index>()) {
            let rules: Vec<u32> = (0..count).collect();
            let first = priorities(&[], &rules);
            let before = row(&first, &rules);
            let mut with = rules.clone();
            with.insert(at.index(rules.len() + 1), 1000);
            let after = row(&priorities(&before, &with), &with);
            prop_assert!(before.iter().all(|rule| after.contains(rule)));
            let mut without = rules.clone();
            without.remove(at.index(rules.len()));
            let after = row(&priorities(&before, &without), &without);
            prop_assert!(after.iter().all(|rule| before.contains(rule)));
        }
    }

    #[test]
    fn where_no_room_is_left_all_begin_anew() {
        let mut rules = vec![0u32, 1];
        let mut before = row(&priorities(&[], &rules), &rules);
        for new in 2..200 {
            rules.insert(1, new);
            let found = priorities(&before, &rules);
            assert!(found.windows(2).all(|pair| pair[0] > pair[1]));
            before = row(&found, &rules);
        }
        let many: Vec<u32> = (0..RULES_MAX as u32).collect();
        let found = priorities(&before, &many);
        assert!(found.windows(2).all(|pair| pair[0] > pair[1]));
        assert!(found.iter().all(|p| (BOTTOM + 1..TOP).contains(p)));
    }
}
