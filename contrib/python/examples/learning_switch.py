"""A learning switch, for networks without loops: auster run --forwarding off --api 8080"""

import sys

from auster import Network

net = Network(*sys.argv[1:] or ["http://localhost:8080"])
misses = net.tap("learning", table="after", copy=False, rate_max=10_000)
ports = {}


@net.on("packet_in", tap=misses)
def learn(p):
    known = ports.setdefault(p.switch, {})
    if p.eth_src in known or len(known) < 10_000:
        known[p.eth_src] = p.port
    out = known.get(p.eth_dst)
    if out is None:
        net.send(switch=p.switch, in_port=p.port, actions="flood", data=p.data)
        return
    name = f"{p.switch}.{p.port}.{p.eth_src}.{p.eth_dst}".replace(":", "")
    match = f"in_port={p.port},dl_src={p.eth_src},dl_dst={p.eth_dst}"
    net.flows["learning"][name] = dict(
        switch=p.switch, match=match, actions=f"output:{out}", idle_timeout=60
    )
    net.send(at=[f"{p.switch}:{out}"], data=p.data)


net.run()
