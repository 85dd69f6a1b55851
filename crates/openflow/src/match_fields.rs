//! OXM: the fields of a packet, as one table, and matches made of them.
//!
//! Values are numbers: every OXM basic field has at most 16 bytes, so each fits into a `u128`. The
//! lowest bytes of a value are on the wire. Experimenter and Nicira fields are kept as bytes.

use bytes::Bytes;

use crate::types::{MacAddr, PortNo, Version};

/// Declares each basic field once: number, names (in a match and in an action of `ovs-ofctl`, and
/// in the specification), width, mask, prerequisite.
macro_rules! fields {
    ({$(
        $(#[$doc:meta])* $name:ident = $number:literal,
        [$text:literal, $set_text:literal, $oxm:literal],
        $bits:literal, $maskable:literal, $prereq:expr;
    )*} {$(
        $(#[$later_doc:meta])* $later:ident = $later_number:literal,
        [$later_text:literal, $later_set_text:literal, $later_oxm:literal],
        $later_bits:literal, $later_maskable:literal, $later_prereq:expr, $since:ident;
    )*}) => {
        /// A field of class OFPXMC_OPENFLOW_BASIC (0x8000).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Field {
            $(
                #[doc = concat!("`", $text, "` in `ovs-ofctl` syntax; ", $bits, " bits.")]
                $(#[$doc])*
                $name = $number,
            )*
            $(
                #[doc = concat!("`", $later_text, "` in `ovs-ofctl`; ", $later_bits, " bits.")]
                $(#[$later_doc])*
                $later = $later_number
            ),*
        }

        /// Every basic field of 1.3, by number.
        pub const FIELDS: &[FieldInfo] = &[$(FieldInfo {
            field: Field::$name,
            number: $number,
            text: $text,
            set_text: $set_text,
            name: $oxm,
            bits: $bits,
            maskable: $maskable,
            prereq: $prereq,
            since: if $number < MPLS_BOS { Version::V10 } else { Version::V13 },
        }),*];

        /// Every basic field that 1.4 and 1.5 add, by number.
        pub const LATER_FIELDS: &[FieldInfo] = &[$(FieldInfo {
            field: Field::$later,
            number: $later_number,
            text: $later_text,
            set_text: $later_set_text,
            name: $later_oxm,
            bits: $later_bits,
            maskable: $later_maskable,
            prereq: $later_prereq,
            since: Version::$since,
        }),*];
    };
}

/// Number of the first field that 1.3 adds.
const MPLS_BOS: u8 = 36;

/// Row of the table of fields.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FieldInfo {
    /// The field.
    pub field: Field,
    /// OXM field number in class 0x8000.
    pub number: u8,
    /// The name in a match of `ovs-ofctl`.
    pub text: &'static str,
    /// The name in an action of `ovs-ofctl`.
    pub set_text: &'static str,
    /// The name in the specification (OXM_OF_…, OpenFlow 1.3.5, table 11), in lower case.
    pub name: &'static str,
    /// Width of the value in bits; see [`Field::len`] for its bytes on the wire.
    pub bits: u8,
    /// `true` if a match may mask the value.
    pub maskable: bool,
    /// Condition under which a match may name the field.
    pub prereq: Prereq,
    /// First version with this field; 1.0 stands for all versions up to 1.2.
    pub since: Version,
}

/// Condition under which a match may name a field (OpenFlow 1.3.1, table 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prereq {
    /// No condition.
    None,
    /// The match names an ingress port.
    InPort,
    /// The match requires a VLAN tag.
    Vlan,
    /// The match names this EtherType.
    EthType(u16),
    /// The match names IPv4 or IPv6.
    Ip,
    /// The match names this IP protocol, over IPv4 or IPv6.
    IpProto(u8),
    /// The match names ICMPv6.
    Icmpv6,
    /// The match names an ICMPv6 neighbour solicitation or advertisement.
    NdAny,
    /// The match names this ICMPv6 type.
    NdType(u8),
}

use Prereq as P;

fields! { {
    InPort = 0, ["in_port", "in_port_oxm", "in_port"], 32, false, P::None;
    InPhyPort = 1, ["in_phy_port", "in_phy_port", "in_phy_port"], 32, false, P::InPort;
    Metadata = 2, ["metadata", "metadata", "metadata"], 64, true, P::None;
    EthDst = 3, ["dl_dst", "eth_dst", "eth_dst"], 48, true, P::None;
    EthSrc = 4, ["dl_src", "eth_src", "eth_src"], 48, true, P::None;
    EthType = 5, ["dl_type", "eth_type", "eth_type"], 16, false, P::None;
    ///
    /// 12 bits and OFPVID_PRESENT (0x1000).
    VlanVid = 6, ["vlan_vid", "vlan_vid", "vlan_vid"], 13, true, P::None;
    VlanPcp = 7, ["vlan_pcp", "vlan_pcp", "vlan_pcp"], 3, false, P::Vlan;
    IpDscp = 8, ["ip_dscp", "ip_dscp", "ip_dscp"], 6, false, P::Ip;
    IpEcn = 9, ["nw_ecn", "nw_ecn", "ip_ecn"], 2, false, P::Ip;
    IpProto = 10, ["nw_proto", "nw_proto", "ip_proto"], 8, false, P::Ip;
    Ipv4Src = 11, ["nw_src", "ip_src", "ipv4_src"], 32, true, P::EthType(0x0800);
    Ipv4Dst = 12, ["nw_dst", "ip_dst", "ipv4_dst"], 32, true, P::EthType(0x0800);
    TcpSrc = 13, ["tcp_src", "tcp_src", "tcp_src"], 16, true, P::IpProto(6);
    TcpDst = 14, ["tcp_dst", "tcp_dst", "tcp_dst"], 16, true, P::IpProto(6);
    UdpSrc = 15, ["udp_src", "udp_src", "udp_src"], 16, true, P::IpProto(17);
    UdpDst = 16, ["udp_dst", "udp_dst", "udp_dst"], 16, true, P::IpProto(17);
    SctpSrc = 17, ["sctp_src", "sctp_src", "sctp_src"], 16, true, P::IpProto(132);
    SctpDst = 18, ["sctp_dst", "sctp_dst", "sctp_dst"], 16, true, P::IpProto(132);
    Icmpv4Type = 19, ["icmp_type", "icmp_type", "icmpv4_type"], 8, false, P::IpProto(1);
    Icmpv4Code = 20, ["icmp_code", "icmp_code", "icmpv4_code"], 8, false, P::IpProto(1);
    ArpOp = 21, ["arp_op", "arp_op", "arp_op"], 16, false, P::EthType(0x0806);
    ArpSpa = 22, ["arp_spa", "arp_spa", "arp_spa"], 32, true, P::EthType(0x0806);
    ArpTpa = 23, ["arp_tpa", "arp_tpa", "arp_tpa"], 32, true, P::EthType(0x0806);
    ArpSha = 24, ["arp_sha", "arp_sha", "arp_sha"], 48, true, P::EthType(0x0806);
    ArpTha = 25, ["arp_tha", "arp_tha", "arp_tha"], 48, true, P::EthType(0x0806);
    Ipv6Src = 26, ["ipv6_src", "ipv6_src", "ipv6_src"], 128, true, P::EthType(0x86dd);
    Ipv6Dst = 27, ["ipv6_dst", "ipv6_dst", "ipv6_dst"], 128, true, P::EthType(0x86dd);
    Ipv6Flabel = 28, ["ipv6_label", "ipv6_label", "ipv6_flabel"], 20, true, P::EthType(0x86dd);
    Icmpv6Type = 29, ["icmpv6_type", "icmpv6_type", "icmpv6_type"], 8, false, P::Icmpv6;
    Icmpv6Code = 30, ["icmpv6_code", "icmpv6_code", "icmpv6_code"], 8, false, P::Icmpv6;
    Ipv6NdTarget = 31, ["nd_target", "nd_target", "ipv6_nd_target"], 128, true, P::NdAny;
    Ipv6NdSll = 32, ["nd_sll", "nd_sll", "ipv6_nd_sll"], 48, true, P::NdType(135);
    Ipv6NdTll = 33, ["nd_tll", "nd_tll", "ipv6_nd_tll"], 48, true, P::NdType(136);
    MplsLabel = 34, ["mpls_label", "mpls_label", "mpls_label"], 20, false, P::EthType(0x8847);
    MplsTc = 35, ["mpls_tc", "mpls_tc", "mpls_tc"], 3, false, P::EthType(0x8847);
    MplsBos = 36, ["mpls_bos", "mpls_bos", "mpls_bos"], 1, false, P::EthType(0x8847);
    PbbIsid = 37, ["pbb_isid", "pbb_isid", "pbb_isid"], 24, true, P::EthType(0x88e7);
    TunnelId = 38, ["tun_id", "tun_id", "tunnel_id"], 64, true, P::None;
    Ipv6Exthdr = 39, ["ipv6_exthdr", "ipv6_exthdr", "ipv6_exthdr"], 9, true, P::EthType(0x86dd);
} {
    PbbUca = 41, ["pbb_uca", "pbb_uca", "pbb_uca"], 1, false, P::EthType(0x88e7), V14;
    TcpFlags = 42, ["tcp_flags", "tcp_flags", "tcp_flags"], 12, true, P::IpProto(6), V15;
    ActsetOutput = 43, ["actset_output", "actset_output", "actset_output"], 32, false, P::None, V15;
    ///
    /// Namespace and type; 0 is Ethernet.
    PacketType = 44, ["packet_type", "packet_type", "packet_type"], 32, false, P::None, V15;
} }

/// Namespace of EtherTypes in a [`Field::PacketType`].
pub const PACKET_TYPE_ETHERTYPE: u128 = 1 << 16;

/// The first field of [`LATER_FIELDS`]; no field has number 40.
const PBB_UCA: u8 = Field::PbbUca as u8;

/// OFPXMC_OPENFLOW_BASIC.
pub const OXM_CLASS_BASIC: u16 = 0x8000;

/// Bit set in the VLAN id of a tagged packet; a `VlanVid` of 0 matches untagged packets.
pub const VLAN_PRESENT: u128 = 0x1000;

impl Field {
    /// One more than the greatest number of a field in any version.
    pub const COUNT: usize = Field::PacketType as usize + 1;

    /// Returns the field with this OXM number in class 0x8000.
    pub fn from_number(number: u8) -> Option<Field> {
        let later = || {
            number
                .checked_sub(PBB_UCA)
                .and_then(|n| LATER_FIELDS.get(usize::from(n)))
        };
        let info = FIELDS.get(usize::from(number)).or_else(later);
        info.map(|info| info.field)
    }

    /// Returns the field of 1.3 that has this name in `ovs-ofctl` or in the specification.
    pub fn from_name(name: &str) -> Option<Field> {
        let name = match name {
            "dl_vlan_pcp" => "vlan_pcp",
            name => name,
        };
        let row = |info: &&FieldInfo| [info.text, info.set_text, info.name].contains(&name);
        FIELDS.iter().find(row).map(|info| info.field)
    }

    /// Returns the field's row of [`FIELDS`].
    #[inline]
    pub fn info(self) -> &'static FieldInfo {
        match FIELDS.get(self as usize) {
            Some(info) => info,
            None => &LATER_FIELDS[usize::from(self as u8 - PBB_UCA)],
        }
    }

    /// Length of the value on the wire, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no field has zero bytes")]
    #[inline]
    pub fn len(self) -> usize {
        match self {
            // The specification gives these 20-bit fields a whole word.
            Field::Ipv6Flabel | Field::MplsLabel => 4,
            field => usize::from(field.info().bits).div_ceil(8),
        }
    }

    /// All ones over the width of the field.
    #[inline]
    pub fn ones(self) -> u128 {
        u128::MAX >> (128 - u32::from(self.info().bits))
    }
}

/// One field of a match or of a SET_FIELD action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MatchField {
    /// A field of class 0x8000.
    Basic {
        /// The field.
        field: Field,
        /// Value, right-aligned.
        value: u128,
        /// Mask; `None` for an exact match. A mask of all ones is kept as received.
        mask: Option<u128>,
    },
    /// A field whose class or number has no name here, as it was on the wire. `header` is the
    /// 32-bit OXM header. `payload` has as many bytes as the header states, including an
    /// experimenter id.
    Other {
        /// OXM header: class, field, mask bit and length.
        header: u32,
        /// Bytes after the header.
        payload: Bytes,
    },
}

impl MatchField {
    /// A field with exactly this value.
    pub const fn exact(field: Field, value: u128) -> MatchField {
        MatchField::Basic {
            field,
            value,
            mask: None,
        }
    }
}

/// A match, with its fields in the order of its sender. An empty match matches everything.
///
/// ```
/// use openflow::{Field, Match};
///
/// let dns = Match::any()
///     .with(Field::EthType, 0x0800u16)
///     .with(Field::IpProto, 17u8)
///     .with(Field::UdpDst, 53u16);
/// assert_eq!(dns.exact(Field::UdpDst), Some(53));
/// assert_eq!(Field::UdpDst.info().text, "udp_dst");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// Fields, all of which a packet must match.
    pub fields: Vec<MatchField>,
}

impl Match {
    /// Matches every packet.
    pub fn any() -> Match {
        Match::default()
    }

    /// Returns this match, narrowed to packets with `value` in `field`.
    #[must_use]
    pub fn with(mut self, field: Field, value: impl Into<u128>) -> Match {
        self.fields.push(MatchField::exact(field, value.into()));
        self
    }

    /// Returns this match, narrowed to packets with `value` in the bits of `mask`.
    #[must_use]
    pub fn with_masked(
        mut self,
        field: Field,
        value: impl Into<u128>,
        mask: impl Into<u128>,
    ) -> Match {
        let (value, mask) = (value.into(), Some(mask.into()));
        self.fields.push(MatchField::Basic { field, value, mask });
        self
    }

    /// Returns this match, narrowed to packets from `port`.
    #[must_use]
    pub fn with_in_port(self, port: PortNo) -> Match {
        self.with(Field::InPort, port.0)
    }

    /// Returns this match, narrowed to packets for `mac`.
    #[must_use]
    pub fn with_eth_dst(self, mac: MacAddr) -> Match {
        self.with(Field::EthDst, mac.to_u64())
    }

    /// Returns this match, narrowed to packets from `mac`.
    #[must_use]
    pub fn with_eth_src(self, mac: MacAddr) -> Match {
        self.with(Field::EthSrc, mac.to_u64())
    }

    /// Value and mask of `field`; an exact match has a mask of all ones.
    pub fn get(&self, field: Field) -> Option<(u128, u128)> {
        self.fields.iter().find_map(|f| match f {
            MatchField::Basic {
                field: f,
                value,
                mask,
            } if *f == field => Some((*value, mask.unwrap_or(field.ones()))),
            _ => None,
        })
    }

    /// The value of `field` if it is matched exactly.
    pub fn exact(&self, field: Field) -> Option<u128> {
        self.get(field)
            .filter(|(_, mask)| *mask == field.ones())
            .map(|(value, _)| value)
    }

    /// Ingress port, if the match names one.
    pub fn in_port(&self) -> Option<PortNo> {
        self.exact(Field::InPort).map(|p| PortNo(p as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OpenFlow 1.3.1, 7.2.3.7: the OXM lengths that are not the number of bits rounded up.
    #[test]
    fn labels_of_20_bits_have_four_bytes_on_the_wire() {
        assert_eq!(Field::Ipv6Flabel.len(), 4);
        assert_eq!(Field::MplsLabel.len(), 4);
        assert_eq!(Field::PbbIsid.len(), 3);
        assert_eq!(Field::VlanVid.len(), 2);
    }

    #[test]
    fn the_table_is_indexed_by_number() {
        for (at, info) in FIELDS.iter().enumerate() {
            assert_eq!(usize::from(info.number), at, "{}", info.text);
            assert_eq!(info.field as usize, at);
        }
        for info in FIELDS.iter().chain(LATER_FIELDS) {
            assert_eq!(Field::from_number(info.number), Some(info.field));
            assert_eq!(info.field.info().number, info.number);
        }
        assert_eq!(Field::from_number(40), None);
        assert_eq!(Field::from_number(45), None);
    }
}
