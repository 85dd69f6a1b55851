//! Lanes that do not wait for each other, and the little that they owe each other.
//!
//! A channel's messages of one direction are dealt to lanes; each lane is first-in first-out, and
//! lanes may overtake one another. What must not be overtaken is written into a [`Stamp`]: the
//! sender's [`Sequencer`] counts, the receiver's [`Gate`] holds a message back until its counts
//! are reached. Counts run from the last fence, so stamps stay small.
//!
//! - `epoch`: fences sent before this message, modulo 256. A fence is on the first state lane and
//!   carries how many messages each lane has had since the fence before. The gate releases it when
//!   all of those are released, and messages of a later epoch only afterwards.
//! - `after`: messages of the other ordered lane, since the last fence, that must be released
//!   first. For a packet or a request that is the state lane; for a state message, requests.
//!
//! Every dependency points backwards in the order of sending, so the oldest message that is held
//! can always be released once it and all before it have arrived: nothing here can deadlock as
//! long as the receiver takes whatever arrives. An epoch byte is unambiguous while fewer than 256
//! fences are on their way; the sender sees to that ([`FENCES_IN_FLIGHT_MAX`]).

use std::collections::{BTreeMap, VecDeque};

use crate::classify::Binding;

/// Fences a sender may have on their way before it waits for the first to be acknowledged.
pub const FENCES_IN_FLIGHT_MAX: usize = 255;

/// Lane numbers above this are refused: a peer cannot make us keep more lanes than 4 kinds of it.
pub const LANE_INDEX_MAX: u16 = 255;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    ToSwitch,
    ToController,
}

/// What a lane carries. The order of the variants is the order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKind {
    Echo = 0,
    /// State changes and notices. Lane 0 alone in strict mode; keyed mode may add further ones.
    State = 1,
    /// Packets, dealt to lanes by flow.
    Flow = 2,
    /// Requests one way, replies the other.
    Exchange = 3,
}

/// One ordered stream of messages of a channel, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    pub kind: LaneKind,
    pub index: u16,
}

impl Lane {
    pub const ECHO: Lane = Lane {
        kind: LaneKind::Echo,
        index: 0,
    };
    pub const STATE: Lane = Lane {
        kind: LaneKind::State,
        index: 0,
    };
    pub const EXCHANGE: Lane = Lane {
        kind: LaneKind::Exchange,
        index: 0,
    };

    pub const fn flow(index: u16) -> Lane {
        Lane {
            kind: LaneKind::Flow,
            index,
        }
    }

    /// The number on the wire: the kind in the low two bits.
    pub fn wire(self) -> u64 {
        u64::from(self.index) << 2 | self.kind as u64
    }

    pub fn from_wire(n: u64) -> Option<Lane> {
        let index = u16::try_from(n >> 2)
            .ok()
            .filter(|i| *i <= LANE_INDEX_MAX)?;
        let kind = match n & 3 {
            0 => LaneKind::Echo,
            1 => LaneKind::State,
            2 => LaneKind::Flow,
            _ => LaneKind::Exchange,
        };
        Some(Lane { kind, index })
    }
}

/// Where a message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Fence,
    State,
    /// A packet, by the lane of its flow.
    Flow(u16),
    Exchange,
    Free,
}

/// What a message must not overtake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Fences before this message, modulo 256.
    pub epoch: u8,
    /// Messages of the other ordered lane since the last fence.
    pub after: u64,
    /// Only a fence has it: messages per lane since the last fence.
    pub fence: Option<Vec<(Lane, u64)>>,
}

/// The law: whether `later` must stay behind `earlier`, which came before it on the same channel
/// and goes the same way. Each is a binding and a domain of barriers.
///
/// - A fence is crossed by nothing of its domain; domain 0 shares the fences of all.
/// - State messages stay in order. Towards the switch, packets that say so, and requests, follow
///   the state messages before them: they may depend on what these set up. A state message follows
///   the requests before it, whose answers must not show it. Towards the controller only replies
///   follow state messages: a notice need not wait for a long reply, nor a packet for a notice.
/// - Requests stay in order, replies do, and packets of one flow.
/// - What is free keeps its order among its like, and is bound to nothing else.
///
/// Beside this, whatever comes first on a channel is overtaken by nothing: it is a HELLO as a rule.
pub fn must_follow(direction: Direction, earlier: (Binding, u8), later: (Binding, u8)) -> bool {
    use Binding::{Exchange, Fence, Flow, Free, State};
    let to_switch = direction == Direction::ToSwitch;
    let shares_fences = earlier.1 == later.1 || earlier.1 == 0 || later.1 == 0;
    match (earlier.0, later.0) {
        (Free, Free) => true,
        (Free, _) | (_, Free) => false,
        (Fence, _) | (_, Fence) => shares_fences,
        (State, State | Exchange) | (Exchange, Exchange) => true,
        (Flow { key: a, .. }, Flow { key: b, .. }) => a == b,
        (State, Flow { after_state, .. }) => to_switch && after_state,
        (Exchange, State) => to_switch,
        _ => false,
    }
}

/// Deals messages to lanes and stamps them, at the sender.
#[derive(Debug)]
pub struct Sequencer {
    direction: Direction,
    epoch: u64,
    since_fence: BTreeMap<Lane, u64>,
    /// Whether anything has been dealt yet: the first message, a HELLO as a rule, is a fence
    /// whatever it is, and nothing overtakes it.
    started: bool,
}

impl Sequencer {
    pub fn new(direction: Direction) -> Sequencer {
        Sequencer {
            direction,
            epoch: 0,
            since_fence: BTreeMap::new(),
            started: false,
        }
    }

    /// The lane that the next message would have at `place`.
    pub fn lane_of(&self, place: Place) -> Lane {
        match place {
            _ if !self.started => Lane::STATE,
            Place::Free => Lane::ECHO,
            Place::Fence | Place::State => Lane::STATE,
            Place::Flow(lane) => Lane::flow(lane),
            Place::Exchange => Lane::EXCHANGE,
        }
    }

    /// The lane for the next message and what it must not overtake.
    pub fn stamp(&mut self, place: Place) -> (Lane, Stamp) {
        let place = match place {
            _ if !self.started => Place::Fence,
            place => place,
        };
        self.started = true;
        let count = |lane| self.since_fence.get(&lane).copied().unwrap_or(0);
        let (lane, after) = match (place, self.direction) {
            (Place::Free, _) => return (Lane::ECHO, Stamp::default()),
            (Place::Fence, _) => return (Lane::STATE, self.fence()),
            // A state change must not be seen by a request sent before it. The other way round
            // replies may be long, and a notice does not wait for them.
            (Place::State, Direction::ToSwitch) => (Lane::STATE, count(Lane::EXCHANGE)),
            (Place::State, Direction::ToController) => (Lane::STATE, 0),
            (Place::Flow(lane), Direction::ToSwitch) => (Lane::flow(lane), count(Lane::STATE)),
            (Place::Flow(lane), Direction::ToController) => (Lane::flow(lane), 0),
            (Place::Exchange, _) => (Lane::EXCHANGE, count(Lane::STATE)),
        };
        *self.since_fence.entry(lane).or_default() += 1;
        (
            lane,
            Stamp {
                epoch: self.epoch as u8,
                after,
                fence: None,
            },
        )
    }

    fn fence(&mut self) -> Stamp {
        let counts = std::mem::take(&mut self.since_fence).into_iter().collect();
        let stamp = Stamp {
            epoch: self.epoch as u8,
            after: 0,
            fence: Some(counts),
        };
        self.epoch += 1;
        stamp
    }
}

/// Holds messages back until what they must not overtake has been released, at the receiver.
///
/// The caller bounds what is put in: in a relay, by the window it grants to the sender.
#[derive(Debug)]
pub struct Gate<T> {
    lanes: BTreeMap<Lane, VecDeque<(Stamp, T)>>,
    released: BTreeMap<Lane, u64>,
    epoch: u64,
    held: usize,
}

impl<T> Default for Gate<T> {
    fn default() -> Gate<T> {
        Gate {
            lanes: BTreeMap::new(),
            released: BTreeMap::new(),
            epoch: 0,
            held: 0,
        }
    }
}

impl<T> Gate<T> {
    /// The next message of `lane` has arrived.
    pub fn handle_message(&mut self, lane: Lane, stamp: Stamp, message: T) {
        self.held += 1;
        self.lanes
            .entry(lane)
            .or_default()
            .push_back((stamp, message));
    }

    /// The most urgent message that may be handed over now.
    pub fn poll_release(&mut self) -> Option<(Lane, T)> {
        let ready = |(lane, queue): (&Lane, &VecDeque<(Stamp, T)>)| {
            queue
                .front()
                .filter(|(stamp, _)| self.may_pass(*lane, stamp))
                .map(|_| *lane)
        };
        let lane = self.lanes.iter().find_map(ready)?;
        let (stamp, message) = self.lanes.get_mut(&lane)?.pop_front()?;
        self.held -= 1;
        if stamp.fence.is_some() {
            self.epoch += 1;
            self.released.clear();
        } else {
            *self.released.entry(lane).or_default() += 1;
        }
        Some((lane, message))
    }

    /// Messages that have arrived and wait.
    pub fn held(&self) -> usize {
        self.held
    }

    fn may_pass(&self, lane: Lane, stamp: &Stamp) -> bool {
        let released = |lane: &Lane| self.released.get(lane).copied().unwrap_or(0);
        if lane.kind == LaneKind::Echo {
            // The first message of a channel is a fence; an echo owes it that and nothing more.
            return self.epoch > 0;
        }
        if stamp.epoch != self.epoch as u8 {
            return false;
        }
        match &stamp.fence {
            Some(counts) => counts.iter().all(|(lane, count)| released(lane) >= *count),
            None if lane.kind == LaneKind::State => released(&Lane::EXCHANGE) >= stamp.after,
            None => released(&Lane::STATE) >= stamp.after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places() -> impl Strategy<Value = Vec<Place>> {
        let place = prop_oneof![
            1 => Just(Place::Fence),
            4 => Just(Place::State),
            8 => (0u16..4).prop_map(Place::Flow),
            2 => Just(Place::Exchange),
            2 => Just(Place::Free),
        ];
        proptest::collection::vec(place, 1..400)
    }

    /// Sends `places` in order and lets the lanes arrive in any interleaving that `picks` chooses.
    /// Returns the positions in the order they were released.
    fn carry(direction: Direction, places: &[Place], picks: &[usize]) -> Vec<usize> {
        let mut sequencer = Sequencer::new(direction);
        let mut flight: BTreeMap<Lane, VecDeque<(Stamp, usize)>> = BTreeMap::new();
        for (at, place) in places.iter().enumerate() {
            let (lane, stamp) = sequencer.stamp(*place);
            flight.entry(lane).or_default().push_back((stamp, at));
        }
        let mut gate = Gate::default();
        let mut released = Vec::new();
        for pick in picks.iter().cycle() {
            let lanes: Vec<Lane> = flight
                .iter()
                .filter(|(_, q)| !q.is_empty())
                .map(|(l, _)| *l)
                .collect();
            if lanes.is_empty() {
                break;
            }
            let lane = lanes[pick % lanes.len()];
            let (stamp, at) = flight.get_mut(&lane).unwrap().pop_front().unwrap();
            gate.handle_message(lane, stamp, at);
            while let Some((_, at)) = gate.poll_release() {
                released.push(at);
            }
        }
        assert_eq!(gate.held(), 0, "everything arrived, so nothing may be held");
        released
    }

    fn bound(direction: Direction, earlier: Place, later: Place) -> bool {
        let binding = |place| match place {
            Place::Fence => Binding::Fence,
            Place::State => Binding::State,
            Place::Flow(lane) => Binding::Flow {
                key: u64::from(lane),
                after_state: true,
            },
            Place::Exchange => Binding::Exchange,
            Place::Free => Binding::Free,
        };
        must_follow(direction, (binding(earlier), 0), (binding(later), 0))
    }

    fn assert_in_order(direction: Direction, places: &[Place], released: &[usize]) {
        let mut sorted = released.to_vec();
        sorted.sort_unstable();
        assert_eq!(
            sorted,
            (0..places.len()).collect::<Vec<_>>(),
            "each exactly once"
        );
        assert_eq!(released[0], 0, "the first message is the first out");
        for (i, later) in released.iter().enumerate() {
            for earlier in &released[i + 1..] {
                let crossed = earlier < later && bound(direction, places[*earlier], places[*later]);
                assert!(!crossed, "{later} {:?} overtook {earlier}", places[*later]);
            }
        }
    }

    proptest! {
        #[test]
        fn no_interleaving_of_lanes_breaks_the_order(
            places in places(),
            picks in proptest::collection::vec(any::<usize>(), 1..50),
        ) {
            for direction in [Direction::ToSwitch, Direction::ToController] {
                let released = carry(direction, &places, &picks);
                assert_in_order(direction, &places, &released);
            }
        }
    }

    #[test]
    fn packets_of_another_flow_do_overtake() {
        let places = [Place::Fence, Place::Flow(0), Place::Flow(1)];
        let last_lane_first = [1, 1, 0];
        let mut released = carry(Direction::ToController, &places, &[0]);
        assert_eq!(released, [0, 1, 2]);
        released = carry(Direction::ToController, &places, &last_lane_first);
        assert_eq!(released, [0, 1, 2], "nothing overtakes the fence");
        // State lane first, then the second of two flow lanes.
        released = carry(Direction::ToController, &places, &[0, 1, 0]);
        assert_eq!(released, [0, 2, 1]);
    }

    /// Packets of one epoch arrive before the fence that opens it, 700 times over.
    #[test]
    fn the_epoch_byte_may_wrap() {
        let mut sequencer = Sequencer::new(Direction::ToController);
        let mut gate = Gate::default();
        for round in 0..700 {
            let fence = sequencer.stamp(Place::Fence);
            let packet = sequencer.stamp(Place::Flow(round % 3));
            gate.handle_message(packet.0, packet.1, "packet");
            assert_eq!(gate.poll_release(), None, "round {round}");
            gate.handle_message(fence.0, fence.1, "fence");
            assert_eq!(
                gate.poll_release(),
                Some((Lane::STATE, "fence")),
                "round {round}"
            );
            assert_eq!(
                gate.poll_release().map(|(_, m)| m),
                Some("packet"),
                "round {round}"
            );
        }
    }

    #[test]
    fn lanes_have_one_number_each_and_a_peer_cannot_invent_many() {
        for n in 0..4 * (u64::from(LANE_INDEX_MAX) + 1) {
            assert_eq!(Lane::from_wire(n).map(Lane::wire), Some(n));
        }
        assert_eq!(Lane::from_wire(4 * (u64::from(LANE_INDEX_MAX) + 1)), None);
    }
}
