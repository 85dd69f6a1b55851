//! Queues of ports: configuration and counters.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{PacketQueue, QueueConfig, QueueProperty};
use crate::multipart::QueueStats;
use crate::types::{PortNo, QueueId};

use super::super::reader::Reader;
use super::super::writer::Writer;
use super::{decode_age, encode_age};

/// OFPQT_*.
const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;
const EXPERIMENTER: u16 = 0xffff;

pub(super) fn decode_config(r: &mut Reader) -> Result<QueueConfig, DecodeError> {
    let port = PortNo(r.u32()?);
    r.skip(4)?;
    let queues = r.list(decode_queue)?;
    Ok(QueueConfig { port, queues })
}

pub(super) fn encode_config(config: &QueueConfig, w: &mut Writer) -> Result<(), EncodeError> {
    w.u32(config.port.0);
    w.zeros(4);
    config
        .queues
        .iter()
        .try_for_each(|queue| encode_queue(queue, w))
}

fn decode_queue(r: &mut Reader) -> Result<PacketQueue, DecodeError> {
    let len = usize::from(r.peek_u16(8)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "packet queue")?;
    let (queue_id, port) = (QueueId(r.u32()?), PortNo(r.u32()?));
    r.skip(8)?;
    Ok(PacketQueue {
        queue_id,
        port,
        properties: r.list(decode_property)?,
    })
}

fn encode_queue(queue: &PacketQueue, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.u32(queue.queue_id.0);
    w.u32(queue.port.0);
    w.zeros(8);
    for property in &queue.properties {
        encode_property(property, w)?;
    }
    w.close(start, 8, "packet queue")
}

fn decode_property(r: &mut Reader) -> Result<QueueProperty, DecodeError> {
    let len = usize::from(r.peek_u16(2)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "queue property")?;
    let property = r.u16()?;
    r.skip(6)?;
    let read = match property {
        MIN_RATE | MAX_RATE => {
            let rate = r.u16()?;
            r.skip(6)?;
            if property == MIN_RATE {
                QueueProperty::MinRate(rate)
            } else {
                QueueProperty::MaxRate(rate)
            }
        }
        EXPERIMENTER => {
            let experimenter = r.u32()?;
            r.skip(4)?;
            let data = r.rest();
            QueueProperty::Experimenter { experimenter, data }
        }
        _ => {
            let data = r.rest();
            QueueProperty::Other { property, data }
        }
    };
    r.done()?;
    Ok(read)
}

fn encode_property(property: &QueueProperty, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.u16(match property {
        QueueProperty::MinRate(_) => MIN_RATE,
        QueueProperty::MaxRate(_) => MAX_RATE,
        QueueProperty::Experimenter { .. } => EXPERIMENTER,
        QueueProperty::Other { property, .. } => *property,
    });
    w.zeros(6);
    match property {
        QueueProperty::MinRate(rate) | QueueProperty::MaxRate(rate) => {
            w.u16(*rate);
            w.zeros(6);
        }
        QueueProperty::Experimenter { experimenter, data } => {
            w.u32(*experimenter);
            w.zeros(4);
            w.bytes(data);
        }
        QueueProperty::Other { data, .. } => w.bytes(data),
    }
    w.close(start, 2, "queue property")
}

pub(super) fn decode_stats_request(r: &mut Reader) -> Result<(PortNo, QueueId), DecodeError> {
    Ok((PortNo(r.u32()?), QueueId(r.u32()?)))
}

pub(in crate::wire) fn decode_stats(r: &mut Reader) -> Result<QueueStats, DecodeError> {
    let mut stats = QueueStats {
        port_no: PortNo(r.u32()?),
        queue_id: QueueId(r.u32()?),
        tx_bytes: r.u64()?,
        tx_packets: r.u64()?,
        tx_errors: r.u64()?,
        duration_sec: 0,
        duration_nsec: 0,
        properties: Vec::new(),
    };
    (stats.duration_sec, stats.duration_nsec) = decode_age(r)?;
    Ok(stats)
}

pub(super) fn encode_stats(stats: &QueueStats, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(
        !stats.properties.is_empty(),
        "properties of queue statistics",
    )?;
    encode_counters(stats, w)
}

pub(in crate::wire) fn encode_counters(
    stats: &QueueStats,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    w.u32(stats.port_no.0);
    w.u32(stats.queue_id.0);
    w.u64(stats.tx_bytes);
    w.u64(stats.tx_packets);
    w.u64(stats.tx_errors);
    encode_age(stats.duration_sec, stats.duration_nsec, w)
}
