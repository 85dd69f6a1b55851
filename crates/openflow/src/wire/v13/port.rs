//! Ports: descriptions, changes, counters.

use crate::error::{DecodeError, EncodeError};
use crate::message::{Port, PortConfig, PortMod, PortName, PortReason, PortState, PortStatus};
use crate::multipart::PortStats;
use crate::types::{MacAddr, PortNo};

use super::super::reader::Reader;
use super::super::writer::Writer;
use super::{decode_age, encode_age};

const PROPERTIES: &str = "properties of a port";

/// A port without its features, which are one of its properties since 1.4.
pub(in crate::wire) fn decode_bare(r: &mut Reader) -> Result<Port, DecodeError> {
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
        curr: 0,
        advertised: 0,
        supported: 0,
        peer: 0,
        curr_speed: 0,
        max_speed: 0,
        properties: Vec::new(),
    })
}

pub(in crate::wire) fn encode_bare(port: &Port, w: &mut Writer) {
    w.u32(port.port_no.0);
    w.zeros(4);
    w.bytes(&port.hw_addr.0);
    w.zeros(2);
    w.bytes(&port.name.0);
    w.u32(port.config.0);
    w.u32(port.state.0);
}

pub(in crate::wire) fn decode_features(port: &mut Port, r: &mut Reader) -> Result<(), DecodeError> {
    port.curr = r.u32()?;
    port.advertised = r.u32()?;
    port.supported = r.u32()?;
    port.peer = r.u32()?;
    port.curr_speed = r.u32()?;
    port.max_speed = r.u32()?;
    Ok(())
}

pub(in crate::wire) fn encode_features(port: &Port, w: &mut Writer) {
    w.u32(port.curr);
    w.u32(port.advertised);
    w.u32(port.supported);
    w.u32(port.peer);
    w.u32(port.curr_speed);
    w.u32(port.max_speed);
}

pub(super) fn decode_port(r: &mut Reader) -> Result<Port, DecodeError> {
    let mut port = decode_bare(r)?;
    decode_features(&mut port, r)?;
    Ok(port)
}

pub(super) fn encode_port(port: &Port, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!port.properties.is_empty(), PROPERTIES)?;
    encode_bare(port, w);
    encode_features(port, w);
    Ok(())
}

/// Reads a PORT_STATUS of any version, whose port `decode_port` reads.
pub(in crate::wire) fn decode_status(
    r: &mut Reader,
    decode_port: impl FnOnce(&mut Reader) -> Result<Port, DecodeError>,
) -> Result<PortStatus, DecodeError> {
    let reason = PortReason(r.u8()?);
    r.skip(7)?;
    let port = decode_port(r)?;
    Ok(PortStatus { reason, port })
}

pub(in crate::wire) fn encode_status(
    status: &PortStatus,
    w: &mut Writer,
    encode_port: impl FnOnce(&Port, &mut Writer) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    w.u8(status.reason.0);
    w.zeros(7);
    encode_port(&status.port, w)
}

/// A PORT_MOD without the features to advertise.
pub(in crate::wire) fn decode_bare_mod(r: &mut Reader) -> Result<PortMod, DecodeError> {
    let port_no = PortNo(r.u32()?);
    r.skip(4)?;
    let hw_addr = MacAddr(r.array()?);
    r.skip(2)?;
    Ok(PortMod {
        port_no,
        hw_addr,
        config: PortConfig(r.u32()?),
        mask: PortConfig(r.u32()?),
        advertise: 0,
        properties: Vec::new(),
    })
}

pub(in crate::wire) fn encode_bare_mod(port_mod: &PortMod, w: &mut Writer) {
    w.u32(port_mod.port_no.0);
    w.zeros(4);
    w.bytes(&port_mod.hw_addr.0);
    w.zeros(2);
    w.u32(port_mod.config.0);
    w.u32(port_mod.mask.0);
}

pub(super) fn decode_port_mod(r: &mut Reader) -> Result<PortMod, DecodeError> {
    let mut port_mod = decode_bare_mod(r)?;
    port_mod.advertise = r.u32()?;
    r.skip(4)?;
    Ok(port_mod)
}

pub(super) fn encode_port_mod(port_mod: &PortMod, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!port_mod.properties.is_empty(), PROPERTIES)?;
    encode_bare_mod(port_mod, w);
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

/// Reads the counters that a port has in each version; the others are unknown.
pub(in crate::wire) fn decode_counters(
    port_no: PortNo,
    r: &mut Reader,
) -> Result<PortStats, DecodeError> {
    Ok(PortStats {
        port_no,
        rx_packets: r.u64()?,
        tx_packets: r.u64()?,
        rx_bytes: r.u64()?,
        tx_bytes: r.u64()?,
        rx_dropped: r.u64()?,
        tx_dropped: r.u64()?,
        rx_errors: r.u64()?,
        tx_errors: r.u64()?,
        rx_frame_err: u64::MAX,
        rx_over_err: u64::MAX,
        rx_crc_err: u64::MAX,
        collisions: u64::MAX,
        duration_sec: 0,
        duration_nsec: 0,
        properties: Vec::new(),
    })
}

pub(in crate::wire) fn encode_counters(stats: &PortStats, w: &mut Writer) {
    w.u64(stats.rx_packets);
    w.u64(stats.tx_packets);
    w.u64(stats.rx_bytes);
    w.u64(stats.tx_bytes);
    w.u64(stats.rx_dropped);
    w.u64(stats.tx_dropped);
    w.u64(stats.rx_errors);
    w.u64(stats.tx_errors);
}

/// Reads the counters of Ethernet, which are a property since 1.4.
pub(in crate::wire) fn decode_ethernet(
    stats: &mut PortStats,
    r: &mut Reader,
) -> Result<(), DecodeError> {
    stats.rx_frame_err = r.u64()?;
    stats.rx_over_err = r.u64()?;
    stats.rx_crc_err = r.u64()?;
    stats.collisions = r.u64()?;
    Ok(())
}

pub(in crate::wire) fn encode_ethernet(stats: &PortStats, w: &mut Writer) {
    w.u64(stats.rx_frame_err);
    w.u64(stats.rx_over_err);
    w.u64(stats.rx_crc_err);
    w.u64(stats.collisions);
}

pub(super) fn decode_stats(r: &mut Reader) -> Result<PortStats, DecodeError> {
    let port_no = PortNo(r.u32()?);
    r.skip(4)?;
    let mut stats = decode_counters(port_no, r)?;
    decode_ethernet(&mut stats, r)?;
    (stats.duration_sec, stats.duration_nsec) = decode_age(r)?;
    Ok(stats)
}

pub(super) fn encode_stats(stats: &PortStats, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!stats.properties.is_empty(), PROPERTIES)?;
    w.u32(stats.port_no.0);
    w.zeros(4);
    encode_counters(stats, w);
    encode_ethernet(stats, w);
    encode_age(stats.duration_sec, stats.duration_nsec, w)
}
