//! Flow tables: TABLE_MOD and counters. Their features are in `table_features`.

use crate::error::{DecodeError, EncodeError};
use crate::message::TableMod;
use crate::multipart::TableStats;
use crate::types::TableId;

use super::super::reader::Reader;
use super::super::writer::Writer;

pub(super) fn decode_table_mod(r: &mut Reader) -> Result<TableMod, DecodeError> {
    let table_id = TableId(r.u8()?);
    r.skip(3)?;
    let config = r.u32()?;
    let properties = Vec::new();
    Ok(TableMod {
        table_id,
        config,
        properties,
    })
}

pub(super) fn encode_table_mod(table_mod: &TableMod, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!table_mod.properties.is_empty(), "properties of a table")?;
    w.u8(table_mod.table_id.0);
    w.zeros(3);
    w.u32(table_mod.config);
    Ok(())
}

pub(super) fn decode_stats(r: &mut Reader) -> Result<TableStats, DecodeError> {
    let table_id = TableId(r.u8()?);
    r.skip(3)?;
    Ok(TableStats {
        table_id,
        active_count: r.u32()?,
        lookup_count: r.u64()?,
        matched_count: r.u64()?,
        v10: None,
    })
}

pub(super) fn encode_stats(stats: &TableStats, w: &mut Writer) -> Result<(), EncodeError> {
    if stats.v10.is_some() {
        return w.unsupported("name, wildcards and size in table statistics");
    }
    w.u8(stats.table_id.0);
    w.zeros(3);
    w.u32(stats.active_count);
    w.u64(stats.lookup_count);
    w.u64(stats.matched_count);
    Ok(())
}
