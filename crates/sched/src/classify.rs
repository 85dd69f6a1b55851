//! Classification of messages: the description that a scheduler needs.
//!
//! A table gives the traffic type. The packet inside a message is parsed once, and only if the
//! rules or the order of that message need it. A field can be absent because the packet has none,
//! is cut short or is a fragment; an absent field does not match. Nothing is allocated.

mod buffers;
mod explain;
mod rules;

pub use buffers::{BUFFER_TIME_MAX, BUFFERS_MAX, Buffers};
pub use explain::{Explanation, Miss};

use openflow::{DatapathId, Field, Frame, MessageKind, PacketFields, PortNo};

use crate::class::{Order, TrafficType, class_of, traffic_of};
use crate::order::Direction;
use crate::policy::{Action, PolicyMap, Profile};
use crate::subject::{PacketIn, PacketOut, bundled, is_link_down};
use rules::{Compiled, Context, Subject};

/// Permission to shed a message. Only [`Droppable::of`] makes one, and only for a packet-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Droppable(());

impl Droppable {
    /// Returns the permission to shed `frame`, which only a PACKET_IN towards the controller has.
    pub fn of(frame: &Frame, direction: Direction) -> Option<Droppable> {
        let is_packet_in =
            frame.kind() == MessageKind::PacketIn && direction == Direction::ToController;
        is_packet_in.then_some(Droppable(()))
    }
}

/// Rule of order for one message. Messages with equal flow keys are of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// Nothing of the same domain crosses it, in either direction.
    Fence,
    /// First in, first out among state messages.
    State,
    /// A packet: in order within its flow.
    Flow {
        /// Hash of the flow. Messages with equal keys stay in order.
        key: u64,
        /// `true` if the packet must stay behind the state messages before it.
        after_state: bool,
    },
    /// A request or a reply: first in, first out among these.
    Exchange,
    /// An echo: in order among echoes, bound to nothing else.
    Free,
}

/// Description of a message for a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Queue of the message, from 0.
    pub queue: u8,
    /// Code point to set, where the carrier can mark.
    pub dscp: Option<u8>,
    /// Messages that it may not overtake.
    pub binding: Binding,
    /// Barriers bind their own domain; domain 0 is bound by all and binds all.
    pub domain: u8,
    /// Connection of the message. Order holds within a channel, fairness among channels.
    pub channel: u64,
    /// Ingress port of a packet-in; 0 for other messages.
    pub port: u32,
    /// Length of the message, header included.
    pub bytes: u32,
    /// Permission to shed the message, which only a packet-in has.
    pub shed: Option<Droppable>,
}

/// Result for a message: the rule that matched, and its consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Traffic type that the rules were matched against.
    pub traffic: TrafficType,
    /// Index into the map's rules; `None`: its default.
    pub rule: Option<usize>,
    /// Description of the message for a scheduler.
    pub tag: Tag,
}

/// Result for a data packet: the rule that matched, and its consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataVerdict {
    /// Index into the map's rules; `None` is the map's default.
    pub rule: Option<usize>,
    /// Queue of the packet, from 0.
    pub queue: u8,
    /// Code point that the rule sets.
    pub dscp: Option<u8>,
}

/// A compiled policy map. It reads nothing but the message.
///
/// ```
/// use openflow::{Message, Version, Xid, encode, text};
/// use sched::{Classifier, Direction, PolicyMap};
///
/// let rule = "Rule #1: traffic_type=2, udp_dst=53, action=queue_id:0";
/// let (map, _) = PolicyMap::parse(&format!("{rule}\nDefault: action=queue_id:1")).unwrap();
/// let flow_mod = text::parse_flow_mod("udp,tp_dst=53,actions=output:2")?;
/// let frame = encode(Version::V13, Xid(1), &Message::FlowMod(flow_mod))?;
///
/// let classifier = Classifier::new(&map);
/// let verdict = classifier.classify(&frame, Direction::ToSwitch, 1, None);
/// assert_eq!((verdict.rule, verdict.tag.queue), (Some(0), 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Classifier {
    profile: Profile,
    packet_out_free: bool,
    default: Action,
    dscp_queue: [u8; 64],
    rules: Compiled,
}

impl Classifier {
    /// Compiles the rules of a map.
    pub fn new(map: &PolicyMap) -> Classifier {
        Classifier {
            profile: map.profile,
            packet_out_free: map.scheduling.packet_out_free,
            default: map.default,
            dscp_queue: map.dscp_queue,
            rules: Compiled::new(&map.rules),
        }
    }

    /// Classifies `frame`, which travels in `direction` on `channel`. `datapath` is the switch of
    /// that connection, if known.
    pub fn classify(
        &self,
        frame: &Frame,
        direction: Direction,
        channel: u64,
        datapath: Option<DatapathId>,
    ) -> Verdict {
        self.classify_kept(frame, direction, channel, datapath, None)
    }

    /// Classifies a PACKET_OUT that names a buffer. `kept` is the packet in the buffer, if known.
    pub fn classify_kept(
        &self,
        frame: &Frame,
        direction: Direction,
        channel: u64,
        datapath: Option<DatapathId>,
        kept: Option<&PacketFields>,
    ) -> Verdict {
        let mut subject = Subject::None;
        let reading = self.read(frame, direction, kept, &mut subject);
        let context = Context::of_message(frame, direction, datapath, &subject);
        let rule = self.rules.first(reading.traffic, &context);
        self.verdict(frame, direction, channel, &reading, &subject, rule)
    }

    /// Classifies a data packet that arrived on `in_port`.
    pub fn classify_data(&self, in_port: PortNo, packet: &[u8]) -> DataVerdict {
        let fields = PacketFields::parse(in_port, packet);
        let dscp = dscp_of(&fields);
        let subject = Subject::Packet(fields);
        let rule = self
            .rules
            .first(TrafficType::Data, &Context::of_data(&subject));
        let (queue, dscp) = self.outcome(self.action_of(rule), dscp);
        DataVerdict { rule, queue, dscp }
    }

    /// Reports whether a PACKET_OUT's result depends on its packet, so that [`Buffers`] are of use.
    pub fn reads_packet_outs(&self) -> bool {
        let copies = |rule| self.rules.action(rule) == Action::DscpCopy;
        self.rules
            .reads_fields(traffic_of(MessageKind::PacketOut, self.profile))
            || self.default == Action::DscpCopy
            || (0..self.rules.len()).any(copies)
    }

    /// Reads the fields of a message that the rules may ask about, into `subject`, which is none so
    /// far: it is large, and each copy of it takes as long as reading it. `kept` is the packet in
    /// the buffer that a PACKET_OUT names.
    fn read(
        &self,
        frame: &Frame,
        direction: Direction,
        kept: Option<&PacketFields>,
        subject: &mut Subject,
    ) -> Reading {
        let kind = frame.kind();
        // A bundle of 1.3 is an EXPERIMENTER message, and a fence like a bundle of 1.4.
        let order = class_of(frame.meaning()).order;
        let mut traffic = traffic_of(kind, self.profile);
        let reading = |binding, port| Reading {
            traffic,
            binding,
            port,
        };
        match (order, kind, direction) {
            (Order::Flow, MessageKind::PacketIn, Direction::ToController) => {
                let Some(packet) = PacketIn::of(frame) else {
                    return reading(flow(0, false), 0);
                };
                let fields = packet.fields();
                let binding = flow(fields.flow_key(), false);
                *subject = Subject::Packet(fields);
                reading(binding, packet.in_port.0)
            }
            (Order::Flow, MessageKind::PacketOut, Direction::ToSwitch) => {
                let Some(packet) = PacketOut::of(frame) else {
                    return reading(Binding::State, 0);
                };
                let fields = kept.cloned().unwrap_or_else(|| packet.fields());
                let binding = if packet.stands_alone {
                    flow(fields.flow_key(), !self.packet_out_free)
                } else {
                    Binding::State
                };
                *subject = Subject::Packet(fields);
                reading(binding, 0)
            }
            // A packet in the wrong direction stays in order; the far end must refuse it.
            (Order::Flow | Order::Fence, ..) => reading(Binding::Fence, 0),
            (Order::Exchange, ..) => reading(Binding::Exchange, 0),
            (Order::Free, ..) => reading(Binding::Free, 0),
            (Order::State, ..) => {
                if self.profile == Profile::Auster && is_link_down(frame) {
                    traffic = TrafficType::Session;
                }
                let mut inner = (kind, frame.body());
                if let Some(bundled) = bundled(frame) {
                    inner = bundled;
                    if self.profile == Profile::Auster {
                        traffic = traffic_of(bundled.0, self.profile);
                    }
                }
                let is_flow = matches!(inner.0, MessageKind::FlowMod | MessageKind::FlowRemoved);
                if is_flow
                    && self.rules.reads_fields(traffic)
                    && let Some(version) = frame.version()
                {
                    subject.read_flow(version, inner.0, inner.1);
                }
                Reading {
                    traffic,
                    binding: Binding::State,
                    port: 0,
                }
            }
        }
    }

    fn verdict(
        &self,
        frame: &Frame,
        direction: Direction,
        channel: u64,
        reading: &Reading,
        subject: &Subject,
        rule: Option<usize>,
    ) -> Verdict {
        let copied = match subject {
            Subject::Packet(fields) => dscp_of(fields),
            Subject::Flow(_) | Subject::None => 0,
        };
        let (queue, dscp) = self.outcome(self.action_of(rule), copied);
        Verdict {
            traffic: reading.traffic,
            rule,
            tag: Tag {
                queue,
                dscp,
                binding: reading.binding,
                domain: rule.map_or(0, |rule| self.rules.domain(rule)),
                channel,
                port: reading.port,
                bytes: frame.len() as u32,
                shed: Droppable::of(frame, direction),
            },
        }
    }

    fn action_of(&self, rule: Option<usize>) -> Action {
        rule.map_or(self.default, |rule| self.rules.action(rule))
    }

    /// Returns the queue and the code point of `action`; `copied` is the packet's code point.
    fn outcome(&self, action: Action, copied: u8) -> (u8, Option<u8>) {
        let by_dscp = |dscp: u8| (self.dscp_queue[usize::from(dscp & 63)], Some(dscp & 63));
        match action {
            Action::Queue(queue) => (queue, None),
            Action::Dscp(dscp) => by_dscp(dscp),
            Action::DscpCopy => by_dscp(copied),
            Action::Both(queue, dscp) => (queue, Some(dscp)),
        }
    }
}

/// Properties of a message that are known before the rules are tried.
struct Reading {
    traffic: TrafficType,
    binding: Binding,
    port: u32,
}

fn flow(key: u64, after_state: bool) -> Binding {
    Binding::Flow { key, after_state }
}

/// The code point of a packet; 0 for a packet without an IP header.
fn dscp_of(fields: &PacketFields) -> u8 {
    fields.get(Field::IpDscp).unwrap_or(0) as u8
}
