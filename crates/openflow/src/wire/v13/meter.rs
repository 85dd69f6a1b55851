//! Meters: changes, statistics, configuration, features.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{MeterBand, MeterBandKind, MeterFlags, MeterMod, MeterModCommand};
use crate::multipart::{MeterConfig, MeterFeatures, MeterStats};
use crate::types::{MeterId, Version};

use super::super::reader::Reader;
use super::super::writer::Writer;

/// OFPMBT_*.
const BAND_DROP: u16 = 1;
const BAND_DSCP_REMARK: u16 = 2;
const BAND_EXPERIMENTER: u16 = 0xffff;

/// Every flag that 1.3 names; a METER_MOD with another one is refused.
const METER_FLAGS: u16 = 0xf;

pub(super) fn decode_meter_mod(r: &mut Reader) -> Result<MeterMod, DecodeError> {
    let bad_command = r.error(ErrorKind::METER_BAD_COMMAND);
    let command = match r.u16()? {
        0 => MeterModCommand::Add,
        1 => MeterModCommand::Modify,
        2 => MeterModCommand::Delete,
        _ => return Err(bad_command),
    };
    let bad_flags = r.error(ErrorKind::METER_BAD_FLAGS);
    let flags = MeterFlags(r.u16()?);
    if flags.0 & !METER_FLAGS != 0 {
        return Err(bad_flags);
    }
    Ok(MeterMod {
        command,
        flags,
        meter_id: MeterId(r.u32()?),
        bands: r.list(decode_band)?,
    })
}

pub(super) fn encode_meter_mod(meter_mod: &MeterMod, w: &mut Writer) -> Result<(), EncodeError> {
    w.u16(meter_mod.command as u16);
    w.u16(meter_mod.flags.0);
    w.u32(meter_mod.meter_id.0);
    encode_bands(&meter_mod.bands, w)
}

fn decode_band(r: &mut Reader) -> Result<MeterBand, DecodeError> {
    let bad_band = r.error(ErrorKind::METER_BAD_BAND);
    let len = usize::from(r.peek_u16(2)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "meter band")?;
    let ty = r.u16()?;
    r.skip(2)?;
    let (rate, burst_size) = (r.u32()?, r.u32()?);
    let kind = match ty {
        BAND_DROP => {
            r.skip(4)?;
            MeterBandKind::Drop
        }
        BAND_DSCP_REMARK => {
            let prec_level = r.u8()?;
            r.skip(3)?;
            MeterBandKind::DscpRemark { prec_level }
        }
        BAND_EXPERIMENTER => MeterBandKind::Experimenter {
            experimenter: r.u32()?,
            data: r.rest(),
        },
        _ => return Err(bad_band),
    };
    r.done()?;
    Ok(MeterBand {
        rate,
        burst_size,
        kind,
    })
}

fn encode_bands(bands: &[MeterBand], w: &mut Writer) -> Result<(), EncodeError> {
    for band in bands {
        let start = w.at();
        w.u16(match band.kind {
            MeterBandKind::Drop => BAND_DROP,
            MeterBandKind::DscpRemark { .. } => BAND_DSCP_REMARK,
            MeterBandKind::Experimenter { .. } => BAND_EXPERIMENTER,
        });
        w.zeros(2);
        w.u32(band.rate);
        w.u32(band.burst_size);
        match &band.kind {
            MeterBandKind::Drop => w.zeros(4),
            MeterBandKind::DscpRemark { prec_level } => {
                w.u8(*prec_level);
                w.zeros(3);
            }
            MeterBandKind::Experimenter { experimenter, data } => {
                w.u32(*experimenter);
                w.bytes(data);
            }
        }
        w.close(start, 2, "meter band")?;
    }
    Ok(())
}

/// The body of METER and METER_CONFIG requests.
pub(super) fn decode_request(r: &mut Reader) -> Result<MeterId, DecodeError> {
    let meter = MeterId(r.u32()?);
    r.skip(4)?;
    Ok(meter)
}

pub(super) fn encode_request(meter: MeterId, w: &mut Writer) {
    w.u32(meter.0);
    w.zeros(4);
}

pub(super) fn decode_stats(r: &mut Reader) -> Result<MeterStats, DecodeError> {
    let len = usize::from(r.peek_u16(4)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "meter statistics")?;
    let meter_id = MeterId(r.u32()?);
    r.skip(8)?;
    Ok(MeterStats {
        meter_id,
        flow_count: r.u32()?,
        packet_in_count: r.u64()?,
        byte_in_count: r.u64()?,
        duration_sec: r.u32()?,
        duration_nsec: r.u32()?,
        bands: r.list(|r| Ok((r.u64()?, r.u64()?)))?,
    })
}

pub(super) fn encode_stats(stats: &MeterStats, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.u32(stats.meter_id.0);
    w.zeros(8);
    w.u32(stats.flow_count);
    w.u64(stats.packet_in_count);
    w.u64(stats.byte_in_count);
    w.u32(stats.duration_sec);
    w.u32(stats.duration_nsec);
    for (packets, bytes) in &stats.bands {
        w.u64(*packets);
        w.u64(*bytes);
    }
    w.close(start, 4, "meter statistics")
}

pub(super) fn decode_config(r: &mut Reader) -> Result<MeterConfig, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "meter configuration")?;
    r.skip(2)?;
    Ok(MeterConfig {
        flags: MeterFlags(r.u16()?),
        meter_id: MeterId(r.u32()?),
        bands: r.list(decode_band)?,
    })
}

pub(super) fn encode_config(config: &MeterConfig, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(2);
    w.u16(config.flags.0);
    w.u32(config.meter_id.0);
    encode_bands(&config.bands, w)?;
    w.close(start, 0, "meter configuration")
}

pub(super) fn decode_features(r: &mut Reader) -> Result<MeterFeatures, DecodeError> {
    let mut features = MeterFeatures {
        max_meter: r.u32()?,
        band_types: r.u32()?,
        capabilities: r.u32()?,
        max_bands: r.u8()?,
        max_color: r.u8()?,
        features: None,
    };
    r.skip(2)?;
    // Open vSwitch leaves out what 1.5 appends.
    if r.is_since(Version::V15) && !r.is_empty() {
        features.features = Some(r.u32()?);
        r.skip(4)?;
    }
    Ok(features)
}

pub(super) fn encode_features(features: &MeterFeatures, w: &mut Writer) -> Result<(), EncodeError> {
    if features.features.is_some() && !w.is_since(Version::V15) {
        return w.unsupported("such features of meters");
    }
    w.u32(features.max_meter);
    w.u32(features.band_types);
    w.u32(features.capabilities);
    w.u8(features.max_bands);
    w.u8(features.max_color);
    w.zeros(2);
    if let Some(features) = features.features {
        w.u32(features);
        w.zeros(4);
    }
    Ok(())
}
