//! The flow entries that auster sets: their shape, their cookie, and their form on the wire.
//!
//! Every entry carries a cookie that marks it as auster's. A restarted controller therefore finds
//! its entries again, and leaves other entries alone:
//!
//! ```text
//! 63            32 31        16 15     8 7      0
//! | "aust"         | generation |  kind  |   0   |
//! ```

use clock::Duration;
use openflow::message::{FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason};
use openflow::multipart::{FlowStats, FlowStatsRequest};
use openflow::packet::PacketFields;
use openflow::{Action, Cookie, Field, Instruction, MacAddr, Match, MatchField, PortNo, Version};

use crate::pipeline::{POLICY_TABLE, path_instructions};

/// "aust" in the upper half of every cookie of ours.
pub const COOKIE_PREFIX: Cookie = Cookie(0x6175_7374_0000_0000);
pub const COOKIE_PREFIX_MASK: Cookie = Cookie(0xffff_ffff_0000_0000);

pub(crate) const ETH_TYPE_LLDP: u16 = 0x88cc;

const ETH_TYPE_ARP: u16 = 0x0806;
const ETH_TYPE_IPV6: u16 = 0x86dd;

const PRIORITY_LLDP: u16 = 0xffff;
/// Above all entries that forward a host's packets.
const PRIORITY_WATCH: u16 = 3200;
/// ARP and neighbour discovery, where all their packets are inspected.
const PRIORITY_INSPECT: u16 = 3150;
/// Packets dropped whatever other entries match; one priority above, packets that are still
/// inspected.
const PRIORITY_GUARD: u16 = 3100;
/// The priority of the first rule. Later rules have lower priorities, and all rules are above the
/// pairs. Below each rule there is room for its successor.
const PRIORITY_RULE: u16 = 3000;
const PRIORITIES_PER_RULE: u16 = 2;
const PRIORITY_RULE_MIN: u16 = PRIORITY_RULE - u8::MAX as u16 * PRIORITIES_PER_RULE - 1;
const PRIORITY_PAIR: u16 = 2000;
const PRIORITY_SUCCESSOR: u16 = 1999;
const PRIORITY_COARSE: u16 = 1500;
const PRIORITY_DESTINATION: u16 = 1000;
const PRIORITY_REPORT: u16 = 500;

/// A switch's clock may run faster than ours by one part in this number.
const CLOCK_PART: u32 = 64;

/// The length of a reported packet: the headers of every kind that the controller reads.
const REPORT_BYTES: u16 = 128;

/// The purpose of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// Table-miss and LLDP: present as long as auster controls the switch.
    Infrastructure = 1,
    /// One hop of a path between two hosts.
    Pair = 2,
    /// Forwards towards one host, from any port.
    Destination = 3,
    /// Forwards between two hosts of one switch, set by its edge; the controller keeps no record of
    /// it.
    Local = 4,
    /// Drops packets between two hosts that may not reach each other.
    Barred = 5,
    /// Forwards towards one host, from any port, and sends the beginning of each packet to the
    /// controller.
    Report = 6,
    /// Forwards all packets received on a link towards one host, in place of entries of pairs.
    Coarse = 7,
    /// Forwards a service between two hosts, where their path begins.
    Service = 8,
    /// Drops some packets, where their path begins, of two hosts that may exchange others.
    Barrier = 9,
    /// Sends the packets of a host from its place to the controller, while that place is in
    /// question.
    Watch = 10,
    /// Drops packets by their own addresses, or sends them to the controller for inspection.
    Guard = 11,
    /// Forwards labelled packets.
    Fabric = 12,
    /// Forwards a multicast sender's packets to the group that copies them.
    Sender = 13,
    /// Decides whether packets may enter the network.
    Access = 14,
    /// Routes a host's packets into another VLAN.
    Routed = 15,
    /// An owner has stated the entry, in the terms of OpenFlow. 16 and 17 are policies and
    /// circuits.
    Static = 18,
    /// Sends packets to the controller for an application.
    Tap = 19,
    /// Another controller has stated the entry, for its own packets.
    Guest = 20,
    /// Forwards labelled broadcasts along a tree.
    Tree = 21,
}

/// Whether an entry that a switch reports as ended is an earlier entry of the same key. `age`: the
/// time since the later entry was sent, if known; `(idle_s, hard_s)`: its idle and hard timeout, in
/// seconds.
pub(crate) fn is_earlier(
    removed: &FlowRemoved,
    age: Option<Duration>,
    (idle_s, hard_s): (u16, u16),
) -> bool {
    // The longest time that a switch may have counted.
    let age = age.map(|age| age + age / CLOCK_PART);
    let is_too_soon = |timeout_s: u16| {
        let timeout = Duration::from_secs(timeout_s.into());
        timeout_s == 0 || age.is_some_and(|age| age < timeout)
    };
    match removed.reason {
        FlowRemovedReason::IDLE_TIMEOUT => is_too_soon(idle_s),
        FlowRemovedReason::HARD_TIMEOUT => is_too_soon(hard_s),
        _ => age.is_some_and(|age| lived(removed) > age),
    }
}

fn lived(removed: &FlowRemoved) -> Duration {
    Duration::from_secs(removed.duration_sec.into())
        + Duration::from_nanos(removed.duration_nsec.into())
}

/// Whether an ended entry has lived longer than `age`, the time since the entry of its key was
/// sent, also by a clock that runs faster than ours.
pub(crate) fn has_lived_longer(removed: &FlowRemoved, age: Option<Duration>) -> bool {
    age.is_some_and(|age| lived(removed) > age + age / CLOCK_PART)
}

/// The generation in a cookie of ours.
pub(crate) fn generation(cookie: Cookie) -> u16 {
    (cookie.0 >> 16) as u16
}

impl EntryKind {
    pub fn cookie(self, generation: u16) -> Cookie {
        Cookie(COOKIE_PREFIX.0 | u64::from(generation) << 16 | (self as u64) << 8)
    }

    /// Whether the entry drops packets.
    pub(crate) fn is_drop(self) -> bool {
        matches!(self, EntryKind::Barred | EntryKind::Barrier)
    }

    /// Whether the entry forwards towards one host, and lives as long as the host's place is known.
    pub(crate) fn is_route(self) -> bool {
        matches!(self, EntryKind::Destination | EntryKind::Report)
    }

    /// Whether its packets go on to policies, where there are any.
    pub(crate) fn leads_on(self) -> bool {
        match self {
            EntryKind::Pair
            | EntryKind::Destination
            | EntryKind::Local
            | EntryKind::Report
            | EntryKind::Coarse
            | EntryKind::Service => true,
            EntryKind::Infrastructure
            | EntryKind::Barred
            | EntryKind::Barrier
            | EntryKind::Watch
            | EntryKind::Guard
            | EntryKind::Fabric
            | EntryKind::Sender
            | EntryKind::Access
            | EntryKind::Routed
            | EntryKind::Static
            | EntryKind::Tap
            | EntryKind::Guest
            | EntryKind::Tree => false,
        }
    }

    /// The kind of an entry by its cookie. `None` if the cookie is not auster's, or is for a policy
    /// or a circuit.
    pub fn of(cookie: Cookie) -> Option<EntryKind> {
        if !is_own(cookie) {
            return None;
        }
        Some(match cookie.0 >> 8 & 0xff {
            1 => EntryKind::Infrastructure,
            2 => EntryKind::Pair,
            3 => EntryKind::Destination,
            4 => EntryKind::Local,
            5 => EntryKind::Barred,
            6 => EntryKind::Report,
            7 => EntryKind::Coarse,
            8 => EntryKind::Service,
            9 => EntryKind::Barrier,
            10 => EntryKind::Watch,
            11 => EntryKind::Guard,
            12 => EntryKind::Fabric,
            13 => EntryKind::Sender,
            14 => EntryKind::Access,
            15 => EntryKind::Routed,
            18 => EntryKind::Static,
            19 => EntryKind::Tap,
            20 => EntryKind::Guest,
            21 => EntryKind::Tree,
            _ => return None,
        })
    }
}

/// The identity of an entry in a switch: its priority and match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    pub priority: u16,
    pub in_port: Option<PortNo>,
    pub eth_src: Option<MacAddr>,
    pub eth_dst: Option<MacAddr>,
    /// `None` without a rule.
    pub eth_type: Option<u16>,
    pub rule: Option<Rule>,
}

/// Some of the packets between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// The order among rules: the lowest rank whose rule matches a packet applies.
    pub rank: u8,
    pub family: Family,
    /// The protocol over IP: 0 for any, and for ARP.
    pub proto: u8,
    /// 0 for any. The type of ICMPv6.
    pub src_port: u16,
    /// 0 for any.
    pub dst_port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Arp,
    Ipv4,
    Ipv6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: EntryKey,
    pub kind: EntryKind,
    /// The out-port; `CONTROLLER` in infrastructure, `ANY` where packets are dropped.
    pub out: PortNo,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    /// Whether the switch reports the entry's end.
    pub notify: bool,
}

impl EntryKey {
    const ANY: EntryKey = EntryKey {
        priority: 0,
        in_port: None,
        eth_src: None,
        eth_dst: None,
        eth_type: None,
        rule: None,
    };

    /// The key before all keys with a rule, in their order.
    pub(crate) const RULES_FROM: EntryKey = EntryKey {
        priority: PRIORITY_RULE_MIN,
        ..EntryKey::ANY
    };

    /// The key of a rule's packets between two hosts. The rule has ports only if its protocol has.
    pub fn rule(in_port: PortNo, src: MacAddr, dst: MacAddr, rule: Rule) -> EntryKey {
        EntryKey {
            priority: PRIORITY_RULE - u16::from(rule.rank) * PRIORITIES_PER_RULE,
            rule: Some(rule),
            ..EntryKey::pair(in_port, src, dst)
        }
    }

    pub fn pair(in_port: PortNo, src: MacAddr, dst: MacAddr) -> EntryKey {
        EntryKey {
            priority: PRIORITY_PAIR,
            in_port: Some(in_port),
            eth_src: Some(src),
            eth_dst: Some(dst),
            ..EntryKey::ANY
        }
    }

    /// The key of the entry that takes over when the entry of a pair or of one of its rules ends:
    /// the same match, one priority below.
    pub fn successor(self) -> EntryKey {
        debug_assert!(!self.is_successor());
        EntryKey {
            priority: self.priority - 1,
            ..self
        }
    }

    pub fn is_successor(self) -> bool {
        let is_of_rule = PRIORITY_RULE
            .checked_sub(self.priority)
            .is_some_and(|below| self.rule.is_some() && below % PRIORITIES_PER_RULE != 0);
        self.priority == PRIORITY_SUCCESSOR || is_of_rule
    }

    /// The key towards `dst`, from `in_port` only or from every port.
    pub fn destination(in_port: Option<PortNo>, dst: MacAddr) -> EntryKey {
        EntryKey {
            priority: PRIORITY_DESTINATION,
            in_port,
            eth_dst: Some(dst),
            ..EntryKey::ANY
        }
    }

    /// The key towards `dst` from one port, for the pairs without an entry of their own.
    pub fn coarse(in_port: PortNo, dst: MacAddr) -> EntryKey {
        EntryKey {
            priority: PRIORITY_COARSE,
            in_port: Some(in_port),
            eth_dst: Some(dst),
            ..EntryKey::ANY
        }
    }

    /// The key of all packets of a host at one port.
    pub(crate) fn watch(in_port: PortNo, src: MacAddr) -> EntryKey {
        EntryKey {
            priority: PRIORITY_WATCH,
            in_port: Some(in_port),
            eth_src: Some(src),
            ..EntryKey::ANY
        }
    }

    pub(crate) fn is_coarse(self) -> bool {
        self.priority == PRIORITY_COARSE
    }

    /// The key towards `dst`, from every port without a better entry.
    pub fn report(dst: MacAddr) -> EntryKey {
        EntryKey {
            priority: PRIORITY_REPORT,
            eth_dst: Some(dst),
            ..EntryKey::ANY
        }
    }

    /// The key of the same pair, without a rule.
    pub(crate) fn without_rule(self) -> EntryKey {
        let priority = match (self.rule, self.is_successor()) {
            (None, _) => self.priority,
            (Some(_), false) => PRIORITY_PAIR,
            (Some(_), true) => PRIORITY_SUCCESSOR,
        };
        EntryKey {
            priority,
            rule: None,
            ..self
        }
    }

    pub fn to_match(self) -> Match {
        let mut m = Match::any();
        if let Some(port) = self.in_port {
            m = m.with_in_port(port);
        }
        if let Some(dst) = self.eth_dst {
            m = m.with_eth_dst(dst);
        }
        if let Some(src) = self.eth_src {
            m = m.with_eth_src(src);
        }
        if let Some(eth_type) = self.eth_type {
            m = m.with(Field::EthType, eth_type);
        }
        match self.rule {
            Some(rule) => rule.narrow(m),
            None => m,
        }
    }

    /// Reads a match that a switch reports; `None` if no entry of ours has this match. Ports are
    /// ordinary, and addresses are valid for a host.
    pub fn from_match(priority: u16, m: &Match) -> Option<EntryKey> {
        let mut key = EntryKey {
            priority,
            ..EntryKey::ANY
        };
        let (mut proto, mut ports) = (None, (None, None));
        for field in &m.fields {
            let MatchField::Basic { field, value, mask } = field else {
                return None;
            };
            if mask.is_some_and(|mask| mask != field.ones()) {
                return None;
            }
            match field {
                Field::InPort => {
                    let port = Some(PortNo(*value as u32));
                    key.in_port = Some(port.filter(|port| port.is_ordinary())?);
                }
                Field::EthSrc => key.eth_src = Some(host(*value)?),
                Field::EthDst => key.eth_dst = Some(host(*value)?),
                Field::EthType => key.eth_type = Some(*value as u16),
                Field::IpProto => proto = Some(*value as u8),
                Field::TcpSrc | Field::UdpSrc | Field::SctpSrc | Field::Icmpv6Type => {
                    ports.0 = Some(*value as u16);
                }
                Field::TcpDst | Field::UdpDst | Field::SctpDst => ports.1 = Some(*value as u16),
                _ => return None,
            }
        }
        let ranks = PRIORITY_RULE_MIN..=PRIORITY_RULE;
        if ranks.contains(&priority) {
            key.rule = Some(Rule {
                rank: ((PRIORITY_RULE - priority) / PRIORITIES_PER_RULE) as u8,
                family: Family::of(key.eth_type.take()?)?,
                proto: proto.unwrap_or(0),
                src_port: ports.0.unwrap_or(0),
                dst_port: ports.1.unwrap_or(0),
            });
        }
        // A match with further fields is not ours: the key does not contain them.
        let ours = key.to_match();
        let is_said = |field: Field| ours.exact(field) == m.exact(field);
        let is_whole = m.fields.iter().all(|said| match said {
            MatchField::Basic { field, .. } => is_said(*field),
            _ => false,
        });
        (is_whole && ours.fields.len() == m.fields.len()).then_some(key)
    }

    /// The key of a pair's own entry, as it is or as its successor.
    fn is_pair(self) -> bool {
        self.own_pair().is_some_and(|(in_port, src, dst)| {
            let pair = EntryKey::pair(in_port, src, dst);
            self == pair || self == pair.successor()
        })
    }

    /// The key of an entry of one of a pair's rules, as it is or as its successor.
    fn is_of_rule(self) -> bool {
        let pair = self.own_pair().zip(self.rule);
        pair.is_some_and(|((in_port, src, dst), rule)| {
            let key = EntryKey::rule(in_port, src, dst, rule);
            self == key || self == key.successor()
        })
    }

    fn own_pair(self) -> Option<(PortNo, MacAddr, MacAddr)> {
        Some((self.in_port?, self.eth_src?, self.eth_dst?))
    }

    /// The key of an entry towards one host, from every port or from one.
    fn is_destination(self) -> bool {
        let towards = |dst| EntryKey::destination(self.in_port, dst);
        self.eth_dst.is_some_and(|dst| self == towards(dst))
    }

    fn is_report(self) -> bool {
        self.eth_dst
            .is_some_and(|dst| self == EntryKey::report(dst))
    }

    fn is_coarse_to_host(self) -> bool {
        let ends = self.in_port.zip(self.eth_dst);
        ends.is_some_and(|(port, dst)| self == EntryKey::coarse(port, dst))
    }

    /// Deletes this entry, and no other. 1.3 also compares the cookie, so that another owner's
    /// entry with the same match stays; 1.0 has no cookie masks and relies on the match.
    pub fn to_delete(self) -> FlowMod {
        FlowMod {
            command: FlowModCommand::DeleteStrict,
            cookie: COOKIE_PREFIX,
            cookie_mask: COOKIE_PREFIX_MASK,
            instructions: Vec::new(),
            ..FlowMod::add(self.priority, self.to_match(), Vec::new())
        }
    }
}

impl Rule {
    /// Narrows `m` to the rule's packets.
    pub(crate) fn narrow(self, m: Match) -> Match {
        let m = m.with(Field::EthType, self.family.eth_type());
        if self.proto == 0 {
            return m;
        }
        let mut m = m.with(Field::IpProto, self.proto);
        let (src, dst) = match self.proto {
            proto::TCP => (Field::TcpSrc, Field::TcpDst),
            proto::UDP => (Field::UdpSrc, Field::UdpDst),
            proto::SCTP => (Field::SctpSrc, Field::SctpDst),
            proto::ICMPV6 => (Field::Icmpv6Type, Field::Icmpv6Code),
            _ => return m,
        };
        for (field, value) in [(src, self.src_port), (dst, self.dst_port)] {
            if value != 0 {
                m = m.with(field, value);
            }
        }
        m
    }

    pub(crate) fn is_of(self, packet: &PacketFields) -> bool {
        packet.matches(&self.narrow(Match::any()))
    }

    /// Whether the rule matches all packets of the other.
    pub(crate) fn covers(self, other: Rule) -> bool {
        let covers = |own: u16, other: u16| own == 0 || own == other;
        self.family == other.family
            && (self.proto == 0 || self.proto == other.proto)
            && covers(self.src_port, other.src_port)
            && covers(self.dst_port, other.dst_port)
    }

    /// Whether a packet can match both.
    pub(crate) fn overlaps(self, other: Rule) -> bool {
        let meet = |a: u16, b: u16| a == 0 || b == 0 || a == b;
        self.family == other.family
            && (self.proto == 0 || other.proto == 0 || self.proto == other.proto)
            && meet(self.src_port, other.src_port)
            && meet(self.dst_port, other.dst_port)
    }
}

/// Numbers of protocols over IP.
pub(crate) mod proto {
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ICMPV6: u8 = 58;
    pub const SCTP: u8 = 132;
}

impl Family {
    fn eth_type(self) -> u16 {
        match self {
            Family::Arp => 0x0806,
            Family::Ipv4 => 0x0800,
            Family::Ipv6 => 0x86dd,
        }
    }

    fn of(eth_type: u16) -> Option<Family> {
        let all = [Family::Arp, Family::Ipv4, Family::Ipv6];
        all.into_iter().find(|family| family.eth_type() == eth_type)
    }
}

impl Entry {
    /// The entries of every switch of ours: LLDP goes to the controller, and so do packets without
    /// a match if the controller forwards. The switch reports when somebody deletes these entries.
    pub fn infrastructure(is_forwarding: bool) -> Vec<Entry> {
        let to_controller = |key| Entry {
            key,
            kind: EntryKind::Infrastructure,
            out: PortNo::CONTROLLER,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            notify: true,
        };
        let lldp = EntryKey {
            priority: PRIORITY_LLDP,
            eth_type: Some(ETH_TYPE_LLDP),
            ..EntryKey::ANY
        };
        let miss = is_forwarding.then_some(EntryKey::ANY);
        miss.into_iter().chain([lldp]).map(to_controller).collect()
    }

    pub fn to_add(self, generation: u16) -> FlowMod {
        let actions = match (self.kind, self.out) {
            (EntryKind::Report, port) => vec![Action::output(port), REPORT],
            (EntryKind::Barred | EntryKind::Barrier, _) => Vec::new(),
            (_, PortNo::CONTROLLER) => vec![Action::controller()],
            (_, port) => vec![Action::output(port)],
        };
        let flags = if self.notify {
            FlowModFlags::SEND_FLOW_REM
        } else {
            FlowModFlags::empty()
        };
        FlowMod {
            cookie: self.kind.cookie(generation),
            idle_timeout: self.idle_timeout_s,
            hard_timeout: self.hard_timeout_s,
            flags,
            ..FlowMod::add(self.key.priority, self.key.to_match(), actions)
        }
    }

    /// Changes an entry that outputs, so that policies act before the output.
    pub(crate) fn lead_on(instructions: &mut Vec<Instruction>) {
        let [Instruction::ApplyActions(actions)] = &mut instructions[..] else {
            return;
        };
        let is_way = |action: &Action| match action {
            Action::Output { port, .. } => *port != PortNo::CONTROLLER,
            _ => false,
        };
        let Some(Action::Output { port, .. }) = actions.iter().find(|a| is_way(a)).cloned() else {
            return;
        };
        actions.retain(|action| !is_way(action));
        if actions.is_empty() {
            instructions.clear();
        }
        instructions.extend(path_instructions(port));
    }

    /// Whether an entry in a switch has the form made by [`Entry::lead_on`].
    pub(crate) fn is_led_on(instructions: &[Instruction]) -> bool {
        let goes_on = |i: &Instruction| *i == Instruction::GotoTable(POLICY_TABLE);
        instructions.iter().any(goes_on)
    }

    /// Reads an entry that [`Entry::to_add`] once made, perhaps changed by `Entry::lead_on`;
    /// `None` if it has another shape. Anybody who may write a flow can use our cookie, so only
    /// entries that we could have sent are accepted.
    pub fn from_stats(stats: &FlowStats) -> Option<Entry> {
        let kind = EntryKind::of(stats.cookie)?;
        let actions = read_actions(&stats.instructions)?;
        let port = match (kind, &actions[..]) {
            (EntryKind::Report, [Action::Output { port, .. }, REPORT]) => *port,
            (EntryKind::Barred | EntryKind::Barrier, []) => PortNo::ANY,
            (EntryKind::Report | EntryKind::Barred | EntryKind::Barrier, _) => return None,
            (_, [Action::Output { port, .. }]) => *port,
            _ => return None,
        };
        let key = EntryKey::from_match(stats.priority, &stats.r#match)?;
        let goes_out = match kind {
            EntryKind::Infrastructure => port == PortNo::CONTROLLER,
            _ => kind.is_drop() || port.is_ordinary(),
        };
        let well_formed = goes_out
            && match kind {
                EntryKind::Infrastructure => {
                    let places = Entry::infrastructure(true);
                    places.iter().any(|entry| entry.key == key)
                }
                EntryKind::Pair | EntryKind::Local | EntryKind::Barred => key.is_pair(),
                EntryKind::Service => key.is_of_rule(),
                EntryKind::Barrier => key.is_pair() || key.is_of_rule(),
                EntryKind::Destination => key.is_destination(),
                EntryKind::Report => key.is_report(),
                EntryKind::Coarse => key.is_coarse_to_host(),
                // The question that needed the entry may have ended.
                EntryKind::Watch | EntryKind::Guard => false,
                // Read elsewhere, in its own form.
                EntryKind::Fabric | EntryKind::Sender | EntryKind::Access | EntryKind::Static => {
                    false
                }
                // Compared elsewhere.
                EntryKind::Routed | EntryKind::Tap | EntryKind::Guest | EntryKind::Tree => false,
            };
        (well_formed && stats.table_id.0 == 0).then_some(Entry {
            key,
            kind,
            out: port,
            idle_timeout_s: stats.idle_timeout,
            hard_timeout_s: stats.hard_timeout,
            notify: stats.flags.contains(FlowModFlags::SEND_FLOW_REM),
        })
    }
}

/// The actions of an entry, in either form.
fn read_actions(instructions: &[Instruction]) -> Option<Vec<Action>> {
    if !Entry::is_led_on(instructions) {
        return match instructions {
            [Instruction::ApplyActions(actions)] => Some(actions.clone()),
            // Some switches also omit the instruction if there are no actions.
            [] => Some(Vec::new()),
            _ => None,
        };
    }
    let written = instructions.iter().find_map(|i| match i {
        Instruction::WriteActions(actions) => Some(actions),
        _ => None,
    });
    let Some([Action::Output { port, .. }]) = written.map(|actions| &actions[..]) else {
        return None;
    };
    let mut actions = vec![Action::output(*port)];
    let rest = path_instructions(*port);
    for instruction in instructions.iter().filter(|i| !rest.contains(i)) {
        match instruction {
            Instruction::ApplyActions(applied) => actions.extend(applied.iter().cloned()),
            _ => return None,
        }
    }
    Some(actions)
}

const REPORT: Action = Action::Output {
    port: PortNo::CONTROLLER,
    max_len: REPORT_BYTES,
};

/// An entry on every switch for forbidden or inspected packets, whoever its hosts are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    pub place: GuardPlace,
    pub r#match: Match,
}

/// The treatment of a guard's packets, and the entries before the guard. Classes have ranks like
/// rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardPlace {
    /// Drops packets: after the entries of this rank, or before all.
    Drop(Option<u8>),
    /// Sends packets to the controller, before the entry that drops at the same place.
    Look(Option<u8>),
    /// Sends packets to the controller, after the entries of this rank.
    Judge(u8),
    /// Sends packets to the controller, before all packets that are judged or dropped.
    Inspect,
}

impl GuardPlace {
    pub fn priority(self) -> u16 {
        let of_rank = |rank: u8| PRIORITY_RULE - u16::from(rank) * PRIORITIES_PER_RULE;
        match self {
            GuardPlace::Drop(None) => PRIORITY_GUARD,
            GuardPlace::Look(None) => PRIORITY_GUARD + 1,
            // A class that forbids has only dropping entries of its rank.
            GuardPlace::Look(Some(rank)) => of_rank(rank),
            GuardPlace::Drop(Some(rank)) | GuardPlace::Judge(rank) => of_rank(rank) - 1,
            GuardPlace::Inspect => PRIORITY_INSPECT,
        }
    }
}

impl Guard {
    pub fn new(place: GuardPlace, r#match: Match) -> Guard {
        Guard { place, r#match }
    }

    /// The guards that inspect ARP and neighbour discovery, before all other entries for it.
    pub fn inspection(version: Version) -> Vec<Guard> {
        let inspect = |m| Guard::new(GuardPlace::Inspect, m);
        let mut all = vec![inspect(Match::any().with(Field::EthType, ETH_TYPE_ARP))];
        if version != Version::V10 {
            all.extend([135u8, 136].map(|kind| {
                let m = Match::any().with(Field::EthType, ETH_TYPE_IPV6);
                let m = m.with(Field::IpProto, proto::ICMPV6);
                inspect(m.with(Field::Icmpv6Type, kind))
            }));
        }
        all
    }

    fn actions(&self) -> Vec<Action> {
        match self.place {
            GuardPlace::Drop(_) => Vec::new(),
            GuardPlace::Look(_) | GuardPlace::Judge(_) | GuardPlace::Inspect => {
                vec![Action::controller()]
            }
        }
    }

    pub fn to_add(&self, generation: u16) -> FlowMod {
        FlowMod {
            cookie: EntryKind::Guard.cookie(generation),
            flags: FlowModFlags::SEND_FLOW_REM,
            ..FlowMod::add(self.place.priority(), self.r#match.clone(), self.actions())
        }
    }

    /// Deletes this entry, and no other.
    pub(crate) fn to_delete(&self) -> FlowMod {
        FlowMod {
            command: FlowModCommand::DeleteStrict,
            cookie: COOKIE_PREFIX,
            cookie_mask: COOKIE_PREFIX_MASK,
            instructions: Vec::new(),
            ..FlowMod::add(self.place.priority(), self.r#match.clone(), Vec::new())
        }
    }

    /// Whether this is the entry that a switch has at a priority.
    pub(crate) fn is_at(&self, priority: u16, m: &Match) -> bool {
        let has = |field| m.fields.contains(field);
        priority == self.place.priority()
            && m.fields.len() == self.r#match.fields.len()
            && self.r#match.fields.iter().all(has)
    }

    /// Whether the switch's row has the wanted form.
    pub(crate) fn is_row(&self, row: &FlowStats) -> bool {
        let actions = read_actions(&row.instructions);
        let does_so = actions.is_some_and(|actions| match self.place {
            GuardPlace::Drop(_) => actions.is_empty(),
            _ => {
                matches!(&actions[..], [Action::Output { port, .. }] if *port == PortNo::CONTROLLER)
            }
        });
        row.table_id.0 == 0 && does_so && self.is_at(row.priority, &row.r#match)
    }
}

/// Whether an entry of a switch is a guard that drops.
pub(crate) fn is_dropping_guard(row: &FlowStats) -> bool {
    let drops = || read_actions(&row.instructions).is_some_and(|actions| actions.is_empty());
    EntryKind::of(row.cookie) == Some(EntryKind::Guard) && drops()
}

/// Whether an edge must leave a packet-in to the controller: an entry has sent the packet to the
/// controller for inspection, or for an application.
pub(crate) fn is_to_be_judged(cookie: Cookie) -> bool {
    use EntryKind::{Access, Guard, Guest, Tap};
    matches!(EntryKind::of(cookie), Some(Guard | Access | Tap | Guest))
}

/// Sends the controller all packets of a host from a port. The entry ends by itself, in case it is
/// not deleted: each question to the host sets it again.
pub(crate) fn watch(in_port: PortNo, src: MacAddr, generation: u16) -> FlowMod {
    const HARD_S: u16 = 2;
    let entry = Entry {
        key: EntryKey::watch(in_port, src),
        kind: EntryKind::Watch,
        out: PortNo::CONTROLLER,
        idle_timeout_s: 0,
        hard_timeout_s: HARD_S,
        notify: false,
    };
    entry.to_add(generation)
}

/// Whether the cookie of an entry, or of the entry that sent a packet-in, is a tap's.
pub(crate) fn is_tap(cookie: Cookie) -> bool {
    EntryKind::of(cookie) == Some(EntryKind::Tap)
}

/// Whether a packet-in is a copy of a packet that the switch has forwarded. Switches of 1.0 cannot
/// name the packet-in's entry, and get no entries of this kind.
pub(crate) fn is_report(cookie: Cookie) -> bool {
    EntryKind::of(cookie) == Some(EntryKind::Report)
}

/// Whether a host's frame can have this source address.
pub(crate) fn can_be_host(mac: MacAddr) -> bool {
    mac != MacAddr::default() && !mac.is_multicast()
}

fn host(value: u128) -> Option<MacAddr> {
    let mac = MacAddr::from_u64(value as u64);
    can_be_host(mac).then_some(mac)
}

/// Whether a cookie is auster's. Anybody who may write a flow can use the same cookie.
pub fn is_own(cookie: Cookie) -> bool {
    cookie.0 & COOKIE_PREFIX_MASK.0 == COOKIE_PREFIX.0
}

/// Whether a flow that the datapath keeps for this packet could also match IPv4 packets: a flow has
/// one Ethernet type. For a tag it is unknown which fields the datapath looks at.
pub(crate) fn may_keep_ipv4_flow(packet: &[u8]) -> bool {
    const OTHERS: [u16; 3] = [ETH_TYPE_ARP, ETH_TYPE_IPV6, ETH_TYPE_LLDP];
    let eth_type = packet.get(12..14).map(|b| u16::from_be_bytes([b[0], b[1]]));
    !eth_type.is_some_and(|eth_type| OTHERS.contains(&eth_type))
}

/// The request for all entries that a reconciliation must see: ours, and the two places of
/// infrastructure that other entries may use. 1.0 has no cookie in its request, so both versions
/// ask for all entries.
pub(crate) fn ask_for_entries() -> FlowStatsRequest {
    FlowStatsRequest::all()
}

/// Converts instructions of 1.3 into the form of a version: in 1.5 a meter is an action, the first
/// one applied.
pub(crate) fn in_version(version: Version, instructions: &mut Vec<Instruction>) {
    let is_meter = |one: &Instruction| matches!(one, Instruction::Meter(_));
    let Some(at) = instructions.iter().position(is_meter) else {
        return;
    };
    let Instruction::Meter(meter) = instructions[at] else {
        return;
    };
    if version < Version::V15 {
        return;
    }
    instructions.remove(at);
    let applied = instructions.iter_mut().find_map(|one| match one {
        Instruction::ApplyActions(actions) => Some(actions),
        _ => None,
    });
    match applied {
        Some(actions) => actions.insert(0, Action::Meter(meter)),
        None => instructions.insert(0, Instruction::ApplyActions(vec![Action::Meter(meter)])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(rank: u8, family: Family, proto: u8, ports: (u16, u16)) -> Rule {
        Rule {
            rank,
            family,
            proto,
            src_port: ports.0,
            dst_port: ports.1,
        }
    }

    fn keys() -> Vec<EntryKey> {
        let (src, dst) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        let rules = [
            rule(0, Family::Ipv4, proto::TCP, (0, 22)),
            rule(0, Family::Ipv6, proto::TCP, (0, 22)),
            rule(1, Family::Ipv4, proto::UDP, (53, 0)),
            rule(2, Family::Ipv4, proto::ICMP, (0, 0)),
            rule(2, Family::Ipv6, proto::ICMPV6, (128, 0)),
            rule(3, Family::Ipv6, proto::SCTP, (1, 2)),
            rule(4, Family::Ipv4, 50, (0, 0)),
            rule(u8::MAX, Family::Arp, 0, (0, 0)),
        ];
        let rules = rules.map(|rule| EntryKey::rule(PortNo(3), src, dst, rule));
        rules.into_iter().collect()
    }

    #[test]
    fn no_kind_has_the_number_of_policies_or_circuits() {
        for kind in 0..=u64::from(u8::MAX) {
            let cookie = Cookie(COOKIE_PREFIX.0 | kind << 8);
            let is_qos = crate::qos::flow::Flow::is_its(cookie);
            assert!(!is_qos || EntryKind::of(cookie).is_none(), "{kind}");
            // The same number in another owner's cookie means nothing.
            let foreign = [Cookie(kind << 8), Cookie(cookie.0 ^ 1 << 63)];
            assert_eq!(foreign.map(EntryKind::of), [None, None], "{kind}");
        }
    }

    #[test]
    fn a_rule_comes_back_from_its_match_and_so_does_its_successor() {
        for key in keys() {
            for key in [key, key.successor()] {
                let back = EntryKey::from_match(key.priority, &key.to_match());
                assert_eq!(back, Some(key));
            }
        }
    }

    /// The successor of a rule is below the rule and above the next rule, and all are above the
    /// pair's own entry.
    #[test]
    fn rules_and_successors_are_in_their_order() {
        let mut before: Option<EntryKey> = None;
        for key in keys() {
            let successor = key.successor();
            assert!(!key.is_successor() && successor.is_successor());
            assert_eq!(successor.priority + 1, key.priority);
            if let Some(before) = before {
                let is_next = before.rule.map(|r| r.rank) != key.rule.map(|r| r.rank);
                assert_eq!(is_next, before.successor().priority > key.priority);
            }
            before = Some(key);
            let own = key.without_rule();
            assert!(own.rule.is_none() && !own.is_successor());
            assert_eq!(successor.without_rule(), own.successor());
            assert!(successor.priority > own.priority && own > own.successor());
            assert!(successor >= EntryKey::RULES_FROM && own < EntryKey::RULES_FROM);
        }
    }
}
