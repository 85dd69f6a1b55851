//! Pages of the paths.

use std::ops::Bound;

use openflow::MacAddr;

use super::super::links::{Hop, Pair};
use super::{Paths, Setup};

impl Paths {
    /// At most `max` pairs from a source or to a destination, after `after`. Only these are read.
    pub(in crate::controller) fn page(
        &self,
        (src, dst): (Option<MacAddr>, Option<MacAddr>),
        after: Option<Pair>,
        max: usize,
    ) -> Vec<Pair> {
        match (src, dst) {
            (Some(src), Some(dst)) => {
                let pair = (src, dst);
                let is_it = self.contains(pair) && after.is_none_or(|after| pair > after);
                is_it.then_some(pair).into_iter().take(max).collect()
            }
            (None, Some(dst)) => {
                let after = after.map(|(src, dst)| (dst, src));
                let pairs = self.by_dst.range(behind(Some(dst), after));
                let pairs = pairs.take_while(|(of, _)| *of == dst);
                pairs.map(|(dst, src)| (*src, *dst)).take(max).collect()
            }
            (src, None) => {
                let pairs = self.by_src.range(behind(src, after)).copied();
                let pairs = pairs.take_while(|(of, _)| src.is_none_or(|src| *of == src));
                pairs.take(max).collect()
            }
        }
    }

    /// The hops of a path, and whether the switches have confirmed them.
    pub(in crate::controller) fn detail(&self, pair: Pair) -> Option<(&[Hop], Option<bool>)> {
        let path = self.paths.get(pair)?;
        let is_confirmed = match path.setup {
            Setup::Unasked => None,
            Setup::UnderWay(_) => Some(false),
            Setup::Confirmed => Some(true),
        };
        Some((&path.hops, is_confirmed))
    }
}

/// The range that starts at the first pair of an address, or after a pair.
fn behind(first: Option<MacAddr>, after: Option<Pair>) -> (Bound<Pair>, Bound<Pair>) {
    let first = first.map(|mac| (mac, MacAddr([0; 6])));
    let start = match (first, after) {
        (Some(first), Some(after)) if after >= first => Bound::Excluded(after),
        (Some(first), _) => Bound::Included(first),
        (None, Some(after)) => Bound::Excluded(after),
        (None, None) => Bound::Unbounded,
    };
    (start, Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use clock::Instant;
    use openflow::{DatapathId, PortNo};

    use super::super::super::config::ControllerConfig;
    use super::*;

    fn mac(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, n])
    }

    #[test]
    fn pages_of_a_source_a_destination_or_all_join_without_a_gap() {
        let mut paths = Paths::new(&ControllerConfig::default(), 7);
        let hop = Hop {
            dpid: DatapathId(1),
            in_port: PortNo(1),
            out_port: PortNo(2),
        };
        let of_two = |a: u8| {
            (1..6)
                .filter(move |b| *b != a)
                .map(move |b| (mac(a), mac(b)))
        };
        let all: Vec<Pair> = (1..6).flat_map(of_two).collect();
        for pair in &all {
            paths.adopt(Instant::START, *pair, vec![hop]);
        }
        assert_eq!(paths.detail(all[0]), Some((&[hop][..], None)));
        let (one, three) = (Some(mac(1)), Some(mac(3)));
        for wanted in [
            (None, None),
            (three, None),
            (None, three),
            (one, three),
            (three, three),
        ] {
            let is_wanted = |pair: &Pair| {
                wanted.0.is_none_or(|src| src == pair.0) && wanted.1.is_none_or(|dst| dst == pair.1)
            };
            let expected: Vec<Pair> = all.iter().copied().filter(is_wanted).collect();
            for max in 1..5 {
                let (mut read, mut after) = (Vec::new(), None);
                loop {
                    let page = paths.page(wanted, after, max);
                    assert!(page.len() <= max);
                    let Some(last) = page.last() else { break };
                    after = Some(*last);
                    read.extend(page);
                }
                assert_eq!(read, expected, "{wanted:?}, {max} at a time");
            }
        }
    }
}
