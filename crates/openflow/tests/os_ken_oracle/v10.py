"""OpenFlow 1.0 by os-ken."""

import struct

from os_ken.ofproto import ofproto_protocol
from os_ken.ofproto import ofproto_v1_0 as o
from os_ken.ofproto import ofproto_v1_0_parser as p

from walk import experimenter, multipart, nothing, once, repeated

DP = ofproto_protocol.ProtocolDesc(o.OFP_VERSION)

FIELDS = ("in_port", "dl_src", "dl_dst", "dl_vlan", "dl_vlan_pcp", "dl_type")
FIELDS += ("nw_tos", "nw_proto", "tp_src", "tp_dst")
ADDRESSES = {"nw_src": o.OFPFW_NW_SRC_SHIFT, "nw_dst": o.OFPFW_NW_DST_SHIFT}


def rebuilt(match):
    """A match of the same fields, whose wildcards os-ken works out by itself."""
    said = {name: match[name] for name in FIELDS if name in match}
    for name in ADDRESSES:
        if prefix_len := match[name + "_mask"]:
            said[name] = getattr(match, name)
            said[name + "_mask"] = prefix_len
    new = p.OFPMatch(**said)
    # For no address at all os-ken writes 63 wild bits; 32 and more mean the same (5.2.3).
    for shift in ADDRESSES.values():
        new.wildcards -= max((new.wildcards >> shift & 0x3F) - 32, 0) << shift
    return new


def before_writing(message):
    if isinstance(message, p.OFPFlowMod):
        message.match = rebuilt(message.match)


def match(w):
    rebuilt(p.OFPMatch.parse(w.data, w.at)).serialize(w.out, len(w.out))
    w.at += o.OFP_MATCH_SIZE


def flow_removed(w):
    match(w)
    w.fixed(o.OFP_FLOW_REMOVED_PACK_STR0)


def packet_in(w):
    w.fixed(o.OFP_PACKET_IN_PACK_STR)
    w.rest()


def packet_out(w):
    (_, _, actions_len) = w.fixed(o.OFP_PACKET_OUT_PACK_STR)
    start = len(w.out)
    w.parts(p.OFPAction, w.at + actions_len)
    struct.pack_into("!H", w.out, start - 2, len(w.out) - start)
    w.rest()


def features(w):
    w.fixed(o.OFP_SWITCH_FEATURES_PACK_STR)
    repeated(o.OFP_PHY_PORT_PACK_STR)(w)


def queue_config(w):
    w.fixed(o.OFP_QUEUE_GET_CONFIG_REPLY_PACK_STR)
    while w.at < len(w.data):
        start, end = len(w.out), w.at
        end += w.fixed(o.OFP_PACKET_QUEUE_PQCK_STR)[1]
        while w.at < end:
            prop_start = len(w.out)
            w.fixed(o.OFP_QUEUE_PROP_HEADER_PACK_STR)
            w.fixed(o.OFP_QUEUE_PROP_MIN_RATE_PACK_STR)
            w.close(prop_start, 2)
        w.close(start, 4)


def flow_request(w):
    match(w)
    w.fixed("!BxH")


def flow_stats(w):
    while w.at < len(w.data):
        start, end = len(w.out), w.at
        end += w.fixed(o.OFP_FLOW_STATS_0_PACK_STR)[0]
        match(w)
        w.fixed(o.OFP_FLOW_STATS_1_PACK_STR)
        w.parts(p.OFPAction, end)
        w.close(start, 0)


REQUESTS = {
    o.OFPST_DESC: nothing,
    o.OFPST_FLOW: flow_request,
    o.OFPST_AGGREGATE: flow_request,
    o.OFPST_TABLE: nothing,
    o.OFPST_PORT: once(o.OFP_PORT_STATS_REQUEST_PACK_STR),
    o.OFPST_QUEUE: once(o.OFP_QUEUE_STATS_REQUEST_PACK_STR),
    o.OFPST_VENDOR: experimenter,
}

REPLIES = {
    o.OFPST_DESC: once(o.OFP_DESC_STATS_PACK_STR),
    o.OFPST_FLOW: flow_stats,
    o.OFPST_AGGREGATE: once(o.OFP_AGGREGATE_STATS_REPLY_PACK_STR),
    o.OFPST_TABLE: repeated(o.OFP_TABLE_STATS_PACK_STR),
    o.OFPST_PORT: repeated(o.OFP_PORT_STATS_PACK_STR),
    o.OFPST_QUEUE: repeated(o.OFP_QUEUE_STATS_PACK_STR),
    o.OFPST_VENDOR: experimenter,
}

# Messages that os-ken reads and writes.
WHOLE = {o.OFPT_HELLO, o.OFPT_ERROR, o.OFPT_ECHO_REQUEST, o.OFPT_ECHO_REPLY}
WHOLE |= {o.OFPT_VENDOR, o.OFPT_FLOW_MOD}

WALKS = {
    o.OFPT_FEATURES_REQUEST: nothing,
    o.OFPT_FEATURES_REPLY: features,
    o.OFPT_GET_CONFIG_REQUEST: nothing,
    o.OFPT_GET_CONFIG_REPLY: once(o.OFP_SWITCH_CONFIG_PACK_STR),
    o.OFPT_SET_CONFIG: once(o.OFP_SWITCH_CONFIG_PACK_STR),
    o.OFPT_PACKET_IN: packet_in,
    o.OFPT_FLOW_REMOVED: flow_removed,
    o.OFPT_PORT_STATUS: once(o.OFP_PORT_STATUS_PACK_STR),
    o.OFPT_PACKET_OUT: packet_out,
    o.OFPT_PORT_MOD: once(o.OFP_PORT_MOD_PACK_STR),
    o.OFPT_STATS_REQUEST: multipart(REQUESTS, o.OFP_STATS_MSG_PACK_STR),
    o.OFPT_STATS_REPLY: multipart(REPLIES, o.OFP_STATS_MSG_PACK_STR),
    o.OFPT_BARRIER_REQUEST: nothing,
    o.OFPT_BARRIER_REPLY: nothing,
    o.OFPT_QUEUE_GET_CONFIG_REQUEST: once(o.OFP_QUEUE_GET_CONFIG_REQUEST_PACK_STR),
    o.OFPT_QUEUE_GET_CONFIG_REPLY: queue_config,
}

# Replies: os-ken's reader must take them as well.
READ = {o.OFPT_FEATURES_REPLY, o.OFPT_GET_CONFIG_REPLY, o.OFPT_PACKET_IN, o.OFPT_FLOW_REMOVED}
READ |= {o.OFPT_PORT_STATUS, o.OFPT_STATS_REPLY, o.OFPT_QUEUE_GET_CONFIG_REPLY}
READ |= {o.OFPT_BARRIER_REPLY}


def is_misread(_data):
    return False
