//! Ports and queues with properties (1.4, 7.2.1, 7.3.4.3, 7.3.5.6 and 7.3.5.8).

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{
    OpticalPort, PacketQueue, Port, PortMod, PortModProperty, PortProperty, PortStatsProperty,
    QueueProperty,
};
use crate::multipart::{PortStats, QueueStats};
use crate::types::{PortNo, QueueId, Version};

use super::super::reader::Reader;
use super::super::v13;
use super::super::writer::Writer;
use super::property;

/// OFPPDPT_*, and the same numbers of settings and statistics.
const ETHERNET: u16 = 0;
const OPTICAL: u16 = 1;
/// 1.5 only.
const PIPELINE_INPUT: u16 = 2;
const PIPELINE_OUTPUT: u16 = 3;
const RECIRCULATE: u16 = 4;

/// OFPQDPT_*.
const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;
const QUEUE_EXPERIMENTER: u16 = 0xffff;

pub(in crate::wire) fn decode_port(r: &mut Reader) -> Result<Port, DecodeError> {
    let len = usize::from(r.peek_u16(4)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "port")?;
    let mut port = v13::port::decode_bare(&mut r)?;
    property::each(&mut r, |ty, r| {
        if ty != ETHERNET {
            port.properties.push(decode_property(ty, r)?);
            return Ok(());
        }
        r.skip(4)?;
        v13::port::decode_features(&mut port, r)
    })?;
    Ok(port)
}

pub(in crate::wire) fn encode_port(port: &Port, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    v13::port::encode_bare(port, w);
    property::put(ETHERNET, w, |w| {
        w.zeros(4);
        v13::port::encode_features(port, w);
    })?;
    for property in &port.properties {
        encode_property(property, w)?;
    }
    w.close(start, 4, "port")
}

fn decode_property(ty: u16, r: &mut Reader) -> Result<PortProperty, DecodeError> {
    Ok(match ty {
        OPTICAL => {
            r.skip(4)?;
            PortProperty::Optical(OpticalPort {
                supported: r.u32()?,
                tx_lambda: three(r)?,
                rx_lambda: three(r)?,
                tx_power: [r.u16()?, r.u16()?],
            })
        }
        PIPELINE_INPUT if r.is_since(Version::V15) => {
            PortProperty::PipelineInput(r.list(Reader::u32)?)
        }
        PIPELINE_OUTPUT if r.is_since(Version::V15) => {
            PortProperty::PipelineOutput(r.list(Reader::u32)?)
        }
        RECIRCULATE if r.is_since(Version::V15) => {
            PortProperty::Recirculate(r.list(|r| r.u32().map(PortNo))?)
        }
        ty => PortProperty::Other(property::raw(ty, r)?),
    })
}

fn encode_property(property: &PortProperty, w: &mut Writer) -> Result<(), EncodeError> {
    let is_old = !w.is_since(Version::V15);
    match property {
        PortProperty::Optical(optical) => property::put(OPTICAL, w, |w| {
            w.zeros(4);
            w.u32(optical.supported);
            words(&optical.tx_lambda, w);
            words(&optical.rx_lambda, w);
            w.u16(optical.tx_power[0]);
            w.u16(optical.tx_power[1]);
        }),
        PortProperty::Other(property) => property::put_raw(property, w),
        _ if is_old => w.unsupported("pipeline of a port"),
        PortProperty::PipelineInput(ids) => property::put(PIPELINE_INPUT, w, |w| words(ids, w)),
        PortProperty::PipelineOutput(ids) => property::put(PIPELINE_OUTPUT, w, |w| words(ids, w)),
        PortProperty::Recirculate(ports) => property::put(RECIRCULATE, w, |w| {
            ports.iter().for_each(|port| w.u32(port.0));
        }),
    }
}

fn three(r: &mut Reader) -> Result<[u32; 3], DecodeError> {
    Ok([r.u32()?, r.u32()?, r.u32()?])
}

fn words(words: &[u32], w: &mut Writer) {
    words.iter().for_each(|word| w.u32(*word));
}

pub(super) fn decode_mod(r: &mut Reader) -> Result<PortMod, DecodeError> {
    let mut port_mod = v13::port::decode_bare_mod(r)?;
    property::each(r, |ty, r| {
        match ty {
            ETHERNET => port_mod.advertise = r.u32()?,
            OPTICAL => port_mod.properties.push(PortModProperty::Optical {
                configure: r.u32()?,
                lambda: r.u32()?,
                offset: r.u32()? as i32,
                grid_span: r.u32()?,
                tx_power: r.u32()?,
            }),
            ty => {
                let other = PortModProperty::Other(property::raw(ty, r)?);
                port_mod.properties.push(other);
            }
        }
        Ok(())
    })?;
    Ok(port_mod)
}

pub(super) fn encode_mod(port_mod: &PortMod, w: &mut Writer) -> Result<(), EncodeError> {
    v13::port::encode_bare_mod(port_mod, w);
    // Without this property, the switch leaves the features alone.
    if port_mod.advertise != 0 {
        property::put(ETHERNET, w, |w| w.u32(port_mod.advertise))?;
    }
    for property in &port_mod.properties {
        match property {
            PortModProperty::Optical {
                configure,
                lambda,
                offset,
                grid_span,
                tx_power,
            } => property::put(OPTICAL, w, |w| {
                words(
                    &[*configure, *lambda, *offset as u32, *grid_span, *tx_power],
                    w,
                );
            })?,
            PortModProperty::Other(property) => property::put_raw(property, w)?,
        }
    }
    Ok(())
}

pub(super) fn decode_stats(r: &mut Reader) -> Result<PortStats, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "port statistics")?;
    r.skip(4)?;
    let port_no = PortNo(r.u32()?);
    let (duration_sec, duration_nsec) = (r.u32()?, r.u32()?);
    let mut stats = PortStats {
        duration_sec,
        duration_nsec,
        ..v13::port::decode_counters(port_no, &mut r)?
    };
    property::each(&mut r, |ty, r| {
        match ty {
            ETHERNET => {
                r.skip(4)?;
                v13::port::decode_ethernet(&mut stats, r)?;
            }
            OPTICAL => {
                r.skip(4)?;
                stats.properties.push(PortStatsProperty::Optical {
                    flags: r.u32()?,
                    tx_lambda: three(r)?,
                    rx_lambda: three(r)?,
                    power: [r.u16()?, r.u16()?],
                    bias_current: r.u16()?,
                    temperature: r.u16()?,
                });
            }
            ty => {
                let other = PortStatsProperty::Other(property::raw(ty, r)?);
                stats.properties.push(other);
            }
        }
        Ok(())
    })?;
    Ok(stats)
}

pub(super) fn encode_stats(stats: &PortStats, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(4);
    w.u32(stats.port_no.0);
    w.u32(stats.duration_sec);
    w.u32(stats.duration_nsec);
    v13::port::encode_counters(stats, w);
    property::put(ETHERNET, w, |w| {
        w.zeros(4);
        v13::port::encode_ethernet(stats, w);
    })?;
    for property in &stats.properties {
        match property {
            PortStatsProperty::Optical {
                flags,
                tx_lambda,
                rx_lambda,
                power,
                bias_current,
                temperature,
            } => property::put(OPTICAL, w, |w| {
                w.zeros(4);
                w.u32(*flags);
                words(tx_lambda, w);
                words(rx_lambda, w);
                for n in [power[0], power[1], *bias_current, *temperature] {
                    w.u16(n);
                }
            })?,
            PortStatsProperty::Other(property) => property::put_raw(property, w)?,
        }
    }
    w.close(start, 0, "port statistics")
}

pub(super) fn decode_queue_stats(r: &mut Reader) -> Result<QueueStats, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "queue statistics")?;
    r.skip(8)?;
    let stats = v13::queue::decode_stats(&mut r)?;
    Ok(QueueStats {
        properties: property::raws(&mut r)?,
        ..stats
    })
}

pub(super) fn encode_queue_stats(stats: &QueueStats, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(8);
    v13::queue::encode_counters(stats, w)?;
    property::put_raws(&stats.properties, w)?;
    w.close(start, 0, "queue statistics")
}

pub(super) fn decode_queue_desc(r: &mut Reader) -> Result<PacketQueue, DecodeError> {
    let len = usize::from(r.peek_u16(8)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "queue description")?;
    let (port, queue_id) = (PortNo(r.u32()?), QueueId(r.u32()?));
    r.skip(8)?;
    let known = |ty, r: &mut Reader| {
        Ok(Some(match ty {
            MIN_RATE => QueueProperty::MinRate(rate(r)?),
            MAX_RATE => QueueProperty::MaxRate(rate(r)?),
            QUEUE_EXPERIMENTER => QueueProperty::Experimenter {
                experimenter: r.u32()?,
                data: r.rest(),
            },
            _ => return Ok(None),
        }))
    };
    let properties = property::list(&mut r, known, |other| QueueProperty::Other {
        property: other.property,
        data: other.data,
    })?;
    Ok(PacketQueue {
        queue_id,
        port,
        properties,
    })
}

/// Reads a rate from a property of 8 bytes, with or without padding.
fn rate(r: &mut Reader) -> Result<u16, DecodeError> {
    let rate = r.u16()?;
    r.skip(r.left().min(2))?;
    Ok(rate)
}

pub(super) fn encode_queue_desc(queue: &PacketQueue, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.u32(queue.port.0);
    w.u32(queue.queue_id.0);
    w.zeros(8);
    for property in &queue.properties {
        let rate = |rate: u16| {
            move |w: &mut Writer| {
                w.u16(rate);
                w.zeros(2);
            }
        };
        match property {
            QueueProperty::MinRate(n) => property::put(MIN_RATE, w, rate(*n))?,
            QueueProperty::MaxRate(n) => property::put(MAX_RATE, w, rate(*n))?,
            QueueProperty::Experimenter { experimenter, data } => {
                property::put(QUEUE_EXPERIMENTER, w, |w| {
                    w.u32(*experimenter);
                    w.bytes(data);
                })?;
            }
            QueueProperty::Other { property, data } => {
                property::put(*property, w, |w| w.bytes(data))?;
            }
        }
    }
    w.close(start, 8, "queue description")
}
