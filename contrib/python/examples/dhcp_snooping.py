"""DHCP snooping: dhcp_snooping.py URL PLACE …

The answers of DHCP servers are expected from these ports. Any other port that sends one is closed
for such answers. Leases are printed as they are given.
"""

import sys

from auster import Network

if len(sys.argv) < 2:
    sys.exit(__doc__.strip())
url, *trusted = sys.argv[1:]
net = Network(url)
answers = net.tap("dhcp", match="udp,tp_src=67", bytes=512)


@net.on("packet_in", tap=answers)
def answer(p):
    if not p.at:
        return
    if p.at not in trusted:
        net.flows["dhcp"][p.at.replace(":", ".")] = dict(
            switch=p.switch, match=f"in_port={p.port},udp,tp_src=67", actions="drop", priority=900
        )
        print("a DHCP server that nobody knows is at", p.at, "with", p.eth_src, flush=True)
        return
    message = p.udp_payload
    if message[:1] == b"\2" and len(message) >= 44:
        address = ".".join(map(str, message[16:20]))
        print("lease", message[28:34].hex(":"), address, flush=True)


print("snooping", flush=True)
net.run()
