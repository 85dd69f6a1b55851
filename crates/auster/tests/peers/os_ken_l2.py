"""A learning switch on os-ken, the shape of Ryu's simple_switch_13: os-ken 4 ships neither
applications nor a command to start them, so this file is both.

Usage: os_ken_l2.py --ofp-listen-host 127.0.0.1 --ofp-tcp-listen-port PORT
"""

import sys

from os_ken.lib import hub

hub.patch(thread=False)

from os_ken import cfg  # noqa: E402
from os_ken.base import app_manager  # noqa: E402
from os_ken.controller import ofp_event  # noqa: E402
from os_ken.controller import controller  # noqa: E402,F401  (registers the listen options)
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls  # noqa: E402
from os_ken.lib.packet import ethernet, packet  # noqa: E402
from os_ken.ofproto import ofproto_v1_3  # noqa: E402


class LearningSwitch(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.port_of = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def switch_features(self, ev):
        dp = ev.msg.datapath
        of, parser = dp.ofproto, dp.ofproto_parser
        to_controller = [parser.OFPActionOutput(of.OFPP_CONTROLLER, of.OFPCML_NO_BUFFER)]
        self.add_flow(dp, 0, parser.OFPMatch(), to_controller)
        print(f"switch {dp.id:016x}", flush=True)

    @staticmethod
    def add_flow(dp, priority, match, actions):
        of, parser = dp.ofproto, dp.ofproto_parser
        apply = [parser.OFPInstructionActions(of.OFPIT_APPLY_ACTIONS, actions)]
        dp.send_msg(parser.OFPFlowMod(dp, priority=priority, match=match, instructions=apply))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, ev):
        msg = ev.msg
        dp = msg.datapath
        of, parser = dp.ofproto, dp.ofproto_parser
        in_port = msg.match["in_port"]
        eth = packet.Packet(msg.data).get_protocols(ethernet.ethernet)[0]
        self.port_of[(dp.id, eth.src)] = in_port
        out = self.port_of.get((dp.id, eth.dst), of.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(out)]
        if out != of.OFPP_FLOOD:
            match = parser.OFPMatch(in_port=in_port, eth_src=eth.src, eth_dst=eth.dst)
            self.add_flow(dp, 1, match, actions)
        dp.send_msg(
            parser.OFPPacketOut(
                datapath=dp,
                buffer_id=of.OFP_NO_BUFFER,
                in_port=in_port,
                actions=actions,
                data=msg.data,
            )
        )


if __name__ == "__main__":
    cfg.CONF(args=sys.argv[1:], project="os_ken", version="os-ken 4")
    app_manager.AppManager.run_apps([__name__, "os_ken.controller.ofp_handler"])
