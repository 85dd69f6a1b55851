//! Messages that contain a message: bundles and forwarded requests (1.4, 7.3.9 and 7.4.6).

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::frame::{Frame, HEADER_LEN};
use crate::kind::MessageKind as K;
use crate::message::{
    BundleAdd, BundleCommand, BundleControl, BundleFlags, BundleProperty, Experimenter, Message,
    RequestForward, Time,
};
use crate::types::{Version, Xid};

use super::super::reader::Reader;
use super::super::writer::Writer;
use super::super::{decode, encode};
use super::property;

/// OFPBPT_TIME.
const TIME: u16 = 1;

/// Messages that a bundle may contain: those that change something.
const BUNDLED: [K; 6] = [
    K::PortMod,
    K::FlowMod,
    K::GroupMod,
    K::PacketOut,
    K::TableMod,
    K::MeterMod,
];

/// Requests that a switch forwards.
const FORWARDED: [K; 2] = [K::GroupMod, K::MeterMod];

pub(in crate::wire) fn decode_control(r: &mut Reader) -> Result<BundleControl, DecodeError> {
    let bundle_id = r.u32()?;
    let refused = error(r, ErrorKind::BUNDLE_BAD_TYPE);
    let number = usize::from(r.u16()?);
    let command = *BundleCommand::ALL.get(number).ok_or(refused)?;
    Ok(BundleControl {
        bundle_id,
        command,
        flags: BundleFlags(r.u16()?),
        properties: decode_properties(r)?,
    })
}

pub(in crate::wire) fn encode_control(
    control: &BundleControl,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    w.u32(control.bundle_id);
    w.u16(control.command as u16);
    w.u16(control.flags.0);
    encode_properties(&control.properties, w)
}

pub(in crate::wire) fn decode_add(r: &mut Reader) -> Result<BundleAdd, DecodeError> {
    let bundle_id = r.u32()?;
    r.skip(2)?;
    let flags = BundleFlags(r.u16()?);
    let at = error(r, ErrorKind::BUNDLE_MSG_BAD_XID);
    let (xid, message) = decode_message(r, &BUNDLED)?;
    if xid != r.xid() {
        return Err(at);
    }
    // The message is padded if a property follows.
    if !r.is_empty() {
        r.skip(r.len_so_far().next_multiple_of(8) - r.len_so_far())?;
    }
    Ok(BundleAdd {
        bundle_id,
        flags,
        message: Box::new(message),
        properties: decode_properties(r)?,
    })
}

pub(in crate::wire) fn encode_add(add: &BundleAdd, w: &mut Writer) -> Result<(), EncodeError> {
    w.u32(add.bundle_id);
    w.zeros(2);
    w.u16(add.flags.0);
    encode_message(w.xid(), &add.message, &BUNDLED, w)?;
    if !add.properties.is_empty() {
        w.align8(0);
    }
    encode_properties(&add.properties, w)
}

/// Writes the BUNDLE_ADD_MESSAGE that carries `member`, under the same xid. The body of `member` is
/// not read.
pub(in crate::wire) fn enclose(
    version: Version,
    bundle_id: u32,
    flags: BundleFlags,
    member: &Frame,
) -> Result<Frame, EncodeError> {
    let kind = match version {
        Version::V13 => K::Experimenter,
        _ => K::BundleAddMessage,
    };
    let is_one = member.version() == Some(version) && BUNDLED.contains(&member.kind());
    let type_byte = kind.to_wire(version.wire()).filter(|_| is_one);
    let type_byte = type_byte.ok_or(EncodeError::Unsupported {
        version,
        what: "such message in a bundle",
    })?;
    let mut w = Writer::new(version, type_byte, member.xid());
    if version == Version::V13 {
        w.u32(Experimenter::ONF);
        w.u32(Experimenter::ONF_BUNDLE_ADD_MESSAGE);
    }
    w.u32(bundle_id);
    w.zeros(2);
    w.u16(flags.0);
    w.bytes(member.bytes());
    w.finish("bundle")
}

pub(in crate::wire) fn decode_forward(r: &mut Reader) -> Result<RequestForward, DecodeError> {
    let (xid, request) = decode_message(r, &FORWARDED)?;
    Ok(RequestForward {
        xid,
        request: Box::new(request),
    })
}

pub(in crate::wire) fn encode_forward(
    forward: &RequestForward,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    encode_message(forward.xid, &forward.request, &FORWARDED, w)
}

/// Reads a whole inner message of the same version, whose kind is one of `allowed`. None of these
/// kinds contains a message, so messages do not nest.
fn decode_message(r: &mut Reader, allowed: &[K]) -> Result<(Xid, Message), DecodeError> {
    let refused = error(r, ErrorKind::BUNDLE_MSG_BAD_LEN);
    let at = refused.offset;
    let len = usize::from(r.peek_u16(2).map_err(|_| refused)?);
    if len < HEADER_LEN || len > r.left() {
        return Err(refused);
    }
    let unsupported = error(r, ErrorKind::BUNDLE_MSG_UNSUP);
    let frame = Frame::new(r.bytes(len)?).map_err(|_| refused)?;
    if !r.is_of_version(frame.version_byte()) || !allowed.contains(&frame.kind()) {
        return Err(unsupported);
    }
    let message = decode(&frame).map_err(|error| DecodeError {
        offset: at + error.offset,
        ..error
    })?;
    Ok((frame.xid(), message))
}

fn encode_message(
    xid: Xid,
    message: &Message,
    allowed: &[K],
    w: &mut Writer,
) -> Result<(), EncodeError> {
    if !allowed.contains(&message.kind()) {
        return w.unsupported("such message in another one");
    }
    let frame = encode(w.version(), xid, message)?;
    w.bytes(frame.bytes());
    Ok(())
}

/// Returns the error `kind` at this position. 1.3 has no bundle errors: the extension uses those of
/// messages.
fn error(r: &Reader, kind: ErrorKind) -> DecodeError {
    let of_v13 = match kind {
        ErrorKind::BUNDLE_MSG_BAD_LEN => ErrorKind::BAD_LEN,
        _ => ErrorKind::BAD_TYPE,
    };
    r.error(if r.is_since(Version::V14) {
        kind
    } else {
        of_v13
    })
}

fn decode_properties(r: &mut Reader) -> Result<Vec<BundleProperty>, DecodeError> {
    let known = |ty, r: &mut Reader| {
        if ty != TIME || !r.is_since(Version::V15) {
            return Ok(None);
        }
        r.skip(4)?;
        Ok(Some(BundleProperty::Time(decode_time(r)?)))
    };
    property::list(r, known, BundleProperty::Other)
}

fn encode_properties(list: &[BundleProperty], w: &mut Writer) -> Result<(), EncodeError> {
    list.iter().try_for_each(|property| match property {
        BundleProperty::Time(_) if !w.is_since(Version::V15) => w.unsupported("time of a bundle"),
        BundleProperty::Time(time) => property::put(TIME, w, |w| {
            w.zeros(4);
            encode_time(*time, w);
        }),
        BundleProperty::Other(property) => property::put_raw(property, w),
    })
}

pub(in crate::wire) fn decode_time(r: &mut Reader) -> Result<Time, DecodeError> {
    let (seconds, nanoseconds) = (r.u64()?, r.u32()?);
    r.skip(4)?;
    Ok(Time {
        seconds,
        nanoseconds,
    })
}

pub(in crate::wire) fn encode_time(time: Time, w: &mut Writer) {
    w.u64(time.seconds);
    w.u32(time.nanoseconds);
    w.zeros(4);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::actions::Action;
    use crate::match_fields::Match;
    use crate::message::{FlowMod, PacketOut};
    use crate::types::PortNo;

    use super::*;

    const FLAGS: BundleFlags = BundleFlags(3);

    #[test]
    fn a_message_is_enclosed_as_it_is_written() {
        let add = FlowMod::add(7, Match::any().with_in_port(PortNo(3)), Vec::new());
        let packet_out = PacketOut::new(
            PortNo::CONTROLLER,
            vec![Action::output(PortNo(1))],
            Bytes::from_static(b"an odd number"),
        );
        for version in [Version::V13, Version::V14, Version::V15] {
            for message in [
                Message::FlowMod(add.clone()),
                Message::PacketOut(packet_out.clone()),
            ] {
                let member = encode(version, Xid(9), &message).expect("sayable");
                let enclosed = enclose(version, 5, FLAGS, &member).expect("it is one");
                let whole = Message::BundleAdd(BundleAdd {
                    bundle_id: 5,
                    flags: FLAGS,
                    message: Box::new(message),
                    properties: Vec::new(),
                });
                assert_eq!(enclosed, encode(version, Xid(9), &whole).expect("sayable"));
            }
        }
    }

    #[test]
    fn what_no_bundle_holds_is_refused() {
        let barrier = |version| encode(version, Xid(9), &Message::BarrierRequest).expect("sayable");
        let flow_mod = Message::FlowMod(FlowMod::add(7, Match::any(), Vec::new()));
        let of_v10 = encode(Version::V10, Xid(9), &flow_mod).expect("sayable");
        let of_v13 = encode(Version::V13, Xid(9), &flow_mod).expect("sayable");
        for (version, member) in [
            (Version::V13, barrier(Version::V13)),
            (Version::V15, barrier(Version::V15)),
            (Version::V10, of_v10),
            (Version::V14, of_v13),
        ] {
            assert!(enclose(version, 5, FLAGS, &member).is_err(), "{version}");
        }
        let mut long = vec![0; 65_530];
        long[..4].copy_from_slice(&[4, 14, 255, 250]);
        let long = Frame::new(long.into()).expect("a message");
        let refused = enclose(Version::V13, 5, FLAGS, &long);
        assert!(matches!(refused, Err(EncodeError::TooLong { .. })));
    }
}
