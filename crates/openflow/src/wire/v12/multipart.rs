//! Multipart messages of 1.2 and 1.1, which call them statistics: the types that exist, and table
//! statistics, which include what a table can do.

use crate::error::{DecodeError, EncodeError};
use crate::multipart::{ReplyBody, RequestBody, TableStats, TableStatsV10};
use crate::types::{TableId, Version};

use super::super::reader::Reader;
use super::super::v13::multipart::{
    self, decode_reply_body, decode_request_body, encode_reply_body, encode_request_body, mp,
};
use super::super::writer::Writer;

const NAME_LEN: usize = 32;

/// Bitmaps of fields, actions and instructions between the name and the number of entries.
const FEATURES_LEN_V11: usize = 24;
const FEATURES_LEN_V12: usize = 64;

/// Whether the version has this type. PORT_DESC belongs to 1.3, but Open vSwitch has it in every
/// version.
fn is_known(kind: u16, is_v12: bool) -> bool {
    let newest = if is_v12 {
        mp::GROUP_FEATURES
    } else {
        mp::GROUP_DESC
    };
    kind <= newest || [mp::PORT_DESC, mp::EXPERIMENTER].contains(&kind)
}

pub(in crate::wire) fn decode_request(
    kind: u16,
    r: &mut Reader,
) -> Result<RequestBody, DecodeError> {
    if is_known(kind, r.is_since(Version::V12)) {
        return decode_request_body(kind, r);
    }
    let body = r.rest();
    Ok(RequestBody::Other { kind, body })
}

pub(in crate::wire) fn encode_request(
    body: &RequestBody,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    let is_raw = matches!(body, RequestBody::Other { .. });
    let is_known = is_known(multipart::request_kind(body), w.is_since(Version::V12));
    w.refuse(is_raw == is_known, "such multipart request")?;
    encode_request_body(body, w)
}

pub(in crate::wire) fn decode_reply(kind: u16, r: &mut Reader) -> Result<ReplyBody, DecodeError> {
    match kind {
        mp::TABLE => Ok(ReplyBody::Table(r.list(decode_table)?)),
        kind if is_known(kind, r.is_since(Version::V12)) => decode_reply_body(kind, r),
        kind => {
            let body = r.rest();
            Ok(ReplyBody::Other { kind, body })
        }
    }
}

pub(in crate::wire) fn encode_reply(body: &ReplyBody, w: &mut Writer) -> Result<(), EncodeError> {
    if let ReplyBody::Table(tables) = body {
        return tables.iter().try_for_each(|table| encode_table(table, w));
    }
    let is_raw = matches!(body, ReplyBody::Other { .. });
    let is_known = is_known(multipart::reply_kind(body), w.is_since(Version::V12));
    w.refuse(is_raw == is_known, "such multipart reply")?;
    encode_reply_body(body, w)
}

fn features_len(is_v12: bool) -> usize {
    if is_v12 {
        FEATURES_LEN_V12
    } else {
        FEATURES_LEN_V11
    }
}

fn decode_table(r: &mut Reader) -> Result<TableStats, DecodeError> {
    let table_id = TableId(r.u8()?);
    r.skip(7)?;
    let v10 = TableStatsV10 {
        name: r.text(NAME_LEN)?,
        wildcards: 0,
        features: r.bytes(features_len(r.is_since(Version::V12)))?,
        max_entries: r.u32()?,
    };
    Ok(TableStats {
        table_id,
        active_count: r.u32()?,
        lookup_count: r.u64()?,
        matched_count: r.u64()?,
        v10: Some(v10),
    })
}

fn encode_table(table: &TableStats, w: &mut Writer) -> Result<(), EncodeError> {
    let len = features_len(w.is_since(Version::V12));
    let has_them = |v10: &&TableStatsV10| v10.features.len() == len && v10.wildcards == 0;
    let Some(v10) = table.v10.as_ref().filter(has_them) else {
        return w.unsupported("table statistics without what the table can do");
    };
    w.u8(table.table_id.0);
    w.zeros(7);
    w.text(&v10.name, NAME_LEN, "table name")?;
    w.bytes(&v10.features);
    w.u32(v10.max_entries);
    w.u32(table.active_count);
    w.u64(table.lookup_count);
    w.u64(table.matched_count);
    Ok(())
}
