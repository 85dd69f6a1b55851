//! Some of the paths, for whoever reads them page by page.

use std::ops::Bound;

use openflow::MacAddr;

use super::super::links::{Hop, Pair};
use super::{Paths, Setup};

impl Paths {
    /// At most `max` pairs from a source or to a destination, behind `after`. Only these are
    /// looked at.
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
                let pairs = self.paths.range(behind(src, after)).map(|(pair, _)| *pair);
                let pairs = pairs.take_while(|(of, _)| src.is_none_or(|src| *of == src));
                pairs.take(max).collect()
            }
        }
    }

    /// The hops of a path, and whether the switches have confirmed them.
    pub(in crate::controller) fn detail(&self, pair: Pair) -> Option<(&[Hop], Option<bool>)> {
        let path = self.paths.get(&pair)?;
        let is_confirmed = match path.setup {
            Setup::Unasked => None,
            Setup::UnderWay(_) => Some(false),
            Setup::Confirmed => Some(true),
        };
        Some((&path.hops, is_confirmed))
    }
}

/// From the first pair of an address on, or from behind a pair.
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
