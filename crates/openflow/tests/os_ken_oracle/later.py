"""OpenFlow 1.4 and 1.5 by os-ken: all messages, in the layouts of each."""

import struct

from os_ken.ofproto import ofproto_protocol, ofproto_v1_4, ofproto_v1_4_parser
from os_ken.ofproto import ofproto_v1_5, ofproto_v1_5_parser

from walk import experimenter, multipart, nothing, once, repeated, rewrite


class Later:
    """One version, by its constants and its parser."""

    def __init__(self, o, p, is_v15):
        self.o, self.p, self.is_v15 = o, p, is_v15
        self.DP = ofproto_protocol.ProtocolDesc(o.OFP_VERSION)
        self.REQUESTS = self.requests()
        self.REPLIES = self.replies()
        self.WHOLE = {o.OFPT_HELLO, o.OFPT_ERROR, o.OFPT_ECHO_REQUEST, o.OFPT_ECHO_REPLY}
        self.WHOLE |= {o.OFPT_EXPERIMENTER, o.OFPT_FLOW_MOD}
        self.WALKS = self.walks()
        # os-ken's reader must take replies as well.
        self.READ = {o.OFPT_FEATURES_REPLY, o.OFPT_GET_CONFIG_REPLY, o.OFPT_PACKET_IN}
        self.READ |= {o.OFPT_FLOW_REMOVED, o.OFPT_PORT_STATUS, o.OFPT_MULTIPART_REPLY}
        self.READ |= {o.OFPT_ROLE_REPLY, o.OFPT_GET_ASYNC_REPLY, o.OFPT_BARRIER_REPLY}
        self.READ |= {o.OFPT_ROLE_STATUS, o.OFPT_TABLE_STATUS}

    def before_writing(self, _message):
        pass

    def is_misread(self, data):
        """Whether os-ken's own reader fails: on flow updates, of whose four events it takes one; on
        several controllers or buckets of 1.5, which it reads past their ends."""
        if len(data) < 10:
            return False
        (_, kind, part) = struct.unpack_from("!BB6xH", data)
        misread = {self.o.OFPMP_FLOW_MONITOR, 18}
        if self.is_v15:
            misread.add(self.o.OFPMP_GROUP_DESC)
        return kind == self.o.OFPT_MULTIPART_REPLY and part in misread

    # Parts.

    def match(self, w):
        w.part(self.p.OFPMatch, lambda match: (match.length + 7) // 8 * 8)

    def stats(self, w):
        w.part(self.p.OFPStats, lambda stats: (stats.length + 7) // 8 * 8)

    def properties(self, w, end, known):
        """Properties up to `end`: of known layouts, lists of words, or a vendor's."""
        while w.at < end:
            kind, length = struct.unpack_from("!HH", w.data, w.at)
            start, at = len(w.out), w.at
            if kind in known and known[kind] is not None:
                layout = known[kind]
                if callable(layout):
                    layout(w, at + length)
                else:
                    w.fixed(layout)
            elif kind in known:
                w.fixed("!HH")
                w.out += w.data[w.at : at + length]
            else:
                vendor = self.p.OFPPropCommonExperimenter4ByteData.parser(w.data[at:])
                w.out += vendor.serialize()
            w.at = at + (length + 7) // 8 * 8
            w.out += bytes(-(len(w.out) - start) % 8)

    def port(self, w):
        o, start, at = self.o, len(w.out), w.at
        length = w.fixed(o.OFP_PORT_PACK_STR)[1]
        known = {
            o.OFPPDPT_ETHERNET: o.OFP_PORT_DESC_PROP_ETHERNET_PACK_STR,
            o.OFPPDPT_OPTICAL: o.OFP_PORT_DESC_PROP_OPTICAL_PACK_STR,
        }
        if self.is_v15:
            known |= {o.OFPPDPT_PIPELINE_INPUT: None, o.OFPPDPT_PIPELINE_OUTPUT: None}
            known |= {o.OFPPDPT_RECIRCULATE: None}
        self.properties(w, at + length, known)
        w.close(start, 4)

    def table_properties(self, w, end):
        o = self.o
        known = {
            o.OFPTMPT_EVICTION: o.OFP_TABLE_MOD_PROP_EVICTION_PACK_STR,
            o.OFPTMPT_VACANCY: o.OFP_TABLE_MOD_PROP_VACANCY_PACK_STR,
        }
        self.properties(w, end, known)

    def table_desc(self, w):
        start, at = len(w.out), w.at
        length = w.fixed(self.o.OFP_TABLE_DESC_PACK_STR)[0]
        self.table_properties(w, at + length)
        w.close(start, 0)

    def bundle_properties(self, w, end):
        known = {self.o.OFPBPT_TIME: "!HH4xQI4x"} if self.is_v15 else {}
        self.properties(w, end, known)

    def bucket(self, w):
        if not self.is_v15:
            w.part(self.p.OFPBucket)
            return
        o, start, at = self.o, len(w.out), w.at
        length, actions_len, _ = w.fixed(o.OFP_BUCKET_PACK_STR)
        actions = len(w.out)
        w.parts(self.p.OFPAction, w.at + actions_len)
        struct.pack_into("!H", w.out, start + 2, len(w.out) - actions)
        known = {
            o.OFPGBPT_WEIGHT: o.OFP_GROUP_BUCKET_PROP_WEIGHT_PACK_STR,
            o.OFPGBPT_WATCH_PORT: o.OFP_GROUP_BUCKET_PROP_WATCH_PACK_STR,
            o.OFPGBPT_WATCH_GROUP: o.OFP_GROUP_BUCKET_PROP_WATCH_PACK_STR,
        }
        self.properties(w, at + length, known)
        w.close(start, 0)

    def buckets(self, w, end):
        while w.at < end:
            self.bucket(w)

    # Messages.

    def packet_in(self, w):
        w.fixed(self.o.OFP_PACKET_IN_PACK_STR)
        self.match(w)
        w.fixed("!2x")
        w.rest()

    def flow_removed(self, w):
        w.fixed(self.o.OFP_FLOW_REMOVED_PACK_STR0)
        self.match(w)
        if self.is_v15:
            self.stats(w)

    def packet_out(self, w):
        if self.is_v15:
            (_, actions_len) = w.fixed(self.o.OFP_PACKET_OUT_0_PACK_STR)
            len_at = len(w.out) - 4
            self.match(w)
        else:
            (_, _, actions_len) = w.fixed(self.o.OFP_PACKET_OUT_PACK_STR)
            len_at = len(w.out) - 8
        start = len(w.out)
        w.parts(self.p.OFPAction, w.at + actions_len)
        struct.pack_into("!H", w.out, len_at, len(w.out) - start)
        w.rest()

    def group_mod(self, w):
        if not self.is_v15:
            w.fixed(self.o.OFP_GROUP_MOD_PACK_STR)
            self.buckets(w, len(w.data))
            return
        length = w.fixed(self.o.OFP_GROUP_MOD_PACK_STR)[3]
        start = len(w.out)
        self.buckets(w, w.at + length)
        struct.pack_into("!H", w.out, start - 8, len(w.out) - start)
        self.properties(w, len(w.data), {})

    def meter_mod(self, w):
        w.fixed(self.o.OFP_METER_MOD_PACK_STR)
        w.parts(self.p.OFPMeterBandHeader, len(w.data))

    def port_status(self, w):
        w.fixed("!B7x")
        self.port(w)

    def port_mod(self, w):
        o = self.o
        w.fixed(o.OFP_PORT_MOD_PACK_STR)
        known = {
            o.OFPPMPT_ETHERNET: o.OFP_PORT_MOD_PROP_ETHERNET_PACK_STR,
            o.OFPPMPT_OPTICAL: o.OFP_PORT_MOD_PROP_OPTICAL_PACK_STR,
        }
        self.properties(w, len(w.data), known)

    def table_mod(self, w):
        w.fixed(self.o.OFP_TABLE_MOD_PACK_STR)
        self.table_properties(w, len(w.data))

    def table_status(self, w):
        w.fixed("!B7x")
        self.table_desc(w)

    def role_status(self, w):
        w.fixed(self.o.OFP_ROLE_STATUS_PACK_STR)
        self.properties(w, len(w.data), {})

    def async_config(self, w):
        layout = self.o.OFP_ASYNC_CONFIG_PROP_REASONS_PACK_STR
        count = 16 if self.is_v15 else 12
        self.properties(w, len(w.data), {n: layout for n in range(count)})

    def bundle_control(self, w):
        w.fixed(self.o.OFP_BUNDLE_CTRL_MSG_PACK_STR)
        self.bundle_properties(w, len(w.data))

    def held(self, w):
        """A message within another one, by its own walk."""
        (length,) = struct.unpack_from("!H", w.data, w.at + 2)
        w.out += rewrite(self, w.data[w.at : w.at + length])
        w.at += length

    def bundle_add(self, w):
        w.fixed("!I2xH")
        self.held(w)
        if w.at < len(w.data):
            w.out += bytes(-len(w.out) % 8)
            w.at += -w.at % 8
        self.bundle_properties(w, len(w.data))

    def controller_status(self, w):
        start, at = len(w.out), w.at
        length = w.fixed(self.o.OFP_CONTROLLER_STATUS_PACK_STR)[0]
        self.properties(w, at + length, {self.o.OFPCSPT_URI: None})
        w.close(start, 0)

    # Multipart bodies.

    def flow_request(self, w):
        w.fixed(self.o.OFP_FLOW_STATS_REQUEST_0_PACK_STR)
        self.match(w)

    def flow_stats(self, w):
        layout = self.o.OFP_FLOW_DESC_0_PACK_STR if self.is_v15 else None
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(layout or self.o.OFP_FLOW_STATS_0_PACK_STR)[0]
            self.match(w)
            if self.is_v15:
                self.stats(w)
            w.parts(self.p.OFPInstruction, end)
            w.close(start, 0)

    def flow_counters(self, w):
        while w.at < len(w.data):
            start = len(w.out)
            w.fixed(self.o.OFP_FLOW_STATS_0_PACK_STR)
            self.match(w)
            self.stats(w)
            w.close(start, 0)

    def port_stats(self, w):
        o = self.o
        known = {
            o.OFPPSPT_ETHERNET: o.OFP_PORT_STATS_PROP_ETHERNET_PACK_STR,
            o.OFPPSPT_OPTICAL: o.OFP_PORT_STATS_PROP_OPTICAL_PACK_STR,
        }
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(o.OFP_PORT_STATS_PACK_STR)[0]
            self.properties(w, end, known)
            w.close(start, 0)

    def queue_stats(self, w):
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(self.o.OFP_QUEUE_STATS_PACK_STR)[0]
            self.properties(w, end, {})
            w.close(start, 0)

    def queue_desc(self, w):
        o = self.o
        known = {
            o.OFPQDPT_MIN_RATE: o.OFP_QUEUE_DESC_PROP_MIN_RATE_PACK_STR,
            o.OFPQDPT_MAX_RATE: o.OFP_QUEUE_DESC_PROP_MAX_RATE_PACK_STR,
        }
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(o.OFP_QUEUE_DESC_PACK_STR)[2]
            self.properties(w, end, known)
            w.close(start, 8)

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
            values = w.fixed(self.o.OFP_GROUP_DESC_STATS_PACK_STR)
            end += values[0]
            if self.is_v15:
                buckets = len(w.out)
                self.buckets(w, w.at + values[3])
                struct.pack_into("!H", w.out, buckets - 8, len(w.out) - buckets)
                self.properties(w, end, {})
            else:
                self.buckets(w, end)
            w.close(start, 0)

    def meter_stats(self, w):
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(self.o.OFP_METER_STATS_PACK_STR)[1]
            while w.at < end:
                w.fixed(self.o.OFP_METER_BAND_STATS_PACK_STR)
            w.close(start, 4)

    def meter_config(self, w):
        o = self.o
        layout = o.OFP_METER_DESC_PACK_STR if self.is_v15 else o.OFP_METER_CONFIG_PACK_STR
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            end += w.fixed(layout)[0]
            w.parts(self.p.OFPMeterBandHeader, end)
            w.close(start, 0)

    def table_features(self, w):
        while w.at < len(w.data):
            features = self.p.OFPTableFeaturesStats.parser(w.data, w.at)
            w.at += features.length
            w.out += features.serialize()

    def flow_monitor(self, w):
        w.fixed(self.o.OFP_FLOW_MONITOR_REQUEST_0_PACK_STR)
        self.match(w)

    def flow_updates(self, w):
        o = self.o
        while w.at < len(w.data):
            start, end = len(w.out), w.at
            length, event = struct.unpack_from("!HH", w.data, w.at)
            if event == o.OFPFME_ABBREV:
                w.fixed(o.OFP_FLOW_UPDATE_ABBREV_PACK_STR)
            elif event in (o.OFPFME_PAUSED, o.OFPFME_RESUMED):
                w.fixed(o.OFP_FLOW_UPDATE_PAUSED_PACK_STR)
            else:
                w.fixed(o.OFP_FLOW_UPDATE_FULL_0_PACK_STR)
                self.match(w)
                w.parts(self.p.OFPInstruction, end + length)
            w.close(start, 0)

    def tables(self, w):
        while w.at < len(w.data):
            self.table_desc(w)

    def ports(self, w):
        while w.at < len(w.data):
            self.port(w)

    def controllers(self, w):
        while w.at < len(w.data):
            self.controller_status(w)

    def bundle_features(self, layout):
        def walk(w):
            w.fixed(layout)
            self.properties(w, len(w.data), {1: "!HH4x" + "QI4x" * 4})

        return walk

    def requests(self):
        o, is_v15 = self.o, self.is_v15
        word = once("!I4x")
        requests = {
            o.OFPMP_DESC: nothing,
            1: self.flow_request,
            2: self.flow_request,
            3: nothing,
            o.OFPMP_PORT_STATS: word,
            5: once("!II"),
            6: word,
            o.OFPMP_GROUP_DESC: word if is_v15 else nothing,
            o.OFPMP_GROUP_FEATURES: nothing,
            9: word,
            10: word,
            o.OFPMP_METER_FEATURES: nothing,
            o.OFPMP_TABLE_FEATURES: self.table_features,
            o.OFPMP_PORT_DESC: word if is_v15 else nothing,
            o.OFPMP_TABLE_DESC: nothing,
            o.OFPMP_QUEUE_DESC: once("!II"),
            o.OFPMP_FLOW_MONITOR: self.flow_monitor,
            o.OFPMP_EXPERIMENTER: experimenter,
        }
        if is_v15:
            requests[17] = self.flow_request
            requests[18] = nothing
            layout = o.OFP_BUNDLE_FEATURES_REQUEST_PACK_STR
            requests[o.OFPMP_BUNDLE_FEATURES] = self.bundle_features(layout)
        return requests

    def replies(self):
        o, is_v15 = self.o, self.is_v15
        replies = {
            o.OFPMP_DESC: once(o.OFP_DESC_PACK_STR),
            1: self.flow_stats,
            2: self.stats if is_v15 else once(o.OFP_AGGREGATE_STATS_REPLY_PACK_STR),
            3: repeated(o.OFP_TABLE_STATS_PACK_STR),
            o.OFPMP_PORT_STATS: self.port_stats,
            5: self.queue_stats,
            6: self.group_stats,
            o.OFPMP_GROUP_DESC: self.group_desc,
            o.OFPMP_GROUP_FEATURES: once(o.OFP_GROUP_FEATURES_PACK_STR),
            9: self.meter_stats,
            10: self.meter_config,
            o.OFPMP_METER_FEATURES: once(o.OFP_METER_FEATURES_PACK_STR),
            o.OFPMP_TABLE_FEATURES: self.table_features,
            o.OFPMP_PORT_DESC: self.ports,
            o.OFPMP_TABLE_DESC: self.tables,
            o.OFPMP_QUEUE_DESC: self.queue_desc,
            o.OFPMP_FLOW_MONITOR: self.flow_updates,
            o.OFPMP_EXPERIMENTER: experimenter,
        }
        if is_v15:
            replies[17] = self.flow_counters
            replies[18] = self.controllers
            layout = o.OFP_BUNDLE_FEATURES_PACK_STR
            replies[o.OFPMP_BUNDLE_FEATURES] = self.bundle_features(layout)
        return replies

    def walks(self):
        o = self.o
        role = once(o.OFP_ROLE_REQUEST_PACK_STR)
        walks = {
            o.OFPT_FEATURES_REQUEST: nothing,
            o.OFPT_FEATURES_REPLY: once(o.OFP_SWITCH_FEATURES_PACK_STR),
            o.OFPT_GET_CONFIG_REQUEST: nothing,
            o.OFPT_GET_CONFIG_REPLY: once(o.OFP_SWITCH_CONFIG_PACK_STR),
            o.OFPT_SET_CONFIG: once(o.OFP_SWITCH_CONFIG_PACK_STR),
            o.OFPT_PACKET_IN: self.packet_in,
            o.OFPT_FLOW_REMOVED: self.flow_removed,
            o.OFPT_PORT_STATUS: self.port_status,
            o.OFPT_PACKET_OUT: self.packet_out,
            o.OFPT_GROUP_MOD: self.group_mod,
            o.OFPT_PORT_MOD: self.port_mod,
            o.OFPT_TABLE_MOD: self.table_mod,
            o.OFPT_MULTIPART_REQUEST: multipart(self.REQUESTS, o.OFP_MULTIPART_REQUEST_PACK_STR),
            o.OFPT_MULTIPART_REPLY: multipart(self.REPLIES, o.OFP_MULTIPART_REPLY_PACK_STR),
            o.OFPT_BARRIER_REQUEST: nothing,
            o.OFPT_BARRIER_REPLY: nothing,
            o.OFPT_ROLE_REQUEST: role,
            o.OFPT_ROLE_REPLY: role,
            o.OFPT_GET_ASYNC_REQUEST: nothing,
            o.OFPT_GET_ASYNC_REPLY: self.async_config,
            o.OFPT_SET_ASYNC: self.async_config,
            o.OFPT_METER_MOD: self.meter_mod,
            o.OFPT_ROLE_STATUS: self.role_status,
            o.OFPT_TABLE_STATUS: self.table_status,
            o.OFPT_REQUESTFORWARD: self.held,
            o.OFPT_BUNDLE_CONTROL: self.bundle_control,
            o.OFPT_BUNDLE_ADD_MESSAGE: self.bundle_add,
        }
        if self.is_v15:
            walks[o.OFPT_CONTROLLER_STATUS] = self.controller_status
        return walks


V14 = Later(ofproto_v1_4, ofproto_v1_4_parser, False)
V15 = Later(ofproto_v1_5, ofproto_v1_5_parser, True)
