//! Ports: descriptions, changes, counters.

use crate::error::{DecodeError, EncodeError};
use crate::message::{Port, PortConfig, PortMod, PortName, PortReason, PortState, PortStatus};
use crate::multipart::PortStats;
use crate::types::{MacAddr, PortNo};

use super::super::reader::Reader;
use super::super::writer::Writer;
use super::{decode_age, encode_age};

const PROPERTIES: &str = "properties of a port";

pub(super) fn decode_port(r: &mut Reader) -> Result<Port, DecodeError> {
    let port_no = PortNo(r.u32()?);
    r.skip(4)?;
    let hw_addr = MacAddr(r.array()?);
    r.skip(2)?;
    Ok(Port {
        port_no,
        hw_addr,
        name: PortName(r.array()?),
        config: PortConfig(r.u32()?),
        state: PortState(r.u32()?),
        curr: r.u32()?,
        advertised: r.u32()?,
        supported: r.u32()?,
        peer: r.u32()?,
        curr_speed: r.u32()?,
        max_speed: r.u32()?,
        properties: Vec::new(),
    })
}

pub(super) fn encode_port(port: &Port, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!port.properties.is_empty(), PROPERTIES)?;
    w.u32(port.port_no.0);
    w.zeros(4);
    w.bytes(&port.hw_addr.0);
    w.zeros(2);
    w.bytes(&port.name.0);
    w.u32(port.config.0);
    w.u32(port.state.0);
    w.u32(port.curr);
    w.u32(port.advertised);
    w.u32(port.supported);
    w.u32(port.peer);
    w.u32(port.curr_speed);
    w.u32(port.max_speed);
    Ok(())
}

pub(super) fn decode_port_status(r: &mut Reader) -> Result<PortStatus, DecodeError> {
    let reason = PortReason(r.u8()?);
    r.skip(7)?;
    let port = decode_port(r)?;
    Ok(PortStatus { reason, port })
}

pub(super) fn encode_port_status(status: &PortStatus, w: &mut Writer) -> Result<(), EncodeError> {
    w.u8(status.reason.0);
    w.zeros(7);
    encode_port(&status.port, w)
}

pub(super) fn decode_port_mod(r: &mut Reader) -> Result<PortMod, DecodeError> {
    let port_no = PortNo(r.u32()?);
    r.skip(4)?;
    let hw_addr = MacAddr(r.array()?);
    r.skip(2)?;
    let port_mod = PortMod {
        port_no,
        hw_addr,
        config: PortConfig(r.u32()?),
        mask: PortConfig(r.u32()?),
        advertise: r.u32()?,
        properties: Vec::new(),
    };
    r.skip(4)?;
    Ok(port_mod)
}

pub(super) fn encode_port_mod(port_mod: &PortMod, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!port_mod.properties.is_empty(), PROPERTIES)?;
    w.u32(port_mod.port_no.0);
    w.zeros(4);
    w.bytes(&port_mod.hw_addr.0);
    w.zeros(2);
    w.u32(port_mod.config.0);
    w.u32(port_mod.mask.0);
    w.u32(port_mod.advertise);
    w.zeros(4);
    Ok(())
}

pub(in crate::wire) fn decode_stats_request(r: &mut Reader) -> Result<PortNo, DecodeError> {
    let port = PortNo(r.u32()?);
    r.skip(4)?;
    Ok(port)
}

pub(super) fn encode_stats_request(port: PortNo, w: &mut Writer) {
    w.u32(port.0);
    w.zeros(4);
}

pub(super) fn decode_stats(r: &mut Reader) -> Result<PortStats, DecodeError> {
    let port_no = PortNo(r.u32()?);
    r.skip(4)?;
    let mut stats = PortStats {
        port_no,
        rx_packets: r.u64()?,
        tx_packets: r.u64()?,
        rx_bytes: r.u64()?,
        tx_bytes: r.u64()?,
        rx_dropped: r.u64()?,
        tx_dropped: r.u64()?,
        rx_errors: r.u64()?,
        tx_errors: r.u64()?,
        rx_frame_err: r.u64()?,
        rx_over_err: r.u64()?,
        rx_crc_err: r.u64()?,
        collisions: r.u64()?,
        duration_sec: 0,
        duration_nsec: 0,
        properties: Vec::new(),
    };
    (stats.duration_sec, stats.duration_nsec) = decode_age(r)?;
    Ok(stats)
}

pub(super) fn encode_stats(stats: &PortStats, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!stats.properties.is_empty(), PROPERTIES)?;
    w.u32(stats.port_no.0);
    w.zeros(4);
    for counter in [
        stats.rx_packets,
        stats.tx_packets,
        stats.rx_bytes,
        stats.tx_bytes,
        stats.rx_dropped,
        stats.tx_dropped,
        stats.rx_errors,
        stats.tx_errors,
        stats.rx_frame_err,
        stats.rx_over_err,
        stats.rx_crc_err,
        stats.collisions,
    ] {
        w.u64(counter);
    }
    encode_age(stats.duration_sec, stats.duration_nsec, w)
}
