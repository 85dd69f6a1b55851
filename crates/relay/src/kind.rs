//! Kinds of messages that an operator may choose, as a relay tells them apart: by their lane.

use sched::{Lane, LaneKind};

/// What travels on lanes of one kind, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Echo,
    /// State changes one way, notices the other, and whatever nothing may overtake.
    State,
    /// Packet-ins one way, packet-outs the other.
    Packet,
    /// Requests one way, replies the other.
    Exchange,
    /// Agents other than OpenFlow, where none of the above is chosen for them.
    Other,
}

/// Names by which an operator knows them, the first of each the one that is written.
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

    /// Of a lane of OpenFlow.
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
