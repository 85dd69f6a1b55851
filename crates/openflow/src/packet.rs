//! Match fields of a data-plane frame.
//!
//! Parsing never fails: a frame that is cut short, malformed or unknown has fewer fields.
//! Fragments, first fragments included, have no transport header fields, so that all fragments of a
//! datagram are one flow (like Open vSwitch in its `normal` fragment mode). Bytes past the length
//! that the IP header states are padding and are not read.

pub mod build;
pub mod dhcp;
pub mod ip;
pub mod lacp;
pub mod membership;
pub mod nd;

use std::fmt;

use crate::match_fields::{FIELDS, Field, Match, MatchField, VLAN_PRESENT};
use crate::types::{MacAddr, PortNo};

/// EtherType of frames that have none: an IEEE 802.3 length without SNAP (OpenFlow 1.0, 5.2.3).
pub const ETH_TYPE_NONE: u16 = 0x05ff;

pub(crate) const ETH_IPV4: u16 = 0x0800;
pub(crate) const ETH_ARP: u16 = 0x0806;
pub(crate) const ETH_VLAN: u16 = 0x8100;
pub(crate) const ETH_QINQ: u16 = 0x88a8;
pub(crate) const ETH_IPV6: u16 = 0x86dd;
pub(crate) const ETH_MPLS: u16 = 0x8847;
pub(crate) const ETH_MPLS_MULTICAST: u16 = 0x8848;

pub(crate) const IP_ICMP: u8 = 1;
pub(crate) const IP_TCP: u8 = 6;
pub(crate) const IP_UDP: u8 = 17;
pub(crate) const IP_ICMPV6: u8 = 58;
pub(crate) const IP_SCTP: u8 = 132;

/// Number of VLAN tags that are read; a third tag is payload.
const VLAN_TAGS_MAX: usize = 2;

/// Fields of one frame, and the offsets of its headers. Two values are equal when all fields are.
///
/// ```
/// use openflow::packet::build::{self, Host};
/// use openflow::{Field, Match, PacketFields, PortNo};
///
/// let frame = build::udp(Host::numbered(1), Host::numbered(2), (5000, 53), b"?");
/// let fields = PacketFields::parse(PortNo(1), &frame);
/// assert_eq!(fields.get(Field::UdpDst), Some(53));
/// assert!(fields.matches(&Match::any().with(Field::IpProto, 17u8)));
///
/// // A frame that is cut short has fewer fields.
/// let fields = PacketFields::parse(PortNo(1), &frame[..14]);
/// assert_eq!(fields.eth_type(), Some(0x0800));
/// assert_eq!(fields.ip_proto(), None);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PacketFields {
    /// Values by field number; 0 where absent. Every field has a place, so reading one needs no
    /// check of bounds.
    values: [u128; Field::COUNT],
    /// Bit n is set if field n is present.
    present: u64,
    layout: Layout,
}

/// Offsets of headers, in bytes from the start of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The EtherType after all VLAN tags read.
    pub eth_type: Option<usize>,
    /// The header after the EtherType, if it is complete: IPv4, IPv6, ARP or MPLS.
    pub l3: Option<usize>,
    /// Start of the transport header, absent in later fragments.
    pub l4: Option<usize>,
    /// End of the IP packet, padding excluded.
    pub end: usize,
}

impl PacketFields {
    /// Reads `frame`, received on `in_port`.
    pub fn parse(in_port: PortNo, frame: &[u8]) -> PacketFields {
        let mut fields = PacketFields {
            values: [0; Field::COUNT],
            present: 0,
            layout: Layout {
                end: frame.len(),
                ..Layout::default()
            },
        };
        fields.set(Field::InPort, in_port.0);
        fields.ethernet(frame);
        fields
    }

    /// The value of `field`, right-aligned. `VlanVid` of an untagged frame is 0.
    #[inline]
    pub fn get(&self, field: Field) -> Option<u128> {
        (self.present >> field as u8 & 1 == 1).then(|| self.values[field as usize])
    }

    /// Bitmap of the fields present: bit n stands for field n.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// The value of `field`, 0 if there is none.
    #[inline]
    pub fn value(&self, field: Field) -> u128 {
        self.values[field as usize]
    }

    /// Sets `field` to `value`, for values that a switch knows besides the frame: metadata, tunnel
    /// id. Ignores a field that only 1.4 or 1.5 has.
    #[inline]
    pub fn set(&mut self, field: Field, value: impl Into<u128>) {
        if (field as usize) < FIELDS.len() {
            self.values[field as usize] = value.into() & field.ones();
            self.present |= 1 << field as u8;
        }
    }

    /// Ingress port.
    pub fn in_port(&self) -> PortNo {
        PortNo(self.number(Field::InPort))
    }

    /// Ethernet source address.
    pub fn eth_src(&self) -> Option<MacAddr> {
        self.get(Field::EthSrc).map(|v| MacAddr::from_u64(v as u64))
    }

    /// Ethernet destination address.
    pub fn eth_dst(&self) -> Option<MacAddr> {
        self.get(Field::EthDst).map(|v| MacAddr::from_u64(v as u64))
    }

    /// EtherType after all VLAN tags.
    pub fn eth_type(&self) -> Option<u16> {
        self.get(Field::EthType).map(|v| v as u16)
    }

    /// The VLAN id of the outer tag.
    pub fn vlan_id(&self) -> Option<u16> {
        let vid = self.get(Field::VlanVid)?;
        (vid & VLAN_PRESENT != 0).then_some(vid as u16 & 0xfff)
    }

    /// IP protocol, or next header of IPv6 after its extension headers.
    pub fn ip_proto(&self) -> Option<u8> {
        self.get(Field::IpProto).map(|v| v as u8)
    }

    /// Reports whether the sender states that it is a router: a router advertisement always does,
    /// and a neighbour advertisement has a flag for it. `frame` is the parsed frame.
    pub fn says_router(&self, frame: &[u8]) -> Option<bool> {
        const ROUTER_ADVERTISEMENT: u128 = 134;
        match self.get(Field::Icmpv6Type)? {
            ROUTER_ADVERTISEMENT => Some(true),
            kind if kind == u128::from(nd::NEIGHBOUR_ADVERTISEMENT) => {
                let flags = frame.get(self.layout.l4? + 4)?;
                Some(flags & nd::ROUTER != 0)
            }
            _ => None,
        }
    }

    /// Reports whether this packet matches `match`. A field that the packet lacks matches nothing,
    /// and neither does a field without a name here.
    pub fn matches(&self, r#match: &Match) -> bool {
        r#match.fields.iter().all(|f| match f {
            MatchField::Basic { field, value, mask } => {
                // Without a mask every bit counts, even a bit that no packet has.
                let mask = mask.unwrap_or(u128::MAX);
                mask == 0 || self.get(*field).is_some_and(|v| (v ^ value) & mask == 0)
            }
            MatchField::Other { .. } => false,
        })
    }

    /// Returns the packet's flow: a hash of its port with its IP 5-tuple, or else with its MAC
    /// addresses, or else of its port alone. The hash is the same on every machine and in every
    /// run.
    pub fn flow_key(&self) -> u64 {
        use Field as F;
        /// ICMP types are left out: errors and repetitions stay in the order of their request.
        const TUPLE: [Field; 11] = [
            F::Ipv4Src,
            F::Ipv4Dst,
            F::Ipv6Src,
            F::Ipv6Dst,
            F::IpProto,
            F::TcpSrc,
            F::TcpDst,
            F::UdpSrc,
            F::UdpDst,
            F::SctpSrc,
            F::SctpDst,
        ];
        const MACS: [Field; 2] = [F::EthSrc, F::EthDst];

        let parts: &[Field] = if self.get(F::IpProto).is_some() {
            &TUPLE
        } else {
            &MACS
        };
        let mut hash = Hash::new();
        hash.add(F::InPort, self.value(F::InPort));
        for field in parts {
            if let Some(value) = self.get(*field) {
                hash.add(*field, value);
            }
        }
        hash.finish()
    }

    #[cfg(feature = "table")]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    fn number(&self, field: Field) -> u32 {
        self.values[field as usize] as u32
    }

    fn ethernet(&mut self, frame: &[u8]) {
        if let Some(dst) = number(frame, 0, 6) {
            self.set(Field::EthDst, dst);
        }
        let Some(src) = number(frame, 6, 6) else {
            return;
        };
        self.set(Field::EthSrc, src);

        let mut at = 12;
        for tags in 0..=VLAN_TAGS_MAX {
            let Some(eth_type) = number(frame, at, 2).map(|t| t as u16) else {
                return;
            };
            let is_tag = matches!(eth_type, ETH_VLAN | ETH_QINQ);
            if tags == 0 && !is_tag {
                self.set(Field::VlanVid, 0u32);
            }
            if !is_tag || tags == VLAN_TAGS_MAX {
                return self.payload(frame, at, eth_type);
            }
            let Some(tci) = number(frame, at + 2, 2) else {
                return;
            };
            if tags == 0 {
                self.set(Field::VlanVid, tci & 0xfff | VLAN_PRESENT);
                self.set(Field::VlanPcp, tci >> 13);
            }
            at += 4;
        }
    }

    /// Reads the headers after the EtherType at `at`.
    fn payload(&mut self, frame: &[u8], at: usize, eth_type: u16) {
        self.layout.eth_type = Some(at);
        let mut l3 = at + 2;
        let mut eth_type = eth_type;
        if eth_type < 0x0600 {
            const SNAP: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];
            eth_type = ETH_TYPE_NONE;
            if frame[l3..].starts_with(&SNAP)
                && let Some(inner) = number(frame, l3 + 6, 2).filter(|t| *t >= 0x0600)
            {
                eth_type = inner as u16;
                l3 += 8;
            }
        }
        self.set(Field::EthType, eth_type);
        match eth_type {
            ETH_IPV4 => self.ipv4(frame, l3),
            ETH_IPV6 => self.ipv6(frame, l3),
            ETH_ARP => self.arp(frame, l3),
            ETH_MPLS | ETH_MPLS_MULTICAST => self.mpls(frame, l3),
            _ => {}
        }
    }

    fn arp(&mut self, frame: &[u8], at: usize) {
        // Ethernet and IPv4, addresses of 6 and 4 bytes.
        const KNOWN: [u8; 6] = [0, 1, 8, 0, 6, 4];
        if frame.len() < at + 28 || !frame[at..].starts_with(&KNOWN) {
            return;
        }
        self.layout.l3 = Some(at);
        for (field, offset) in ARP_FIELDS {
            self.read(frame, at + offset, field);
        }
    }

    fn mpls(&mut self, frame: &[u8], at: usize) {
        let Some(entry) = number(frame, at, 4) else {
            return;
        };
        self.layout.l3 = Some(at);
        self.set(Field::MplsLabel, entry >> 12);
        self.set(Field::MplsTc, entry >> 9 & 7);
        self.set(Field::MplsBos, entry >> 8 & 1);
    }

    fn ipv4(&mut self, frame: &[u8], at: usize) {
        let Some(header) = frame.get(at..at + 20) else {
            return;
        };
        let header_len = usize::from(header[0] & 0xf) * 4;
        if header[0] >> 4 != 4 || header_len < 20 {
            return;
        }
        self.layout.l3 = Some(at);
        self.set(Field::IpDscp, header[1] >> 2);
        self.set(Field::IpEcn, header[1] & 3);
        self.set(Field::IpProto, header[9]);
        self.read(frame, at + 12, Field::Ipv4Src);
        self.read(frame, at + 16, Field::Ipv4Dst);

        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        self.layout.end = frame.len().min(at + total_len);
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        let (more, offset) = (fragment & 0x2000 != 0, fragment & 0x1fff);
        if offset == 0 {
            self.transport(frame, at + header_len, header[9], more);
        }
    }

    fn ipv6(&mut self, frame: &[u8], at: usize) {
        let Some(header) = frame.get(at..at + 40) else {
            return;
        };
        if header[0] >> 4 != 6 {
            return;
        }
        self.layout.l3 = Some(at);
        let traffic_class = header[0] << 4 | header[1] >> 4;
        self.set(Field::IpDscp, traffic_class >> 2);
        self.set(Field::IpEcn, traffic_class & 3);
        self.read(frame, at, Field::Ipv6Flabel);
        self.read(frame, at + 8, Field::Ipv6Src);
        self.read(frame, at + 24, Field::Ipv6Dst);

        let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        self.layout.end = frame.len().min(at + 40 + payload_len);
        let walk = ExtensionHeaders::walk(&frame[..self.layout.end], at + 40, header[6]);
        self.set(Field::Ipv6Exthdr, walk.seen);
        let Some(proto) = walk.upper else {
            return;
        };
        self.set(Field::IpProto, proto);
        if !walk.later_fragment {
            self.transport(frame, walk.at, proto, walk.fragment);
        }
    }

    /// Reads the transport header at `at`. For a fragment, only the header's offset is recorded.
    fn transport(&mut self, frame: &[u8], at: usize, proto: u8, fragment: bool) {
        use Field as F;
        let packet = &frame[..self.layout.end.min(frame.len())];
        if at >= packet.len() {
            return;
        }
        self.layout.l4 = Some(at);
        if fragment {
            return;
        }
        let pair = |first, second, width| [(first, 0, width), (second, width, width)];
        let fields = match proto {
            IP_TCP => pair(F::TcpSrc, F::TcpDst, 2),
            IP_UDP => pair(F::UdpSrc, F::UdpDst, 2),
            IP_SCTP => pair(F::SctpSrc, F::SctpDst, 2),
            IP_ICMP => pair(F::Icmpv4Type, F::Icmpv4Code, 1),
            IP_ICMPV6 => pair(F::Icmpv6Type, F::Icmpv6Code, 1),
            _ => return,
        };
        for (field, offset, width) in fields {
            if let Some(value) = number(packet, at + offset, width) {
                self.set(field, value);
            }
        }
        let nd = matches!(self.get(F::Icmpv6Type), Some(135 | 136));
        if proto == IP_ICMPV6 && nd && self.get(F::Icmpv6Code) == Some(0) {
            self.neighbour(packet, at);
        }
    }

    /// Reads a neighbour solicitation or advertisement (RFC 4861, 4.3 and 4.4).
    fn neighbour(&mut self, packet: &[u8], at: usize) {
        let Some(target) = number(packet, at + 8, 16) else {
            return;
        };
        self.set(Field::Ipv6NdTarget, target);
        // A message without the option has the address 0, which Open vSwitch matches as well.
        let (kind, field) = match self.number(Field::Icmpv6Type) {
            135 => (1, Field::Ipv6NdSll),
            _ => (2, Field::Ipv6NdTll),
        };
        match nd_option(packet, at, kind) {
            Some(option) => self.read(packet, option, field),
            None => self.set(field, 0u32),
        }
    }

    /// Reads `field` at its own width from `at`. A narrower field takes the lowest bits of its
    /// bytes.
    fn read(&mut self, frame: &[u8], at: usize, field: Field) {
        let (at, len) = match field {
            Field::Ipv6Flabel => (at, 4),
            _ => (at, field.len()),
        };
        if let Some(value) = number(frame, at, len) {
            self.set(field, value);
        }
    }
}

impl fmt::Debug for PacketFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = f.debug_map();
        for info in FIELDS {
            if let Some(value) = self.get(info.field) {
                list.entry(&info.field, &format_args!("{value:#x}"));
            }
        }
        list.finish()
    }
}

/// Offsets of the fields of an ARP packet, from its start.
pub(crate) const ARP_FIELDS: [(Field, usize); 5] = [
    (Field::ArpOp, 6),
    (Field::ArpSha, 8),
    (Field::ArpSpa, 14),
    (Field::ArpTha, 18),
    (Field::ArpTpa, 24),
];

/// Returns the offset of the link-layer address in a neighbour discovery option of type `wanted`.
pub(crate) fn nd_option(packet: &[u8], icmp_at: usize, wanted: u8) -> Option<usize> {
    let mut at = icmp_at + 24;
    loop {
        let kind = *packet.get(at)?;
        let len = usize::from(*packet.get(at + 1)?) * 8;
        if len == 0 {
            return None;
        }
        if kind == wanted {
            return (len == 8 && at + len <= packet.len()).then_some(at + 2);
        }
        at += len;
    }
}

/// The result of a walk over the extension headers of an IPv6 packet (RFC 8200, 4).
struct ExtensionHeaders {
    /// OFPIEH_*, the value of `Ipv6Exthdr`.
    seen: u16,
    /// The first header that is not an extension, unless the packet ends before it.
    upper: Option<u8>,
    at: usize,
    fragment: bool,
    later_fragment: bool,
}

impl ExtensionHeaders {
    fn walk(packet: &[u8], at: usize, first: u8) -> ExtensionHeaders {
        const REPEATED: u16 = 1 << 7;
        const OUT_OF_ORDER: u16 = 1 << 8;
        let mut walk = ExtensionHeaders {
            seen: 0,
            upper: None,
            at,
            fragment: false,
            later_fragment: false,
        };
        let mut next = first;
        let mut rank_max = 0;
        loop {
            // The bit of OFPIEH_*, and the position that RFC 8200 (4.1) recommends.
            let (bit, rank) = match next {
                0 => (1 << 6, 1),
                60 => (1 << 3, rank_max.max(2)),
                43 => (1 << 5, 3),
                44 => (1 << 4, 4),
                51 => (1 << 2, 5),
                50 => (1 << 1, 6),
                59 => (1 << 0, 7),
                _ => (0, 8),
            };
            if bit != 0 && walk.seen & bit != 0 && next != 60 {
                walk.seen |= REPEATED;
            }
            if rank < rank_max {
                walk.seen |= OUT_OF_ORDER;
            }
            rank_max = rank_max.max(rank);
            walk.seen |= bit;
            if matches!(next, 50 | 59) || bit == 0 {
                walk.upper = Some(next);
                return walk;
            }
            let Some(header) = packet.get(walk.at..walk.at + 8) else {
                return walk;
            };
            if next == 44 {
                let offset = u16::from_be_bytes([header[2], header[3]]);
                walk.later_fragment |= offset >> 3 != 0;
                walk.fragment |= offset & !6 != 0;
            }
            walk.at += match next {
                44 => 8,
                51 => (usize::from(header[1]) + 2) * 4,
                _ => (usize::from(header[1]) + 1) * 8,
            };
            next = header[0];
            if walk.later_fragment {
                walk.upper = Some(next);
                return walk;
            }
        }
    }
}

/// Returns the `len` bytes from `at` as a number, if all are present.
#[inline]
pub(crate) fn number(bytes: &[u8], at: usize, len: usize) -> Option<u128> {
    let part = bytes.get(at..at.checked_add(len)?)?;
    Some(match part {
        [byte] => u128::from(*byte),
        [a, b] => u128::from(u16::from_be_bytes([*a, *b])),
        [a, b, c, d] => u128::from(u32::from_be_bytes([*a, *b, *c, *d])),
        [a, b, c, d, e, f] => u128::from(u64::from_be_bytes([0, 0, *a, *b, *c, *d, *e, *f])),
        _ => part.iter().fold(0, |n, b| n << 8 | u128::from(*b)),
    })
}

/// FNV-1a over whole words. Each step folds the high bits in; the last step of SplitMix64 spreads
/// the result, so that its low bits can be used.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, field: Field, value: u128) {
        for word in [field as u64, value as u64, (value >> 64) as u64] {
            let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.0 = mixed ^ mixed >> 32;
        }
    }

    fn finish(&self) -> u64 {
        clock::mix(self.0)
    }
}

#[cfg(test)]
mod tests;
