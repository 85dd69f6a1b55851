//! `ofp_match`: the twelve fields of 1.0 and their wildcards, read as Open vSwitch reads them.
//!
//! Not kept: values under a wildcard, fields whose prerequisite the match does not state (1.0 says
//! to ignore them, 3.4), the priority of an untagged frame, the low bits of `nw_tos`, padding.
//!
//! ICMP type and code are in the 16 bits of the ports. This codec keeps values above 255, which no
//! packet has, because Open vSwitch stores and prints them.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::match_fields::{Field, Match, MatchField, VLAN_PRESENT};
use crate::types::PortNo;
use crate::wire::reader::Reader;
use crate::wire::writer::Writer;

use super::numbers::{port_from_wire, port_to_wire};

pub(super) const MATCH_LEN: usize = 40;

/// OFPFW_*: a bit set wildcards its field.
mod wild {
    pub const IN_PORT: u32 = 1 << 0;
    pub const DL_VLAN: u32 = 1 << 1;
    pub const DL_SRC: u32 = 1 << 2;
    pub const DL_DST: u32 = 1 << 3;
    pub const DL_TYPE: u32 = 1 << 4;
    pub const NW_PROTO: u32 = 1 << 5;
    pub const TP_SRC: u32 = 1 << 6;
    pub const TP_DST: u32 = 1 << 7;
    /// Six bits each: the number of wildcarded low bits of the address, 32 or more for all.
    pub const NW_SRC_SHIFT: u32 = 8;
    pub const NW_DST_SHIFT: u32 = 14;
    pub const DL_VLAN_PCP: u32 = 1 << 20;
    pub const NW_TOS: u32 = 1 << 21;
    pub const ALL: u32 = (1 << 22) - 1;
    /// The number of wildcarded bits that a sender writes to match any address.
    pub const ADDRESS: u32 = 32;
}

/// `dl_vlan` of a frame without a tag (OFP_VLAN_NONE).
const VLAN_NONE: u16 = 0xffff;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// `ofp_match` as on the wire, without its padding.
#[derive(Clone, Copy, Debug, Default)]
struct Fields {
    wildcards: u32,
    in_port: u16,
    dl_src: u64,
    dl_dst: u64,
    dl_vlan: u16,
    dl_vlan_pcp: u8,
    dl_type: u16,
    nw_tos: u8,
    nw_proto: u8,
    nw_src: u32,
    nw_dst: u32,
    tp_src: u16,
    tp_dst: u16,
}

pub(super) fn decode(r: &mut Reader) -> Result<Match, DecodeError> {
    decode_exactness(r).map(|(r#match, _)| r#match)
}

/// Reads the match, and reports whether no field is wildcarded.
pub(super) fn decode_exactness(r: &mut Reader) -> Result<(Match, bool), DecodeError> {
    let mut r = r.part(MATCH_LEN, ErrorKind::BAD_LEN, "ofp_match")?;
    let fields = Fields {
        wildcards: r.u32()?,
        in_port: r.u16()?,
        dl_src: r.uint(6)? as u64,
        dl_dst: r.uint(6)? as u64,
        dl_vlan: r.u16()?,
        dl_vlan_pcp: r.u8()?,
        dl_type: {
            r.skip(1)?;
            r.u16()?
        },
        nw_tos: r.u8()?,
        nw_proto: r.u8()?,
        nw_src: {
            r.skip(2)?;
            r.u32()?
        },
        nw_dst: r.u32()?,
        tp_src: r.u16()?,
        tp_dst: r.u16()?,
    };
    Ok((fields.to_match(), fields.wildcards & wild::ALL == 0))
}

pub(super) fn encode(r#match: &Match, w: &mut Writer) -> Result<(), EncodeError> {
    let f = Fields::of(r#match, w)?;
    w.u32(f.wildcards);
    w.u16(f.in_port);
    w.uint(f.dl_src.into(), 6);
    w.uint(f.dl_dst.into(), 6);
    w.u16(f.dl_vlan);
    w.u8(f.dl_vlan_pcp);
    w.zeros(1);
    w.u16(f.dl_type);
    w.u8(f.nw_tos);
    w.u8(f.nw_proto);
    w.zeros(2);
    w.u32(f.nw_src);
    w.u32(f.nw_dst);
    w.u16(f.tp_src);
    w.u16(f.tp_dst);
    Ok(())
}

/// Returns the fields that `tp_src` and `tp_dst` stand for, by `nw_proto`.
fn transport(nw_proto: u8, dl_type: u16) -> Option<(Field, Field)> {
    Some(match (nw_proto, dl_type) {
        (6, _) => (Field::TcpSrc, Field::TcpDst),
        (17, _) => (Field::UdpSrc, Field::UdpDst),
        (132, _) => (Field::SctpSrc, Field::SctpDst),
        (1, IPV4) => (Field::Icmpv4Type, Field::Icmpv4Code),
        (58, IPV6) => (Field::Icmpv6Type, Field::Icmpv6Code),
        _ => return None,
    })
}

/// Reports whether this is a field of ICMP, which has more bits in 1.0 than in a packet.
fn is_of_icmp(field: Field) -> bool {
    use Field as F;
    matches!(
        field,
        F::Icmpv4Type | F::Icmpv4Code | F::Icmpv6Type | F::Icmpv6Code
    )
}

impl Fields {
    fn says(&self, wildcard: u32) -> bool {
        self.wildcards & wildcard == 0
    }

    fn to_match(self) -> Match {
        let mut m = Match::any();
        if self.says(wild::IN_PORT) {
            m = m.with_in_port(port_from_wire(self.in_port));
        }
        if self.says(wild::DL_DST) {
            m = m.with(Field::EthDst, self.dl_dst);
        }
        if self.says(wild::DL_SRC) {
            m = m.with(Field::EthSrc, self.dl_src);
        }
        if self.says(wild::DL_TYPE) {
            m = m.with(Field::EthType, self.dl_type);
        }
        m = self.vlan(m);
        match self.dl_type {
            IPV4 | IPV6 if self.says(wild::DL_TYPE) => self.ip(m),
            ARP if self.says(wild::DL_TYPE) => self.arp(m),
            _ => m,
        }
    }

    fn vlan(&self, m: Match) -> Match {
        let vid = u128::from(self.dl_vlan & 0xfff) | VLAN_PRESENT;
        let m = match (self.says(wild::DL_VLAN), self.says(wild::DL_VLAN_PCP)) {
            (true, _) if self.dl_vlan == VLAN_NONE => return m.with(Field::VlanVid, 0u16),
            (false, false) => return m,
            (true, _) => m.with(Field::VlanVid, vid),
            (false, true) => m.with_masked(Field::VlanVid, VLAN_PRESENT, VLAN_PRESENT),
        };
        if self.says(wild::DL_VLAN_PCP) {
            return m.with(Field::VlanPcp, self.dl_vlan_pcp & 7);
        }
        m
    }

    fn ip(&self, mut m: Match) -> Match {
        if self.says(wild::NW_TOS) {
            m = m.with(Field::IpDscp, self.nw_tos >> 2);
        }
        if self.says(wild::NW_PROTO) {
            m = m.with(Field::IpProto, self.nw_proto);
        }
        if self.dl_type == IPV4 {
            m = self.address(m, Field::Ipv4Src, self.nw_src, wild::NW_SRC_SHIFT);
            m = self.address(m, Field::Ipv4Dst, self.nw_dst, wild::NW_DST_SHIFT);
        }
        let ports = transport(self.nw_proto, self.dl_type).filter(|_| self.says(wild::NW_PROTO));
        let Some((src, dst)) = ports else {
            return m;
        };
        for (field, value, wildcard) in [
            (src, self.tp_src, wild::TP_SRC),
            (dst, self.tp_dst, wild::TP_DST),
        ] {
            if self.says(wildcard) {
                m = m.with(field, value);
            }
        }
        m
    }

    fn arp(&self, mut m: Match) -> Match {
        if self.says(wild::NW_PROTO) {
            m = m.with(Field::ArpOp, self.nw_proto);
        }
        m = self.address(m, Field::ArpSpa, self.nw_src, wild::NW_SRC_SHIFT);
        self.address(m, Field::ArpTpa, self.nw_dst, wild::NW_DST_SHIFT)
    }

    fn address(&self, m: Match, field: Field, address: u32, shift: u32) -> Match {
        match self.wildcards >> shift & 0x3f {
            0 => m.with(field, address),
            wild_bits @ 1..32 => {
                let mask = u32::MAX << wild_bits;
                m.with_masked(field, address & mask, mask)
            }
            _ => m,
        }
    }

    fn of(r#match: &Match, w: &Writer) -> Result<Fields, EncodeError> {
        let mut f = Fields {
            wildcards: wild::IN_PORT
                | wild::DL_VLAN
                | wild::DL_SRC
                | wild::DL_DST
                | wild::DL_TYPE
                | wild::NW_PROTO
                | wild::TP_SRC
                | wild::TP_DST
                | wild::ADDRESS << wild::NW_SRC_SHIFT
                | wild::ADDRESS << wild::NW_DST_SHIFT
                | wild::DL_VLAN_PCP
                | wild::NW_TOS,
            ..Fields::default()
        };
        // These decide what other fields mean, wherever they are in the match.
        f.dl_type = r#match.exact(Field::EthType).unwrap_or(0) as u16;
        f.nw_proto = r#match.exact(Field::IpProto).unwrap_or(0) as u8;
        for field in &r#match.fields {
            let MatchField::Basic { field, value, mask } = field else {
                return w.unsupported("experimenter's match field");
            };
            let mask = mask.unwrap_or(field.ones());
            let room = match is_of_icmp(*field) {
                true => u128::from(u16::MAX),
                false => field.ones(),
            };
            if value & !room != 0 {
                return w.unsupported("value wider than its match field");
            }
            let value = match mask == field.ones() {
                true => *value,
                false => value & mask,
            };
            if mask != 0 {
                f.put(*field, value, mask, w)?;
            }
        }
        let any_tag = r#match.get(Field::VlanVid) == Some((VLAN_PRESENT, VLAN_PRESENT));
        if any_tag && !f.says(wild::DL_VLAN_PCP) {
            return w.unsupported("match on any VLAN tag");
        }
        let tagged = r#match
            .get(Field::VlanVid)
            .is_some_and(|(vid, _)| vid & VLAN_PRESENT != 0);
        if f.says(wild::DL_VLAN_PCP) && !tagged {
            return w.unsupported("match on the priority of no VLAN tag");
        }
        if f.says(wild::DL_VLAN) && f.dl_vlan == VLAN_NONE {
            // For an untagged frame, Open vSwitch writes the priority as exact, and as 0.
            f.wildcards &= !wild::DL_VLAN_PCP;
        }
        Ok(f)
    }

    fn put(
        &mut self,
        field: Field,
        value: u128,
        mask: u128,
        w: &Writer,
    ) -> Result<(), EncodeError> {
        use Field as F;
        let exact = mask == field.ones();
        let address = matches!(field, F::Ipv4Src | F::Ipv4Dst | F::ArpSpa | F::ArpTpa);
        if !exact && !address && field != F::VlanVid {
            return w.unsupported("mask on such a match field");
        }
        let ip = matches!(self.dl_type, IPV4 | IPV6);
        let ports = transport(self.nw_proto, self.dl_type).filter(|_| ip);
        let said = match field {
            F::InPort => {
                self.in_port = port_to_wire(PortNo(value as u32), w)?;
                wild::IN_PORT
            }
            F::EthDst => {
                self.dl_dst = value as u64;
                wild::DL_DST
            }
            F::EthSrc => {
                self.dl_src = value as u64;
                wild::DL_SRC
            }
            F::EthType => wild::DL_TYPE,
            F::VlanVid => return self.put_vlan(value, mask, w),
            F::VlanPcp => {
                self.dl_vlan_pcp = value as u8;
                wild::DL_VLAN_PCP
            }
            F::IpDscp if ip => {
                self.nw_tos = (value as u8) << 2;
                wild::NW_TOS
            }
            F::IpProto if ip => wild::NW_PROTO,
            F::ArpOp if self.dl_type == ARP && value <= 0xff => {
                self.nw_proto = value as u8;
                wild::NW_PROTO
            }
            F::Ipv4Src if self.dl_type == IPV4 => {
                self.nw_src = value as u32;
                return self.put_prefix(mask, wild::NW_SRC_SHIFT, w);
            }
            F::Ipv4Dst if self.dl_type == IPV4 => {
                self.nw_dst = value as u32;
                return self.put_prefix(mask, wild::NW_DST_SHIFT, w);
            }
            F::ArpSpa if self.dl_type == ARP => {
                self.nw_src = value as u32;
                return self.put_prefix(mask, wild::NW_SRC_SHIFT, w);
            }
            F::ArpTpa if self.dl_type == ARP => {
                self.nw_dst = value as u32;
                return self.put_prefix(mask, wild::NW_DST_SHIFT, w);
            }
            _ if ports.is_some_and(|(src, _)| src == field) => {
                self.tp_src = value as u16;
                wild::TP_SRC
            }
            _ if ports.is_some_and(|(_, dst)| dst == field) => {
                self.tp_dst = value as u16;
                wild::TP_DST
            }
            _ => return w.unsupported("such match field, or not without its prerequisite"),
        };
        self.wildcards &= !said;
        Ok(())
    }

    fn put_vlan(&mut self, value: u128, mask: u128, w: &Writer) -> Result<(), EncodeError> {
        let exact = mask == Field::VlanVid.ones();
        match (exact, value) {
            (true, 0) => self.dl_vlan = VLAN_NONE,
            (true, vid) if vid & VLAN_PRESENT != 0 => self.dl_vlan = vid as u16 & 0xfff,
            // With a match on the priority, this is the same as wildcarding only the id.
            (false, VLAN_PRESENT) if mask == VLAN_PRESENT => return Ok(()),
            _ => return w.unsupported("mask on such a match field"),
        }
        self.wildcards &= !wild::DL_VLAN;
        Ok(())
    }

    fn put_prefix(&mut self, mask: u128, shift: u32, w: &Writer) -> Result<(), EncodeError> {
        let mask = mask as u32;
        if mask.leading_ones() + mask.trailing_zeros() != 32 {
            return w.unsupported("address mask that is no prefix");
        }
        self.wildcards &= !(0x3f << shift);
        self.wildcards |= mask.trailing_zeros() << shift;
        Ok(())
    }
}
