//! Kinds of messages that an operator may choose; a relay distinguishes them by their lane.

use sched::{Lane, LaneKind};

/// The traffic on lanes of one kind, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Echo,
    /// State changes in one direction, notices in the other, and all messages that nothing may
    /// overtake.
    State,
    /// Packet-ins in one direction, packet-outs in the other.
    Packet,
    /// Requests in one direction, replies in the other.
    Exchange,
    /// Agents other than OpenFlow, unless one of the above is chosen for them.
    Other,
}

/// The operator's names for kinds; the first of each is the written form.
const NAMES: [(Kind, &[&str]); 5] = [
    (Kind::Echo, &["echo"]),
    (
        Kind::State,
        &["state", "flow-mod", "flow-removed", "port-status"],
    ),
    (Kind::Packet, &["packet", "packet-in", "packet-out"]),
    (Kind::Exchange, &["exchange", "statistics"]),
    (Kind::Other, &["other", "ovsdb"]),
];

impl Kind {
    pub const ALL: [Kind; 5] = [
        Kind::Echo,
        Kind::State,
        Kind::Packet,
        Kind::Exchange,
        Kind::Other,
    ];

    /// The kind of a lane of OpenFlow.
    pub fn of(lane: Lane) -> Kind {
        match lane.kind {
            LaneKind::Echo => Kind::Echo,
            LaneKind::State => Kind::State,
            LaneKind::Flow => Kind::Packet,
            LaneKind::Exchange => Kind::Exchange,
        }
    }

    pub fn parse(word: &str) -> Option<Kind> {
        let of = |(_, names): &&(Kind, &[&str])| names.contains(&word);
        NAMES.iter().find(of).map(|(kind, _)| *kind)
    }

    pub fn name(self) -> &'static str {
        NAMES[self as usize].1[0]
    }
}

/// A value for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerKind<T>([T; Kind::ALL.len()]);

impl<T> PerKind<T> {
    pub fn get(&self, kind: Kind) -> &T {
        &self.0[kind as usize]
    }

    pub fn get_mut(&mut self, kind: Kind) -> &mut T {
        &mut self.0[kind as usize]
    }

    pub fn set(&mut self, kind: Kind, value: T) {
        self.0[kind as usize] = value;
    }

    pub fn iter(&self) -> impl Iterator<Item = (Kind, &T)> {
        Kind::ALL.into_iter().zip(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_found_by_its_names_and_is_where_it_stands() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
            assert_eq!(NAMES[place].0, kind);
            assert_eq!(Kind::parse(kind.name()), Some(kind));
        }
        assert_eq!(Kind::parse("packet-in"), Some(Kind::Packet));
        assert_eq!(Kind::parse("flow-mod"), Some(Kind::State));
        assert_eq!(Kind::parse("packets"), None);
        assert_eq!(Kind::of(Lane::STATE), Kind::State);
        assert_eq!(Kind::of(Lane::flow(3)), Kind::Packet);
    }
}
