//! OXM TLVs and the matches made of them (OpenFlow 1.3.1, 7.2.3).
//!
//! The checks are those of Open vSwitch: lengths, values and masks within the width of their field,
//! no value bit outside its mask, prerequisites (which must come first), no field twice. This codec
//! also refuses masks wider than their field. Classes and fields without a name here (Nicira's,
//! experimenters') are kept unchanged. The match of 1.1 has another form, in `v11`.

use std::collections::BTreeSet;

use crate::actions::FieldId;
use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::match_fields::{
    Field, Match, MatchField, OXM_CLASS_BASIC, PACKET_TYPE_ETHERTYPE, Prereq, VLAN_PRESENT,
};

use crate::types::Version;

use super::reader::Reader;
use super::v11::matching;
use super::writer::Writer;

/// OFPMT_OXM; OFPMT_STANDARD (0) is OpenFlow 1.1's.
const MATCH_TYPE_OXM: u16 = 1;

/// OFPXMC_EXPERIMENTER: the payload begins with an experimenter id.
const OXM_CLASS_EXPERIMENTER: u16 = 0xffff;

/// Errors for a wrong field: those of a match, or those of a SET_FIELD action.
pub(super) struct FieldErrors {
    len: ErrorKind,
    value: ErrorKind,
    mask: ErrorKind,
}

pub(super) const IN_MATCH: FieldErrors = FieldErrors {
    len: ErrorKind::MATCH_BAD_LEN,
    value: ErrorKind::MATCH_BAD_VALUE,
    mask: ErrorKind::MATCH_BAD_MASK,
};

pub(super) const IN_SET_FIELD: FieldErrors = FieldErrors {
    len: ErrorKind::ACTION_BAD_SET_LEN,
    value: ErrorKind::ACTION_BAD_SET_ARGUMENT,
    mask: ErrorKind::ACTION_BAD_SET_ARGUMENT,
};

/// Reads an `ofp_match` and the padding to 8 bytes after it.
pub(super) fn decode_match(r: &mut Reader) -> Result<Match, DecodeError> {
    let is_v11 = !r.is_since(Version::V12);
    if is_v11 && matching::is_next(r)? {
        return matching::decode(r);
    }
    if r.peek_u16(0)? != MATCH_TYPE_OXM {
        return Err(r.error(ErrorKind::MATCH_BAD_TYPE));
    }
    let len = usize::from(r.peek_u16(2)?);
    if len < 4 {
        return Err(r.error(ErrorKind::MATCH_BAD_LEN));
    }
    let padded_len = len.next_multiple_of(8);
    let mut padded = r.part(padded_len, ErrorKind::MATCH_BAD_LEN, "match")?;
    let mut fields = padded.part(len, ErrorKind::MATCH_BAD_LEN, "OXM field")?;
    fields.skip(4)?;

    let mut r#match = Match::any();
    let mut seen = BTreeSet::new();
    while !fields.is_empty() {
        let refused = fields.error(ErrorKind::MATCH_DUP_FIELD);
        let field = decode_field(&mut fields, &IN_MATCH)?;
        if !seen.insert(identity(&field)) {
            return Err(refused);
        }
        // In 1.1 Open vSwitch names the prerequisites in fields of its own.
        if let MatchField::Basic { field, .. } = &field
            && !is_v11
            && !holds(field.info().prereq, &r#match)
        {
            let kind = ErrorKind::MATCH_BAD_PREREQ;
            return Err(DecodeError { kind, ..refused });
        }
        r#match.fields.push(field);
    }
    // Keeps the match the same after it is written again, whatever form it was received in.
    let canonical = is_v11.then(|| matching::canonical(&r#match)).flatten();
    Ok(canonical.unwrap_or(r#match))
}

pub(super) fn encode_match(r#match: &Match, w: &mut Writer) -> Result<(), EncodeError> {
    if !w.is_since(Version::V12) && matching::encode(r#match, w) {
        return Ok(());
    }
    let start = w.at();
    w.u16(MATCH_TYPE_OXM);
    w.u16(0);
    for field in &r#match.fields {
        encode_field(field, w)?;
    }
    w.close(start, 2, "match")?;
    w.align8(start);
    Ok(())
}

/// Reads one OXM TLV.
pub(super) fn decode_field(
    r: &mut Reader,
    errors: &FieldErrors,
) -> Result<MatchField, DecodeError> {
    let refused = r.error(errors.len);
    let refuse = |kind| Err(DecodeError { kind, ..refused });
    let header = r.u32()?;
    let len = (header & 0xff) as usize;
    let mut payload = r.part(len, errors.len, "OXM payload")?;

    let class = (header >> 16) as u16;
    let number = (header >> 9 & 0x7f) as u8;
    let has_mask = header >> 8 & 1 == 1;
    let known = Field::from_number(number)
        .filter(|field| class == OXM_CLASS_BASIC && r.is_since(field.info().since));
    let Some(field) = known else {
        if class == OXM_CLASS_EXPERIMENTER && len < 4 {
            return refuse(errors.len);
        }
        let payload = payload.rest();
        return Ok(MatchField::Other { header, payload });
    };

    let value_len = field.len();
    if len != value_len << u32::from(has_mask) {
        return refuse(errors.len);
    }
    let value = payload.uint(value_len)?;
    if value > field.ones() {
        return refuse(errors.value);
    }
    let mask = has_mask.then(|| payload.uint(value_len)).transpose()?;
    if let Some(mask) = mask {
        let trivial = mask == 0 || mask == field.ones();
        if mask > field.ones() || !(field.info().maskable || trivial) {
            return refuse(errors.mask);
        }
        if value & !mask != 0 {
            return refuse(ErrorKind::MATCH_BAD_WILDCARDS);
        }
    }
    Ok(MatchField::Basic { field, value, mask })
}

pub(super) fn encode_field(field: &MatchField, w: &mut Writer) -> Result<(), EncodeError> {
    match field {
        MatchField::Basic { field, value, mask } => {
            if *value > field.ones() || mask.is_some_and(|mask| mask > field.ones()) {
                return w.unsupported("value or mask wider than its field");
            }
            if !w.is_since(field.info().since) {
                return w.unsupported("such field");
            }
            let len = field.len();
            w.u16(OXM_CLASS_BASIC);
            w.u8((*field as u8) << 1 | u8::from(mask.is_some()));
            w.u8((len << u32::from(mask.is_some())) as u8);
            // Value bits outside the mask mean nothing, and switches refuse them.
            w.uint(value & mask.unwrap_or(u128::MAX), len);
            if let Some(mask) = mask {
                w.uint(*mask, len);
            }
        }
        MatchField::Other { header, payload } => {
            if (header & 0xff) as usize != payload.len() {
                return w.unsupported("OXM header that announces another length than its payload");
            }
            w.u32(*header);
            w.bytes(payload);
        }
    }
    Ok(())
}

/// Reads the header of a TLV that has no value: an OXM id.
pub(super) fn decode_id(r: &mut Reader) -> Result<FieldId, DecodeError> {
    let header = r.u32()?;
    let is_experimenter = header >> 16 == u32::from(OXM_CLASS_EXPERIMENTER);
    let experimenter = is_experimenter.then(|| r.u32()).transpose()?;
    Ok(FieldId {
        header,
        experimenter,
    })
}

pub(super) fn encode_id(id: FieldId, w: &mut Writer) -> Result<(), EncodeError> {
    let is_experimenter = id.header >> 16 == u32::from(OXM_CLASS_EXPERIMENTER);
    if is_experimenter != id.experimenter.is_some() {
        return w.unsupported("such id of a field");
    }
    w.u32(id.header);
    if let Some(experimenter) = id.experimenter {
        w.u32(experimenter);
    }
    Ok(())
}

/// The identity of a field in a TLV: the header without mask bit and length, and the experimenter.
fn identity(field: &MatchField) -> (u32, Option<[u8; 4]>) {
    match field {
        MatchField::Basic { field, .. } => {
            let class = u32::from(OXM_CLASS_BASIC) << 16;
            (class | u32::from(*field as u8) << 9, None)
        }
        MatchField::Other { header, payload } => {
            let experimenter = payload.first_chunk::<4>().copied();
            let is_experimenter = header >> 16 == u32::from(OXM_CLASS_EXPERIMENTER);
            (header & !0x1ff, experimenter.filter(|_| is_experimenter))
        }
    }
}

/// Reports whether the fields read so far allow a field that demands `prereq`.
fn holds(prereq: Prereq, earlier: &Match) -> bool {
    let is = |field, value| earlier.exact(field) == Some(value);
    // A packet that is not Ethernet states its EtherType in the packet type (1.5.1, 7.2.3.8).
    let is_ethernet = |ty: u16| {
        let ty = u128::from(ty);
        is(Field::EthType, ty) || is(Field::PacketType, PACKET_TYPE_ETHERTYPE | ty)
    };
    let is_ip = || is_ethernet(0x0800) || is_ethernet(0x86dd);
    let is_icmpv6 = || is_ethernet(0x86dd) && is(Field::IpProto, 58);
    let is_nd = |ty: u8| is_icmpv6() && is(Field::Icmpv6Type, u128::from(ty));
    match prereq {
        Prereq::None => true,
        Prereq::InPort => earlier.get(Field::InPort).is_some(),
        Prereq::Vlan => earlier
            .get(Field::VlanVid)
            .is_some_and(|(value, mask)| value & mask & VLAN_PRESENT != 0),
        // MPLS has a second type, for multicast.
        Prereq::EthType(0x8847) => is_ethernet(0x8847) || is_ethernet(0x8848),
        Prereq::EthType(ty) => is_ethernet(ty),
        Prereq::Ip => is_ip(),
        // ICMP is that of IPv4.
        Prereq::IpProto(1) => is_ethernet(0x0800) && is(Field::IpProto, 1),
        Prereq::IpProto(proto) => is_ip() && is(Field::IpProto, u128::from(proto)),
        Prereq::Icmpv6 => is_icmpv6(),
        Prereq::NdAny => is_nd(135) || is_nd(136),
        Prereq::NdType(ty) => is_nd(ty),
    }
}
