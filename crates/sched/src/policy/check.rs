//! Checks of a map as a whole: contradictory rules, unreachable rules, missing queues, and warnings
//! about likely mistakes.

use openflow::match_fields::{Prereq, VLAN_PRESENT};
use openflow::{Field, Match, MatchField, MessageKind};

use super::draft::{Draft, RuleDraft};
use super::fields::field_name;
use super::problem::{Code, Position, Problem};
use super::text::code_point_name;
use super::{Action, Algorithm, PolicyMap, RULES_MAX, Rule};
use crate::class::TrafficType;

const CS7: u8 = 56;
/// The highest code point of data packets that are marked as real-time traffic: EF.
const DATA_DSCP_MAX: u8 = 46;

pub(super) fn check(draft: &Draft, map: &PolicyMap, problems: &mut Vec<Problem>) {
    let whole: Vec<&RuleDraft> = draft.rules.iter().filter(|rule| rule.is_whole).collect();
    queues(draft, &whole, problems);
    for rule in &whole {
        contradiction(rule, problems);
        without_packet(rule, problems);
    }
    // Each pair is compared, which is of no use for many more rules than are allowed.
    if whole.len() <= RULES_MAX {
        shadows(&whole, problems);
    }
    uncovered(draft, problems);
    rates(draft, map, problems);
    code_points(draft, &whole, problems);
    priorities(draft, map, &whole, problems);
}

fn queues(draft: &Draft, whole: &[&RuleDraft], problems: &mut Vec<Problem>) {
    let (count, is_said) = draft.queue_count();
    if !is_said {
        return;
    }
    let actions = whole.iter().map(|rule| (rule.rule.action, rule.action_at));
    let of_actions = actions.chain(draft.default).filter_map(|(action, at)| {
        let queue = match action {
            Action::Queue(queue) | Action::Both(queue, _) => queue,
            Action::Dscp(_) | Action::DscpCopy => return None,
        };
        Some((queue, at, "action"))
    });
    let others = draft.queues_named().map(|(queue, at)| (queue, at, "Queue"));
    for (queue, at, field) in of_actions.chain(others) {
        if usize::from(queue) >= count {
            problems.push(Problem::new(
                Code::QueueId,
                at,
                field,
                format!("there is no queue {queue}, the map has {count}"),
                format!("a queue from 0 to {}, or a line Queue #{queue}:", count - 1),
            ));
        }
    }
}

/// The Ethernet types, IP protocols and ICMPv6 types that the fields of a rule leave possible.
#[derive(Default)]
struct Allowed {
    eth_types: Option<Vec<u128>>,
    protocols: Option<Vec<u128>>,
    icmpv6_types: Option<Vec<u128>>,
}

impl Allowed {
    /// Narrows to the values that `field` with `value` needs and states. Reports whether any are
    /// left.
    fn narrow(&mut self, field: Field, value: u128, mask: u128) -> bool {
        const IP: [u128; 2] = [0x0800, 0x86dd];
        const MPLS: [u128; 2] = [0x8847, 0x8848];
        const ND: [u128; 2] = [135, 136];
        let mut is_left = match field.info().prereq {
            Prereq::None | Prereq::InPort | Prereq::Vlan => true,
            Prereq::EthType(0x8847) => keep(&mut self.eth_types, &MPLS),
            Prereq::EthType(ty) => keep(&mut self.eth_types, &[ty.into()]),
            Prereq::Ip => keep(&mut self.eth_types, &IP),
            Prereq::IpProto(1) => {
                keep(&mut self.eth_types, &IP[..1]) & keep(&mut self.protocols, &[1])
            }
            Prereq::IpProto(proto) => {
                keep(&mut self.eth_types, &IP) & keep(&mut self.protocols, &[proto.into()])
            }
            Prereq::Icmpv6 => {
                keep(&mut self.eth_types, &IP[1..]) & keep(&mut self.protocols, &[58])
            }
            Prereq::NdAny | Prereq::NdType(_) => {
                keep(&mut self.eth_types, &IP[1..]) & keep(&mut self.protocols, &[58])
            }
        };
        is_left &= match field.info().prereq {
            Prereq::NdAny => keep(&mut self.icmpv6_types, &ND),
            Prereq::NdType(ty) => keep(&mut self.icmpv6_types, &[ty.into()]),
            _ => true,
        };
        if mask != field.ones() {
            return is_left;
        }
        is_left
            & match field {
                Field::EthType => keep(&mut self.eth_types, &[value]),
                Field::IpProto => keep(&mut self.protocols, &[value]),
                Field::Icmpv6Type => keep(&mut self.icmpv6_types, &[value]),
                _ => true,
            }
    }
}

fn keep(allowed: &mut Option<Vec<u128>>, values: &[u128]) -> bool {
    let kept = match allowed {
        None => values.to_vec(),
        Some(before) => before
            .iter()
            .copied()
            .filter(|v| values.contains(v))
            .collect(),
    };
    let is_left = !kept.is_empty();
    *allowed = Some(kept);
    is_left
}

/// Prerequisites are implied, of IPv4 and of IPv6; those that exclude each other are not.
fn contradiction(draft: &RuleDraft, problems: &mut Vec<Problem>) {
    let mut allowed = Allowed::default();
    let untagged = draft.rule.fields.exact(Field::VlanVid) == Some(0);
    for (field, at) in draft.rule.fields.fields.iter().zip(&draft.fields_at) {
        let MatchField::Basic { field, value, mask } = field else {
            continue;
        };
        let mask = mask.unwrap_or(field.ones());
        let name = field_name(*field);
        if !allowed.narrow(*field, *value, mask) {
            problems.push(Problem::new(
                Code::Contradiction,
                *at,
                name,
                "no packet has it together with the fields before it",
                format!("{} or leave it out", needs(*field)),
            ));
            return;
        }
        if *field == Field::VlanPcp && untagged {
            problems.push(Problem::new(
                Code::Contradiction,
                *at,
                name,
                "a packet without a tag has no priority",
                format!("a tag (vlan_vid={VLAN_PRESENT:#x}/{VLAN_PRESENT:#x}) or leave it out"),
            ));
            return;
        }
    }
}

/// The conditions on a rule for `field` to exist in its packets.
fn needs(field: Field) -> String {
    match field.info().prereq {
        Prereq::None | Prereq::InPort | Prereq::Vlan => "another value".into(),
        Prereq::EthType(ty) => format!("eth_type={ty:#06x} with it"),
        Prereq::Ip => "eth_type=0x0800 or 0x86dd with it".into(),
        Prereq::IpProto(proto) => format!("ip_proto={proto} with it"),
        Prereq::Icmpv6 => "ip_proto=58 with it".into(),
        Prereq::NdAny => "icmpv6_type=135 or 136 with it".into(),
        Prereq::NdType(ty) => format!("icmpv6_type={ty} with it"),
    }
}

fn without_packet(draft: &RuleDraft, problems: &mut Vec<Problem>) {
    let rule = &draft.rule;
    let has_packet = match rule.message {
        Some(kind) => carries_packet(kind),
        None => rule.traffic != Some(TrafficType::Session),
    };
    if has_packet {
        return;
    }
    let who = match rule.message {
        Some(kind) => format!("a {} message carries no packet", kind.name()),
        None => "messages of type 1 carry no packet".into(),
    };
    if let Some(at) = draft.fields_at.first()
        && let Some(MatchField::Basic { field, .. }) = rule.fields.fields.first()
    {
        problems.push(Problem::new(
            Code::NoPacket,
            *at,
            field_name(*field),
            format!("{who}, so the rule can never match"),
            "traffic_type=2, 3 or 4, or no fields",
        ));
    }
    if rule.action == Action::DscpCopy {
        problems.push(Problem::new(
            Code::NothingToCopy,
            draft.action_at,
            "action",
            format!("{who} whose code point could be copied"),
            "a code point such as dscp:CS6",
        ));
    }
}

/// Reports whether a message of this kind is about a packet or a flow.
fn carries_packet(kind: MessageKind) -> bool {
    use MessageKind as K;
    matches!(
        kind,
        K::PacketIn | K::PacketOut | K::FlowMod | K::FlowRemoved | K::BundleAddMessage
    )
}

fn shadows(whole: &[&RuleDraft], problems: &mut Vec<Problem>) {
    for (at, draft) in whole.iter().enumerate() {
        let earlier = &whole[..at];
        let takers: Vec<&RuleDraft> = types_of(&draft.rule)
            .iter()
            .filter_map(|traffic| {
                let taker = earlier
                    .iter()
                    .find(|e| e.rule.traffic.is_none_or(|t| t == *traffic) && covers(e, draft));
                taker.copied()
            })
            .collect();
        if takers.len() == types_of(&draft.rule).len() {
            let first = takers[0];
            problems.push(Problem::new(
                Code::Unreachable,
                draft.at,
                "Rule",
                format!(
                    "#{} is never reached: #{} of line {} takes all it matches",
                    draft.rule.id, first.rule.id, first.at.line
                ),
                format!("it before line {}, or leave it out", first.at.line),
            ));
            continue;
        }
        let crossing = earlier
            .iter()
            .find(|e| e.rule.action != draft.rule.action && crosses(&e.rule, &draft.rule));
        if let Some(first) = crossing {
            problems.push(Problem::new(
                Code::PartlyShadowed,
                draft.at,
                "Rule",
                format!(
                    "what both #{} and #{} match is taken by #{}",
                    first.rule.id, draft.rule.id, first.rule.id
                ),
                format!(
                    "it before line {}, if this one should have it",
                    first.at.line
                ),
            ));
        }
    }
}

fn types_of(rule: &Rule) -> &'static [TrafficType] {
    match rule.traffic {
        None => &TrafficType::ALL,
        Some(TrafficType::Session) => &[TrafficType::Session],
        Some(TrafficType::FlowSetup) => &[TrafficType::FlowSetup],
        Some(TrafficType::Housekeeping) => &[TrafficType::Housekeeping],
        Some(TrafficType::Data) => &[TrafficType::Data],
    }
}

/// Reports whether the earlier rule takes all messages that the later one matches, types apart.
fn covers(earlier: &RuleDraft, later: &RuleDraft) -> bool {
    let (a, b) = (&earlier.rule, &later.rule);
    let says = |a: bool, b: bool| a || b;
    let xid = match (a.xid, b.xid) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some((av, am)), Some((bv, bm))) => am & !bm == 0 && (av ^ bv) & am == 0,
    };
    xid && says(a.message.is_none(), a.message == b.message)
        && says(a.direction.is_none(), a.direction == b.direction)
        && says(a.datapath.is_none(), a.datapath == b.datapath)
        && implied(&b.fields, &a.fields)
}

/// Reports whether all packets of `narrow` are packets of `wide`. The prerequisites of the fields
/// of `narrow` count as stated: `udp_dst=5` is within `ip_proto=17`.
fn implied(narrow: &Match, wide: &Match) -> bool {
    wide.fields.iter().all(|field| {
        let MatchField::Basic { field, value, mask } = field else {
            return false;
        };
        let mask = mask.unwrap_or(field.ones());
        let said = narrow
            .get(*field)
            .or_else(|| need_of(narrow, *field).map(|v| (v, field.ones())));
        said.is_some_and(|(v, m)| mask & !m == 0 && (v ^ value) & mask == 0)
    })
}

/// Returns the one value of `field` that the fields of `narrow` need.
fn need_of(narrow: &Match, field: Field) -> Option<u128> {
    let mut allowed = Allowed::default();
    for f in &narrow.fields {
        if let MatchField::Basic { field, value, mask } = f {
            allowed.narrow(*field, *value, mask.unwrap_or(field.ones()));
        }
    }
    let values = match field {
        Field::EthType => allowed.eth_types,
        Field::IpProto => allowed.protocols,
        Field::Icmpv6Type => allowed.icmpv6_types,
        _ => None,
    }?;
    <[u128; 1]>::try_from(values).ok().map(|[value]| value)
}

/// Reports whether two rules have packets in common, and each also has packets of its own.
fn crosses(a: &Rule, b: &Rule) -> bool {
    let differ = |one: bool, other: bool, equal: bool| one && other && !equal;
    let apart = differ(
        a.traffic.is_some(),
        b.traffic.is_some(),
        a.traffic == b.traffic,
    ) || differ(
        a.message.is_some(),
        b.message.is_some(),
        a.message == b.message,
    ) || differ(
        a.direction.is_some(),
        b.direction.is_some(),
        a.direction == b.direction,
    ) || differ(
        a.datapath.is_some(),
        b.datapath.is_some(),
        a.datapath == b.datapath,
    );
    let xid_apart =
        matches!((a.xid, b.xid), (Some((av, am)), Some((bv, bm))) if (av ^ bv) & am & bm != 0);
    if apart || xid_apart || !fields_meet(&a.fields, &b.fields) {
        return false;
    }
    !within(a, b) && !within(b, a)
}

fn fields_meet(a: &Match, b: &Match) -> bool {
    let mut allowed = Allowed::default();
    let mut is_left = true;
    for f in a.fields.iter().chain(&b.fields) {
        if let MatchField::Basic { field, value, mask } = f {
            is_left &= allowed.narrow(*field, *value, mask.unwrap_or(field.ones()));
            if let Some((other, other_mask)) = b.get(*field) {
                let mask = mask.unwrap_or(field.ones());
                is_left &= (value ^ other) & mask & other_mask == 0;
            }
        }
    }
    is_left
}

/// Reports whether `wide` matches all messages that `narrow` matches, types included.
fn within(narrow: &Rule, wide: &Rule) -> bool {
    let xid = match (wide.xid, narrow.xid) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some((wv, wm)), Some((nv, nm))) => wm & !nm == 0 && (wv ^ nv) & wm == 0,
    };
    xid && wide.traffic.is_none_or(|t| narrow.traffic == Some(t))
        && wide.message.is_none_or(|m| narrow.message == Some(m))
        && wide.direction.is_none_or(|d| narrow.direction == Some(d))
        && wide.datapath.is_none_or(|d| narrow.datapath == Some(d))
        && implied(&narrow.fields, &wide.fields)
}

/// Reports types of messages without a rule or a default. Data packets need no rule: where the
/// channel has a link of its own, there are no data packets.
fn uncovered(draft: &Draft, problems: &mut Vec<Problem>) {
    if draft.default.is_some() || draft.rules.is_empty() {
        return;
    }
    for traffic in &TrafficType::ALL[..3] {
        let is_named = draft
            .rules
            .iter()
            .any(|d| d.rule.traffic.is_none_or(|t| t == *traffic) || !d.is_whole);
        if !is_named {
            let number = *traffic as u8;
            problems.push(Problem::new(
                Code::NoRule,
                draft.end,
                "Default",
                format!(
                    "no rule for traffic_type={number} ({}), and no default",
                    traffic.name()
                ),
                format!("a rule for traffic_type={number}, or Default: action=…"),
            ));
        }
    }
}

fn rates(draft: &Draft, map: &PolicyMap, problems: &mut Vec<Problem>) {
    let rates = map.scheduling.queues.iter().filter_map(|q| q.min_rate);
    let sum = rates.fold(0u64, u64::saturating_add);
    if let Some(link) = map.link_rate
        && sum > link
    {
        problems.push(Problem::new(
            Code::Rate,
            draft.rate_at(),
            "min_rate",
            format!(
                "the rates of all queues are {} bit/s, the link has {}",
                sum.saturating_mul(8),
                link.saturating_mul(8)
            ),
            "rates whose sum the link has, or a greater link_rate",
        ));
    }
}

fn code_points(draft: &Draft, whole: &[&RuleDraft], problems: &mut Vec<Problem>) {
    let said = |action: Action| match action {
        Action::Dscp(dscp) | Action::Both(_, dscp) => Some(dscp),
        Action::Queue(_) | Action::DscpCopy => None,
    };
    let actions = whole.iter().map(|d| (d.rule.action, d.action_at));
    for (action, at) in actions.chain(draft.default) {
        if said(action) == Some(CS7) {
            problems.push(Problem::new(
                Code::NetworkControl,
                at,
                "action",
                "CS7 is reserved, and networks may remark it",
                "CS6, which is for network control",
            ));
        }
    }
    let is_data = |rule: &Rule| rule.traffic.is_none_or(|t| t == TrafficType::Data);
    let control = whole
        .iter()
        .filter(|d| d.rule.traffic != Some(TrafficType::Data));
    let Some(lowest) = control.filter_map(|d| said(d.rule.action)).min() else {
        return;
    };
    for draft in whole.iter().filter(|d| is_data(&d.rule)) {
        let highest = match draft.rule.action {
            Action::DscpCopy => match draft.rule.fields.exact(Field::IpDscp) {
                Some(dscp) => dscp as u8,
                None => DATA_DSCP_MAX,
            },
            Action::Dscp(dscp) | Action::Both(_, dscp)
                if draft.rule.traffic == Some(TrafficType::Data) =>
            {
                dscp
            }
            _ => continue,
        };
        if highest >= lowest {
            problems.push(Problem::new(
                Code::DataOutranks,
                draft.action_at,
                "action",
                format!(
                    "data packets of {} are not below {}, which control messages have",
                    code_point_name(highest),
                    code_point_name(lowest)
                ),
                "a higher code point for every control type, or a rule that lowers such data",
            ));
        }
    }
}

fn priorities(draft: &Draft, map: &PolicyMap, whole: &[&RuleDraft], problems: &mut Vec<Problem>) {
    if map.scheduling.algorithm == Algorithm::Strict && map.scheduling.queues.len() > 1 {
        problems.push(Problem::new(
            Code::Starvation,
            draft.algorithm_at(),
            "algo",
            "a flood in one queue starves all below it",
            "hierarchy or edf, which serve every queue",
        ));
    }
    let of_type = |traffic: TrafficType| {
        whole
            .iter()
            .filter(move |d| d.rule.traffic == Some(traffic) && d.rule.action != Action::DscpCopy)
            .map(|d| (map.queue_of(d.rule.action, 0), d.action_at))
    };
    let highest_setup = of_type(TrafficType::FlowSetup)
        .map(|(queue, _)| queue)
        .min();
    let Some(highest_setup) = highest_setup else {
        return;
    };
    let below: Option<(u8, Position)> =
        of_type(TrafficType::Session).find(|(queue, _)| *queue > highest_setup);
    if let Some((queue, at)) = below {
        problems.push(Problem::new(
            Code::SessionBelow,
            at,
            "action",
            format!("queue {queue} waits behind queue {highest_setup}, which is flow setup's"),
            format!("queue_id:{highest_setup} or lower for traffic_type=1"),
        ));
    }
}
