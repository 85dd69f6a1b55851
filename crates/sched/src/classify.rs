//! From a message to what a scheduler must know of it.

use openflow::{DatapathId, Frame, MessageKind};

use crate::class::{Order, TrafficType, class_of};
use crate::order::Direction;
use crate::policy::{Action, PolicyMap};

/// Says that a message is a packet-in and may be shed. Nothing else can be: there is no other way
/// to one of these than [`Droppable::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Droppable(());

impl Droppable {
    pub fn of(frame: &Frame, direction: Direction) -> Option<Droppable> {
        let is_packet_in =
            frame.kind() == MessageKind::PacketIn && direction == Direction::ToController;
        is_packet_in.then_some(Droppable(()))
    }
}

/// What a message may not overtake, on one line of many flows. Two flow keys that are equal are
/// one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    Fence,
    State,
    /// The key of its flow, and whether it follows state messages before it.
    Flow {
        key: u64,
        after_state: bool,
    },
    Exchange,
    Free,
}

/// What a scheduler knows of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    pub queue: u8,
    /// Code point on the wire, where the carrier can mark.
    pub dscp: Option<u8>,
    pub binding: Binding,
    /// Barriers bind their own domain; domain 0 is bound by all and binds all.
    pub domain: u8,
    /// The connection it belongs to: order holds within one, fairness among them.
    pub channel: u64,
    /// Ingress port of a packet-in, 0 of others.
    pub port: u32,
    pub bytes: u32,
    /// Only a packet-in has it.
    pub shed: Option<Droppable>,
}

/// Which rule took a message, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub traffic: TrafficType,
    /// Index into the map's rules; `None`: its default.
    pub rule: Option<usize>,
    pub tag: Tag,
}

/// A policy map made ready to classify with. Reads nothing but the message.
#[derive(Clone, Debug)]
pub struct Classifier {
    map: PolicyMap,
}

impl Classifier {
    pub fn new(map: &PolicyMap) -> Classifier {
        Classifier { map: map.clone() }
    }

    /// The verdict on `frame`, which goes in `direction` on `channel`, a connection of switch
    /// `datapath` where that is known.
    pub fn classify(
        &self,
        frame: &Frame,
        direction: Direction,
        channel: u64,
        datapath: Option<DatapathId>,
    ) -> Verdict {
        let _ = datapath;
        let class = class_of(frame.kind());
        let binding = match class.order {
            Order::Fence => Binding::Fence,
            Order::State => Binding::State,
            Order::Flow => Binding::Flow {
                key: 0,
                after_state: direction == Direction::ToSwitch,
            },
            Order::Exchange => Binding::Exchange,
            Order::Free => Binding::Free,
        };
        let queue = match self.map.default {
            Action::Queue(queue) | Action::Both(queue, _) => queue,
            Action::Dscp(dscp) => self.map.dscp_queue[usize::from(dscp)],
            Action::DscpCopy => self.map.dscp_queue[0],
        };
        Verdict {
            traffic: class.traffic,
            rule: None,
            tag: Tag {
                queue,
                dscp: None,
                binding,
                domain: 0,
                channel,
                port: 0,
                bytes: frame.len() as u32,
                shed: Droppable::of(frame, direction),
            },
        }
    }
}
