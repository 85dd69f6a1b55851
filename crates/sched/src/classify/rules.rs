//! The rules of a map, laid out for a search in order: by traffic type, with all fields in one row.

use openflow::{DatapathId, Field, Frame, MatchField, MessageKind, PacketFields, Version};

use super::explain::Miss;
use crate::class::TrafficType;
use crate::order::Direction;
use crate::policy::{Action, Rule};
use crate::subject::FlowFields;

/// The packet or flow that a rule's fields are compared with.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack for one message; a box would be an allocation"
)]
pub(super) enum Subject {
    Packet(PacketFields),
    Flow(FlowFields),
    None,
}

impl Subject {
    /// Reads a flow in place; none is left if the message is not whole.
    pub fn read_flow(&mut self, version: Version, kind: MessageKind, body: &[u8]) {
        *self = Subject::Flow(FlowFields::NONE);
        let Subject::Flow(fields) = self else {
            return;
        };
        if fields.read(version, kind, body).is_none() {
            *self = Subject::None;
        }
    }
}

/// The properties of a message, besides its traffic type, that rules test.
pub(super) struct Context<'a> {
    pub kind: MessageKind,
    pub direction: Option<Direction>,
    pub datapath: Option<DatapathId>,
    pub xid: Option<u32>,
    pub subject: &'a Subject,
}

impl<'a> Context<'a> {
    pub fn of_message(
        frame: &Frame,
        direction: Direction,
        datapath: Option<DatapathId>,
        subject: &'a Subject,
    ) -> Context<'a> {
        Context {
            kind: frame.kind(),
            direction: Some(direction),
            datapath,
            xid: Some(frame.xid().0),
            subject,
        }
    }

    /// The context of a data packet, which is not an OpenFlow message.
    pub fn of_data(subject: &'a Subject) -> Context<'a> {
        Context {
            kind: MessageKind::Unknown,
            direction: None,
            datapath: None,
            xid: None,
            subject,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct FieldTest {
    field: Field,
    value: u128,
    mask: u128,
}

/// One rule; its fields are a range of the common row.
#[derive(Clone, Debug)]
struct Entry {
    traffic: Option<TrafficType>,
    message: Option<MessageKind>,
    direction: Option<Direction>,
    datapath: Option<DatapathId>,
    xid: Option<(u32, u32)>,
    fields: std::ops::Range<u32>,
    /// Bit n is set if field n is one of the rule's fields.
    wants: u64,
    /// Whether the rule asks for nothing but its type and its fields.
    is_plain: bool,
    /// Whether the rule has a field that no packet is tested for, so that it matches nothing.
    is_never: bool,
    domain: u8,
    action: Action,
}

/// All rules of a map.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    entries: Vec<Entry>,
    fields: Vec<FieldTest>,
    /// Indices of the rules that apply to each type, in order.
    by_type: [Vec<u32>; 4],
    /// Whether any rule of each type has fields.
    reads_fields: [bool; 4],
}

impl Compiled {
    pub fn new(rules: &[Rule]) -> Compiled {
        let mut compiled = Compiled {
            entries: Vec::with_capacity(rules.len()),
            fields: Vec::new(),
            by_type: Default::default(),
            reads_fields: [false; 4],
        };
        for rule in rules {
            compiled.add(rule);
        }
        compiled
    }

    fn add(&mut self, rule: &Rule) {
        let at = self.entries.len() as u32;
        let start = self.fields.len() as u32;
        let (mut is_never, mut wants) = (false, 0);
        for field in &rule.fields.fields {
            match field {
                MatchField::Basic { field, value, mask } => {
                    let mask = mask.unwrap_or(field.ones());
                    wants |= 1 << *field as u8;
                    self.fields.push(FieldTest {
                        field: *field,
                        value: value & mask,
                        mask,
                    });
                }
                MatchField::Other { .. } => is_never = true,
            }
        }
        let fields = start..self.fields.len() as u32;
        for traffic in TrafficType::ALL {
            if rule.traffic.is_none_or(|t| t == traffic) {
                self.by_type[index(traffic)].push(at);
                self.reads_fields[index(traffic)] |= !fields.is_empty();
            }
        }
        self.entries.push(Entry {
            traffic: rule.traffic,
            message: rule.message,
            direction: rule.direction,
            datapath: rule.datapath,
            xid: rule.xid,
            fields,
            wants,
            is_plain: rule.message.is_none()
                && rule.direction.is_none()
                && rule.datapath.is_none()
                && rule.xid.is_none()
                && !is_never,
            is_never,
            domain: rule.domain,
            action: rule.action,
        });
    }

    /// Returns the first rule that matches.
    pub fn first(&self, traffic: TrafficType, context: &Context<'_>) -> Option<usize> {
        let mut rules = self.by_type[index(traffic)].iter();
        let found = rules.find(|at| self.holds(**at, context));
        found.map(|at| *at as usize)
    }

    /// Reports whether the rule matches the message: [`Compiled::miss_of`] without the reason.
    #[inline]
    fn holds(&self, at: u32, context: &Context<'_>) -> bool {
        let entry = &self.entries[at as usize];
        if !entry.is_plain {
            return self.miss_of(at, context).is_none();
        }
        let tests = &self.fields[entry.fields.start as usize..entry.fields.end as usize];
        match context.subject {
            Subject::Packet(packet) => {
                let is_there = entry.wants & !packet.present() == 0;
                let holds = |t: &FieldTest| (packet.value(t.field) ^ t.value) & t.mask == 0;
                is_there && tests.iter().all(holds)
            }
            Subject::Flow(flow) => {
                let holds = |t: &FieldTest| flow.implies(t.field, t.value, t.mask);
                tests.iter().all(holds)
            }
            Subject::None => tests.is_empty(),
        }
    }

    /// Returns why rule `at` does not match a message of `traffic`; `None` if it does.
    pub fn miss(&self, at: usize, traffic: TrafficType, context: &Context<'_>) -> Option<Miss> {
        if self.entries[at].traffic.is_some_and(|t| t != traffic) {
            return Some(Miss::Traffic);
        }
        self.miss_of(at as u32, context)
    }

    #[inline]
    fn miss_of(&self, at: u32, context: &Context<'_>) -> Option<Miss> {
        let entry = &self.entries[at as usize];
        if entry.message.is_some_and(|kind| kind != context.kind) {
            return Some(Miss::Message);
        }
        if entry.direction.is_some() && entry.direction != context.direction {
            return Some(Miss::Direction);
        }
        if entry.datapath.is_some() && entry.datapath != context.datapath {
            return Some(Miss::Datapath);
        }
        if let Some((value, mask)) = entry.xid
            && context.xid.is_none_or(|xid| (xid ^ value) & mask != 0)
        {
            return Some(Miss::Xid);
        }
        if entry.is_never {
            return Some(Miss::NoPacket);
        }
        let tests = &self.fields[entry.fields.start as usize..entry.fields.end as usize];
        match context.subject {
            Subject::Packet(packet) => tests.iter().find_map(|test| {
                let found = packet.get(test.field);
                let holds = found.is_some_and(|v| (v ^ test.value) & test.mask == 0);
                (!holds).then_some(Miss::Packet {
                    field: test.field,
                    found,
                })
            }),
            Subject::Flow(flow) => tests.iter().find_map(|test| {
                let holds = flow.implies(test.field, test.value, test.mask);
                (!holds).then(|| Miss::Flow {
                    field: test.field,
                    found: flow.get(test.field),
                })
            }),
            Subject::None => tests.first().map(|_| Miss::NoPacket),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn reads_fields(&self, traffic: TrafficType) -> bool {
        self.reads_fields[index(traffic)]
    }

    pub fn action(&self, rule: usize) -> Action {
        self.entries[rule].action
    }

    pub fn domain(&self, rule: usize) -> u8 {
        self.entries[rule].domain
    }
}

fn index(traffic: TrafficType) -> usize {
    traffic as usize - 1
}
