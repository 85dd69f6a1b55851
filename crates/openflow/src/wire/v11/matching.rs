//! `ofp_match` of 1.1: a fixed form with wildcards and masks (A.2.3), as Open vSwitch reads it.
//!
//! Not kept: values under a wildcard or mask, fields whose prerequisite the match does not state,
//! padding.

use crate::error::{DecodeError, ErrorKind};
use crate::match_fields::{Field, Match, MatchField, VLAN_PRESENT};
use crate::wire::reader::Reader;
use crate::wire::writer::Writer;

/// OFPMT_STANDARD and its length.
const TYPE: u16 = 0;
const LEN: usize = 88;

/// OFPFW_*: a bit set wildcards its field.
mod wild {
    pub const IN_PORT: u32 = 1 << 0;
    pub const DL_VLAN: u32 = 1 << 1;
    pub const DL_VLAN_PCP: u32 = 1 << 2;
    pub const DL_TYPE: u32 = 1 << 3;
    pub const NW_TOS: u32 = 1 << 4;
    pub const NW_PROTO: u32 = 1 << 5;
    pub const TP_SRC: u32 = 1 << 6;
    pub const TP_DST: u32 = 1 << 7;
    pub const MPLS_LABEL: u32 = 1 << 8;
    pub const MPLS_TC: u32 = 1 << 9;
    pub const ALL: u32 = (1 << 10) - 1;
}

/// `dl_vlan` of any tag (OFPVID_ANY), and of a frame without one (OFPVID_NONE).
const VLAN_ANY: u16 = 0xfffe;
const VLAN_NONE: u16 = 0xffff;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const MPLS: [u16; 2] = [0x8847, 0x8848];
const ICMP: u8 = 1;

/// A value and a mask of the bits that count; the wire has the inverse mask.
#[derive(Clone, Copy, Default)]
struct Masked {
    value: u128,
    mask: u128,
}

impl Masked {
    fn decode(r: &mut Reader, len: usize) -> Result<Masked, DecodeError> {
        let (value, wild) = (r.uint(len)?, r.uint(len)?);
        let mask = !wild & (u128::MAX >> (128 - 8 * len));
        let value = value & mask;
        Ok(Masked { value, mask })
    }

    fn encode(self, w: &mut Writer, len: usize) {
        w.uint(self.value, len);
        w.uint(!self.mask, len);
    }
}

/// `ofp_match` as on the wire, without its padding.
#[derive(Default)]
struct Fields {
    wildcards: u32,
    in_port: u32,
    dl_src: Masked,
    dl_dst: Masked,
    dl_vlan: u16,
    dl_vlan_pcp: u8,
    dl_type: u16,
    nw_tos: u8,
    nw_proto: u8,
    nw_src: Masked,
    nw_dst: Masked,
    tp_src: u16,
    tp_dst: u16,
    mpls_label: u32,
    mpls_tc: u8,
    metadata: Masked,
}

/// Whether the next match has this form. For matches that this form cannot express, Open vSwitch
/// sends OXM, as in 1.2.
pub(in crate::wire) fn is_next(r: &Reader) -> Result<bool, DecodeError> {
    Ok(r.peek_u16(0)? == TYPE)
}

pub(in crate::wire) fn decode(r: &mut Reader) -> Result<Match, DecodeError> {
    if usize::from(r.peek_u16(2)?) != LEN {
        return Err(r.error(ErrorKind::MATCH_BAD_LEN));
    }
    let mut r = r.part(LEN, ErrorKind::MATCH_BAD_LEN, "ofp_match")?;
    let bad_value = r.error(ErrorKind::MATCH_BAD_VALUE);
    r.skip(4)?;
    let (in_port, wildcards) = (r.u32()?, r.u32()?);
    let (dl_src, dl_dst) = (Masked::decode(&mut r, 6)?, Masked::decode(&mut r, 6)?);
    let (dl_vlan, dl_vlan_pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let (dl_type, nw_tos, nw_proto) = (r.u16()?, r.u8()?, r.u8()?);
    let (nw_src, nw_dst) = (Masked::decode(&mut r, 4)?, Masked::decode(&mut r, 4)?);
    let (tp_src, tp_dst) = (r.u16()?, r.u16()?);
    let (mpls_label, mpls_tc) = (r.u32()?, r.u8()?);
    r.skip(3)?;
    let metadata = Masked::decode(&mut r, 8)?;
    let fields = Fields {
        wildcards,
        in_port,
        dl_src,
        dl_dst,
        dl_vlan,
        dl_vlan_pcp,
        dl_type,
        nw_tos,
        nw_proto,
        nw_src,
        nw_dst,
        tp_src,
        tp_dst,
        mpls_label,
        mpls_tc,
        metadata,
    };
    fields.to_match().ok_or(bad_value)
}

/// Returns the match as [`decode`] does, if this form can express it.
pub(in crate::wire) fn canonical(r#match: &Match) -> Option<Match> {
    Fields::of(r#match)?.to_match()
}

/// Writes the match, if this form can express it.
pub(in crate::wire) fn encode(r#match: &Match, w: &mut Writer) -> bool {
    let Some(f) = Fields::of(r#match) else {
        return false;
    };
    w.u16(TYPE);
    w.u16(LEN as u16);
    w.u32(f.in_port);
    w.u32(f.wildcards);
    f.dl_src.encode(w, 6);
    f.dl_dst.encode(w, 6);
    w.u16(f.dl_vlan);
    w.u8(f.dl_vlan_pcp);
    w.zeros(1);
    w.u16(f.dl_type);
    w.u8(f.nw_tos);
    w.u8(f.nw_proto);
    f.nw_src.encode(w, 4);
    f.nw_dst.encode(w, 4);
    w.u16(f.tp_src);
    w.u16(f.tp_dst);
    w.u32(f.mpls_label);
    w.u8(f.mpls_tc);
    w.zeros(3);
    f.metadata.encode(w, 8);
    true
}

/// Returns the fields that `tp_src` and `tp_dst` stand for, by `nw_proto`. ICMP is Open vSwitch's
/// reading.
fn transport(nw_proto: u8) -> Option<[Field; 2]> {
    Some(match nw_proto {
        6 => [Field::TcpSrc, Field::TcpDst],
        17 => [Field::UdpSrc, Field::UdpDst],
        132 => [Field::SctpSrc, Field::SctpDst],
        ICMP => [Field::Icmpv4Type, Field::Icmpv4Code],
        _ => return None,
    })
}

impl Fields {
    fn says(&self, wildcard: u32) -> bool {
        self.wildcards & wildcard == 0
    }

    /// Returns `None` if a value is invalid for its field.
    fn to_match(&self) -> Option<Match> {
        let said = |wildcard: u32| self.says(wildcard);
        let dl_type = if said(wild::DL_TYPE) { self.dl_type } else { 0 };
        let proto = if said(wild::NW_PROTO) {
            self.nw_proto
        } else {
            0
        };
        let (is_ipv4, is_arp) = (dl_type == IPV4, dl_type == ARP);
        let is_mpls = MPLS.contains(&dl_type);
        let ports = transport(proto).filter(|_| is_ipv4);
        let [src, dst] = ports.unwrap_or([Field::TcpSrc, Field::TcpDst]);
        if is_ipv4 && said(wild::NW_TOS) && self.nw_tos & 3 != 0 {
            return None;
        }
        let exact = [
            (said(wild::IN_PORT), Field::InPort, self.in_port),
            (said(wild::DL_TYPE), Field::EthType, dl_type.into()),
            (
                is_ipv4 && said(wild::NW_PROTO),
                Field::IpProto,
                proto.into(),
            ),
            (is_arp && said(wild::NW_PROTO), Field::ArpOp, proto.into()),
            (
                is_ipv4 && said(wild::NW_TOS),
                Field::IpDscp,
                u32::from(self.nw_tos >> 2),
            ),
            (
                ports.is_some() && said(wild::TP_SRC),
                src,
                self.tp_src.into(),
            ),
            (
                ports.is_some() && said(wild::TP_DST),
                dst,
                self.tp_dst.into(),
            ),
            (
                is_mpls && said(wild::MPLS_LABEL),
                Field::MplsLabel,
                self.mpls_label,
            ),
            (
                is_mpls && said(wild::MPLS_TC),
                Field::MplsTc,
                self.mpls_tc.into(),
            ),
        ];
        let exact = exact.into_iter().filter(|(is_said, ..)| *is_said);
        let exact = exact.map(|(_, field, value)| (field, u128::from(value), field.ones()));
        let addresses = match dl_type {
            IPV4 => Some((Field::Ipv4Src, Field::Ipv4Dst)),
            ARP => Some((Field::ArpSpa, Field::ArpTpa)),
            _ => None,
        };
        let ends = addresses.map(|(src, dst)| [(src, self.nw_src), (dst, self.nw_dst)]);
        let always = [
            (Field::EthSrc, self.dl_src),
            (Field::EthDst, self.dl_dst),
            (Field::Metadata, self.metadata),
        ];
        let masked = ends.into_iter().flatten().chain(always);
        let masked = masked.map(|(field, Masked { value, mask })| (field, value, mask));
        let mut m = Match::any();
        for (field, value, mask) in exact.chain(self.vlan()?).chain(masked) {
            if value > field.ones() {
                return None;
            }
            m = match mask {
                0 => m,
                mask if mask == field.ones() => m.with(field, value),
                mask => m.with_masked(field, value, mask),
            };
        }
        Some(m)
    }

    /// Returns the field, value and mask of the tag.
    fn vlan(&self) -> Option<Vec<(Field, u128, u128)>> {
        if !self.says(wild::DL_VLAN) {
            return Some(Vec::new());
        }
        let exact = Field::VlanVid.ones();
        let mut said = match self.dl_vlan {
            VLAN_NONE => return Some(vec![(Field::VlanVid, 0, exact)]),
            VLAN_ANY => vec![(Field::VlanVid, VLAN_PRESENT, VLAN_PRESENT)],
            vid if vid > 0xfff => return None,
            vid => vec![(Field::VlanVid, VLAN_PRESENT | u128::from(vid), exact)],
        };
        if self.says(wild::DL_VLAN_PCP) {
            let pcp = u128::from(self.dl_vlan_pcp);
            said.push((Field::VlanPcp, pcp, Field::VlanPcp.ones()));
        }
        Some(said)
    }

    /// Returns `None` if this form cannot express all of the match.
    fn of(r#match: &Match) -> Option<Fields> {
        // These decide what other fields mean, wherever they are in the match.
        let mut f = Fields {
            wildcards: wild::ALL,
            dl_type: r#match.exact(Field::EthType).unwrap_or(0) as u16,
            nw_proto: r#match.exact(Field::IpProto).unwrap_or(0) as u8,
            ..Fields::default()
        };
        let mut seen = Vec::new();
        for field in &r#match.fields {
            let MatchField::Basic { field, value, mask } = field else {
                return None;
            };
            let mask = mask.unwrap_or(field.ones());
            if (value | mask) & !field.ones() != 0 || value & !mask != 0 || seen.contains(field) {
                return None;
            }
            seen.push(*field);
            f.put(*field, *value, mask)?;
        }
        let is_tagged = f.says(wild::DL_VLAN) && f.dl_vlan != VLAN_NONE;
        (is_tagged || !f.says(wild::DL_VLAN_PCP)).then_some(f)
    }

    fn put(&mut self, field: Field, value: u128, mask: u128) -> Option<()> {
        use Field as F;
        let (is_ipv4, is_arp) = (self.dl_type == IPV4, self.dl_type == ARP);
        let is_mpls = MPLS.contains(&self.dl_type);
        let masked = match field {
            F::EthSrc => Some(&mut self.dl_src),
            F::EthDst => Some(&mut self.dl_dst),
            F::Ipv4Src if is_ipv4 => Some(&mut self.nw_src),
            F::Ipv4Dst if is_ipv4 => Some(&mut self.nw_dst),
            F::ArpSpa if is_arp => Some(&mut self.nw_src),
            F::ArpTpa if is_arp => Some(&mut self.nw_dst),
            F::Metadata => Some(&mut self.metadata),
            _ => None,
        };
        if let Some(masked) = masked {
            *masked = Masked { value, mask };
            return Some(());
        }
        let is_any_tag = field == F::VlanVid && (value, mask) == (VLAN_PRESENT, VLAN_PRESENT);
        if mask != field.ones() && !is_any_tag {
            return None;
        }
        let ports = transport(self.nw_proto).filter(|_| is_ipv4);
        self.wildcards &= !match field {
            F::InPort => {
                self.in_port = value as u32;
                wild::IN_PORT
            }
            F::VlanVid if is_any_tag => {
                self.dl_vlan = VLAN_ANY;
                wild::DL_VLAN
            }
            F::VlanVid if value == 0 => {
                self.dl_vlan = VLAN_NONE;
                wild::DL_VLAN
            }
            F::VlanVid if value & VLAN_PRESENT != 0 => {
                self.dl_vlan = value as u16 & 0xfff;
                wild::DL_VLAN
            }
            F::VlanPcp => {
                self.dl_vlan_pcp = value as u8;
                wild::DL_VLAN_PCP
            }
            F::EthType => wild::DL_TYPE,
            F::IpDscp if is_ipv4 => {
                self.nw_tos = (value as u8) << 2;
                wild::NW_TOS
            }
            F::IpProto if is_ipv4 => wild::NW_PROTO,
            F::ArpOp if is_arp && value <= 0xff => {
                self.nw_proto = value as u8;
                wild::NW_PROTO
            }
            F::MplsLabel if is_mpls => {
                self.mpls_label = value as u32;
                wild::MPLS_LABEL
            }
            F::MplsTc if is_mpls => {
                self.mpls_tc = value as u8;
                wild::MPLS_TC
            }
            field if ports.is_some_and(|[src, _]| src == field) => {
                self.tp_src = value as u16;
                wild::TP_SRC
            }
            field if ports.is_some_and(|[_, dst]| dst == field) => {
                self.tp_dst = value as u16;
                wild::TP_DST
            }
            _ => return None,
        };
        Some(())
    }
}
