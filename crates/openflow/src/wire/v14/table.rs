//! Tables with eviction and vacancy (1.4, 7.3.4.1, 7.3.5.18 and 7.4.5).

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{EvictionFlags, TableMod, TableProperty, TableReason, TableStatus};
use crate::types::TableId;

use super::super::reader::Reader;
use super::super::writer::Writer;
use super::property;

/// OFPTMPT_*.
const EVICTION: u16 = 2;
const VACANCY: u16 = 3;

pub(super) fn decode_mod(r: &mut Reader) -> Result<TableMod, DecodeError> {
    let table_id = TableId(r.u8()?);
    r.skip(3)?;
    decode_config(table_id, r)
}

pub(super) fn encode_mod(table: &TableMod, w: &mut Writer) -> Result<(), EncodeError> {
    w.u8(table.table_id.0);
    w.zeros(3);
    encode_config(table, w)
}

pub(super) fn decode_desc(r: &mut Reader) -> Result<TableMod, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "table description")?;
    r.skip(2)?;
    let table_id = TableId(r.u8()?);
    r.skip(1)?;
    decode_config(table_id, &mut r)
}

pub(super) fn encode_desc(table: &TableMod, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(2);
    w.u8(table.table_id.0);
    w.zeros(1);
    encode_config(table, w)?;
    w.close(start, 0, "table description")
}

pub(super) fn decode_status(r: &mut Reader) -> Result<TableStatus, DecodeError> {
    let reason = TableReason(r.u8()?);
    r.skip(7)?;
    let table = decode_desc(r)?;
    Ok(TableStatus { reason, table })
}

pub(super) fn encode_status(status: &TableStatus, w: &mut Writer) -> Result<(), EncodeError> {
    w.u8(status.reason.0);
    w.zeros(7);
    encode_desc(&status.table, w)
}

fn decode_config(table_id: TableId, r: &mut Reader) -> Result<TableMod, DecodeError> {
    let config = r.u32()?;
    let known = |ty, r: &mut Reader| {
        Ok(Some(match ty {
            EVICTION => TableProperty::Eviction(EvictionFlags(r.u32()?)),
            VACANCY => {
                let (down, up, now) = (r.u8()?, r.u8()?, r.u8()?);
                r.skip(1)?;
                TableProperty::Vacancy { down, up, now }
            }
            _ => return Ok(None),
        }))
    };
    Ok(TableMod {
        table_id,
        config,
        properties: property::list(r, known, TableProperty::Other)?,
    })
}

fn encode_config(table: &TableMod, w: &mut Writer) -> Result<(), EncodeError> {
    w.u32(table.config);
    for property in &table.properties {
        match property {
            TableProperty::Eviction(flags) => property::put(EVICTION, w, |w| w.u32(flags.0))?,
            TableProperty::Vacancy { down, up, now } => property::put(VACANCY, w, |w| {
                [*down, *up, *now, 0].into_iter().for_each(|n| w.u8(n));
            })?,
            TableProperty::Other(property) => property::put_raw(property, w)?,
        }
    }
    Ok(())
}
