//! Lanes that do not wait for each other, and the few dependencies between them.
//!
//! The sender deals a channel's messages of one direction to lanes. Each lane is first-in
//! first-out, and lanes may overtake one another. A [`Stamp`] counts the messages that a message
//! must not overtake: the sender's [`Sequencer`] writes it, and the receiver's [`Gate`] holds the
//! message back until its counts are reached. Counts run from the last fence, so stamps stay small.
//!
//! - `epoch`: fences sent before this message, modulo 256. A fence travels on the first state lane
//!   and carries each lane's number of messages since the previous fence. The gate releases the
//!   fence when all those messages are released, and messages of a later epoch only afterwards.
//! - `after`: messages of the other ordered lane, since the last fence, that must be released
//!   first. For a packet or a request the other lane is the state lane; for a state message, the
//!   lane of requests.
//!
//! A message depends only on messages sent before it. So the oldest held message can always be
//! released once it and all messages before it have arrived: nothing here can deadlock as long as
//! the receiver takes whatever arrives. An epoch byte is unambiguous while fewer than 256 fences
//! are in flight, which the sender ensures ([`FENCES_IN_FLIGHT_MAX`]).
//!
//! The text above describes *strict* mode, in which state messages have one lane. *Keyed* mode,
//! towards the switch, deals state messages with a [`Key`] to lanes of their own by that key; every
//! other state message is a fence. Each keyed message has a `number`. A packet or a request follows
//! all keyed messages before it, and the numbers let one count show when the first `after` of them
//! are released. Each domain of barriers is a *scope* with its own lanes and fences, like an
//! auxiliary connection. A fence of domain 0 fences all scopes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::classify::Binding;
use crate::key::{Key, KeyKind};

/// Fences that a sender may have in flight before it waits for the first to be acknowledged.
pub const FENCES_IN_FLIGHT_MAX: usize = 255;

/// Highest index of the lanes of one kind in one scope.
pub const LANE_INDEX_MAX: u16 = 255;

/// Scopes that have lanes of their own: one for domain 0, and three that the other domains share.
/// Lanes of further scopes are refused, so that a peer cannot make us keep many.
pub const SCOPES: usize = 4;

/// Lanes for the keyed messages of a scope. 32 lanes bring nearly all that lanes can gain.
pub const KEYED_LANES: u16 = 32;

/// Number of keyed messages without a fence after which the next one is a fence. It bounds what the
/// receiver must remember about messages that were released before their turn.
pub const KEYED_RUN_MAX: u64 = 65_536;

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From controller to switch.
    ToSwitch,
    /// From switch to controller.
    ToController,
}

/// Kind of messages that a lane carries. The order of the variants is the order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaneKind {
    /// Echo requests and replies.
    Echo = 0,
    /// State changes and notices: lane 0, and in keyed mode the lanes of the keys after it.
    State = 1,
    /// Packets, dealt to lanes by flow.
    Flow = 2,
    /// Requests in one direction, replies in the other.
    Exchange = 3,
}

/// One ordered stream of messages of a channel, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// Kind of messages that it carries.
    pub kind: LaneKind,
    /// The scope in the high byte; the low byte numbers the lanes of one kind in that scope.
    pub index: u16,
}

impl Lane {
    /// Lane of echoes.
    pub const ECHO: Lane = Lane {
        kind: LaneKind::Echo,
        index: 0,
    };
    /// First lane of state messages, and of fences.
    pub const STATE: Lane = Lane {
        kind: LaneKind::State,
        index: 0,
    };
    /// Lane of requests and replies.
    pub const EXCHANGE: Lane = Lane {
        kind: LaneKind::Exchange,
        index: 0,
    };

    /// Lane of packets, from 0 to [`LANE_INDEX_MAX`].
    pub const fn flow(index: u16) -> Lane {
        Lane {
            kind: LaneKind::Flow,
            index,
        }
    }

    /// The lane of messages whose key has this hash.
    fn keyed(hash: u64) -> Lane {
        Lane {
            kind: LaneKind::State,
            index: 1 + (hash % u64::from(KEYED_LANES)) as u16,
        }
    }

    fn in_scope(self, scope: usize) -> Lane {
        Lane {
            index: (scope as u16) << 8 | self.index,
            ..self
        }
    }

    fn scope(self) -> usize {
        usize::from(self.index >> 8)
    }

    /// Number of the lane among the lanes of its kind and scope.
    pub fn of_scope(self) -> u16 {
        self.index & LANE_INDEX_MAX
    }

    /// Returns the lane's number on the wire, with the kind in the low two bits.
    pub fn wire(self) -> u64 {
        u64::from(self.index) << 2 | self.kind as u64
    }

    /// Reads a number as [`Lane::wire`] writes it; `None` for a scope beyond [`SCOPES`].
    pub fn from_wire(n: u64) -> Option<Lane> {
        let index = u16::try_from(n >> 2)
            .ok()
            .filter(|i| usize::from(i >> 8) < SCOPES)?;
        let kind = match n & 3 {
            0 => LaneKind::Echo,
            1 => LaneKind::State,
            2 => LaneKind::Flow,
            _ => LaneKind::Exchange,
        };
        Some(Lane { kind, index })
    }
}

/// Place of a message in the order, for lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing crosses it, in either direction.
    Fence,
    /// A state message without a key.
    State,
    /// A state message that concerns its key alone. Strict mode treats it as any other state
    /// message.
    Keyed(Key),
    /// A packet, by the lane of its flow.
    Flow(u16),
    /// A request or a reply.
    Exchange,
    /// An echo.
    Free,
}

/// Counts of the messages that a message must not overtake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Fences before this message, modulo 256.
    pub epoch: u8,
    /// Messages of the other ordered lane since the last fence.
    pub after: u64,
    /// Messages per lane since the last fence. Only a fence has this field.
    pub fence: Option<Vec<(Lane, u64)>>,
    /// Keyed messages of the scope since the last fence. Only a keyed message has this field.
    pub number: Option<u64>,
}

/// States the law of order: whether `later` must stay behind `earlier`, which was sent before it on
/// the same channel in the same direction. Each message is a binding and a domain of barriers.
///
/// - No message crosses a fence of its domain; domain 0 shares the fences of all domains.
/// - State messages stay in order. Towards the switch, packets with `after_state`, and requests,
///   follow the state messages before them: they may depend on that state. A state message follows
///   the requests before it: their answers must not show its change. Towards the controller only
///   replies follow state messages: a notice need not wait for a long reply, nor a packet for a
///   notice.
/// - Requests stay in order, and so do replies and the packets of one flow.
/// - Free messages stay in order among themselves and are bound to nothing else.
///
/// Besides, nothing overtakes the first message of a channel, which is a HELLO as a rule.
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

/// States the law of keyed mode towards the switch; towards the controller nothing changes. Each
/// message is a place and a domain of barriers.
///
/// - No message crosses a fence of its scope, and none at all crosses a fence of domain 0. The same
///   holds for a state message without a key, except that it need not wait for the packets before
///   it. Otherwise messages of different scopes are independent.
/// - State messages of one key stay in order. So do state messages with keys of different kinds,
///   which may concern the same packets.
/// - Packets, and requests, follow all state messages before them; a state message follows the
///   requests before it.
/// - Requests stay in order, and so do the packets of one flow; echoes stay in order among
///   themselves.
pub fn must_follow_keyed(earlier: (Place, u8), later: (Place, u8)) -> bool {
    use Place::{Exchange, Fence, Flow, Free, Keyed, State};
    let fences = |(place, domain): (Place, u8)| {
        matches!(place, Fence | State).then_some(scope_of(domain) == 0)
    };
    let is_one_scope = scope_of(earlier.1) == scope_of(later.1);
    match (earlier.0, later.0) {
        (Free, Free) => true,
        (Free, _) | (_, Free) | (Flow(_), State) => false,
        _ if !is_one_scope => [earlier, later].map(fences).contains(&Some(true)),
        (Fence | State, _) | (_, Fence | State) => true,
        (Keyed(a), Keyed(b)) => a == b || a.kind != b.kind,
        (Flow(a), Flow(b)) => a == b,
        (Keyed(_), Flow(_) | Exchange) => true,
        (Exchange, Keyed(_) | Exchange) => true,
        (Flow(_), Keyed(_) | Exchange) | (Exchange, Flow(_)) => false,
    }
}

/// Returns the scope of a domain of barriers. Domains that share a scope are bound more than they
/// ask for.
pub fn scope_of(domain: u8) -> usize {
    match usize::from(domain) {
        0 => 0,
        n => 1 + (n - 1) % (SCOPES - 1),
    }
}

/// Deals messages to lanes and stamps them, at the sender.
#[derive(Debug)]
pub struct Sequencer {
    direction: Direction,
    is_keyed: bool,
    scopes: [Sent; SCOPES],
    /// Whether a message has been dealt yet. The first message, a HELLO as a rule, is always a
    /// fence, and nothing overtakes it.
    started: bool,
}

/// Counts of the messages sent in one scope.
#[derive(Debug, Default)]
struct Sent {
    /// Fences that bind the scope.
    epoch: u64,
    /// Messages by lane since the last such fence; a scope's own fences count since the last fence
    /// of all scopes.
    since_fence: BTreeMap<Lane, u64>,
    /// State messages since the last fence.
    states: u64,
    /// The kind of key of the keyed messages since the last fence.
    kind: Option<KeyKind>,
}

impl Sent {
    fn count(&self, lane: Lane) -> u64 {
        self.since_fence.get(&lane).copied().unwrap_or(0)
    }
}

impl Sequencer {
    /// Makes a sequencer in strict mode.
    pub fn new(direction: Direction) -> Sequencer {
        Sequencer {
            direction,
            is_keyed: false,
            scopes: Default::default(),
            started: false,
        }
    }

    /// Changes the mode from the next message on, which is a fence between the two modes. Towards
    /// the controller the mode is always strict.
    pub fn set_keyed(&mut self, is_keyed: bool) {
        let is_keyed = is_keyed && self.direction == Direction::ToSwitch;
        if is_keyed != self.is_keyed {
            self.is_keyed = is_keyed;
            self.started = false;
        }
    }

    /// Reports whether state messages are dealt to lanes by key.
    pub fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    /// Returns the lane that the next message would have at `place`.
    pub fn lane_of(&self, place: Place, domain: u8) -> Lane {
        let (place, scope) = self.settle(place, domain);
        let lane = match place {
            Place::Free => Lane::ECHO,
            Place::Fence | Place::State => Lane::STATE,
            Place::Keyed(key) => Lane::keyed(key.hash),
            Place::Flow(lane) => Lane::flow(lane),
            Place::Exchange => Lane::EXCHANGE,
        };
        lane.in_scope(scope)
    }

    /// Deals the next message to a lane, and counts the messages that it must not overtake.
    pub fn stamp(&mut self, place: Place, domain: u8) -> (Lane, Stamp) {
        let lane = self.lane_of(place, domain);
        let (place, scope) = self.settle(place, domain);
        self.started = true;
        let of = &mut self.scopes[scope];
        let exchanges = of.count(Lane::EXCHANGE.in_scope(scope));
        let after = match (place, self.direction) {
            (Place::Free, _) => return (lane, Stamp::default()),
            (Place::Fence, _) => return (lane, self.fence(scope)),
            // A request must not see a state change that was sent after it. In the other direction
            // replies may be long, and a notice does not wait for them.
            (Place::State | Place::Keyed(_), Direction::ToSwitch) => exchanges,
            (Place::State | Place::Keyed(_), Direction::ToController) => 0,
            (Place::Flow(_), Direction::ToSwitch) | (Place::Exchange, _) => of.states,
            (Place::Flow(_), Direction::ToController) => 0,
        };
        let mut number = None;
        if let Place::Keyed(key) = place {
            number = Some(of.states);
            of.kind = Some(key.kind);
        }
        of.states += u64::from(lane.kind == LaneKind::State);
        *of.since_fence.entry(lane).or_default() += 1;
        let stamp = Stamp {
            epoch: of.epoch as u8,
            after,
            fence: None,
            number,
        };
        (lane, stamp)
    }

    /// The place of a message in this mode, and its scope.
    fn settle(&self, place: Place, domain: u8) -> (Place, usize) {
        if !self.started {
            return (Place::Fence, 0);
        }
        if !self.is_keyed {
            let is_keyed = matches!(place, Place::Keyed(_));
            return (if is_keyed { Place::State } else { place }, 0);
        }
        let scope = scope_of(domain);
        let of = &self.scopes[scope];
        match place {
            Place::Free => (place, 0),
            Place::State => (Place::Fence, scope),
            Place::Keyed(key)
                if of.states == KEYED_RUN_MAX || of.kind.is_some_and(|kind| kind != key.kind) =>
            {
                (Place::Fence, scope)
            }
            place => (place, scope),
        }
    }

    fn fence(&mut self, scope: usize) -> Stamp {
        let epoch = self.scopes[scope].epoch as u8;
        let lane = Lane::STATE.in_scope(scope);
        let bound = match scope {
            0 => &mut self.scopes[..],
            _ => &mut self.scopes[scope..=scope],
        };
        let mut counts = Vec::new();
        let mut own = 0;
        for of in bound {
            let mut since_fence = std::mem::take(&mut of.since_fence);
            if scope != 0 {
                own = since_fence.remove(&lane).unwrap_or(0);
            }
            counts.extend(since_fence);
            (of.states, of.kind) = (0, None);
            of.epoch += 1;
        }
        if scope != 0 {
            // For the next fence of all scopes.
            self.scopes[scope].since_fence.insert(lane, own + 1);
        }
        Stamp {
            epoch,
            after: 0,
            fence: Some(counts),
            number: None,
        }
    }
}

/// Holds each message back, at the receiver, until the messages that it must not overtake are
/// released.
///
/// The caller bounds the messages inside: a relay does so by the window that it grants to the
/// sender.
#[derive(Debug)]
pub struct Gate<T> {
    lanes: BTreeMap<Lane, VecDeque<(Stamp, T)>>,
    /// Lanes with waiting messages, so that the other lanes need not be examined.
    waiting: BTreeSet<Lane>,
    /// Number of messages released, by lane, since the same fences that the sender counts from.
    released: BTreeMap<Lane, u64>,
    scopes: [Released; SCOPES],
    held: usize,
}

/// Counts of the messages released in one scope.
#[derive(Debug, Default)]
struct Released {
    epoch: u64,
    /// State messages since the last fence: the count up to the first gap, and those beyond it by
    /// number.
    states: u64,
    states_ahead: BTreeSet<u64>,
}

impl Released {
    fn add_state(&mut self, number: Option<u64>) {
        // Messages without numbers are in order.
        self.states_ahead.insert(number.unwrap_or(self.states));
        while self.states_ahead.remove(&self.states) {
            self.states += 1;
        }
    }

    fn add_fence(&mut self) {
        self.epoch += 1;
        self.states = 0;
        self.states_ahead.clear();
    }
}

impl<T> Default for Gate<T> {
    fn default() -> Gate<T> {
        Gate {
            lanes: BTreeMap::new(),
            waiting: BTreeSet::new(),
            released: BTreeMap::new(),
            scopes: Default::default(),
            held: 0,
        }
    }
}

impl<T> Gate<T> {
    /// Takes the next message of `lane`, which has arrived.
    pub fn handle_message(&mut self, lane: Lane, stamp: Stamp, message: T) {
        self.held += 1;
        self.waiting.insert(lane);
        self.lanes
            .entry(lane)
            .or_default()
            .push_back((stamp, message));
    }

    /// Returns the most urgent message that may be handed over now.
    pub fn poll_release(&mut self) -> Option<(Lane, T)> {
        let is_ready = |lane: &&Lane| {
            let first = self.lanes.get(lane).and_then(VecDeque::front);
            first.is_some_and(|(stamp, _)| self.may_pass(**lane, stamp))
        };
        let lane = *self.waiting.iter().find(is_ready)?;
        let queue = self.lanes.get_mut(&lane)?;
        let (stamp, message) = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&lane);
        }
        self.held -= 1;
        let scope = lane.scope();
        if stamp.fence.is_none() {
            *self.released.entry(lane).or_default() += 1;
            if lane.kind == LaneKind::State {
                self.scopes[scope].add_state(stamp.number);
            }
        } else if scope == 0 {
            self.scopes.iter_mut().for_each(Released::add_fence);
            self.released.clear();
        } else {
            self.scopes[scope].add_fence();
            self.released
                .retain(|other, _| other.scope() != scope || *other == lane);
            *self.released.entry(lane).or_default() += 1;
        }
        Some((lane, message))
    }

    /// Number of messages that have arrived and wait.
    pub fn held(&self) -> usize {
        self.held
    }

    fn may_pass(&self, lane: Lane, stamp: &Stamp) -> bool {
        let released = |lane: &Lane| self.released.get(lane).copied().unwrap_or(0);
        if lane.kind == LaneKind::Echo {
            // The first message of a channel is a fence; an echo follows that fence and nothing
            // else.
            return self.scopes[0].epoch > 0;
        }
        let scope = &self.scopes[lane.scope()];
        if stamp.epoch != scope.epoch as u8 {
            return false;
        }
        match &stamp.fence {
            Some(counts) => counts.iter().all(|(lane, count)| released(lane) >= *count),
            None if lane.kind == LaneKind::State => {
                released(&Lane::EXCHANGE.in_scope(lane.scope())) >= stamp.after
            }
            None => scope.states >= stamp.after,
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

    /// Sends `places` in order and delivers the lanes in the interleaving that `picks` chooses.
    /// Returns the positions in the order of release.
    fn carry(direction: Direction, places: &[Place], picks: &[usize]) -> Vec<usize> {
        let places: Vec<(Place, u8)> = places.iter().map(|place| (*place, 0)).collect();
        carry_by(Sequencer::new(direction), &places, picks)
    }

    fn carry_by(mut sequencer: Sequencer, places: &[(Place, u8)], picks: &[usize]) -> Vec<usize> {
        let mut flight: BTreeMap<Lane, VecDeque<(Stamp, usize)>> = BTreeMap::new();
        for (at, (place, domain)) in places.iter().enumerate() {
            let (lane, stamp) = sequencer.stamp(*place, *domain);
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
            Place::State | Place::Keyed(_) => Binding::State,
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

    fn key(n: u64) -> Key {
        let kind = if n < 6 { KeyKind::Mac } else { KeyKind::Ip };
        Key { kind, hash: n }
    }

    fn keyed_places() -> impl Strategy<Value = Vec<(Place, u8)>> {
        let place = prop_oneof![
            1 => Just(Place::Fence),
            1 => Just(Place::State),
            // Few keys are of the other kind.
            12 => (0u64..6).prop_map(|n| Place::Keyed(key(n))),
            1 => (6u64..8).prop_map(|n| Place::Keyed(key(n))),
            4 => (0u16..4).prop_map(Place::Flow),
            2 => Just(Place::Exchange),
            1 => Just(Place::Free),
        ];
        let message = (place, prop_oneof![2 => Just(0u8), 5 => 1u8..6]);
        proptest::collection::vec(message, 1..400)
    }

    fn keyed() -> Sequencer {
        let mut sequencer = Sequencer::new(Direction::ToSwitch);
        sequencer.set_keyed(true);
        sequencer
    }

    proptest! {
        #[test]
        fn no_interleaving_of_keyed_lanes_breaks_the_law_of_keyed_mode(
            places in keyed_places(),
            picks in proptest::collection::vec(any::<usize>(), 1..50),
        ) {
            let released = carry_by(keyed(), &places, &picks);
            let mut sorted = released.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..places.len()).collect::<Vec<_>>());
            prop_assert_eq!(released[0], 0);
            for (i, later) in released.iter().enumerate() {
                for earlier in &released[i + 1..] {
                    let crossed = earlier < later
                        && must_follow_keyed(places[*earlier], places[*later]);
                    prop_assert!(
                        !crossed,
                        "{} {:?} overtook {} {:?}",
                        later, places[*later], earlier, places[*earlier]
                    );
                }
            }
        }

        /// Without a key or another domain, the law of keyed mode requires all that strict mode
        /// requires.
        #[test]
        fn without_keys_keyed_mode_is_at_least_as_strict(places in places()) {
            for (at, earlier) in places.iter().enumerate() {
                for later in &places[at + 1..] {
                    let strict = bound(Direction::ToSwitch, *earlier, *later);
                    prop_assert!(!strict || must_follow_keyed((*earlier, 0), (*later, 0)));
                }
            }
        }
    }

    /// Each case: the messages, the order of their arrival, and the order of their release.
    #[test]
    fn keys_and_scopes_overtake_where_they_may() {
        let (hello, barrier) = (Place::Fence, Place::Fence);
        let (a, b) = (Place::Keyed(key(0)), Place::Keyed(key(1)));
        let check = |places: &[(Place, u8)], arrivals: &[usize], released: &[usize]| {
            let mut sequencer = keyed();
            let stamped: Vec<(Lane, Stamp)> = places
                .iter()
                .map(|(p, d)| sequencer.stamp(*p, *d))
                .collect();
            let mut gate = Gate::default();
            let mut out = Vec::new();
            for at in arrivals {
                let (lane, stamp) = stamped[*at].clone();
                gate.handle_message(lane, stamp, *at);
                out.extend(std::iter::from_fn(|| gate.poll_release()).map(|(_, at)| at));
            }
            assert_eq!(out, released);
        };
        check(&[(hello, 0), (a, 0), (b, 0)], &[0, 2, 1], &[0, 2, 1]);
        // A packet waits for both, though as many have come.
        let packet = Place::Flow(0);
        check(
            &[(hello, 0), (a, 0), (b, 0), (packet, 0), (a, 0)],
            &[0, 2, 3, 1, 4],
            &[0, 2, 1, 3, 4],
        );
        // The barrier of one application stops its own messages; a barrier of domain 0 stops all.
        let scoped = [
            (hello, 0),
            (a, 1),
            (barrier, 1),
            (b, 1),
            (b, 2),
            (barrier, 0),
        ];
        check(&scoped, &[0, 5, 3, 2, 4, 1], &[0, 4, 1, 2, 3, 5]);
        // A key of another kind may concern the same packets.
        let other = Place::Keyed(key(7));
        check(&[(hello, 0), (a, 0), (other, 0)], &[0, 2, 1], &[0, 1, 2]);
    }

    #[test]
    fn a_run_of_keyed_messages_ends_with_a_fence_and_so_does_a_mode() {
        let mut sequencer = Sequencer::new(Direction::ToSwitch);
        sequencer.stamp(Place::Fence, 0);
        let (lane, stamp) = sequencer.stamp(Place::Keyed(key(1)), 3);
        assert_eq!((lane, stamp.number), (Lane::STATE, None), "strict mode");
        sequencer.set_keyed(true);
        let fence = sequencer.stamp(Place::Keyed(key(1)), 0).1.fence;
        assert_eq!(fence, Some(vec![(Lane::STATE, 1)]));
        for number in 0..KEYED_RUN_MAX {
            let (_, stamp) = sequencer.stamp(Place::Keyed(key(1)), 0);
            assert_eq!(stamp.number, Some(number));
        }
        assert!(sequencer.stamp(Place::Keyed(key(1)), 0).1.fence.is_some());
        let (_, stamp) = sequencer.stamp(Place::Keyed(key(1)), 0);
        assert_eq!(stamp.number, Some(0));
        let mut up = Sequencer::new(Direction::ToController);
        up.set_keyed(true);
        assert!(!up.is_keyed(), "notices have one order");
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
            let fence = sequencer.stamp(Place::Fence, 0);
            let packet = sequencer.stamp(Place::Flow(round % 3), 0);
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
        let lanes = 4 * SCOPES as u64 * (u64::from(LANE_INDEX_MAX) + 1);
        for n in 0..lanes {
            assert_eq!(Lane::from_wire(n).map(Lane::wire), Some(n));
        }
        assert_eq!(Lane::from_wire(lanes), None);
    }
}
