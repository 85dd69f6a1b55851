"""One address for several servers: load_balancer.py URL ADDRESS PLACE=MAC=IP [PLACE=MAC=IP …]

The last bits of a client's address choose its server. The servers are at ports of one switch, and
their clients at other ports of it: each client is found by its question for the address.
"""

import sys

from auster import Network, Place

if len(sys.argv) < 4:
    sys.exit(__doc__.strip())
url, address, *words = sys.argv[1:]
servers = [word.split("=") for word in words]
switch, mac = Place(servers[0][0]).switch, "0a:aa:aa:aa:aa:aa"
net = Network(url)
flows = net.flows["balancer"]
asked = net.tap("balancer", match=f"arp,arp_tpa={address}", at=[switch], copy=False)


def balance():
    bits = max(len(servers) - 1, 1).bit_length()
    wanted = {}
    for n in range(1 << bits):
        place, server_mac, ip = servers[n % len(servers)]
        wanted[f"to.{n}"] = dict(
            switch=switch, priority=100,
            match=f"ip,nw_dst={address},nw_src=0.0.0.{n}/0.0.0.{(1 << bits) - 1}",
            actions=f"mod_dl_dst:{server_mac},mod_nw_dst:{ip},output:{Place(place).port}",
        )
    flows.update(wanted)


@net.on("packet_in", tap=asked)
def answer(p):
    data = p.arp_answer(mac)
    if data is None:
        return
    net.send(at=[p.at], data=data)
    # What servers send to this client comes from the one address.
    flows.update({
        f"from.{place.replace(':', '.')}.{p.arp_spa}": dict(
            switch=switch, priority=100, idle_timeout=300,
            match=f"in_port={Place(place).port},ip,nw_src={ip},nw_dst={p.arp_spa}",
            actions=f"mod_dl_src:{mac},mod_dl_dst:{p.arp_sha},mod_nw_src:{address},output:{p.port}",
        )
        for place, _, ip in servers
    })


net.on("reset")(lambda event: balance())
balance()
print("balancing", flush=True)
net.run()
