//! The capabilities of each flow table, as lists of ids (OpenFlow 1.3.1, 7.3.5.5).

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::multipart::{FeatureId, TableFeatureProperty, TableFeatures};
use crate::types::{TableId, Version};

use super::super::reader::Reader;
use super::super::writer::Writer;

/// Bytes of a table's name.
const NAME_LEN: usize = 32;

/// OFPTFPT_*; the next type, where there is one, is for the table-miss entry.
const INSTRUCTIONS: u16 = 0;
const NEXT_TABLES: u16 = 2;
const WRITE_ACTIONS: u16 = 4;
const APPLY_ACTIONS: u16 = 6;
/// MATCH, WILDCARDS, WRITE_SETFIELD, APPLY_SETFIELD and the miss forms of the latter two.
const FIELDS: [u16; 6] = [8, 10, 12, 13, 14, 15];
/// WRITE_COPYFIELD and APPLY_COPYFIELD with their miss forms, of 1.5.
const FIELDS_V15: [u16; 4] = [18, 19, 20, 21];

/// OFPIT_EXPERIMENTER and OFPAT_EXPERIMENTER.
const EXPERIMENTER: u16 = 0xffff;

pub(super) fn decode(r: &mut Reader) -> Result<TableFeatures, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, bad_len(r), "table features")?;
    r.skip(2)?;
    let table_id = TableId(r.u8()?);
    let (command, features) = match r.is_since(Version::V15) {
        true => (r.u8()?, r.u32()?),
        false => {
            r.skip(5)?;
            (0, 0)
        }
    };
    Ok(TableFeatures {
        table_id,
        name: r.text(NAME_LEN)?,
        metadata_match: r.u64()?,
        metadata_write: r.u64()?,
        config: r.u32()?,
        command,
        features,
        max_entries: r.u32()?,
        properties: r.list(decode_property)?,
    })
}

pub(super) fn encode(features: &TableFeatures, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(2);
    w.u8(features.table_id.0);
    if (features.command, features.features) != (0, 0) && !w.is_since(Version::V15) {
        return w.unsupported("command or features of a table");
    }
    w.u8(features.command);
    w.u32(features.features);
    w.text(&features.name, NAME_LEN, "name of a table")?;
    w.u64(features.metadata_match);
    w.u64(features.metadata_write);
    w.u32(features.config);
    w.u32(features.max_entries);
    for property in &features.properties {
        encode_property(property, w)?;
    }
    w.close(start, 0, "table features")
}

/// Returns the error for a wrong length. Since 1.4, properties have an error type of their own.
fn bad_len(r: &Reader) -> ErrorKind {
    if r.is_since(Version::V14) {
        ErrorKind::PROPERTY_BAD_LEN
    } else {
        ErrorKind::TABLE_FEATURES_BAD_LEN
    }
}

fn decode_property(r: &mut Reader) -> Result<TableFeatureProperty, DecodeError> {
    let len = usize::from(r.peek_u16(2)?);
    let bad_len = bad_len(r);
    if len < 4 {
        return Err(r.error(bad_len));
    }
    let mut padded = r.part(len.next_multiple_of(8), bad_len, "table feature property")?;
    let mut r = padded.part(len, bad_len, "table feature property")?;
    let property = r.u16()?;
    r.skip(2)?;
    // Only the types up to APPLY_ACTIONS_MISS come in such pairs.
    let (base, miss) = (property & !1, property & 1 == 1);
    let is_v15 = r.is_since(Version::V15);
    Ok(match base {
        INSTRUCTIONS => TableFeatureProperty::Instructions {
            miss,
            ids: r.list(decode_id)?,
        },
        NEXT_TABLES => TableFeatureProperty::NextTables {
            miss,
            tables: r.list(|r| r.u8().map(TableId))?,
        },
        WRITE_ACTIONS => TableFeatureProperty::WriteActions {
            miss,
            ids: r.list(decode_id)?,
        },
        APPLY_ACTIONS => TableFeatureProperty::ApplyActions {
            miss,
            ids: r.list(decode_id)?,
        },
        _ if FIELDS.contains(&property) || is_v15 && FIELDS_V15.contains(&property) => {
            TableFeatureProperty::Fields {
                property,
                headers: r.list(Reader::u32)?,
            }
        }
        _ => TableFeatureProperty::Other {
            property,
            data: r.rest(),
        },
    })
}

fn encode_property(property: &TableFeatureProperty, w: &mut Writer) -> Result<(), EncodeError> {
    use TableFeatureProperty as P;
    let start = w.at();
    w.u16(match property {
        P::Instructions { miss, .. } => INSTRUCTIONS | u16::from(*miss),
        P::NextTables { miss, .. } => NEXT_TABLES | u16::from(*miss),
        P::WriteActions { miss, .. } => WRITE_ACTIONS | u16::from(*miss),
        P::ApplyActions { miss, .. } => APPLY_ACTIONS | u16::from(*miss),
        P::Fields { property, .. } | P::Other { property, .. } => *property,
    });
    w.zeros(2);
    match property {
        P::Instructions { ids, .. } | P::WriteActions { ids, .. } | P::ApplyActions { ids, .. } => {
            ids.iter().try_for_each(|id| encode_id(id, w))?;
        }
        P::NextTables { tables, .. } => tables.iter().for_each(|table| w.u8(table.0)),
        P::Fields { headers, .. } => headers.iter().for_each(|header| w.u32(*header)),
        P::Other { data, .. } => w.bytes(data),
    }
    w.close(start, 2, "table feature property")?;
    w.align8(start);
    Ok(())
}

/// An id is the header of an action or instruction. What follows it is kept for experimenters
/// only: OpenFlow 1.3.0 padded the others to 8 bytes.
fn decode_id(r: &mut Reader) -> Result<FeatureId, DecodeError> {
    let len = usize::from(r.peek_u16(2)?);
    let bad_len = bad_len(r);
    if len < 4 {
        return Err(r.error(bad_len));
    }
    let mut r = r.part(len, bad_len, "id in a table feature property")?;
    let id = r.u16()?;
    r.skip(2)?;
    let experimenter = match id {
        EXPERIMENTER => Some((r.u32()?, r.rest())),
        _ => None,
    };
    Ok(FeatureId { id, experimenter })
}

fn encode_id(id: &FeatureId, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    if (id.id == EXPERIMENTER) != id.experimenter.is_some() {
        return w.unsupported("such id in a table feature property");
    }
    w.u16(id.id);
    w.zeros(2);
    if let Some((experimenter, data)) = &id.experimenter {
        w.u32(*experimenter);
        w.bytes(data);
    }
    w.close(start, 2, "id in a table feature property")
}
