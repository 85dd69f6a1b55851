"""OpenFlow 1.3 by os-ken, and 1.2, whose names differ for statistics."""

import struct

from os_ken.ofproto import ofproto_protocol, ofproto_v1_2, ofproto_v1_2_parser
from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser

from walk import experimenter, multipart, nothing, once, repeated


class Of13:
    """1.3, by its constants and its parser."""

    def __init__(self, o, p):
        self.o, self.p = o, p
        self.DP = ofproto_protocol.ProtocolDesc(o.OFP_VERSION)
        self.FLOW_STATS_REQUEST, self.FLOW_STATS = self.flow_layouts()
        self.REQUESTS = self.requests()
        self.REPLIES = self.replies()
        # Messages that os-ken reads and writes.
        self.WHOLE = {o.OFPT_HELLO, o.OFPT_ERROR, o.OFPT_ECHO_REQUEST, o.OFPT_ECHO_REPLY}
        self.WHOLE |= {o.OFPT_EXPERIMENTER, o.OFPT_FLOW_MOD}
        self.WALKS = self.walks()
        # Replies: os-ken's reader must take them as well.
        self.READ = {o.OFPT_FEATURES_REPLY, o.OFPT_GET_CONFIG_REPLY, o.OFPT_PACKET_IN}
        self.READ |= {o.OFPT_FLOW_REMOVED, o.OFPT_PORT_STATUS, o.OFPT_QUEUE_GET_CONFIG_REPLY}
        self.READ |= {o.OFPT_ROLE_REPLY, o.OFPT_BARRIER_REPLY} | self.later_replies()

    def flow_layouts(self):
        return self.o.OFP_FLOW_STATS_REQUEST_0_PACK_STR, self.o.OFP_FLOW_STATS_0_PACK_STR

    def later_replies(self):
        return {self.o.OFPT_MULTIPART_REPLY, self.o.OFPT_GET_ASYNC_REPLY}

    def before_writing(self, _message):
        pass

    def is_misread(self, _data):
        return False

    def match(self, w):
        w.part(self.p.OFPMatch, lambda match: (match.length + 7) // 8 * 8)

    def packet_in(self, w):
        w.fixed(self.o.OFP_PACKET_IN_PACK_STR)
        self.match(w)
        w.fixed("!2x")
        w.rest()

    def flow_removed(self, w):
        w.fixed(self.o.OFP_FLOW_REMOVED_PACK_STR0)
        self.match(w)

    def packet_out(self, w):
        (_, _, actions_len) = w.fixed(self.o.OFP_PACKET_OUT_PACK_STR)
        start = len(w.out)
        w.parts(self.p.OFPAction, w.at + actions_len)
        struct.pack_into("!H", w.out, start - 8, len(w.out) - start)
        w.rest()

    def group_mod(self, w):
        w.fixed(self.o.OFP_GROUP_MOD_PACK_STR)
        w.parts(self.p.OFPBucket, len(w.data))

    def meter_mod(self, w):
        w.fixed(self.o.OFP_METER_MOD_PACK_STR)
        w.parts(self.p.OFPMeterBandHeader, len(w.data))

    def queue_config(self, w):
        w.fixed(self.o.OFP_QUEUE_GET_CONFIG_REPLY_PACK_STR)
        while w.at < len(w.data):
            end = w.at
            start = len(w.out)
            end += w.fixed(self.o.OFP_PACKET_QUEUE_PACK_STR)[2]
            while w.at < end:
                kind, length = struct.unpack_from(self.o.OFP_QUEUE_PROP_HEADER_PACK_STR, w.data, w.at)
                prop_start, prop_end = len(w.out), w.at + length
                w.fixed(self.o.OFP_QUEUE_PROP_HEADER_PACK_STR)
                if kind in (self.o.OFPQT_MIN_RATE, self.o.OFPQT_MAX_RATE):
                    w.fixed(self.o.OFP_QUEUE_PROP_MIN_RATE_PACK_STR)
                elif kind == self.o.OFPQT_EXPERIMENTER:
                    w.fixed(self.o.OFP_QUEUE_PROP_EXPERIMENTER_PACK_STR)
                w.out += w.data[w.at : prop_end]
                w.at = prop_end
                w.close(prop_start, 2)
            w.close(start, 8)

    def flow_request(self, w):
        w.fixed(self.FLOW_STATS_REQUEST)
        self.match(w)

    def flow_stats(self, w):
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(self.FLOW_STATS)[0]
            self.match(w)
            w.parts(self.p.OFPInstruction, end)
            w.close(start, 0)

    def group_stats(self, w):
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(self.o.OFP_GROUP_STATS_PACK_STR)[0]
            while w.at < end:
                w.fixed(self.o.OFP_BUCKET_COUNTER_PACK_STR)
            w.close(start, 0)

    def group_desc(self, w):
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(self.o.OFP_GROUP_DESC_STATS_PACK_STR)[0]
            w.parts(self.p.OFPBucket, end)
            w.close(start, 0)

    def meter_stats(self, w):
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(self.o.OFP_METER_STATS_PACK_STR)[1]
            while w.at < end:
                w.fixed(self.o.OFP_METER_BAND_STATS_PACK_STR)
            w.close(start, 4)

    def meter_config(self, w):
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(self.o.OFP_METER_CONFIG_PACK_STR)[0]
            w.parts(self.p.OFPMeterBandHeader, end)
            w.close(start, 0)

    def table_features(self, w):
        while w.at < len(w.data):
            features = self.p.OFPTableFeaturesStats.parser(w.data, w.at)
            w.at += features.length
            w.out += features.serialize()

    def requests(self):
        o = self.o
        return {
            o.OFPMP_DESC: nothing,
            o.OFPMP_FLOW: self.flow_request,
            o.OFPMP_AGGREGATE: self.flow_request,
            o.OFPMP_TABLE: nothing,
            o.OFPMP_PORT_STATS: once(o.OFP_PORT_STATS_REQUEST_PACK_STR),
            o.OFPMP_QUEUE: once(o.OFP_QUEUE_STATS_REQUEST_PACK_STR),
            o.OFPMP_GROUP: once(o.OFP_GROUP_STATS_REQUEST_PACK_STR),
            o.OFPMP_GROUP_DESC: nothing,
            o.OFPMP_GROUP_FEATURES: nothing,
            o.OFPMP_METER: once(o.OFP_METER_MULTIPART_REQUEST_PACK_STR),
            o.OFPMP_METER_CONFIG: once(o.OFP_METER_MULTIPART_REQUEST_PACK_STR),
            o.OFPMP_METER_FEATURES: nothing,
            o.OFPMP_TABLE_FEATURES: self.table_features,
            o.OFPMP_PORT_DESC: nothing,
            o.OFPMP_EXPERIMENTER: experimenter,
        }

    def replies(self):
        o = self.o
        return {
            o.OFPMP_DESC: once(o.OFP_DESC_PACK_STR),
            o.OFPMP_FLOW: self.flow_stats,
            o.OFPMP_AGGREGATE: once(o.OFP_AGGREGATE_STATS_REPLY_PACK_STR),
            o.OFPMP_TABLE: repeated(o.OFP_TABLE_STATS_PACK_STR),
            o.OFPMP_PORT_STATS: repeated(o.OFP_PORT_STATS_PACK_STR),
            o.OFPMP_QUEUE: repeated(o.OFP_QUEUE_STATS_PACK_STR),
            o.OFPMP_GROUP: self.group_stats,
            o.OFPMP_GROUP_DESC: self.group_desc,
            o.OFPMP_GROUP_FEATURES: once(o.OFP_GROUP_FEATURES_PACK_STR),
            o.OFPMP_METER: self.meter_stats,
            o.OFPMP_METER_CONFIG: self.meter_config,
            o.OFPMP_METER_FEATURES: once(o.OFP_METER_FEATURES_PACK_STR),
            o.OFPMP_TABLE_FEATURES: self.table_features,
            o.OFPMP_PORT_DESC: repeated(o.OFP_PORT_PACK_STR),
            o.OFPMP_EXPERIMENTER: experimenter,
        }

    def common_walks(self):
        o = self.o
        return {
            o.OFPT_FEATURES_REQUEST: nothing,
            o.OFPT_FEATURES_REPLY: once(o.OFP_SWITCH_FEATURES_PACK_STR),
            o.OFPT_GET_CONFIG_REQUEST: nothing,
            o.OFPT_GET_CONFIG_REPLY: once(o.OFP_SWITCH_CONFIG_PACK_STR),
            o.OFPT_SET_CONFIG: once(o.OFP_SWITCH_CONFIG_PACK_STR),
            o.OFPT_PACKET_IN: self.packet_in,
            o.OFPT_FLOW_REMOVED: self.flow_removed,
            o.OFPT_PORT_STATUS: once(o.OFP_PORT_STATUS_PACK_STR),
            o.OFPT_PACKET_OUT: self.packet_out,
            o.OFPT_GROUP_MOD: self.group_mod,
            o.OFPT_PORT_MOD: once(o.OFP_PORT_MOD_PACK_STR),
            o.OFPT_TABLE_MOD: once(o.OFP_TABLE_MOD_PACK_STR),
            o.OFPT_BARRIER_REQUEST: nothing,
            o.OFPT_BARRIER_REPLY: nothing,
            o.OFPT_QUEUE_GET_CONFIG_REQUEST: once(o.OFP_QUEUE_GET_CONFIG_REQUEST_PACK_STR),
            o.OFPT_QUEUE_GET_CONFIG_REPLY: self.queue_config,
            o.OFPT_ROLE_REQUEST: once(o.OFP_ROLE_REQUEST_PACK_STR),
            o.OFPT_ROLE_REPLY: once(o.OFP_ROLE_REQUEST_PACK_STR),
        }

    def walks(self):
        o = self.o
        return self.common_walks() | {
            o.OFPT_MULTIPART_REQUEST: multipart(self.REQUESTS, o.OFP_MULTIPART_REQUEST_PACK_STR),
            o.OFPT_MULTIPART_REPLY: multipart(self.REPLIES, o.OFP_MULTIPART_REPLY_PACK_STR),
            o.OFPT_GET_ASYNC_REQUEST: nothing,
            o.OFPT_GET_ASYNC_REPLY: once(o.OFP_ASYNC_CONFIG_PACK_STR),
            o.OFPT_SET_ASYNC: once(o.OFP_ASYNC_CONFIG_PACK_STR),
            o.OFPT_METER_MOD: self.meter_mod,
        }


class Of12(Of13):
    """What 1.2 has in other layouts, or under other names."""

    def flow_layouts(self):
        return self.o.OFP_FLOW_STATS_REQUEST_PACK_STR, self.o.OFP_FLOW_STATS_PACK_STR

    def later_replies(self):
        return {self.o.OFPT_STATS_REPLY}

    def features(self, w):
        w.fixed(self.o.OFP_SWITCH_FEATURES_PACK_STR)
        repeated(self.o.OFP_PORT_PACK_STR)(w)

    def requests(self):
        o = self.o
        return {
            o.OFPST_DESC: nothing,
            o.OFPST_FLOW: self.flow_request,
            o.OFPST_AGGREGATE: self.flow_request,
            o.OFPST_TABLE: nothing,
            o.OFPST_PORT: once(o.OFP_PORT_STATS_REQUEST_PACK_STR),
            o.OFPST_QUEUE: once(o.OFP_QUEUE_STATS_REQUEST_PACK_STR),
            o.OFPST_GROUP: once(o.OFP_GROUP_STATS_REQUEST_PACK_STR),
            o.OFPST_GROUP_DESC: nothing,
            o.OFPST_GROUP_FEATURES: nothing,
            o.OFPST_EXPERIMENTER: experimenter,
        }

    def replies(self):
        o = self.o
        return {
            o.OFPST_DESC: once(o.OFP_DESC_STATS_PACK_STR),
            o.OFPST_FLOW: self.flow_stats,
            o.OFPST_AGGREGATE: once(o.OFP_AGGREGATE_STATS_REPLY_PACK_STR),
            o.OFPST_TABLE: repeated(o.OFP_TABLE_STATS_PACK_STR),
            o.OFPST_PORT: repeated(o.OFP_PORT_STATS_PACK_STR),
            o.OFPST_QUEUE: repeated(o.OFP_QUEUE_STATS_PACK_STR),
            o.OFPST_GROUP: self.group_stats,
            o.OFPST_GROUP_DESC: self.group_desc,
            o.OFPST_GROUP_FEATURES: once(o.OFP_GROUP_FEATURES_STATS_PACK_STR),
            o.OFPST_EXPERIMENTER: experimenter,
        }

    def walks(self):
        o = self.o
        return self.common_walks() | {
            o.OFPT_FEATURES_REPLY: self.features,
            o.OFPT_STATS_REQUEST: multipart(self.REQUESTS, o.OFP_STATS_REQUEST_PACK_STR),
            o.OFPT_STATS_REPLY: multipart(self.REPLIES, o.OFP_STATS_REPLY_PACK_STR),
        }


V12 = Of12(ofproto_v1_2, ofproto_v1_2_parser)
V13 = Of13(ofproto_v1_3, ofproto_v1_3_parser)
