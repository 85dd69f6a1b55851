//! PACKET_OUT, whose packet has pipeline fields (1.5.1, 7.3.6).

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::match_fields::{Field, Match, MatchField};
use crate::message::PacketOut;
use crate::types::PortNo;

use super::super::actions::{decode_actions, encode_actions};
use super::super::oxm::{decode_match, encode_match};
use super::super::reader::Reader;
use super::super::v13::{decode_buffer_id, encode_buffer_id};
use super::super::writer::Writer;

pub(super) fn decode_out(r: &mut Reader) -> Result<PacketOut, DecodeError> {
    let buffer_id = decode_buffer_id(r)?;
    let actions_len = usize::from(r.u16()?);
    r.skip(2)?;
    let no_port = r.error(ErrorKind::BAD_PORT);
    let mut pipeline = decode_match(r)?;
    let in_port = pipeline.in_port().ok_or(no_port)?;
    pipeline.fields.retain(|field| !is_in_port(field));
    let mut actions = r
        .part(actions_len, ErrorKind::BAD_LEN, "actions of PACKET_OUT")?
        .renamed(ErrorKind::ACTION_BAD_LEN, "action");
    Ok(PacketOut {
        buffer_id,
        in_port,
        actions: decode_actions(&mut actions)?,
        data: r.rest(),
        pipeline,
    })
}

pub(super) fn encode_out(packet: &PacketOut, w: &mut Writer) -> Result<(), EncodeError> {
    encode_buffer_id(packet.buffer_id, w);
    let actions_len_at = w.at();
    w.zeros(4);
    encode_match(&whole(packet.in_port, &packet.pipeline), w)?;
    let actions_at = w.at();
    encode_actions(&packet.actions, w)?;
    w.set_len(actions_len_at, actions_at, "actions of PACKET_OUT")?;
    w.bytes(&packet.data);
    Ok(())
}

/// Returns the port, which other fields require, followed by the pipeline fields.
fn whole(in_port: PortNo, pipeline: &Match) -> Match {
    let mut whole = Match::any().with_in_port(in_port);
    let others = pipeline.fields.iter().filter(|field| !is_in_port(field));
    whole.fields.extend(others.cloned());
    whole
}

fn is_in_port(field: &MatchField) -> bool {
    let port = Field::InPort;
    matches!(field, MatchField::Basic { field, .. } if *field == port)
}
