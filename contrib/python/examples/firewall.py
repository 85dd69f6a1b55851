"""A firewall: what these rules match is dropped by each switch, also by those that come later.

firewall.py URL [NAME=MATCH …], the matches in ovs-ofctl words
"""

import sys

from auster import Network

url, *words = sys.argv[1:] or ["http://localhost:8080"]
rules = dict(word.split("=", 1) for word in words) or {"telnet": "tcp,tp_dst=23"}
net = Network(url)
flows = net.flows["firewall"]


def protect(switch):
    flows.update({
        f"{switch}.{name}": dict(switch=switch, match=match, actions="drop", priority=900)
        for name, match in rules.items()
    })


def start(topology):
    # Rules of a former start, which may be no rules any more.
    flows.clear()
    for switch in topology["switches"]:
        protect(switch["dpid"])
    print("protected", len(topology["switches"]), "switches", flush=True)


@net.on("switch_up")
def up(event):
    protect(event.dpid)


@net.on("reset")
def again(event):
    start(event.topology)


start(net.topology())
net.run()
