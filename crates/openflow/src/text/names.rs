//! Names: fields and their aliases, protocols, errors, reasons, in the words of `ovs-ofctl`.

use crate::error::ErrorKind;
use crate::kind::MessageKind;
use crate::match_fields::Field;
use crate::message::{GroupType, Role, RoleReason};
use crate::wire::{nicira_name, onf_kind};

/// Shorthands: the Ethernet type they stand for and the protocol within, if any.
pub(super) const PROTOCOLS: &[(&str, u16, Option<u8>)] = &[
    ("ip", 0x0800, None),
    ("ipv4", 0x0800, None),
    ("icmp", 0x0800, Some(1)),
    ("tcp", 0x0800, Some(6)),
    ("udp", 0x0800, Some(17)),
    ("sctp", 0x0800, Some(132)),
    ("arp", 0x0806, None),
    ("rarp", 0x8035, None),
    ("ipv6", 0x86dd, None),
    ("ip6", 0x86dd, None),
    ("icmp6", 0x86dd, Some(58)),
    ("tcp6", 0x86dd, Some(6)),
    ("udp6", 0x86dd, Some(17)),
    ("sctp6", 0x86dd, Some(132)),
    ("mpls", 0x8847, None),
    ("mplsm", 0x8848, None),
];

/// Prefixes of `ovs-ofctl` names for fields that OpenFlow 1.3 cannot match: what the field is, and
/// what to write instead.
const LACKING: &[(&str, &str, &str)] = &[
    (
        "nw_frag",
        FRAGMENTS,
        "nw_src, nw_dst or nw_proto, which fragments have too",
    ),
    (
        "ip_frag",
        FRAGMENTS,
        "nw_src, nw_dst or nw_proto, which fragments have too",
    ),
    ("tcp_flags", "field for TCP flags", "tcp_src or tcp_dst"),
    ("nw_ttl", "field for the TTL", OTHER),
    ("mpls_ttl", "field for the TTL", "mpls_label or mpls_tc"),
    (
        "ct_",
        "state of connections",
        "the addresses and ports of each direction",
    ),
    ("reg", REGISTERS, "metadata"),
    ("xreg", REGISTERS, "metadata"),
    ("xxreg", REGISTERS, "metadata"),
    ("tun_", "field of tunnels but tun_id", "tun_id"),
    ("nsh_", "field for NSH", OTHER),
    ("nd_reserved", SUCH, "nd_target, nd_sll or nd_tll"),
    ("nd_options_type", SUCH, "nd_target, nd_sll or nd_tll"),
    ("pkt_mark", SUCH, OTHER),
    ("skb_priority", SUCH, OTHER),
    ("dp_hash", SUCH, OTHER),
    ("recirc_id", SUCH, OTHER),
    ("conj_id", SUCH, OTHER),
    ("packet_type", SUCH, "dl_type"),
    ("actset_output", SUCH, OTHER),
];
const FRAGMENTS: &str = "field for fragments";
const REGISTERS: &str = "registers";
const SUCH: &str = "such field";
const OTHER: &str = "another field";

/// Returns the words to write instead of a name that OpenFlow 1.3 has no field for.
pub(super) fn instead_of(name: &str) -> Option<String> {
    let is_it = |start: &str| {
        let rest = name.strip_prefix(start);
        rest.is_some_and(|rest| {
            let is_numbered = rest.bytes().all(|c| c.is_ascii_digit());
            start.ends_with('_') || is_numbered
        })
    };
    let (_, what, instead) = LACKING.iter().find(|(start, ..)| is_it(start))?;
    Some(format!("{instead}: OpenFlow 1.3 has no {what}"))
}

/// The shorthand that stands for exactly this type and protocol.
pub(super) fn protocol(eth_type: u16, ip_proto: Option<u8>) -> Option<&'static str> {
    PROTOCOLS
        .iter()
        .find(|(_, ty, proto)| *ty == eth_type && *proto == ip_proto)
        .map(|(name, ..)| *name)
}

/// The error as `ovs-ofctl` names it, or its numbers.
pub(super) fn error(kind: ErrorKind) -> String {
    let prefix = match kind.ty {
        0 => "OFPHFC",
        1 => "OFPBRC",
        2 => "OFPBAC",
        3 => "OFPBIC",
        4 => "OFPBMC",
        5 | 0x1003 => "OFPFMFC",
        6 => "OFPGMFC",
        7 => "OFPPMFC",
        8 => "OFPTMFC",
        9 => "OFPQOFC",
        10 => "OFPSCFC",
        11 => "OFPRRFC",
        12 => "OFPMMFC",
        13 => "OFPTFFC",
        14 => "OFPBPC",
        15 => "OFPACFC",
        16 => "OFPMOFC",
        17 => "OFPBFC",
        _ => return format!("type {} code {}", kind.ty, kind.code),
    };
    let Some(name) = kind.name() else {
        return format!("type {} code {}", kind.ty, kind.code);
    };
    // Names of `ErrorKind` include their type; Open vSwitch has it in the prefix, and keeps some
    // words of OpenFlow 1.0.
    let short = match kind {
        ErrorKind::BAD_MULTIPART => "BAD_STAT",
        ErrorKind::BAD_EXPERIMENTER | ErrorKind::ACTION_BAD_EXPERIMENTER => "BAD_VENDOR",
        ErrorKind::BAD_EXPERIMENTER_TYPE => "BAD_SUBTYPE",
        ErrorKind::REQUEST_EPERM => "EPERM",
        ErrorKind::IS_SLAVE => "IS_SECONDARY",
        ErrorKind::ACTION_BAD_EXP_TYPE => "BAD_VENDOR_TYPE",
        ErrorKind::GROUP_INVALID => "INVALID_GROUP",
        ErrorKind::GROUP_EXISTS | ErrorKind::METER_EXISTS => name,
        ErrorKind::METER_INVALID => "INVALID_METER",
        ErrorKind::BUNDLE_BUNDLE_EXIST => "BUNDLE_EXIST",
        ErrorKind::BUNDLE_BUNDLE_CLOSED => "BUNDLE_CLOSED",
        ErrorKind::BUNDLE_IN_PROGRESS => "BUNDLE_IN_PROGRESS",
        kind if kind.ty == ErrorKind::BUNDLE_UNKNOWN.ty => {
            name.strip_prefix("BUNDLE_").unwrap_or(name)
        }
        ErrorKind::TABLE_FEATURES_BAD_TYPE => return "OFPBPC_BAD_TYPE".into(),
        ErrorKind::TABLE_FEATURES_BAD_LEN => return "OFPBPC_BAD_LEN".into(),
        ErrorKind::TABLE_FEATURES_BAD_ARGUMENT => return "OFPBPC_BAD_VALUE".into(),
        _ => {
            let own = [
                "HELLO_",
                "ACTION_",
                "INST_",
                "MATCH_",
                "FLOW_MOD_",
                "GROUP_",
                "PORT_MOD_",
                "TABLE_MOD_",
                "QUEUE_",
                "SWITCH_CONFIG_",
                "ROLE_",
                "METER_",
                "TABLE_FEATURES_",
                "PROPERTY_",
                "ASYNC_CONFIG_",
                "FLOW_MONITOR_",
            ];
            own.iter()
                .find_map(|own| name.strip_prefix(own))
                .unwrap_or(name)
        }
    };
    format!("{prefix}_{short}")
}

/// OFPPF_*, in the numbering of 1.3.
pub(super) fn port_feature(bit: u32) -> Option<&'static str> {
    const NAMES: [&str; 16] = [
        "10MB-HD",
        "10MB-FD",
        "100MB-HD",
        "100MB-FD",
        "1GB-HD",
        "1GB-FD",
        "10GB-FD",
        "40GB-FD",
        "100GB-FD",
        "1TB-FD",
        "OTHER",
        "COPPER",
        "FIBER",
        "AUTO_NEG",
        "AUTO_PAUSE",
        "AUTO_PAUSE_ASYM",
    ];
    NAMES.get(bit.trailing_zeros() as usize).copied()
}

pub(super) fn packet_in_reason(reason: u8) -> String {
    const NAMES: [&str; 6] = [
        "no_match",
        "action",
        "invalid_ttl",
        "action_set",
        "group",
        "packet_out",
    ];
    NAMES
        .get(usize::from(reason))
        .map_or_else(|| reason.to_string(), |name| (*name).into())
}

pub(super) fn flow_removed_reason(reason: u8) -> String {
    const NAMES: [&str; 6] = [
        "idle",
        "hard",
        "delete",
        "group_delete",
        "meter_delete",
        "eviction",
    ];
    NAMES
        .get(usize::from(reason))
        .map_or_else(|| reason.to_string(), |name| (*name).into())
}

pub(super) fn port_reason(reason: u8) -> String {
    const NAMES: [&str; 3] = ["add", "delete", "modify"];
    NAMES
        .get(usize::from(reason))
        .map_or_else(|| reason.to_string(), |name| (*name).into())
}

/// Action types of 1.3 (OFPAT_*) in the words and the order of Open vSwitch's lists.
pub(super) const ACTION_TYPES: &[(u16, &str)] = &[
    (0, "output"),
    (22, "group"),
    (25, "set_field"),
    (18, "strip_vlan"),
    (17, "push_vlan"),
    (23, "mod_nw_ttl"),
    (24, "dec_ttl"),
    (15, "set_mpls_ttl"),
    (16, "dec_mpls_ttl"),
    (19, "push_mpls"),
    (20, "pop_mpls"),
    (21, "set_queue"),
    (11, "copy_ttl_out"),
    (12, "copy_ttl_in"),
    (26, "push_pbb"),
    (27, "pop_pbb"),
];

/// The 1.0 actions (OFPAT10_*) of a FEATURES_REPLY, likewise.
pub(super) const ACTION_TYPES_V10: &[(u16, &str)] = &[
    (0, "output"),
    (11, "enqueue"),
    (1, "set_vlan_vid"),
    (2, "set_vlan_pcp"),
    (3, "strip_vlan"),
    (4, "mod_dl_src"),
    (5, "mod_dl_dst"),
    (6, "mod_nw_src"),
    (7, "mod_nw_dst"),
    (8, "mod_nw_tos"),
    (9, "mod_tp_src"),
    (10, "mod_tp_dst"),
];

/// Flags of TCP, lowest first.
pub(super) const TCP_FLAGS: [&str; 12] = [
    "fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]",
];

/// Returns the field's name in a move, if Open vSwitch uses an older one than the specification.
pub(super) fn nxm(field: Field) -> Option<&'static str> {
    Some(match field {
        Field::InPort => "NXM_OF_IN_PORT",
        Field::EthDst => "NXM_OF_ETH_DST",
        Field::EthSrc => "NXM_OF_ETH_SRC",
        Field::EthType => "NXM_OF_ETH_TYPE",
        Field::IpEcn => "NXM_NX_IP_ECN",
        Field::IpProto => "NXM_OF_IP_PROTO",
        Field::Ipv4Src => "NXM_OF_IP_SRC",
        Field::Ipv4Dst => "NXM_OF_IP_DST",
        Field::TcpSrc => "NXM_OF_TCP_SRC",
        Field::TcpDst => "NXM_OF_TCP_DST",
        Field::UdpSrc => "NXM_OF_UDP_SRC",
        Field::UdpDst => "NXM_OF_UDP_DST",
        Field::Icmpv4Type => "NXM_OF_ICMP_TYPE",
        Field::Icmpv4Code => "NXM_OF_ICMP_CODE",
        Field::ArpOp => "NXM_OF_ARP_OP",
        Field::ArpSpa => "NXM_OF_ARP_SPA",
        Field::ArpTpa => "NXM_OF_ARP_TPA",
        Field::ArpSha => "NXM_NX_ARP_SHA",
        Field::ArpTha => "NXM_NX_ARP_THA",
        Field::Ipv6Src => "NXM_NX_IPV6_SRC",
        Field::Ipv6Dst => "NXM_NX_IPV6_DST",
        Field::Ipv6Flabel => "NXM_NX_IPV6_LABEL",
        Field::Icmpv6Type => "NXM_NX_ICMPV6_TYPE",
        Field::Icmpv6Code => "NXM_NX_ICMPV6_CODE",
        Field::Ipv6NdTarget => "NXM_NX_ND_TARGET",
        Field::Ipv6NdSll => "NXM_NX_ND_SLL",
        Field::Ipv6NdTll => "NXM_NX_ND_TLL",
        Field::TunnelId => "NXM_NX_TUN_ID",
        Field::TcpFlags => "NXM_NX_TCP_FLAGS",
        _ => return None,
    })
}

/// The names of the action types in a bitmap, or `<none>`.
pub(super) fn bitmap(types: &[(u16, &'static str)], bits: u32) -> String {
    let names: Vec<&str> = types
        .iter()
        .filter(|(ty, _)| bits >> ty & 1 == 1)
        .map(|(_, name)| *name)
        .collect();
    if names.is_empty() {
        "<none>".into()
    } else {
        names.join(" ")
    }
}

pub(super) fn group_type(ty: GroupType) -> &'static str {
    match ty {
        GroupType::All => "all",
        GroupType::Select => "select",
        GroupType::Indirect => "indirect",
        GroupType::FastFailover => "ff",
    }
}

/// Names of all kinds of messages; multipart ones without their subject.
pub(super) const MESSAGES: &[(MessageKind, &str)] = &[
    (MessageKind::Hello, "OFPT_HELLO"),
    (MessageKind::Error, "OFPT_ERROR"),
    (MessageKind::EchoRequest, "OFPT_ECHO_REQUEST"),
    (MessageKind::EchoReply, "OFPT_ECHO_REPLY"),
    (MessageKind::Experimenter, "OFPT_EXPERIMENTER"),
    (MessageKind::FeaturesRequest, "OFPT_FEATURES_REQUEST"),
    (MessageKind::FeaturesReply, "OFPT_FEATURES_REPLY"),
    (MessageKind::GetConfigRequest, "OFPT_GET_CONFIG_REQUEST"),
    (MessageKind::GetConfigReply, "OFPT_GET_CONFIG_REPLY"),
    (MessageKind::SetConfig, "OFPT_SET_CONFIG"),
    (MessageKind::PacketIn, "OFPT_PACKET_IN"),
    (MessageKind::FlowRemoved, "OFPT_FLOW_REMOVED"),
    (MessageKind::PortStatus, "OFPT_PORT_STATUS"),
    (MessageKind::PacketOut, "OFPT_PACKET_OUT"),
    (MessageKind::FlowMod, "OFPT_FLOW_MOD"),
    (MessageKind::GroupMod, "OFPT_GROUP_MOD"),
    (MessageKind::PortMod, "OFPT_PORT_MOD"),
    (MessageKind::TableMod, "OFPT_TABLE_MOD"),
    (MessageKind::MultipartRequest, "OFPT_MULTIPART_REQUEST"),
    (MessageKind::MultipartReply, "OFPT_MULTIPART_REPLY"),
    (MessageKind::BarrierRequest, "OFPT_BARRIER_REQUEST"),
    (MessageKind::BarrierReply, "OFPT_BARRIER_REPLY"),
    (
        MessageKind::QueueGetConfigRequest,
        "OFPT_QUEUE_GET_CONFIG_REQUEST",
    ),
    (
        MessageKind::QueueGetConfigReply,
        "OFPT_QUEUE_GET_CONFIG_REPLY",
    ),
    (MessageKind::RoleRequest, "OFPT_ROLE_REQUEST"),
    (MessageKind::RoleReply, "OFPT_ROLE_REPLY"),
    (MessageKind::GetAsyncRequest, "OFPT_GET_ASYNC_REQUEST"),
    (MessageKind::GetAsyncReply, "OFPT_GET_ASYNC_REPLY"),
    (MessageKind::SetAsync, "OFPT_SET_ASYNC"),
    (MessageKind::MeterMod, "OFPT_METER_MOD"),
    (MessageKind::RoleStatus, "OFPT_ROLE_STATUS"),
    (MessageKind::TableStatus, "OFPT_TABLE_STATUS"),
    (MessageKind::RequestForward, "OFPT_REQUESTFORWARD"),
    (MessageKind::BundleControl, "OFPT_BUNDLE_CONTROL"),
    (MessageKind::BundleAddMessage, "OFPT_BUNDLE_ADD_MESSAGE"),
    (MessageKind::ControllerStatus, "OFPT_CONTROLLER_STATUS"),
];

/// Causes of a change of role (OFPCRR_*).
pub(super) const ROLE_REASONS: &[(RoleReason, &str)] = &[
    (RoleReason::PRIMARY_REQUEST, "primary_request"),
    (RoleReason::CONFIG, "configuration_changed"),
    (RoleReason::EXPERIMENTER, "experimenter_data_changed"),
];

pub(super) fn role_reason(reason: RoleReason) -> &'static str {
    let found = ROLE_REASONS.iter().find(|(known, _)| *known == reason);
    found.map_or("(unknown)", |(_, name)| name)
}

/// Treatment of packets that no entry of a table matches, before 1.3 (OFPTC_TABLE_MISS_*).
pub(super) const TABLE_MISS: [&str; 3] = ["controller", "continue", "drop"];

pub(super) fn table_reason(reason: u8) -> String {
    match reason {
        3 => "vacancy_down".into(),
        4 => "vacancy_up".into(),
        other => other.to_string(),
    }
}

pub(super) fn forward_reason(reason: u8) -> String {
    match reason {
        0 => "group_mod_request".into(),
        1 => "meter_mod_request".into(),
        other => other.to_string(),
    }
}

pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::NoChange => "nochange",
        Role::Equal => "equal",
        Role::Primary => "primary",
        Role::Secondary => "secondary",
    }
}

/// Name of a message in 1.3, where messages of 1.4 are the ONF's extensions.
pub(super) fn message_v13(kind: MessageKind) -> String {
    let name = message(kind);
    let is_onf = kind.to_wire(4).is_none();
    match name.strip_prefix("OFPT_") {
        Some(rest) if is_onf => format!("ONFT_{rest}"),
        _ => name.to_owned(),
    }
}

pub(super) fn message(kind: MessageKind) -> &'static str {
    MESSAGES
        .iter()
        .find(|(k, _)| *k == kind)
        .map_or("OFPT_UNKNOWN", |(_, name)| *name)
}

/// Multipart types (OFPMP_*) of 1.3 in the words of `ovs-ofctl`; 1.0 shares those up to 5.
pub(super) const MULTIPART_TYPES: &[(u16, &str)] = &[
    (0, "DESC"),
    (1, "FLOW"),
    (2, "AGGREGATE"),
    (3, "TABLE"),
    (4, "PORT"),
    (5, "QUEUE"),
    (6, "GROUP"),
    (7, "GROUP_DESC"),
    (8, "GROUP_FEATURES"),
    (9, "METER"),
    (10, "METER_CONFIG"),
    (11, "METER_FEATURES"),
    (12, "TABLE_FEATURES"),
    (13, "PORT_DESC"),
];

/// Multipart types of 1.4, then those of 1.5.
const LATER_MULTIPART_TYPES: &[(u16, &str)] = &[
    (14, "TABLE_DESC"),
    (15, "QUEUE_DESC"),
    (16, "FLOW_MONITOR"),
    (17, "FLOW_STATS"),
    (18, "CONTROLLER_STATUS"),
    (19, "BUNDLE_FEATURES"),
];

/// Number of the types of [`LATER_MULTIPART_TYPES`] that a version has.
fn later_multipart_types(version: u8) -> usize {
    match version {
        0..=4 => 0,
        5 => 3,
        _ => LATER_MULTIPART_TYPES.len(),
    }
}

/// Returns the multipart type with this number, in any version.
pub(super) fn multipart(number: usize) -> &'static str {
    let mut all = MULTIPART_TYPES.iter().chain(LATER_MULTIPART_TYPES);
    all.nth(number).map_or("UNKNOWN", |(_, name)| name)
}

/// Names a message by its header, and a multipart message or an ONF extension by its type too.
/// `None` for a type that its version does not have.
pub(super) fn frame(version: u8, type_byte: u8, message: &[u8]) -> Option<String> {
    let kind = MessageKind::from_wire(version, type_byte);
    let suffix = match kind {
        MessageKind::Unknown => return None,
        MessageKind::MultipartRequest => "request",
        MessageKind::MultipartReply => "reply",
        kind => {
            return Some(match (onf_kind(message), nicira_name(message)) {
                (Some(kind), _) => message_v13(kind),
                (_, Some(name)) => name.to_owned(),
                _ => self::message(kind).to_owned(),
            });
        }
    };
    let ty = message
        .get(8..10)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let later = &LATER_MULTIPART_TYPES[..later_multipart_types(version)];
    let known = MULTIPART_TYPES
        .iter()
        .chain(later)
        .find(|(number, _)| Some(*number) == ty);
    match (known, ty) {
        (Some((_, name)), _) => Some(format!("OFPST_{name} {suffix}")),
        (None, Some(0xffff)) => Some(format!("OFPST_EXPERIMENTER {suffix}")),
        (None, Some(ty)) => Some(format!("OFPST_{ty} {suffix}")),
        (None, None) => Some(self::message(kind).to_owned()),
    }
}
