//! Forwarding by labels: routes between switches are set before any packet needs them.
//!
//! Each switch with hosts is an *egress* and has a [`Label`]. Every switch has a group for each
//! egress, which forwards packets there, and entries that send labelled packets to the group. A
//! conversation costs one entry, at its ingress: the entry pushes the label as an outer VLAN tag
//! and sends the packet to the group. The egress pops the label and looks the destination up among
//! its own hosts.
//!
//! ```text
//! table 0        in_port=link, any tag -> table 2
//! table 2        vid=own label         -> pop_vlan, table 3
//!                vid=other label       -> group of the egress
//! table 3        eth_dst=host          -> output
//! ```
//!
//! [`plan`] computes the routes from the links, and [`form`] turns them into messages. All edges
//! look up the egress of a host in [`places`], and the host that owns an IP address in
//! [`addresses`]. [`replication`] copies multicast for the egresses with receivers, and [`tree`]
//! copies broadcasts for all edge ports.

pub mod addresses;
pub mod form;
pub mod places;
pub mod plan;
pub mod replication;
pub mod tree;

/// The number of an egress: the VLAN id of the tag that its packets carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u16);

impl Label {
    /// VLAN ids 0 and 4095 name no VLAN.
    pub const MIN: Label = Label(1);
    pub const MAX: Label = Label(4094);
}

/// The direction of a packet from its ingress: to a host there, or to another switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Port(openflow::PortNo),
    Egress(Label),
}

/// A set of labels.
#[derive(Clone, PartialEq, Eq)]
pub struct Labels(Box<[u64; 64]>);

impl Default for Labels {
    fn default() -> Labels {
        Labels(Box::new([0; 64]))
    }
}

impl Labels {
    pub fn insert(&mut self, label: Label) {
        self.0[usize::from(label.0 / 64) % 64] |= 1 << (label.0 % 64);
    }

    pub fn remove(&mut self, label: Label) {
        self.0[usize::from(label.0 / 64) % 64] &= !(1 << (label.0 % 64));
    }

    pub fn contains(&self, label: Label) -> bool {
        self.0[usize::from(label.0 / 64) % 64] & 1 << (label.0 % 64) != 0
    }

    /// The labels that are in `others` as well.
    pub fn within(&self, others: &Labels) -> Labels {
        let word = |at: usize| self.0[at] & others.0[at];
        Labels(Box::new(std::array::from_fn(word)))
    }

    /// The labels that are not in `others`.
    pub fn without(&self, others: &Labels) -> Labels {
        let word = |at: usize| self.0[at] & !others.0[at];
        Labels(Box::new(std::array::from_fn(word)))
    }

    /// The labels, least first.
    pub fn iter(&self) -> impl Iterator<Item = Label> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let rest = std::iter::successors(Some(*word), |rest| Some(rest & rest.wrapping_sub(1)));
            rest.take_while(|rest| *rest != 0)
                .map(move |rest| Label((at * 64) as u16 + rest.trailing_zeros() as u16))
        })
    }
}

impl FromIterator<Label> for Labels {
    fn from_iter<I: IntoIterator<Item = Label>>(labels: I) -> Labels {
        let mut all = Labels::default();
        for label in labels {
            all.insert(label);
        }
        all
    }
}

impl std::fmt::Debug for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clock::SplitMix64;

    use super::*;

    #[test]
    fn labels_are_a_set() {
        let mut random = SplitMix64::new(7);
        for _ in 0..200 {
            let mut some = || -> BTreeSet<Label> {
                let count = random.next() % 100;
                let any = (0..count).map(|_| Label((random.next() % 4096) as u16));
                any.chain([Label(63), Label(64), Label(4095)]).collect()
            };
            let (one, other) = (some(), some());
            let labels = |of: &BTreeSet<Label>| of.iter().copied().collect::<Labels>();
            let (left, right) = (labels(&one), labels(&other));
            assert!(left.iter().eq(one.iter().copied()));
            let within = left.within(&right);
            assert!(within.iter().eq(one.intersection(&other).copied()));
            let without = left.without(&right);
            assert!(without.iter().eq(one.difference(&other).copied()));
        }
    }
}
