"""OpenFlow 1.3 by os-ken."""

import struct

from os_ken.ofproto import ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as o
from os_ken.ofproto import ofproto_v1_3_parser as p

from walk import experimenter, multipart, nothing, once, repeated

DP = ofproto_protocol.ProtocolDesc(o.OFP_VERSION)


def match(w):
    w.part(p.OFPMatch, lambda match: (match.length + 7) // 8 * 8)


def packet_in(w):
    w.fixed(o.OFP_PACKET_IN_PACK_STR)
    match(w)
    w.fixed("!2x")
    w.rest()


def flow_removed(w):
    w.fixed(o.OFP_FLOW_REMOVED_PACK_STR0)
    match(w)


def packet_out(w):
    (_, _, actions_len) = w.fixed(o.OFP_PACKET_OUT_PACK_STR)
    start = len(w.out)
    w.parts(p.OFPAction, w.at + actions_len)
    struct.pack_into("!H", w.out, start - 8, len(w.out) - start)
    w.rest()


def group_mod(w):
    w.fixed(o.OFP_GROUP_MOD_PACK_STR)
    w.parts(p.OFPBucket, len(w.data))


def meter_mod(w):
    w.fixed(o.OFP_METER_MOD_PACK_STR)
    w.parts(p.OFPMeterBandHeader, len(w.data))


def queue_config(w):
    w.fixed(o.OFP_QUEUE_GET_CONFIG_REPLY_PACK_STR)
    while w.at < len(w.data):
        end = w.at
        start = len(w.out)
        end += w.fixed(o.OFP_PACKET_QUEUE_PACK_STR)[2]
        while w.at < end:
            kind, length = struct.unpack_from(o.OFP_QUEUE_PROP_HEADER_PACK_STR, w.data, w.at)
            prop_start, prop_end = len(w.out), w.at + length
            w.fixed(o.OFP_QUEUE_PROP_HEADER_PACK_STR)
            if kind in (o.OFPQT_MIN_RATE, o.OFPQT_MAX_RATE):
                w.fixed(o.OFP_QUEUE_PROP_MIN_RATE_PACK_STR)
            elif kind == o.OFPQT_EXPERIMENTER:
                w.fixed(o.OFP_QUEUE_PROP_EXPERIMENTER_PACK_STR)
            w.out += w.data[w.at : prop_end]
            w.at = prop_end
            w.close(prop_start, 2)
        w.close(start, 8)


def flow_request(w):
    w.fixed(o.OFP_FLOW_STATS_REQUEST_0_PACK_STR)
    match(w)


def flow_stats(w):
    while w.at < len(w.data):
        start, end = len(w.out), w.at
        end += w.fixed(o.OFP_FLOW_STATS_0_PACK_STR)[0]
        match(w)
        w.parts(p.OFPInstruction, end)
        w.close(start, 0)


def group_stats(w):
    while w.at < len(w.data):
        start, end = len(w.out), w.at
        end += w.fixed(o.OFP_GROUP_STATS_PACK_STR)[0]
        while w.at < end:
            w.fixed(o.OFP_BUCKET_COUNTER_PACK_STR)
        w.close(start, 0)


def group_desc(w):
    while w.at < len(w.data):
        start, end = len(w.out), w.at
        end += w.fixed(o.OFP_GROUP_DESC_STATS_PACK_STR)[0]
        w.parts(p.OFPBucket, end)
        w.close(start, 0)


def meter_stats(w):
    while w.at < len(w.data):
        start, end = len(w.out), w.at
        end += w.fixed(o.OFP_METER_STATS_PACK_STR)[1]
        while w.at < end:
            w.fixed(o.OFP_METER_BAND_STATS_PACK_STR)
        w.close(start, 4)


def meter_config(w):
    while w.at < len(w.data):
        start, end = len(w.out), w.at
        end += w.fixed(o.OFP_METER_CONFIG_PACK_STR)[0]
        w.parts(p.OFPMeterBandHeader, end)
        w.close(start, 0)


def table_features(w):
    while w.at < len(w.data):
        features = p.OFPTableFeaturesStats.parser(w.data, w.at)
        w.at += features.length
        w.out += features.serialize()


REQUESTS = {
    o.OFPMP_DESC: nothing,
    o.OFPMP_FLOW: flow_request,
    o.OFPMP_AGGREGATE: flow_request,
    o.OFPMP_TABLE: nothing,
    o.OFPMP_PORT_STATS: once(o.OFP_PORT_STATS_REQUEST_PACK_STR),
    o.OFPMP_QUEUE: once(o.OFP_QUEUE_STATS_REQUEST_PACK_STR),
    o.OFPMP_GROUP: once(o.OFP_GROUP_STATS_REQUEST_PACK_STR),
    o.OFPMP_GROUP_DESC: nothing,
    o.OFPMP_GROUP_FEATURES: nothing,
    o.OFPMP_METER: once(o.OFP_METER_MULTIPART_REQUEST_PACK_STR),
    o.OFPMP_METER_CONFIG: once(o.OFP_METER_MULTIPART_REQUEST_PACK_STR),
    o.OFPMP_METER_FEATURES: nothing,
    o.OFPMP_TABLE_FEATURES: table_features,
    o.OFPMP_PORT_DESC: nothing,
    o.OFPMP_EXPERIMENTER: experimenter,
}

REPLIES = {
    o.OFPMP_DESC: once(o.OFP_DESC_PACK_STR),
    o.OFPMP_FLOW: flow_stats,
    o.OFPMP_AGGREGATE: once(o.OFP_AGGREGATE_STATS_REPLY_PACK_STR),
    o.OFPMP_TABLE: repeated(o.OFP_TABLE_STATS_PACK_STR),
    o.OFPMP_PORT_STATS: repeated(o.OFP_PORT_STATS_PACK_STR),
    o.OFPMP_QUEUE: repeated(o.OFP_QUEUE_STATS_PACK_STR),
    o.OFPMP_GROUP: group_stats,
    o.OFPMP_GROUP_DESC: group_desc,
    o.OFPMP_GROUP_FEATURES: once(o.OFP_GROUP_FEATURES_PACK_STR),
    o.OFPMP_METER: meter_stats,
    o.OFPMP_METER_CONFIG: meter_config,
    o.OFPMP_METER_FEATURES: once(o.OFP_METER_FEATURES_PACK_STR),
    o.OFPMP_TABLE_FEATURES: table_features,
    o.OFPMP_PORT_DESC: repeated(o.OFP_PORT_PACK_STR),
    o.OFPMP_EXPERIMENTER: experimenter,
}


# Messages that os-ken reads and writes.
WHOLE = {o.OFPT_HELLO, o.OFPT_ERROR, o.OFPT_ECHO_REQUEST, o.OFPT_ECHO_REPLY}
WHOLE |= {o.OFPT_EXPERIMENTER, o.OFPT_FLOW_MOD}

WALKS = {
    o.OFPT_FEATURES_REQUEST: nothing,
    o.OFPT_FEATURES_REPLY: once(o.OFP_SWITCH_FEATURES_PACK_STR),
    o.OFPT_GET_CONFIG_REQUEST: nothing,
    o.OFPT_GET_CONFIG_REPLY: once(o.OFP_SWITCH_CONFIG_PACK_STR),
    o.OFPT_SET_CONFIG: once(o.OFP_SWITCH_CONFIG_PACK_STR),
    o.OFPT_PACKET_IN: packet_in,
    o.OFPT_FLOW_REMOVED: flow_removed,
    o.OFPT_PORT_STATUS: once(o.OFP_PORT_STATUS_PACK_STR),
    o.OFPT_PACKET_OUT: packet_out,
    o.OFPT_GROUP_MOD: group_mod,
    o.OFPT_PORT_MOD: once(o.OFP_PORT_MOD_PACK_STR),
    o.OFPT_TABLE_MOD: once(o.OFP_TABLE_MOD_PACK_STR),
    o.OFPT_MULTIPART_REQUEST: multipart(REQUESTS, o.OFP_MULTIPART_REQUEST_PACK_STR),
    o.OFPT_MULTIPART_REPLY: multipart(REPLIES, o.OFP_MULTIPART_REPLY_PACK_STR),
    o.OFPT_BARRIER_REQUEST: nothing,
    o.OFPT_BARRIER_REPLY: nothing,
    o.OFPT_QUEUE_GET_CONFIG_REQUEST: once(o.OFP_QUEUE_GET_CONFIG_REQUEST_PACK_STR),
    o.OFPT_QUEUE_GET_CONFIG_REPLY: queue_config,
    o.OFPT_ROLE_REQUEST: once(o.OFP_ROLE_REQUEST_PACK_STR),
    o.OFPT_ROLE_REPLY: once(o.OFP_ROLE_REQUEST_PACK_STR),
    o.OFPT_GET_ASYNC_REQUEST: nothing,
    o.OFPT_GET_ASYNC_REPLY: once(o.OFP_ASYNC_CONFIG_PACK_STR),
    o.OFPT_SET_ASYNC: once(o.OFP_ASYNC_CONFIG_PACK_STR),
    o.OFPT_METER_MOD: meter_mod,
}

# Replies: os-ken's reader must take them as well.
READ = {o.OFPT_FEATURES_REPLY, o.OFPT_GET_CONFIG_REPLY, o.OFPT_PACKET_IN, o.OFPT_FLOW_REMOVED}
READ |= {o.OFPT_PORT_STATUS, o.OFPT_MULTIPART_REPLY, o.OFPT_QUEUE_GET_CONFIG_REPLY}
READ |= {o.OFPT_ROLE_REPLY, o.OFPT_GET_ASYNC_REPLY, o.OFPT_BARRIER_REPLY}


def before_writing(_message):
    pass


def is_misread(_data):
    return False
