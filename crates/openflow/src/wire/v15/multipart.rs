//! Multipart bodies that 1.5 changes or adds.

use crate::error::{DecodeError, EncodeError};
use crate::message::{BundleFeatureProperty, BundleFeatures, BundleFeaturesRequest, BundleFlags};
use crate::multipart::{ReplyBody, RequestBody};
use crate::types::{GroupId, PortNo};

use super::super::reader::Reader;
use super::super::v13::multipart::mp;
use super::super::v13::{flow as flow_v13, port};
use super::super::v14::bundle::{decode_time, encode_time};
use super::super::v14::{multipart, property};
use super::super::writer::Writer;
use super::{flow, group, switch};

/// OFPTMPBF_TIME_CAPABILITY.
const TIME: u16 = 1;

pub(in crate::wire) fn decode_request(
    kind: u16,
    r: &mut Reader,
) -> Result<RequestBody, DecodeError> {
    Ok(match kind {
        mp::GROUP_DESC => {
            let group = GroupId(r.u32()?);
            r.skip(4)?;
            RequestBody::GroupDesc(group)
        }
        mp::PORT_DESC => RequestBody::PortDesc(port::decode_stats_request(r)?),
        mp::FLOW_COUNTERS => RequestBody::FlowCounters(flow_v13::decode_stats_request(r)?),
        mp::CONTROLLER_STATUS => RequestBody::ControllerStatus,
        mp::BUNDLE_FEATURES => {
            let flags = r.u32()?;
            r.skip(4)?;
            let properties = decode_bundle_features(r)?;
            RequestBody::BundleFeatures(BundleFeaturesRequest { flags, properties })
        }
        kind => multipart::decode_request(kind, r)?,
    })
}

pub(in crate::wire) fn encode_request(
    body: &RequestBody,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    match body {
        RequestBody::GroupDesc(GroupId(id)) | RequestBody::PortDesc(PortNo(id)) => {
            w.u32(*id);
            w.zeros(4);
        }
        RequestBody::FlowCounters(request) => flow_v13::encode_stats_request(request, w)?,
        RequestBody::ControllerStatus => {}
        RequestBody::BundleFeatures(request) => {
            w.u32(request.flags);
            w.zeros(4);
            encode_bundle_features(&request.properties, w)?;
        }
        body => multipart::encode_request(body, w)?,
    }
    Ok(())
}

pub(in crate::wire) fn decode_reply(kind: u16, r: &mut Reader) -> Result<ReplyBody, DecodeError> {
    Ok(match kind {
        mp::FLOW => ReplyBody::Flow(r.list(flow::decode_desc)?),
        mp::AGGREGATE => ReplyBody::Aggregate(flow::decode_aggregate(r)?),
        mp::GROUP_DESC => ReplyBody::GroupDesc(r.list(group::decode_desc)?),
        mp::FLOW_COUNTERS => ReplyBody::FlowCounters(r.list(flow::decode_counters)?),
        mp::CONTROLLER_STATUS => ReplyBody::ControllerStatus(r.list(switch::decode_controller)?),
        mp::BUNDLE_FEATURES => {
            let capabilities = BundleFlags(r.u16()?);
            r.skip(6)?;
            let properties = decode_bundle_features(r)?;
            ReplyBody::BundleFeatures(BundleFeatures {
                capabilities,
                properties,
            })
        }
        kind => multipart::decode_reply(kind, r)?,
    })
}

pub(in crate::wire) fn encode_reply(body: &ReplyBody, w: &mut Writer) -> Result<(), EncodeError> {
    match body {
        ReplyBody::Flow(list) => list.iter().try_for_each(|f| flow::encode_desc(f, w)),
        ReplyBody::Aggregate(stats) => flow::encode_aggregate(stats, w),
        ReplyBody::GroupDesc(list) => list.iter().try_for_each(|g| group::encode_desc(g, w)),
        ReplyBody::FlowCounters(list) => list.iter().try_for_each(|f| flow::encode_counters(f, w)),
        ReplyBody::ControllerStatus(list) => list
            .iter()
            .try_for_each(|c| switch::encode_controller(c, w)),
        ReplyBody::BundleFeatures(features) => {
            w.u16(features.capabilities.0);
            w.zeros(6);
            encode_bundle_features(&features.properties, w)
        }
        body => multipart::encode_reply(body, w),
    }
}

fn decode_bundle_features(r: &mut Reader) -> Result<Vec<BundleFeatureProperty>, DecodeError> {
    let known = |ty, r: &mut Reader| {
        if ty != TIME {
            return Ok(None);
        }
        r.skip(4)?;
        Ok(Some(BundleFeatureProperty::Time {
            accuracy: decode_time(r)?,
            future_max: decode_time(r)?,
            past_max: decode_time(r)?,
            now: decode_time(r)?,
        }))
    };
    property::list(r, known, BundleFeatureProperty::Other)
}

fn encode_bundle_features(
    list: &[BundleFeatureProperty],
    w: &mut Writer,
) -> Result<(), EncodeError> {
    list.iter().try_for_each(|property| match property {
        BundleFeatureProperty::Time {
            accuracy,
            future_max,
            past_max,
            now,
        } => property::put(TIME, w, |w| {
            w.zeros(4);
            for time in [accuracy, future_max, past_max, now] {
                encode_time(*time, w);
            }
        }),
        BundleFeatureProperty::Other(property) => property::put_raw(property, w),
    })
}
