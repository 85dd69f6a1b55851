//! Carriers: one connection for each code point that a policy map gives to control messages.
//!
//! A network that distinguishes code points reorders packets of different code points, and a single
//! connection would take that for loss. So each class of a session has a connection of its own, a
//! *carrier*. A lane is wholly on one carrier. The sender chooses this carrier; the receiver
//! accepts any lane on any carrier.

use openflow::Match;
use sched::policy::{Action, QUEUES_MAX, Rule};
use sched::{Lane, LaneKind, PolicyMap, TrafficType};

use super::kind::Kind;
use super::place::queue_of_lane;
use super::wire::{Settings, Side};

/// Maximum number of connections of one session. A network distinguishes two or three classes,
/// eight at most.
pub const CARRIERS_MAX: usize = 8;

/// The assignment of lanes to connections, for as long as the connections last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carriers {
    /// The code points, the most urgent first; at least one.
    code_points: Vec<u8>,
    of_queue: [u8; QUEUES_MAX],
    of_state: u8,
    of_exchange: u8,
    /// The connection of agents whose streams or datagrams count as packets in the map.
    of_packet: u8,
}

impl Default for Carriers {
    fn default() -> Carriers {
        Carriers::one(0)
    }
}

impl Carriers {
    /// Makes one connection that carries everything.
    pub fn one(dscp: u8) -> Carriers {
        Carriers {
            code_points: vec![dscp],
            of_queue: [0; QUEUES_MAX],
            of_state: 0,
            of_exchange: 0,
            of_packet: 0,
        }
    }

    /// Makes one connection per code point that `map` gives to control messages.
    pub fn of(map: &PolicyMap) -> Carriers {
        Carriers::among(map, code_points(map))
    }

    /// Assigns lanes to the existing connections, as `map` demands.
    pub fn among(map: &PolicyMap, code_points: Vec<u8>) -> Carriers {
        if code_points.is_empty() {
            return Carriers::one(0);
        }
        // The nearest class below, so that no message counts as more urgent than it is.
        let carrier = |dscp: u8| {
            let at = code_points.iter().position(|point| *point <= dscp);
            at.unwrap_or(code_points.len() - 1) as u8
        };
        let mut known = [None; QUEUES_MAX];
        for (action, _) in control_actions(map) {
            if let Action::Dscp(dscp) | Action::Both(_, dscp) = action {
                let of = &mut known[usize::from(map.queue_of(action, dscp)).min(QUEUES_MAX - 1)];
                // If a queue has two code points, the greater applies.
                *of = Some(of.map_or(carrier(dscp), |o: u8| o.min(carrier(dscp))));
            }
        }
        let mut of_queue = [code_points.len() as u8 - 1; QUEUES_MAX];
        let mut below = code_points.len() as u8 - 1;
        for queue in (0..QUEUES_MAX).rev() {
            below = known[queue].unwrap_or(below);
            of_queue[queue] = below;
        }
        let of = |kind| of_queue[usize::from(queue_of_kind(map, kind)).min(QUEUES_MAX - 1)];
        Carriers {
            of_state: of(Kind::State),
            of_exchange: of(Kind::Exchange),
            of_packet: of(Kind::Packet),
            of_queue,
            code_points,
        }
    }

    /// The code point of each connection, the most urgent first.
    pub fn code_points(&self) -> &[u8] {
        &self.code_points
    }

    /// The index of the connection that carries `lane`, for messages of `kind`. OpenFlow's packets
    /// are dealt to `flow_lanes` lanes.
    pub fn carrier_of(&self, kind: Kind, lane: Lane, flow_lanes: u16) -> usize {
        match (kind, lane.kind) {
            (Kind::Packet, LaneKind::Flow) => {
                usize::from(self.of_queue[queue_of_lane(lane, flow_lanes)])
            }
            _ => self.carrier_of_kind(kind),
        }
    }

    /// The index like [`Carriers::carrier_of`], for messages outside the lanes of flows.
    pub fn carrier_of_kind(&self, kind: Kind) -> usize {
        usize::from(match kind {
            Kind::Echo => 0,
            Kind::State => self.of_state,
            Kind::Packet => self.of_packet,
            Kind::Exchange => self.of_exchange,
            Kind::Other => self.code_points.len() as u8 - 1,
        })
    }
}

/// The queue of traffic that `map` cannot distinguish by message: a lane, or the whole stream of an
/// agent other than OpenFlow. Its messages may belong to several queues: other messages wait for
/// state, replies are long, and flow set-up precedes packets.
pub(super) fn queue_of_kind(map: &PolicyMap, kind: Kind) -> u8 {
    let (traffic, is_first) = match kind {
        Kind::Echo => (TrafficType::Session, true),
        Kind::State => (TrafficType::FlowSetup, true),
        Kind::Packet => (TrafficType::FlowSetup, false),
        Kind::Exchange => (TrafficType::Housekeeping, false),
        Kind::Other => return map.scheduling.queues.len().saturating_sub(1) as u8,
    };
    let mut actions = control_actions(map).filter(|(_, of)| *of == Some(traffic));
    let action = if is_first {
        actions.next()
    } else {
        actions.last()
    };
    map.queue_of(action.map_or(map.default, |(action, _)| action), 0)
}

/// The code points that `map` gives to control messages, the greatest first; empty if it marks
/// nothing.
pub fn code_points(map: &PolicyMap) -> Vec<u8> {
    let control = [
        TrafficType::Session,
        TrafficType::FlowSetup,
        TrafficType::Housekeeping,
    ];
    let is_taken = |traffic: &TrafficType| map.rules.iter().any(|rule| takes_all(rule, *traffic));
    let default = (!control.iter().all(is_taken)).then_some(map.default);
    let mut points: Vec<u8> = control_actions(map)
        .map(|(action, _)| action)
        .chain(default)
        .filter_map(|action| match action {
            Action::Dscp(dscp) | Action::Both(_, dscp) => Some(dscp),
            Action::DscpCopy => Some(0),
            Action::Queue(_) => None,
        })
        .collect();
    points.sort_unstable_by(|a, b| b.cmp(a));
    points.dedup();
    // Code points beyond the limit share the last connection.
    points.truncate(CARRIERS_MAX);
    points
}

/// The code points that both ends use: those of the end with the greater generation, or the
/// controller side's if the generations are equal. Both ends compute the same result. Empty if
/// either end has no code points: then one connection carries everything, and each end marks it as
/// it likes.
pub fn settle(ours: &Settings, theirs: &Settings) -> Vec<u8> {
    if ours.code_points.is_empty() || theirs.code_points.is_empty() {
        return Vec::new();
    }
    let rank = |of: &Settings| (of.generation, of.side == Side::Controller);
    let winner = match rank(ours) > rank(theirs) {
        true => ours,
        false => theirs,
    };
    let points = winner.code_points.iter().copied();
    points.take(CARRIERS_MAX).collect()
}

/// Whether `rule` takes every message of `traffic`.
fn takes_all(rule: &Rule, traffic: TrafficType) -> bool {
    let is_of = rule.traffic.is_none_or(|t| t == traffic);
    let is_any = rule.message.is_none() && rule.direction.is_none() && rule.datapath.is_none();
    is_of && is_any && rule.xid.is_none() && rule.fields == Match::default()
}

/// The actions for control messages, each with the traffic type that its rule names.
fn control_actions(map: &PolicyMap) -> impl Iterator<Item = (Action, Option<TrafficType>)> {
    let control = map.rules.iter();
    let control = control.filter(|rule| rule.traffic != Some(TrafficType::Data));
    control.map(|rule| (rule.action, rule.traffic))
}

#[cfg(test)]
mod tests {
    use super::super::wire::{OrderMode, SessionId};
    use super::*;

    const EXAMPLE_2: &str = "Rule #1: traffic_type=1, action=dscp:CS7
        Rule #2: traffic_type=2, action=dscp:CS6
        Rule #3: traffic_type=3, action=dscp:CS5
        Rule #4: traffic_type=4, action=dscp:copy";

    fn carriers(map: &str) -> Carriers {
        Carriers::of(&PolicyMap::parse(map).expect("a map").0)
    }

    fn point(carriers: &Carriers, kind: Kind, lane: Lane) -> u8 {
        carriers.code_points()[carriers.carrier_of(kind, lane, 16)]
    }

    #[test]
    fn each_class_has_a_connection_and_each_lane_is_on_that_of_its_class() {
        let carriers = carriers(EXAMPLE_2);
        assert_eq!(carriers.code_points(), [56, 48, 40]);
        let open_flow = |lane| point(&carriers, Kind::of(lane), lane);
        assert_eq!(open_flow(Lane::ECHO), 56);
        assert_eq!(open_flow(Lane::STATE), 48);
        assert_eq!(open_flow(Lane::EXCHANGE), 40);
        // 16 lanes for each queue: CS7, CS6, CS5.
        assert_eq!(
            [0, 16, 31, 32].map(|n| open_flow(Lane::flow(n))),
            [56, 48, 48, 40]
        );
        assert_eq!(open_flow(Lane::flow(255)), 40);
        // Other agents have one lane, of the class chosen for them.
        let other = |kind| point(&carriers, kind, Lane::STATE);
        assert_eq!(Kind::ALL.map(other), [56, 48, 48, 40, 40]);
    }

    #[test]
    fn both_ends_settle_on_the_code_points_of_one() {
        let of = |side, generation, code_points: &[u8]| Settings {
            side,
            session: SessionId([0; 16]),
            resumed: false,
            window_bytes: 0,
            code_points: code_points.to_vec(),
            generation,
            life: 0,
            early: false,
            order: OrderMode::Strict,
            takes_datagrams: true,
            takes_bare_records: true,
        };
        let (switch, controller) = (&[56, 48, 40][..], &[46, 34, 0][..]);
        for (generations, settled) in [((2, 1), switch), ((1, 2), controller), ((1, 1), controller)]
        {
            let switch = of(Side::Switch, generations.0, switch);
            let controller = of(Side::Controller, generations.1, controller);
            assert_eq!(settle(&switch, &controller), settled, "{generations:?}");
            assert_eq!(settle(&controller, &switch), settled, "{generations:?}");
        }
        let unscheduled = of(Side::Controller, 0, &[]);
        assert!(settle(&of(Side::Switch, 3, switch), &unscheduled).is_empty());
        let all: Vec<u8> = (0..64).rev().collect();
        let settled = settle(&of(Side::Switch, 3, &all), &of(Side::Controller, 0, switch));
        assert_eq!(settled.len(), CARRIERS_MAX);
    }

    #[test]
    fn a_map_of_queues_has_one_connection() {
        let map = "Rule #1: traffic_type=1, action=queue_id:0
            Default: action=queue_id:1";
        assert_eq!(carriers(map), Carriers::one(0));
    }
}
