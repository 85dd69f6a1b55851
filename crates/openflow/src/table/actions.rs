//! Applies actions to a packet's bytes, and checks which actions a switch accepts.
//!
//! Checksums are updated. IPv4's checksum and SCTP's CRC are computed anew. Those of TCP, UDP and
//! ICMP are adjusted for the change (RFC 1624), so that a wrong checksum stays wrong.

use bytes::Bytes;

use crate::actions::Action;
use crate::error::ErrorKind;
use crate::match_fields::{Field, MatchField, Prereq, VLAN_PRESENT};
use crate::packet::{
    ARP_FIELDS, ETH_IPV4, ETH_IPV6, ETH_MPLS, ETH_MPLS_MULTICAST, ETH_QINQ, ETH_VLAN, IP_ICMP,
    IP_ICMPV6, IP_SCTP, IP_TCP, IP_UDP, PacketFields, nd_option, number,
};
use crate::types::{PortNo, QueueId};

use super::flow::Pattern;

/// A packet in the tables.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub bytes: Bytes,
    pub fields: PacketFields,
    pub queue: Option<QueueId>,
}

/// A TTL that reached zero: the packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TtlExpired;

impl Packet {
    pub fn new(in_port: PortNo, bytes: Bytes) -> Packet {
        Packet {
            fields: PacketFields::parse(in_port, &bytes),
            bytes,
            queue: None,
        }
    }

    /// Applies `action` to the packet; outputs and groups are handled elsewhere.
    pub fn rewrite(&mut self, action: &Action) -> Result<(), TtlExpired> {
        match action {
            Action::SetQueue(queue) => self.queue = Some(*queue),
            Action::SetField(MatchField::Basic { field, value, .. }) => {
                self.set_field(*field, *value)
            }
            Action::PushVlan(tpid) => self.push_vlan(*tpid),
            Action::PopVlan | Action::StripVlan => self.pop_vlan(),
            Action::PushMpls(eth_type) => self.push_mpls(*eth_type),
            Action::PopMpls(eth_type) => self.pop_mpls(*eth_type),
            Action::SetMplsTtl(ttl) => self.set_ttl(self.mpls_ttl_at(), *ttl),
            Action::SetNwTtl(ttl) => self.set_ttl(self.ip_ttl_at(), *ttl),
            Action::DecMplsTtl => return self.decrement_ttl(self.mpls_ttl_at()),
            Action::DecNwTtl => return self.decrement_ttl(self.ip_ttl_at()),
            Action::SetVlanVid(vid) => {
                self.ensure_tag();
                self.set_field(Field::VlanVid, u128::from(*vid) | VLAN_PRESENT);
            }
            Action::SetVlanPcp(pcp) => {
                self.ensure_tag();
                self.set_field(Field::VlanPcp, u128::from(*pcp));
            }
            Action::SetNwTos(tos) => self.set_field(Field::IpDscp, u128::from(tos >> 2)),
            Action::SetTpSrc(port) => {
                for field in [Field::TcpSrc, Field::UdpSrc, Field::SctpSrc] {
                    self.set_field(field, u128::from(*port));
                }
            }
            Action::SetTpDst(port) => {
                for field in [Field::TcpDst, Field::UdpDst, Field::SctpDst] {
                    self.set_field(field, u128::from(*port));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Sets `field` if the packet has it; a packet that lacks it stays as it is.
    pub fn set_field(&mut self, field: Field, value: u128) {
        use Field as F;
        if matches!(field, F::Metadata | F::TunnelId) {
            return self.fields.set(field, value);
        }
        let in_tag = matches!(field, F::VlanVid | F::VlanPcp);
        if self.fields.get(field).is_none() || in_tag && self.fields.vlan_id().is_none() {
            return;
        }
        let Some(place) = self.place(field) else {
            return;
        };
        let Some(old) = number(&self.bytes, place.at, place.len) else {
            return;
        };
        let mask = u128::MAX >> (128 - place.bits) << place.shift;
        let new = old & !mask | value << place.shift & mask;
        self.store(place.at, &new.to_be_bytes()[16 - place.len..]);
    }

    /// Returns the position of `field` in the bytes.
    fn place(&self, field: Field) -> Option<Place> {
        use Field as F;
        let layout = self.fields.layout();
        let part = |at, len, shift, bits| {
            Some(Place {
                at,
                len,
                shift,
                bits,
            })
        };
        let whole = |at, len| part(at, len, 0, 8 * len as u32);
        let ipv6 = self.fields.eth_type() == Some(ETH_IPV6);
        match field {
            F::EthDst => whole(0, 6),
            F::EthSrc => whole(6, 6),
            F::VlanVid => part(14, 2, 0, 12),
            F::VlanPcp => part(14, 2, 13, 3),
            F::IpDscp if ipv6 => part(layout.l3?, 2, 6, 6),
            F::IpEcn if ipv6 => part(layout.l3?, 2, 4, 2),
            F::IpDscp => part(layout.l3? + 1, 1, 2, 6),
            F::IpEcn => part(layout.l3? + 1, 1, 0, 2),
            F::Ipv4Src => whole(layout.l3? + 12, 4),
            F::Ipv4Dst => whole(layout.l3? + 16, 4),
            F::Ipv6Src => whole(layout.l3? + 8, 16),
            F::Ipv6Dst => whole(layout.l3? + 24, 16),
            F::Ipv6Flabel => part(layout.l3?, 4, 0, 20),
            F::TcpSrc | F::UdpSrc | F::SctpSrc => whole(layout.l4?, 2),
            F::TcpDst | F::UdpDst | F::SctpDst => whole(layout.l4? + 2, 2),
            F::Icmpv4Type | F::Icmpv6Type => whole(layout.l4?, 1),
            F::Icmpv4Code | F::Icmpv6Code => whole(layout.l4? + 1, 1),
            F::Ipv6NdTarget => whole(layout.l4? + 8, 16),
            F::Ipv6NdSll => whole(nd_option(&self.bytes, layout.l4?, 1)?, 6),
            F::Ipv6NdTll => whole(nd_option(&self.bytes, layout.l4?, 2)?, 6),
            F::MplsLabel => part(layout.l3?, 4, 12, 20),
            F::MplsTc => part(layout.l3?, 4, 9, 3),
            F::MplsBos => part(layout.l3?, 4, 8, 1),
            _ => {
                let (_, offset) = ARP_FIELDS.iter().find(|(f, _)| *f == field)?;
                whole(layout.l3? + offset, field.len())
            }
        }
    }

    fn ensure_tag(&mut self) {
        if self.fields.vlan_id().is_none() {
            self.push_vlan(ETH_VLAN);
        }
    }

    /// Pushes a tag with the id and priority of the tag that it encloses (OpenFlow 1.3.1, 5.12.1).
    fn push_vlan(&mut self, tpid: u16) {
        if self.bytes.len() < 14 {
            return;
        }
        let tci = self
            .fields
            .vlan_id()
            .and_then(|_| number(&self.bytes, 14, 2));
        let [a, b] = (tci.unwrap_or(0) as u16).to_be_bytes();
        let [c, d] = tpid.to_be_bytes();
        self.splice(12, 0, &[c, d, a, b]);
    }

    fn pop_vlan(&mut self) {
        if self.fields.vlan_id().is_some() {
            self.splice(12, 4, &[]);
        }
    }

    /// Pushes an entry with the label, class and TTL of the entry below. Without one, the TTL is
    /// copied from IP. Anything else is 0.
    fn push_mpls(&mut self, eth_type: u16) {
        let Some(type_at) = self.fields.layout().eth_type else {
            return;
        };
        let below = self.mpls_entry();
        let ttl = self.ip_ttl_at().map_or(0, |at| u32::from(self.bytes[at]));
        let entry = match below {
            Some(entry) => entry & !(1 << 8),
            None => 1 << 8 | ttl,
        };
        self.splice(type_at + 2, 0, &entry.to_be_bytes());
        self.store(type_at, &eth_type.to_be_bytes());
    }

    fn pop_mpls(&mut self, eth_type: u16) {
        let layout = *self.fields.layout();
        if let (Some(_), Some(type_at), Some(l3)) = (self.mpls_entry(), layout.eth_type, layout.l3)
        {
            self.splice(l3, 4, &[]);
            self.store(type_at, &eth_type.to_be_bytes());
        }
    }

    fn mpls_entry(&self) -> Option<u32> {
        self.fields.get(Field::MplsLabel)?;
        number(&self.bytes, self.fields.layout().l3?, 4).map(|n| n as u32)
    }

    fn mpls_ttl_at(&self) -> Option<usize> {
        self.fields.get(Field::MplsLabel)?;
        Some(self.fields.layout().l3? + 3)
    }

    fn ip_ttl_at(&self) -> Option<usize> {
        let l3 = self.fields.layout().l3?;
        match self.fields.eth_type()? {
            ETH_IPV4 => Some(l3 + 8),
            ETH_IPV6 => Some(l3 + 7),
            _ => None,
        }
    }

    fn set_ttl(&mut self, at: Option<usize>, ttl: u8) {
        if let Some(at) = at {
            self.store(at, &[ttl]);
        }
    }

    fn decrement_ttl(&mut self, at: Option<usize>) -> Result<(), TtlExpired> {
        let Some(at) = at else {
            return Ok(());
        };
        let ttl = self.bytes[at];
        if ttl <= 1 {
            return Err(TtlExpired);
        }
        self.store(at, &[ttl - 1]);
        Ok(())
    }

    /// Replaces bytes and the checksums that cover them.
    fn store(&mut self, at: usize, new: &[u8]) {
        let old = self.bytes.clone();
        let mut bytes = old.to_vec();
        bytes[at..at + new.len()].copy_from_slice(new);
        let layout = self.fields.layout();
        let is_in_packet = layout.l3.is_some_and(|l3| at + new.len() > l3);
        if is_in_packet && self.fields.ip_proto().is_some() {
            self.adjust_transport(&mut bytes, &old, at, new.len());
            if self.fields.eth_type() == Some(ETH_IPV4) {
                self.sum_ipv4_header(&mut bytes);
            }
        }
        self.replace(bytes);
    }

    /// Replaces the `len` bytes at `at` with `new`.
    fn splice(&mut self, at: usize, len: usize, new: &[u8]) {
        let mut bytes = self.bytes.to_vec();
        bytes.splice(at..at + len, new.iter().copied());
        self.replace(bytes);
    }

    fn replace(&mut self, bytes: Vec<u8>) {
        let mut fields = PacketFields::parse(self.fields.in_port(), &bytes);
        for field in [Field::Metadata, Field::TunnelId] {
            if let Some(value) = self.fields.get(field) {
                fields.set(field, value);
            }
        }
        self.fields = fields;
        self.bytes = bytes.into();
    }

    fn sum_ipv4_header(&self, bytes: &mut [u8]) {
        let Some(l3) = self.fields.layout().l3 else {
            return;
        };
        let len = usize::from(bytes[l3] & 0xf) * 4;
        let Some(header) = bytes.get_mut(l3..l3 + len) else {
            return;
        };
        header[10..12].fill(0);
        let sum = !fold(words(header).sum());
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    /// Corrects the transport checksum for a change of `len` bytes at `at`.
    fn adjust_transport(&self, bytes: &mut [u8], old: &[u8], at: usize, len: usize) {
        let layout = self.fields.layout();
        let (Some(l3), Some(l4), Some(proto)) = (layout.l3, layout.l4, self.fields.ip_proto())
        else {
            return;
        };
        let ipv4 = self.fields.eth_type() == Some(ETH_IPV4);
        let addresses = if ipv4 {
            l3 + 12..l3 + 20
        } else {
            l3 + 8..l3 + 40
        };
        let in_addresses = addresses.contains(&at) && proto != IP_ICMP;
        if at < l4 && !in_addresses {
            return;
        }
        let sum_at = match proto {
            IP_TCP => l4 + 16,
            IP_UDP => l4 + 6,
            IP_ICMP | IP_ICMPV6 => l4 + 2,
            IP_SCTP if at >= l4 => return sum_sctp(bytes, l4, layout.end),
            _ => return,
        };
        let Some(sum) = number(bytes, sum_at, 2).filter(|_| sum_at + 2 <= layout.end) else {
            return;
        };
        if proto == IP_UDP && sum == 0 {
            return;
        }
        // Every header starts at an even distance from l3, so words are counted from there.
        let from = at - (at - l3) % 2;
        let to = (at + len + (at + len - l3) % 2).min(layout.end);
        let removed: u64 = words(&old[from..to]).map(|w| !w & 0xffff).sum();
        let added: u64 = words(&bytes[from..to]).sum();
        let mut sum = !fold((!sum as u64 & 0xffff) + removed + added);
        if proto == IP_UDP && sum == 0 {
            sum = 0xffff;
        }
        bytes[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Bits within a few bytes: `bits` wide, `shift` above the lowest.
struct Place {
    at: usize,
    len: usize,
    shift: u32,
    bits: u32,
}

/// Iterates over 16-bit words; an odd last byte is padded with zero.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word)
}

/// The one's complement sum in 16 bits.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Stores the CRC32c over the packet with a zero checksum field (RFC 9260, appendix A).
pub(super) fn sum_sctp(bytes: &mut [u8], at: usize, end: usize) {
    let Some(packet) = bytes.get_mut(at..end).filter(|p| p.len() >= 12) else {
        return;
    };
    packet[8..12].fill(0);
    let mut crc = u32::MAX;
    for byte in packet.iter() {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
        }
    }
    packet[8..12].copy_from_slice(&(!crc).to_le_bytes());
}

/// Actions in the order an action set is carried out (OpenFlow 1.3.1, 5.10), one of each type and
/// one SET_FIELD per field.
#[derive(Clone, Debug, Default)]
pub(super) struct ActionSet<'a> {
    /// Sorted by step, and by field within SET_FIELD.
    slots: Vec<((u8, u8), &'a Action)>,
}

impl<'a> ActionSet<'a> {
    pub fn of(actions: &'a [Action]) -> ActionSet<'a> {
        let mut set = ActionSet::default();
        set.write(actions);
        set
    }

    pub fn write(&mut self, actions: &'a [Action]) {
        for action in actions {
            let Some(slot) = set_slot(action) else {
                continue;
            };
            match self.slots.binary_search_by_key(&slot, |(slot, _)| *slot) {
                Ok(at) => self.slots[at].1 = action,
                Err(at) => self.slots.insert(at, (slot, action)),
            }
        }
    }

    pub fn clear(&mut self) {
        self.slots.clear();
    }

    /// Iterates over the actions in order; an output is left out if there is a group.
    pub fn actions(&self) -> impl Iterator<Item = &'a Action> {
        let mut actions = self.slots.iter().map(|(_, action)| *action);
        let grouped = actions.any(|a| matches!(a, Action::Group(_)));
        let kept = move |a: &&Action| !(grouped && matches!(a, Action::Output { .. }));
        self.slots.iter().map(|(_, action)| *action).filter(kept)
    }
}

fn set_slot(action: &Action) -> Option<(u8, u8)> {
    Some(match action {
        Action::PopVlan | Action::StripVlan => (1, 0),
        Action::PopMpls(_) => (1, 1),
        Action::PushMpls(_) => (2, 0),
        Action::PushVlan(_) => (4, 0),
        Action::DecMplsTtl => (6, 0),
        Action::DecNwTtl => (6, 1),
        Action::SetField(MatchField::Basic { field, .. }) => (7, *field as u8),
        Action::SetVlanVid(_) => (7, 0x80),
        Action::SetVlanPcp(_) => (7, 0x81),
        Action::SetNwTos(_) => (7, 0x82),
        Action::SetTpSrc(_) => (7, 0x83),
        Action::SetTpDst(_) => (7, 0x84),
        Action::SetMplsTtl(_) => (7, 0x85),
        Action::SetNwTtl(_) => (7, 0x86),
        Action::SetQueue(_) => (8, 0),
        Action::Group(_) => (9, 0),
        Action::Output { .. } => (10, 0),
        Action::Enqueue { .. } => (10, 1),
        _ => return None,
    })
}

/// Checks that a switch accepts `actions` in an entry that matches `pattern`, or anywhere if
/// `None`. The caller looks up the groups.
///
/// # Errors
/// The OFPBAC_* error to answer with.
pub fn check(actions: &[Action], pattern: Option<&Pattern>) -> Result<(), ErrorKind> {
    // A push or pop changes the outer headers, so the match no longer describes them.
    let mut known = pattern;
    for action in actions {
        match action {
            Action::Output { port, .. } | Action::Enqueue { port, .. } => check_port(*port)?,
            Action::SetField(field) => check_set_field(field, known)?,
            Action::PushVlan(ETH_VLAN | ETH_QINQ) => known = None,
            Action::PushMpls(ETH_MPLS | ETH_MPLS_MULTICAST) => known = None,
            Action::PushVlan(_) | Action::PushMpls(_) => {
                return Err(ErrorKind::ACTION_BAD_ARGUMENT);
            }
            Action::PopVlan | Action::PopMpls(_) => known = None,
            Action::SetVlanVid(vid) if *vid > 0xfff => return Err(ErrorKind::ACTION_BAD_ARGUMENT),
            Action::SetVlanPcp(pcp) if *pcp > 7 => return Err(ErrorKind::ACTION_BAD_ARGUMENT),
            Action::SetNwTos(tos) if tos & 3 != 0 => return Err(ErrorKind::ACTION_BAD_ARGUMENT),
            Action::SetVlanVid(_) | Action::SetVlanPcp(_) | Action::StripVlan => known = None,
            Action::PushPbb(_) | Action::PopPbb | Action::CopyTtlIn | Action::CopyTtlOut => {
                return Err(ErrorKind::ACTION_BAD_TYPE);
            }
            Action::Experimenter { .. } => return Err(ErrorKind::ACTION_BAD_EXPERIMENTER),
            _ => {}
        }
    }
    Ok(())
}

/// Accepts a port that does not exist yet, as Open vSwitch does: the port may be added later.
fn check_port(port: PortNo) -> Result<(), ErrorKind> {
    let reserved = [
        PortNo::IN_PORT,
        PortNo::NORMAL,
        PortNo::FLOOD,
        PortNo::ALL,
        PortNo::CONTROLLER,
        PortNo::LOCAL,
    ];
    if port.is_ordinary() || reserved.contains(&port) {
        Ok(())
    } else {
        Err(ErrorKind::ACTION_BAD_OUT_PORT)
    }
}

fn check_set_field(field: &MatchField, known: Option<&Pattern>) -> Result<(), ErrorKind> {
    use Field as F;
    let MatchField::Basic { field, value, mask } = field else {
        return Err(ErrorKind::ACTION_BAD_SET_TYPE);
    };
    let fixed = matches!(
        field,
        F::InPort
            | F::InPhyPort
            | F::Metadata
            | F::EthType
            | F::IpProto
            | F::PbbIsid
            | F::Ipv6Exthdr
    );
    if fixed || mask.is_some() {
        return Err(ErrorKind::ACTION_BAD_SET_TYPE);
    }
    if value & !field.ones() != 0 {
        return Err(ErrorKind::ACTION_BAD_SET_ARGUMENT);
    }
    let needs_tag = *field == F::VlanVid && value & VLAN_PRESENT == 0;
    if needs_tag {
        return Err(ErrorKind::ACTION_BAD_SET_ARGUMENT);
    }
    // A VLAN id can only be set in a tag.
    let allowed = |p: &Pattern| match (field, field.info().prereq) {
        (F::VlanVid, _) | (_, Prereq::Vlan) => p.allows(F::VlanPcp),
        _ => p.allows(*field),
    };
    if known.is_some_and(|p| !allowed(p)) {
        return Err(ErrorKind::ACTION_MATCH_INCONSISTENT);
    }
    Ok(())
}
