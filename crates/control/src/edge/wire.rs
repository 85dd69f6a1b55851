//! Reads packet-ins in place, and makes answers by filling in a prepared message. It neither
//! allocates nor decodes, since this happens a million times a second.
//!
//! The tests below check every offset in a template against the codec.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, BytesMut};
use openflow::message::{FlowMod, PacketInReason, PacketOut};
use openflow::{
    Action, BufferId, Cookie, Instruction, MacAddr, Message, PortNo, Version, Xid, encode,
};

use crate::bond;
use crate::entry::{ETH_TYPE_LLDP, Entry, EntryKey, EntryKind, is_report, is_to_be_judged};
use crate::fabric::{Exit, Label, form};
use crate::vlan::{self, Form, VlanId};

use super::EdgeConfig;

pub(super) const ETH_TYPE_ARP: u16 = 0x0806;
const ETH_TYPE_VLAN: u16 = 0x8100;
const ETH_TYPE_QINQ: u16 = 0x88a8;

const NO_BUFFER: u32 = 0xffff_ffff;

/// A packet-in, and the destination of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer<'a> {
    pub in_port: PortNo,
    pub src: MacAddr,
    pub dst: MacAddr,
    /// `ANY` until the exit has been found.
    pub exit: Exit,
    pub buffer_id: Option<BufferId>,
    pub data: &'a [u8],
    /// Whether the switch has forwarded the packet already.
    pub is_copy: bool,
    /// `None` outside all VLANs.
    pub crossing: Option<Crossing>,
}

/// The change of a packet of a VLAN between its port and its exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crossing {
    pub vlan: VlanId,
    /// The VLAN id in the tag with which the packet arrives.
    pub tag: Option<u16>,
    /// The form in which the packet leaves by the port of its exit.
    pub form: Form,
}

pub(super) fn set_reason(packet_in: &mut [u8], reason: PacketInReason) {
    let at = match packet_in.first() {
        Some(&version) if version == Version::V10.wire() => 16,
        _ => 14,
    };
    if let Some(byte) = packet_in.get_mut(at) {
        *byte = reason.0;
    }
}

/// Source and destination of a packet-in's packet, at their most likely offset.
#[inline]
pub(super) fn addresses(version: Version, frame: &[u8]) -> Option<(MacAddr, MacAddr)> {
    let at = match version {
        Version::V10 => 18,
        _ => 42,
    };
    let dst = MacAddr(*frame.get(at..)?.first_chunk()?);
    let src = MacAddr(*frame.get(at + 6..)?.first_chunk()?);
    Some((src, dst))
}

/// Reads a packet-in; `None` if its packet must go to the controller, whatever it contains.
#[inline]
pub(super) fn read_packet_in(version: Version, frame: &[u8]) -> Option<Answer<'_>> {
    let (in_port, data) = match version {
        Version::V10 => (u32::from(u16_at(frame, 14)?), frame.get(18..)?),
        _ => {
            // A match of the in_port alone, as switches send it: type, length, one OXM.
            let alone = [0, 1, 0, 12, 0x80, 0, 0, 4];
            if frame.get(24..32)? != alone {
                return None;
            }
            (u32_at(frame, 32)?, frame.get(42..)?)
        }
    };
    let cookie = match version {
        Version::V10 => Cookie(0),
        _ => Cookie(u64_at(frame, 16)?),
    };
    if is_to_be_judged(cookie) {
        return None;
    }
    let is_copy = is_report(cookie);
    let buffer_id = match u32_at(frame, 8)? {
        // An entry that named the buffer would forward the packet again.
        _ if is_copy => None,
        NO_BUFFER => None,
        id => Some(BufferId(id)),
    };
    let is_cut = data.len() < usize::from(u16_at(frame, 12)?);
    let dst = MacAddr(*data.first_chunk()?);
    let src = MacAddr(*data.get(6..)?.first_chunk()?);
    // The frame must have an EtherType.
    data.get(12..14)?;
    if is_cut && buffer_id.is_none() && !is_copy {
        return None;
    }
    Some(Answer {
        in_port: PortNo(in_port),
        src,
        dst,
        exit: Exit::Port(PortNo::ANY),
        buffer_id,
        data,
        is_copy,
        crossing: None,
    })
}

/// Whether an edge may forward a packet to its destination. In a VLAN, checks the EtherType behind
/// the tag.
#[inline]
pub(super) fn may_send_on(packet: &Answer<'_>, is_in_vlan: bool) -> bool {
    let special = [ETH_TYPE_LLDP, ETH_TYPE_ARP, ETH_TYPE_VLAN, ETH_TYPE_QINQ];
    let mut eth_type = u16_at(packet.data, 12);
    if is_in_vlan && eth_type == Some(ETH_TYPE_VLAN) {
        eth_type = u16_at(packet.data, 16);
        // Everything behind the tag belongs to the hosts, even another tag.
        let special = [ETH_TYPE_LLDP, ETH_TYPE_ARP];
        return !packet.dst.is_multicast() && eth_type.is_some_and(|it| !special.contains(&it));
    }
    !packet.dst.is_multicast() && eth_type.is_some_and(|it| !special.contains(&it))
}

/// A flow-mod and the head of a packet-out, complete except for the fields that vary.
pub(super) struct Templates {
    version: Version,
    /// The entry of the templates, without its match and actions, for packets of VLANs.
    bare: FlowMod,
    /// The EtherType of the fabric's tag.
    tag: Option<u16>,
    flow_mod: Vec<u8>,
    packet_out: Vec<u8>,
    /// Where the actions of a packet-out begin.
    actions_of_packet_out: usize,
    leads_on: bool,
    /// The same messages towards an egress.
    labelled: Option<Labelled>,
    /// The places of bonds: packets go to their groups.
    bonds: BTreeSet<PortNo>,
    /// The ports that get copies of packets to a port.
    mirrors: BTreeMap<PortNo, Vec<PortNo>>,
}

struct Labelled {
    flow_mod: Vec<u8>,
    packet_out: Vec<u8>,
}

/// The offsets of the label's actions: where they begin in a flow-mod, and the VLAN id and the
/// group within them.
const ACTIONS_OF_FLOW_MOD: usize = 88;
const VID: usize = 16;
const GROUP: usize = 44;

/// The offsets of the fields in a flow-mod; all ports have the width of the version.
struct Places {
    in_port: usize,
    src: usize,
    dst: usize,
    buffer_id: usize,
    out_port: usize,
}

const FLOW_MOD_V10: Places = Places {
    in_port: 12,
    src: 14,
    dst: 20,
    buffer_id: 64,
    out_port: 76,
};

const FLOW_MOD_V13: Places = Places {
    in_port: 56,
    dst: 64,
    src: 74,
    buffer_id: 32,
    out_port: 92,
};

/// The offset of the lower half of the metadata in a flow-mod of 1.3 that sends packets on to
/// policies, after the output.
const METADATA_PORT: usize = 116;

impl Templates {
    /// Makes the templates. `leads_on`: packets go on to policies, which 1.0 does not have.
    /// `tag`: the EtherType of the fabric's tag, where there is a fabric.
    pub(super) fn new(config: &EdgeConfig, leads_on: bool, tag: Option<u16>) -> Templates {
        let leads_on = leads_on && config.version != Version::V10;
        let entry = Entry {
            key: EntryKey::pair(PortNo(1), MacAddr([2; 6]), MacAddr([4; 6])),
            kind: EntryKind::Local,
            out: PortNo(2),
            idle_timeout_s: config.idle_timeout_s,
            hard_timeout_s: config.hard_timeout_s,
            notify: false,
        };
        let plain = entry.to_add(config.generation);
        let numbered = |mut flow_mod: FlowMod| {
            config.numbering.translate_flow_mod(&mut flow_mod);
            flow_mod
        };
        let bare = numbered(plain.clone());
        let labelled = tag.filter(|_| config.version != Version::V10).map(|tag| {
            let actions = form::ingress_actions(tag, Label::MIN);
            let flow_mod = FlowMod {
                instructions: vec![Instruction::ApplyActions(actions.clone())],
                ..bare.clone()
            };
            Labelled {
                flow_mod: bytes_of(config.version, Message::FlowMod(flow_mod)),
                packet_out: packet_out_head(config.version, actions),
            }
        });
        let mut flow_mod = plain;
        if leads_on {
            Entry::lead_on(&mut flow_mod.instructions);
        }
        let flow_mod = numbered(flow_mod);
        Templates {
            leads_on,
            bare,
            tag,
            version: config.version,
            flow_mod: bytes_of(config.version, Message::FlowMod(flow_mod)),
            packet_out: packet_out_head(config.version, vec![Action::output(PortNo(2))]),
            actions_of_packet_out: match config.version {
                Version::V10 => 16,
                // A match with the port precedes the actions.
                Version::V15 => 32,
                _ => 24,
            },
            labelled,
            bonds: BTreeSet::new(),
            mirrors: BTreeMap::new(),
        }
    }

    pub(super) fn set_bonds(&mut self, places: BTreeSet<PortNo>) {
        self.bonds = places;
    }

    pub(super) fn set_mirrors(&mut self, mirrors: BTreeMap<PortNo, Vec<PortNo>>) {
        self.mirrors = mirrors;
    }

    /// Whether an exit is a bond, which has a group.
    #[inline]
    fn is_bond(&self, exit: Exit) -> bool {
        !self.bonds.is_empty() && matches!(exit, Exit::Port(port) if self.bonds.contains(&port))
    }

    /// Whether packets to an exit go to other ports as well.
    #[inline]
    fn is_mirrored(&self, exit: Exit) -> bool {
        let has_copies = |port| self.mirrors.contains_key(&port);
        !self.mirrors.is_empty() && matches!(exit, Exit::Port(port) if has_copies(port))
    }

    /// Whether the templates do not fit an answer.
    #[inline]
    fn is_special(&self, answer: &Answer<'_>) -> bool {
        let exit = answer.exit;
        answer.crossing.is_some() || self.is_bond(exit) || self.is_mirrored(exit)
    }

    #[inline]
    pub(super) fn flow_mod(&self, xid: u32, answer: &Answer<'_>, out: &mut BytesMut) {
        if self.is_special(answer) {
            return self.flow_mod_by_actions(xid, answer, out);
        }
        let places = match self.version {
            Version::V10 => FLOW_MOD_V10,
            _ => FLOW_MOD_V13,
        };
        let start = out.len();
        match (answer.exit, &self.labelled) {
            (Exit::Egress(label), Some(labelled)) => {
                out.extend_from_slice(&labelled.flow_mod);
                put_label(&mut out[start..], ACTIONS_OF_FLOW_MOD, label);
            }
            (Exit::Port(port), _) => {
                out.extend_from_slice(&self.flow_mod);
                let message = &mut out[start..];
                self.put_port(message, places.out_port, port);
                if self.leads_on {
                    self.put_port(message, METADATA_PORT, port);
                }
            }
            // An edge without a fabric makes no such answer.
            (Exit::Egress(_), None) => return,
        }
        let message = &mut out[start..];
        put(message, 4, &xid.to_be_bytes());
        put(message, places.src, &answer.src.0);
        put(message, places.dst, &answer.dst.0);
        let buffer_id = answer.buffer_id.map_or(NO_BUFFER, |id| id.0);
        put(message, places.buffer_id, &buffer_id.to_be_bytes());
        self.put_port(message, places.in_port, answer.in_port);
    }

    /// Appends a packet-out: names the switch's buffer if there is one, else carries the packet.
    /// Returns false if the packet is too long for a message: the head of a packet-out may be
    /// longer than the head of a packet-in.
    #[inline]
    pub(super) fn packet_out(&self, xid: u32, answer: &Answer<'_>, out: &mut BytesMut) -> bool {
        if self.is_special(answer) {
            return self.packet_out_by_actions(xid, answer, out);
        }
        let data = match answer.buffer_id {
            Some(_) => &[],
            None => answer.data,
        };
        let head = match (answer.exit, &self.labelled) {
            (Exit::Port(_), _) => &self.packet_out,
            (Exit::Egress(_), Some(labelled)) => &labelled.packet_out,
            (Exit::Egress(_), None) => return false,
        };
        let Ok(len) = u16::try_from(head.len() + data.len()) else {
            return false;
        };
        let start = out.len();
        out.reserve(usize::from(len));
        out.put_slice(head);
        let message = &mut out[start..];
        put(message, 2, &len.to_be_bytes());
        put(message, 4, &xid.to_be_bytes());
        let buffer_id = answer.buffer_id.map_or(NO_BUFFER, |id| id.0);
        put(message, 8, &buffer_id.to_be_bytes());
        match answer.exit {
            Exit::Egress(label) => put_label(message, self.actions_of_packet_out, label),
            // Behind the type and the length of the output.
            Exit::Port(port) => self.put_port(message, self.actions_of_packet_out + 4, port),
        }
        out.put_slice(data);
        true
    }

    /// The entry of a packet of a VLAN, to a bond or to a port with copies. In a VLAN, the entry's
    /// match includes the tag, and its actions change the tag.
    fn flow_mod_by_actions(&self, xid: u32, answer: &Answer<'_>, out: &mut BytesMut) {
        let Some(actions) = self.actions(answer) else {
            return;
        };
        let key = EntryKey::pair(answer.in_port, answer.src, answer.dst).to_match();
        let flow_mod = FlowMod {
            r#match: match &answer.crossing {
                Some(crossing) => vlan::with_tag(key, crossing.tag),
                None => key,
            },
            instructions: vec![Instruction::ApplyActions(actions)],
            buffer_id: answer.buffer_id,
            ..self.bare.clone()
        };
        if let Ok(frame) = encode(self.version, Xid(xid), &Message::FlowMod(flow_mod)) {
            out.extend_from_slice(frame.bytes());
        }
    }

    fn packet_out_by_actions(&self, xid: u32, answer: &Answer<'_>, out: &mut BytesMut) -> bool {
        let message = self.actions(answer).map(|actions| PacketOut {
            buffer_id: answer.buffer_id,
            in_port: match self.version {
                Version::V10 => PortNo::ANY,
                _ => PortNo::CONTROLLER,
            },
            actions,
            data: match answer.buffer_id {
                Some(_) => bytes::Bytes::new(),
                None => bytes::Bytes::copy_from_slice(answer.data),
            },
            pipeline: Default::default(),
        });
        let frame = message.map(Message::PacketOut);
        let frame = frame.and_then(|message| encode(self.version, Xid(xid), &message).ok());
        if let Some(frame) = &frame {
            out.extend_from_slice(frame.bytes());
        }
        frame.is_some()
    }

    fn actions(&self, answer: &Answer<'_>) -> Option<Vec<Action>> {
        let mut actions = match (&answer.crossing, answer.exit) {
            (Some(crossing), exit) => self.actions_in_vlan(exit, crossing)?,
            (None, Exit::Port(port)) => vec![Action::output(port)],
            (None, Exit::Egress(_)) => return None,
        };
        if let Exit::Port(port) = answer.exit
            && self.is_bond(answer.exit)
        {
            let to_port = Action::output(port);
            let to_group = Action::Group(bond::group(port));
            for action in actions.iter_mut().filter(|action| **action == to_port) {
                *action = to_group.clone();
            }
        } else if let Exit::Port(port) = answer.exit
            && let Some(copies) = self.mirrors.get(&port)
        {
            // The output is the last action.
            actions.extend(copies.iter().map(|to| Action::output(*to)));
        }
        Some(actions)
    }

    /// `None`: the version or the edge cannot express the actions.
    fn actions_in_vlan(&self, exit: Exit, crossing: &Crossing) -> Option<Vec<Action>> {
        let tag = self.tag.filter(|_| self.version != Version::V10);
        match exit {
            Exit::Port(port) if self.version != Version::V10 => {
                let Crossing { vlan, tag, form } = *crossing;
                Some(vlan::output(tag, vlan, form, port))
            }
            Exit::Port(_) => None,
            Exit::Egress(label) => {
                let untagged = crossing.tag.map(|_| Action::PopVlan).into_iter();
                Some(untagged.chain(form::ingress_actions(tag?, label)).collect())
            }
        }
    }

    #[inline]
    fn put_port(&self, message: &mut [u8], at: usize, port: PortNo) {
        match self.version {
            // Ordinary ports are below 0xff00 there; the session has read them as ordinary.
            Version::V10 => put(message, at, &(port.0 as u16).to_be_bytes()),
            _ => put(message, at, &port.0.to_be_bytes()),
        }
    }
}

/// A packet-out without data.
fn packet_out_head(version: Version, actions: Vec<Action>) -> Vec<u8> {
    let in_port = match version {
        Version::V10 => PortNo::ANY,
        _ => PortNo::CONTROLLER,
    };
    let message = PacketOut::new(in_port, actions, bytes::Bytes::new());
    bytes_of(version, Message::PacketOut(message))
}

fn bytes_of(version: Version, message: Message) -> Vec<u8> {
    let frame = encode(version, Xid(0), &message).expect("both versions can say it");
    frame.bytes().to_vec()
}

/// Writes a label into the actions of a template, which begin at `at`.
#[inline]
fn put_label(message: &mut [u8], at: usize, label: Label) {
    put(message, at + VID, &form::vid(label).to_be_bytes());
    put(message, at + GROUP, &form::group(label).0.to_be_bytes());
}

#[inline]
fn put(message: &mut [u8], at: usize, bytes: &[u8]) {
    message[at..at + bytes.len()].copy_from_slice(bytes);
}

#[inline]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use openflow::message::PacketIn;
    use openflow::{Frame, Match, TableId, decode};

    use crate::pipeline::Numbering;
    use proptest::prelude::*;

    use super::*;

    fn config(version: Version) -> EdgeConfig {
        EdgeConfig {
            version,
            generation: 0x1234,
            idle_timeout_s: 60,
            hard_timeout_s: 7,
            seed: 1,
            numbering: Numbering::Plain,
        }
    }

    fn version() -> impl Strategy<Value = Version> {
        prop_oneof![
            Just(Version::V10),
            Just(Version::V13),
            Just(Version::V14),
            Just(Version::V15),
        ]
    }

    fn message(bytes: BytesMut) -> (Xid, Message) {
        let frame = Frame::new(bytes.freeze()).expect("one whole message");
        (frame.xid(), decode(&frame).expect("well-formed"))
    }

    prop_compose! {
        fn packet_in()(
            port in 1u32..0xff00,
            buffer_id in prop::option::of(0u32..u32::MAX),
            src: [u8; 6],
            dst: [u8; 6],
            eth_type: u16,
            payload in prop::collection::vec(any::<u8>(), 0..60),
            cut in 0u16..3,
            extra_field: bool,
        ) -> (PacketIn, u16) {
            let mut data = [&dst[..], &src[..], &eth_type.to_be_bytes()[..]].concat();
            data.extend(payload);
            let mut r#match = Match::any().with_in_port(PortNo(port));
            if extra_field {
                r#match = r#match.with(openflow::Field::Metadata, 5u64);
            }
            let packet_in = PacketIn {
                buffer_id: buffer_id.map(BufferId),
                total_len: data.len() as u16 + cut,
                reason: PacketInReason::NO_MATCH,
                table_id: TableId(0),
                cookie: Cookie(u64::MAX),
                r#match,
                data: data.into(),
            };
            (packet_in, eth_type)
        }
    }

    proptest! {
        /// The patched bytes equal the bytes that the codec would have written.
        #[test]
        fn answers_are_what_the_codec_makes_of_them(
            version in version(),
            xid: u32,
            in_port in 1u32..0xff00,
            out_port in 1u32..0xff00,
            src: [u8; 6],
            dst: [u8; 6],
            buffer_id in prop::option::of(0u32..u32::MAX),
            leads_on: bool,
            label in prop::option::of(1u16..4095),
            data in prop::collection::vec(any::<u8>(), 14..200),
        ) {
            let label = label.filter(|_| version >= Version::V13).map(Label);
            let templates = Templates::new(&config(version), leads_on, Some(0x88a8));
            let answer = Answer {
                in_port: PortNo(in_port),
                src: MacAddr(src),
                dst: MacAddr(dst),
                exit: label.map_or(Exit::Port(PortNo(out_port)), Exit::Egress),
                buffer_id: buffer_id.map(BufferId),
                data: &data,
                is_copy: false,
                crossing: None,
            };
            let mut out = BytesMut::new();
            templates.flow_mod(xid, &answer, &mut out);
            let entry = Entry {
                key: EntryKey::pair(answer.in_port, answer.src, answer.dst),
                kind: EntryKind::Local,
                out: PortNo(out_port),
                idle_timeout_s: 60,
                hard_timeout_s: 7,
                notify: false,
            };
            let mut wanted = FlowMod {
                buffer_id: answer.buffer_id,
                ..entry.to_add(0x1234)
            };
            let mut actions = vec![Action::output(PortNo(out_port))];
            if let Some(label) = label {
                actions = form::ingress_actions(0x88a8, label);
                wanted.instructions = vec![Instruction::ApplyActions(actions.clone())];
            } else if leads_on && version >= Version::V13 {
                Entry::lead_on(&mut wanted.instructions);
            }
            let wanted = Message::FlowMod(wanted);
            let wanted = encode(version, Xid(xid), &wanted).unwrap();
            prop_assert_eq!(&out[..], &wanted.bytes()[..]);

            let mut out = BytesMut::new();
            prop_assert!(templates.packet_out(xid, &answer, &mut out));
            let (found_xid, found) = message(out);
            let wanted = PacketOut {
                buffer_id: answer.buffer_id,
                in_port: if version == Version::V10 { PortNo::ANY } else { PortNo::CONTROLLER },
                actions,
                data: if buffer_id.is_some() { vec![].into() } else { data.clone().into() },
                pipeline: Default::default(),
            };
            prop_assert_eq!((found_xid, found), (Xid(xid), Message::PacketOut(wanted)));
        }

        /// The fields equal those that the codec reads, and packets that are not simple are left
        /// alone.
        #[test]
        fn packet_ins_are_read_as_the_codec_reads_them(
            version in version(),
            (packet_in, eth_type) in packet_in(),
        ) {
            prop_assume!(version >= Version::V13 || packet_in.r#match.fields.len() == 1);
            let frame = encode(version, Xid(9), &Message::PacketIn(packet_in.clone())).unwrap();
            let found = read_packet_in(version, frame.bytes());
            let found = found.filter(|packet| may_send_on(packet, false));
            let is_simple = packet_in.r#match.fields.len() == 1
                && packet_in.data[0] & 1 == 0
                && ![0x88cc, 0x0806, 0x8100, 0x88a8].contains(&eth_type)
                && (packet_in.buffer_id.is_some()
                    || usize::from(packet_in.total_len) == packet_in.data.len());
            prop_assert_eq!(found.is_some(), is_simple);
            if let Some(answer) = found {
                prop_assert_eq!(Some(answer.in_port), packet_in.r#match.in_port());
                prop_assert_eq!(answer.buffer_id, packet_in.buffer_id);
                prop_assert_eq!(answer.data, &packet_in.data[..]);
                prop_assert_eq!(&answer.dst.0, &packet_in.data[..6]);
                prop_assert_eq!(&answer.src.0, &packet_in.data[6..12]);
            }
        }

        /// Bytes cut or changed anywhere cause no panic.
        #[test]
        fn no_bytes_are_too_strange(
            version in version(),
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let _ = read_packet_in(version, &bytes);
        }
    }

    #[test]
    fn what_does_not_fit_into_a_packet_out_is_not_sent() {
        let templates = Templates::new(&config(Version::V10), false, None);
        let data = vec![0; 65_535 - 18];
        let answer = Answer {
            in_port: PortNo(1),
            src: MacAddr([2; 6]),
            dst: MacAddr([4; 6]),
            exit: Exit::Port(PortNo(2)),
            buffer_id: None,
            data: &data,
            is_copy: false,
            crossing: None,
        };
        let mut out = BytesMut::new();
        assert!(!templates.packet_out(1, &answer, &mut out));
        assert!(out.is_empty());
    }
}
