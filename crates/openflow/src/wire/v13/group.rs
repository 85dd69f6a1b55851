//! Groups: changes, statistics, descriptions, features.

use crate::actions::Bucket;
use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{GroupMod, GroupModCommand, GroupType};
use crate::multipart::{GroupDesc, GroupFeatures, GroupStats};
use crate::types::{GroupId, PortNo};

use super::super::actions::{decode_actions, encode_actions};
use super::super::reader::Reader;
use super::super::writer::Writer;
use super::{decode_age, encode_age};

pub(super) fn decode_group_mod(r: &mut Reader) -> Result<GroupMod, DecodeError> {
    let bad_command = r.error(ErrorKind::GROUP_BAD_COMMAND);
    let command = match r.u16()? {
        0 => GroupModCommand::Add,
        1 => GroupModCommand::Modify,
        2 => GroupModCommand::Delete,
        _ => return Err(bad_command),
    };
    let group_type = decode_type(r)?;
    r.skip(1)?;
    Ok(GroupMod::new(
        command,
        group_type,
        GroupId(r.u32()?),
        r.list(decode_bucket)?,
    ))
}

pub(super) fn encode_group_mod(group_mod: &GroupMod, w: &mut Writer) -> Result<(), EncodeError> {
    let of_v15 = [GroupModCommand::InsertBucket, GroupModCommand::RemoveBucket];
    if of_v15.contains(&group_mod.command) || group_mod.command_bucket.is_some() {
        return w.unsupported("change of single buckets");
    }
    w.refuse(!group_mod.properties.is_empty(), "properties of a group")?;
    w.u16(group_mod.command as u16);
    w.u8(group_mod.group_type as u8);
    w.zeros(1);
    w.u32(group_mod.group_id.0);
    encode_buckets(&group_mod.buckets, w)
}

pub(in crate::wire) fn decode_type(r: &mut Reader) -> Result<GroupType, DecodeError> {
    let refused = r.error(ErrorKind::GROUP_BAD_TYPE);
    match r.u8()? {
        0 => Ok(GroupType::All),
        1 => Ok(GroupType::Select),
        2 => Ok(GroupType::Indirect),
        3 => Ok(GroupType::FastFailover),
        _ => Err(refused),
    }
}

fn decode_bucket(r: &mut Reader) -> Result<Bucket, DecodeError> {
    let refused = r.error(ErrorKind::GROUP_BAD_BUCKET);
    if r.left() < 16 {
        return Err(refused);
    }
    let len = usize::from(r.peek_u16(0)?);
    if len < 16 {
        return Err(refused);
    }
    let mut r = r.part(len, ErrorKind::GROUP_BAD_BUCKET, "bucket")?;
    r.skip(2)?;
    let weight = r.u16()?;
    let (watch_port, watch_group) = (PortNo(r.u32()?), GroupId(r.u32()?));
    r.skip(4)?;
    Ok(Bucket {
        weight,
        watch_port,
        watch_group,
        actions: decode_actions(&mut r)?,
        bucket_id: None,
        properties: Vec::new(),
    })
}

fn encode_buckets(buckets: &[Bucket], w: &mut Writer) -> Result<(), EncodeError> {
    for bucket in buckets {
        if bucket.bucket_id.is_some() || !bucket.properties.is_empty() {
            return w.unsupported("number or properties of a bucket");
        }
        let start = w.at();
        w.zeros(2);
        w.u16(bucket.weight);
        w.u32(bucket.watch_port.0);
        w.u32(bucket.watch_group.0);
        w.zeros(4);
        encode_actions(&bucket.actions, w)?;
        w.close(start, 0, "bucket")?;
    }
    Ok(())
}

pub(super) fn decode_stats(r: &mut Reader) -> Result<GroupStats, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "group statistics")?;
    r.skip(4)?;
    let group_id = GroupId(r.u32()?);
    let ref_count = r.u32()?;
    r.skip(4)?;
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    let (duration_sec, duration_nsec) = decode_age(&mut r)?;
    Ok(GroupStats {
        group_id,
        ref_count,
        packet_count,
        byte_count,
        duration_sec,
        duration_nsec,
        buckets: r.list(|r| Ok((r.u64()?, r.u64()?)))?,
    })
}

pub(super) fn encode_stats(stats: &GroupStats, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(4);
    w.u32(stats.group_id.0);
    w.u32(stats.ref_count);
    w.zeros(4);
    w.u64(stats.packet_count);
    w.u64(stats.byte_count);
    encode_age(stats.duration_sec, stats.duration_nsec, w)?;
    for (packets, bytes) in &stats.buckets {
        w.u64(*packets);
        w.u64(*bytes);
    }
    w.close(start, 0, "group statistics")
}

pub(super) fn decode_desc(r: &mut Reader) -> Result<GroupDesc, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "group description")?;
    r.skip(2)?;
    let group_type = decode_type(&mut r)?;
    r.skip(1)?;
    Ok(GroupDesc {
        group_type,
        group_id: GroupId(r.u32()?),
        buckets: r.list(decode_bucket)?,
        properties: Vec::new(),
    })
}

pub(super) fn encode_desc(desc: &GroupDesc, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!desc.properties.is_empty(), "properties of a group")?;
    let start = w.at();
    w.zeros(2);
    w.u8(desc.group_type as u8);
    w.zeros(1);
    w.u32(desc.group_id.0);
    encode_buckets(&desc.buckets, w)?;
    w.close(start, 0, "group description")
}

pub(super) fn decode_features(r: &mut Reader) -> Result<GroupFeatures, DecodeError> {
    Ok(GroupFeatures {
        types: r.u32()?,
        capabilities: r.u32()?,
        max_groups: [r.u32()?, r.u32()?, r.u32()?, r.u32()?],
        actions: [r.u32()?, r.u32()?, r.u32()?, r.u32()?],
    })
}

pub(super) fn encode_features(features: &GroupFeatures, w: &mut Writer) {
    w.u32(features.types);
    w.u32(features.capabilities);
    for n in features.max_groups.iter().chain(&features.actions) {
        w.u32(*n);
    }
}
