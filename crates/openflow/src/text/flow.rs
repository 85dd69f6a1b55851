//! Matches, actions, instructions and flow entries, as `ovs-ofctl` writes them.
//!
//! Match fields are in Open vSwitch's order, not the sender's. Items that Open vSwitch has no words
//! for are written in the same style: `in_phy_port=`, `push_pbb:`, `copy_ttl_out`,
//! `oxm=HEADER:PAYLOAD`, `experimenter(ID,DATA)`.

use std::fmt::{self, Display, Formatter, Write};

use crate::actions::{Action, Bucket, FieldId, Instruction};
use crate::match_fields::{Field, Match, MatchField};
use crate::message::{FlowMod, FlowModCommand, FlowModFlags, GroupType};
use crate::types::{BucketId, BufferId, Cookie, GroupId, PortNo, TableId, Version};

use super::nicira::Word;
use super::values;
use super::{later, names, nicira};

/// The priority of a flow that names none.
pub(super) const PRIORITY_DEFAULT: u16 = 32_768;

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&match_text(Version::V13, self, PRIORITY_DEFAULT))
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        action(f, Version::V13, self)
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        instruction(f, Version::V13, self)
    }
}

impl Display for Bucket {
    /// Writes the bucket like one of a group of type ALL, where a weight of 0 is left out.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        bucket(f, Version::V13, GroupType::All, self)
    }
}

impl Display for FlowMod {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        flow_mod(f, Version::V13, self)
    }
}

/// The match, preceded by its priority if that is not the default. Empty for "everything".
pub(super) fn match_text(version: Version, m: &Match, priority: u16) -> String {
    let (mut parts, transport) = match_parts(m);
    let untagged = parts
        .iter_mut()
        .find(|part| *part == "vlan_tci=0x0000/0x1fff");
    if let (Version::V10 | Version::V11, Some(part)) = (version, untagged) {
        // Their only value for "no tag" (OFP_VLAN_NONE) has no mask.
        part.truncate("vlan_tci=0x0000".len());
    }
    if priority != PRIORITY_DEFAULT {
        parts.insert(0, format!("priority={priority}"));
    }
    parts.extend(transport);
    parts.join(",")
}

/// The match up to its network layer, and from the transport layer on.
pub(super) fn match_parts(m: &Match) -> (Vec<String>, Vec<String>) {
    let mut parts = Parts::default();
    let eth_type = m.exact(Field::EthType).map(|v| v as u16);
    let ip_proto = m.exact(Field::IpProto).map(|v| v as u8);
    let shorthand = shorthand(eth_type, ip_proto);
    let (mut marks, mut tracked, mut registers) = (Vec::new(), Vec::new(), Vec::new());
    for field in &m.fields {
        if let MatchField::Other { header, payload } = field {
            match nicira::match_word(*header, payload) {
                Some(Word::Mark(word)) => marks.push(word),
                Some(Word::Tracked(word)) => tracked.push((*header >> 9, word)),
                Some(Word::Register(word)) => registers.push((*header >> 9, word)),
                None => {}
            }
        }
    }
    tracked.sort();
    parts.0.extend(marks);
    parts.plain(m, Field::ActsetOutput, "actset_output");
    parts.0.extend(tracked.into_iter().map(|(_, word)| word));
    if let Some(ty) = m.exact(Field::PacketType).filter(|ty| *ty != 0) {
        parts.push(format!("packet_type=({},{:#x})", ty >> 16, ty & 0xffff));
    }
    if let Some((name, _)) = shorthand {
        parts.push(name.into());
    }
    registers.sort();
    parts.0.extend(registers.into_iter().map(|(_, word)| word));
    parts.plain(m, Field::TunnelId, "tun_id");
    parts.plain(m, Field::Metadata, "metadata");
    parts.plain(m, Field::InPort, "in_port");
    parts.plain(m, Field::InPhyPort, "in_phy_port");
    vlan(&mut parts, m);
    parts.plain(m, Field::EthSrc, "dl_src");
    parts.plain(m, Field::EthDst, "dl_dst");
    if let (None, Some(ty)) = (shorthand, eth_type) {
        parts.push(format!("dl_type=0x{ty:04x}"));
    }
    network(
        &mut parts,
        m,
        shorthand.is_some_and(|(_, says_proto)| says_proto),
    );
    let mut upper = Parts::default();
    transport(&mut upper, m, eth_type, ip_proto);
    upper.plain(m, Field::PbbUca, "pbb_uca");
    tcp_flags(&mut upper, m);
    for field in &m.fields {
        if let MatchField::Other { header, payload } = field
            && nicira::match_word(*header, payload).is_none()
        {
            upper.push(format!("oxm={header:#010x}:{}", values::hex(payload)));
        }
    }
    (parts.0, upper.0)
}

/// `syn|ack` for exactly these, `+syn-ack` for a masked match.
fn tcp_flags(parts: &mut Parts, m: &Match) {
    let Some((flags, mask)) = m.get(Field::TcpFlags).filter(|(_, mask)| *mask != 0) else {
        return;
    };
    let is_set = |n: usize, bits: u128| bits >> n & 1 == 1;
    let all = || names::TCP_FLAGS.into_iter().enumerate();
    let text = if mask != Field::TcpFlags.ones() {
        all()
            .filter(|(n, _)| is_set(*n, mask))
            .map(|(n, name)| format!("{}{name}", if is_set(n, flags) { '+' } else { '-' }))
            .collect()
    } else if flags == 0 {
        "0".to_owned()
    } else {
        let set = all().filter(|(n, _)| is_set(*n, flags));
        set.map(|(_, name)| name).collect::<Vec<_>>().join("|")
    };
    parts.push(format!("tcp_flags={text}"));
}

/// The protocol's shorthand, and whether it implies the IP protocol too.
fn shorthand(eth_type: Option<u16>, ip_proto: Option<u8>) -> Option<(&'static str, bool)> {
    let eth_type = eth_type?;
    match ip_proto.and_then(|proto| names::protocol(eth_type, Some(proto))) {
        Some(name) => Some((name, true)),
        None => names::protocol(eth_type, None).map(|name| (name, false)),
    }
}

/// A list of `name=value` parts.
#[derive(Default)]
struct Parts(Vec<String>);

impl Parts {
    fn push(&mut self, part: String) {
        self.0.push(part);
    }

    /// Adds the field as SET_FIELD would write it, under `name`. A field with a mask of zero is
    /// left out.
    fn plain(&mut self, m: &Match, field: Field, name: &str) {
        if let Some((value, mask)) = m.get(field).filter(|(_, mask)| *mask != 0) {
            let mut part = format!("{name}=");
            let _ = values::value(&mut part, field, value, Some(mask));
            if values::shape(field) == values::Shape::Hex && value == 0 {
                part = part.replacen("=0x0", "=0", 1);
            }
            self.push(part);
        }
    }

    /// Adds the value in decimal if exact; value and mask in hex if masked.
    fn number(&mut self, m: &Match, field: Field, name: &str) {
        match m.get(field) {
            Some((value, mask)) if mask == field.ones() => self.push(format!("{name}={value}")),
            Some((value, mask)) if mask != 0 => self.push(format!("{name}={value:#x}/{mask:#x}")),
            _ => {}
        }
    }
}

/// Adds the two VLAN fields as one TCI, or as `dl_vlan` and `dl_vlan_pcp` if these mean the same.
fn vlan(parts: &mut Parts, m: &Match) {
    let (vid, vid_mask) = m.get(Field::VlanVid).unwrap_or((0, 0));
    let pcp = m.exact(Field::VlanPcp);
    const PRESENT: u128 = 0x1000;
    let mut tci = vid & 0x1fff;
    let mut mask = vid_mask;
    if let Some(pcp) = pcp {
        // A priority belongs to a tag, so there must be a tag.
        tci |= PRESENT | pcp << 13;
        mask |= PRESENT | 0xe000;
    }
    let whole_vid = mask & 0xfff;
    if mask == 0 {
        return;
    }
    let plain = tci & mask & PRESENT != 0 && (whole_vid == 0 || whole_vid == 0xfff);
    if plain && (whole_vid != 0 || pcp.is_some()) {
        if whole_vid != 0 {
            parts.push(format!("dl_vlan={}", tci & 0xfff));
        }
        if let Some(pcp) = pcp {
            parts.push(format!("dl_vlan_pcp={pcp}"));
        }
    } else if mask == 0xffff {
        parts.push(format!("vlan_tci=0x{tci:04x}"));
    } else {
        parts.push(format!("vlan_tci=0x{tci:04x}/0x{mask:04x}"));
    }
}

fn network(parts: &mut Parts, m: &Match, shorthand_says_proto: bool) {
    parts.plain(m, Field::Ipv6Src, "ipv6_src");
    parts.plain(m, Field::Ipv6Dst, "ipv6_dst");
    match m.get(Field::Ipv6Flabel) {
        Some((label, mask)) if mask == Field::Ipv6Flabel.ones() => {
            parts.push(format!("ipv6_label=0x{label:05x}"));
        }
        Some((label, mask)) if mask != 0 => {
            parts.push(format!("ipv6_label=0x{label:05x}/0x{mask:05x}"));
        }
        _ => {}
    }
    parts.plain(m, Field::ArpSpa, "arp_spa");
    parts.plain(m, Field::ArpTpa, "arp_tpa");
    parts.plain(m, Field::Ipv4Src, "nw_src");
    parts.plain(m, Field::Ipv4Dst, "nw_dst");
    if !shorthand_says_proto {
        parts.number(m, Field::IpProto, "nw_proto");
    }
    parts.number(m, Field::ArpOp, "arp_op");
    parts.plain(m, Field::ArpSha, "arp_sha");
    parts.plain(m, Field::ArpTha, "arp_tha");
    if let Some(dscp) = m.exact(Field::IpDscp) {
        parts.push(format!("nw_tos={}", dscp << 2));
    }
    parts.number(m, Field::IpEcn, "nw_ecn");
    parts.number(m, Field::MplsLabel, "mpls_label");
    parts.number(m, Field::MplsTc, "mpls_tc");
    parts.number(m, Field::MplsBos, "mpls_bos");
    parts.plain(m, Field::PbbIsid, "pbb_isid");
    parts.plain(m, Field::Ipv6Exthdr, "ipv6_exthdr");
}

/// Adds `tp_src` and `tp_dst` if the match names their protocol, else the fields' own names.
fn transport(parts: &mut Parts, m: &Match, eth_type: Option<u16>, ip_proto: Option<u8>) {
    let is_ip = matches!(eth_type, Some(0x0800 | 0x86dd));
    let mut ports = |src: Field, dst: Field, proto: u8| {
        let implied = is_ip && ip_proto == Some(proto);
        parts.number(
            m,
            src,
            if implied {
                "tp_src"
            } else {
                src.info().set_text
            },
        );
        parts.number(
            m,
            dst,
            if implied {
                "tp_dst"
            } else {
                dst.info().set_text
            },
        );
    };
    ports(Field::TcpSrc, Field::TcpDst, 6);
    ports(Field::UdpSrc, Field::UdpDst, 17);
    ports(Field::SctpSrc, Field::SctpDst, 132);
    let is_icmpv6 = eth_type == Some(0x86dd) && ip_proto == Some(58);
    let icmpv6 = |name: &'static str, own: &'static str| if is_icmpv6 { name } else { own };
    parts.number(m, Field::Icmpv4Type, "icmp_type");
    parts.number(m, Field::Icmpv4Code, "icmp_code");
    parts.number(m, Field::Icmpv6Type, icmpv6("icmp_type", "icmpv6_type"));
    parts.number(m, Field::Icmpv6Code, icmpv6("icmp_code", "icmpv6_code"));
    parts.plain(m, Field::Ipv6NdTarget, "nd_target");
    parts.plain(m, Field::Ipv6NdSll, "nd_sll");
    parts.plain(m, Field::Ipv6NdTll, "nd_tll");
}

/// Writes the actions, separated by commas; an empty list is `drop`.
pub(super) fn actions(w: &mut dyn Write, version: Version, list: &[Action]) -> fmt::Result {
    if list.is_empty() {
        return w.write_str("drop");
    }
    for (at, one) in list.iter().enumerate() {
        if at > 0 {
            w.write_char(',')?;
        }
        action(w, version, one)?;
    }
    Ok(())
}

fn action(w: &mut dyn Write, version: Version, action: &Action) -> fmt::Result {
    match action {
        Action::Output { port, max_len } => match *port {
            PortNo::CONTROLLER => write!(w, "CONTROLLER:{max_len}"),
            port if port < PortNo::MAX => write!(w, "output:{port}"),
            PortNo::UNSET | PortNo::ANY => write!(w, "output:{port}"),
            // Numbers between OFPP_MAX and the first reserved one have no name.
            port if port < PortNo::UNSET => write!(w, "output:{port}"),
            port => write!(w, "{port}"),
        },
        Action::Group(group) => write!(w, "group:{}", group.0),
        Action::SetQueue(queue) => write!(w, "set_queue:{}", queue.0),
        Action::SetField(field) => set_field(w, version, field),
        Action::PushVlan(ty) => write!(w, "push_vlan:{ty:#x}"),
        Action::PopVlan => w.write_str("pop_vlan"),
        Action::PushMpls(ty) => write!(w, "push_mpls:0x{ty:04x}"),
        Action::PopMpls(ty) => write!(w, "pop_mpls:0x{ty:04x}"),
        Action::PushPbb(ty) => write!(w, "push_pbb:0x{ty:04x}"),
        Action::PopPbb => w.write_str("pop_pbb"),
        Action::SetMplsTtl(ttl) => write!(w, "set_mpls_ttl({ttl})"),
        Action::DecMplsTtl => w.write_str("dec_mpls_ttl"),
        Action::SetNwTtl(ttl) => write!(w, "mod_nw_ttl:{ttl}"),
        Action::DecNwTtl => w.write_str("dec_ttl"),
        Action::CopyTtlOut => w.write_str("copy_ttl_out"),
        Action::CopyTtlIn => w.write_str("copy_ttl_in"),
        Action::SetVlanVid(vid) => write!(w, "mod_vlan_vid:{vid}"),
        Action::SetVlanPcp(pcp) => write!(w, "mod_vlan_pcp:{pcp}"),
        Action::StripVlan => w.write_str("strip_vlan"),
        Action::SetNwTos(tos) => write!(w, "mod_nw_tos:{tos}"),
        Action::SetTpSrc(port) => write!(w, "mod_tp_src:{port}"),
        Action::SetTpDst(port) => write!(w, "mod_tp_dst:{port}"),
        Action::Enqueue { port, queue } => write!(w, "enqueue:{port}:{}", queue.0),
        Action::Meter(meter) => write!(w, "meter:{}", meter.0),
        Action::CopyField {
            n_bits,
            src_offset,
            dst_offset,
            src,
            dst,
        } => {
            let part = |id: &FieldId, from: u16| {
                let unnamed = || format!("{:#010x}[{from}]", id.header);
                nicira::sub_field(id.header, from, *n_bits).unwrap_or_else(unnamed)
            };
            let (src, dst) = (part(src, *src_offset), part(dst, *dst_offset));
            write!(w, "move:{src}->{dst}")
        }
        Action::Experimenter { experimenter, data } => {
            w.write_str(&nicira::action_text(*experimenter, data))
        }
    }
}

/// Writes a SET_FIELD. OpenFlow 1.0 and 1.1 have none: there the same action is `mod_dl_src` or a
/// similar one.
fn set_field(w: &mut dyn Write, version: Version, field: &MatchField) -> fmt::Result {
    match field {
        MatchField::Basic { field, value, mask } => {
            let is_v11 = version == Version::V11;
            let old_name = match field {
                Field::EthSrc => Some("mod_dl_src"),
                Field::EthDst => Some("mod_dl_dst"),
                Field::Ipv4Src => Some("mod_nw_src"),
                Field::Ipv4Dst => Some("mod_nw_dst"),
                Field::IpEcn if is_v11 => Some("mod_nw_ecn"),
                Field::VlanPcp if is_v11 => Some("set_vlan_pcp"),
                Field::VlanVid if is_v11 => return write!(w, "set_vlan_vid:{}", value & 0xfff),
                Field::MplsLabel if is_v11 => return write!(w, "set_mpls_label({value})"),
                Field::MplsTc if is_v11 => return write!(w, "set_mpls_tc({value})"),
                _ => None,
            };
            if let (true, Some(name)) = (version <= Version::V11, old_name) {
                write!(w, "{name}:")?;
                return values::value(w, *field, *value, *mask);
            }
            w.write_str("set_field:")?;
            values::value(w, *field, *value, *mask)?;
            write!(w, "->{}", field.info().set_text)
        }
        MatchField::Other { header, payload } => {
            write!(w, "set_field:{header:#010x}:{}->oxm", values::hex(payload))
        }
    }
}

/// Writes all instructions in the order the switch carries them out (OpenFlow 1.3.1, 5.9), as one
/// list.
pub(super) fn instructions(
    w: &mut dyn Write,
    version: Version,
    list: &[Instruction],
) -> fmt::Result {
    let mut ordered: Vec<&Instruction> = list.iter().collect();
    ordered.sort_by_key(|i| instruction_rank(i));
    let silent = |i: &&Instruction| matches!(i, Instruction::ApplyActions(list) if list.is_empty());
    ordered.retain(|i| !silent(i));
    if ordered.is_empty() {
        return w.write_str("drop");
    }
    for (at, one) in ordered.into_iter().enumerate() {
        if at > 0 {
            w.write_char(',')?;
        }
        instruction(w, version, one)?;
    }
    Ok(())
}

pub(super) fn instruction_rank(instruction: &Instruction) -> u8 {
    match instruction {
        Instruction::Meter(_) => 0,
        Instruction::ApplyActions(_) => 1,
        Instruction::ClearActions => 2,
        Instruction::WriteActions(_) => 3,
        Instruction::WriteMetadata { .. } => 4,
        Instruction::GotoTable(_) => 5,
        Instruction::Experimenter { .. } | Instruction::StatTrigger { .. } => 6,
    }
}

fn instruction(w: &mut dyn Write, version: Version, instruction: &Instruction) -> fmt::Result {
    match instruction {
        Instruction::GotoTable(table) => write!(w, "goto_table:{}", table.0),
        Instruction::WriteMetadata { metadata, mask } => {
            write!(w, "write_metadata:{}", values::c_hex(*metadata))?;
            match *mask {
                u64::MAX => Ok(()),
                mask => write!(w, "/{}", values::c_hex(mask)),
            }
        }
        Instruction::WriteActions(list) => {
            w.write_str("write_actions(")?;
            actions(w, version, list)?;
            w.write_char(')')
        }
        Instruction::ApplyActions(list) => actions(w, version, list),
        Instruction::ClearActions => w.write_str("clear_actions"),
        Instruction::Meter(meter) => write!(w, "meter:{}", meter.0),
        Instruction::StatTrigger { flags, thresholds } => {
            write!(w, "stat_trigger(flags={flags:#x}")?;
            for stat in thresholds {
                w.write_char(',')?;
                later::stat(w, stat)?;
            }
            w.write_char(')')
        }
        Instruction::Experimenter { experimenter, data } => {
            write!(w, "instruction({experimenter:#010x},{})", values::hex(data))
        }
    }
}

pub(super) fn bucket_id(id: BucketId) -> String {
    match id {
        BucketId::FIRST => "first".into(),
        BucketId::LAST => "last".into(),
        BucketId::ALL => "all".into(),
        id => id.0.to_string(),
    }
}

/// Writes `bucket=`, the properties that differ from the default, and the actions.
pub(super) fn bucket(
    w: &mut dyn Write,
    version: Version,
    group_type: GroupType,
    bucket: &Bucket,
) -> fmt::Result {
    w.write_str("bucket=")?;
    if let Some(id) = bucket.bucket_id {
        write!(w, "bucket_id:{},", bucket_id(id))?;
    }
    if bucket.weight != bucket_weight_default(group_type) {
        write!(w, "weight:{},", bucket.weight)?;
    }
    if bucket.watch_port != PortNo::ANY {
        write!(w, "watch_port:{},", bucket.watch_port)?;
    }
    if bucket.watch_group != GroupId::ANY {
        write!(w, "watch_group:{},", bucket.watch_group.0)?;
    }
    w.write_str("actions=")?;
    actions(w, version, &bucket.actions)
}

pub(super) fn bucket_weight_default(group_type: GroupType) -> u16 {
    u16::from(group_type == GroupType::Select)
}

pub(super) fn flow_mod(w: &mut dyn Write, version: Version, m: &FlowMod) -> fmt::Result {
    w.write_str(match m.command {
        FlowModCommand::Add => "ADD",
        FlowModCommand::Modify => "MOD",
        FlowModCommand::ModifyStrict => "MOD_STRICT",
        FlowModCommand::Delete => "DEL",
        FlowModCommand::DeleteStrict => "DEL_STRICT",
    })?;
    if m.table_id != TableId(0) {
        write!(w, " table:{}", m.table_id.0)?;
    }
    w.write_char(' ')?;
    let match_text = match_text(version, &m.r#match, m.priority);
    if !match_text.is_empty() {
        write!(w, "{match_text} ")?;
    }
    // In 1.1 a modification without a cookie to match adds the entry if it does not exist.
    let may_add = version == Version::V11 && m.cookie_mask == Cookie(0);
    let sets_cookie = match m.command {
        FlowModCommand::Add => true,
        FlowModCommand::Modify | FlowModCommand::ModifyStrict if may_add => true,
        _ => version == Version::V10,
    };
    if sets_cookie && m.cookie != Cookie(0) && m.cookie != Cookie(u64::MAX) {
        write!(w, "cookie:{:#x} ", m.cookie.0)?;
    }
    if !sets_cookie && m.cookie_mask != Cookie(0) {
        write!(w, "cookie:{:#x}/{:#x} ", m.cookie.0, m.cookie_mask.0)?;
    }
    if m.idle_timeout != 0 {
        write!(w, "idle:{} ", m.idle_timeout)?;
    }
    if m.hard_timeout != 0 {
        write!(w, "hard:{} ", m.hard_timeout)?;
    }
    if let Some(BufferId(buffer)) = m.buffer_id {
        write!(w, "buf:{buffer:#x} ")?;
    }
    if m.out_port != PortNo::ANY {
        write!(w, "out_port:{} ", m.out_port)?;
    }
    if m.importance != 0 {
        write!(w, "importance:{} ", m.importance)?;
    }
    flow_flags(w, m.flags)?;
    w.write_str("actions=")?;
    instructions(w, version, &m.instructions)
}

/// Writes each flag with a space after it.
pub(super) fn flow_flags(w: &mut dyn Write, flags: FlowModFlags) -> fmt::Result {
    for (flag, word) in FLOW_FLAGS {
        if flags.contains(*flag) {
            write!(w, "{word} ")?;
        }
    }
    Ok(())
}

pub(super) const FLOW_FLAGS: &[(FlowModFlags, &str)] = &[
    (FlowModFlags::SEND_FLOW_REM, "send_flow_rem"),
    (FlowModFlags::CHECK_OVERLAP, "check_overlap"),
    (FlowModFlags::RESET_COUNTS, "reset_counts"),
    (FlowModFlags::NO_PKT_COUNTS, "no_packet_counts"),
    (FlowModFlags::NO_BYT_COUNTS, "no_byte_counts"),
    // OpenFlow 1.0 only. Open vSwitch refuses it and has no word for it.
    (FlowModFlags::EMERG, "emerg"),
];
