//! Groups whose buckets have numbers and properties (1.5.1, 7.3.4.2 and 7.3.5.10).

use crate::actions::Bucket;
use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{GroupMod, GroupModCommand, GroupType};
use crate::multipart::GroupDesc;
use crate::types::{BucketId, GroupId, PortNo};

use super::super::actions::{decode_actions, encode_actions};
use super::super::reader::Reader;
use super::super::v13::group::decode_type;
use super::super::v14::property;
use super::super::writer::Writer;

/// OFPGBPT_*.
const WEIGHT: u16 = 0;
const WATCH_PORT: u16 = 1;
const WATCH_GROUP: u16 = 2;

pub(super) fn decode_mod(r: &mut Reader) -> Result<GroupMod, DecodeError> {
    let bad_command = r.error(ErrorKind::GROUP_BAD_COMMAND);
    let command = match r.u16()? {
        0 => GroupModCommand::Add,
        1 => GroupModCommand::Modify,
        2 => GroupModCommand::Delete,
        3 => GroupModCommand::InsertBucket,
        5 => GroupModCommand::RemoveBucket,
        _ => return Err(bad_command),
    };
    let group_type = decode_type(r)?;
    r.skip(1)?;
    let group_id = GroupId(r.u32()?);
    let len = usize::from(r.u16()?);
    r.skip(2)?;
    let command_bucket = Some(BucketId(r.u32()?)).filter(|id| *id != BucketId::ALL);
    Ok(GroupMod {
        command,
        group_type,
        group_id,
        buckets: decode_buckets(group_type, len, r)?,
        command_bucket,
        properties: property::raws(r)?,
    })
}

pub(super) fn encode_mod(group_mod: &GroupMod, w: &mut Writer) -> Result<(), EncodeError> {
    w.u16(group_mod.command as u16);
    w.u8(group_mod.group_type as u8);
    w.zeros(1);
    w.u32(group_mod.group_id.0);
    let len_at = w.at();
    w.zeros(4);
    w.u32(group_mod.command_bucket.unwrap_or(BucketId::ALL).0);
    encode_buckets(group_mod.group_type, &group_mod.buckets, len_at, w)?;
    property::put_raws(&group_mod.properties, w)
}

pub(super) fn decode_desc(r: &mut Reader) -> Result<GroupDesc, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "group description")?;
    r.skip(2)?;
    let group_type = decode_type(&mut r)?;
    r.skip(1)?;
    let group_id = GroupId(r.u32()?);
    let len = usize::from(r.u16()?);
    r.skip(6)?;
    Ok(GroupDesc {
        group_type,
        group_id,
        buckets: decode_buckets(group_type, len, &mut r)?,
        properties: property::raws(&mut r)?,
    })
}

pub(super) fn encode_desc(desc: &GroupDesc, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(2);
    w.u8(desc.group_type as u8);
    w.zeros(1);
    w.u32(desc.group_id.0);
    let len_at = w.at();
    w.zeros(8);
    encode_buckets(desc.group_type, &desc.buckets, len_at, w)?;
    property::put_raws(&desc.properties, w)?;
    w.close(start, 0, "group description")
}

/// The buckets in the next `len` bytes.
fn decode_buckets(
    group_type: GroupType,
    len: usize,
    r: &mut Reader,
) -> Result<Vec<Bucket>, DecodeError> {
    let mut list = r.part(len, ErrorKind::BAD_LEN, "buckets")?;
    list.list(|r| decode_bucket(group_type, r))
}

fn encode_buckets(
    group_type: GroupType,
    buckets: &[Bucket],
    len_at: usize,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    let start = w.at();
    for (place, bucket) in (0..).zip(buckets) {
        encode_bucket(group_type, place, bucket, w)?;
    }
    w.set_len(len_at, start, "buckets")
}

/// Returns the default weight of a bucket: 1 in a SELECT group, none in others.
fn weight_unsaid(group_type: GroupType) -> u16 {
    u16::from(group_type == GroupType::Select)
}

fn decode_bucket(group_type: GroupType, r: &mut Reader) -> Result<Bucket, DecodeError> {
    let refused = r.error(ErrorKind::GROUP_BAD_BUCKET);
    let len = usize::from(r.peek_u16(0).map_err(|_| refused)?);
    let mut r = r.part(len, ErrorKind::GROUP_BAD_BUCKET, "bucket")?;
    r.skip(2)?;
    let actions_len = usize::from(r.u16()?);
    let bucket_id = Some(BucketId(r.u32()?));
    let mut actions = r.part(actions_len, ErrorKind::GROUP_BAD_BUCKET, "bucket")?;
    let mut bucket = Bucket {
        weight: weight_unsaid(group_type),
        watch_port: PortNo::ANY,
        watch_group: GroupId::ANY,
        actions: decode_actions(&mut actions)?,
        bucket_id,
        properties: Vec::new(),
    };
    property::each(&mut r, |ty, r| {
        match ty {
            WEIGHT => {
                bucket.weight = r.u16()?;
                r.skip(r.left().min(2))?;
            }
            WATCH_PORT => bucket.watch_port = PortNo(r.u32()?),
            WATCH_GROUP => bucket.watch_group = GroupId(r.u32()?),
            ty => bucket.properties.push(property::raw(ty, r)?),
        }
        Ok(())
    })?;
    Ok(bucket)
}

fn encode_bucket(
    group_type: GroupType,
    place: u32,
    bucket: &Bucket,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(4);
    w.u32(bucket.bucket_id.unwrap_or(BucketId(place)).0);
    let actions_at = w.at();
    encode_actions(&bucket.actions, w)?;
    w.set_len(start + 2, actions_at, "actions of a bucket")?;
    if group_type == GroupType::Select || bucket.weight != weight_unsaid(group_type) {
        property::put(WEIGHT, w, |w| {
            w.u16(bucket.weight);
            w.zeros(2);
        })?;
    }
    if bucket.watch_port != PortNo::ANY {
        property::put(WATCH_PORT, w, |w| w.u32(bucket.watch_port.0))?;
    }
    if bucket.watch_group != GroupId::ANY {
        property::put(WATCH_GROUP, w, |w| w.u32(bucket.watch_group.0))?;
    }
    property::put_raws(&bucket.properties, w)?;
    w.close(start, 0, "bucket")
}
