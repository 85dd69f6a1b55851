"""A captive portal: captive_portal.py URL PORTAL=MAC=IP PLACE [PLACE …]

Guests at these places get the portal's page for any page, and no other TCP. The portal is a web
server at another port; a PLACE on standard input lets the guest there out.
"""

import sys
import threading

from auster import Network, Place

if len(sys.argv) < 4:
    sys.exit(__doc__.strip())
url, portal, *guests = sys.argv[1:]
place, portal_mac, portal_ip = portal.split("=")
portal = Place(place)
net = Network(url)
flows = net.flows["portal"]
names = {guest: guest.replace(":", ".") for guest in guests}
asked = {}  # what a guest's connection has asked for

web = net.tap("portal", "web", match="tcp,tp_dst=80", at=list(guests), copy=False)
answers = net.tap("portal", "answers", match=f"tcp,nw_src={portal_ip},tp_src=80", at=[portal],
                  copy=False)
flows.update({
    names[guest]: dict(switch=Place(guest).switch, priority=800, actions="drop",
                       match=f"in_port={Place(guest).port},tcp")
    for guest in guests
})


@net.on("packet_in", tap=web)
def to_portal(p):
    if len(asked) >= 10_000:
        asked.clear()
    asked[p.ipv4_src, p.tcp_src] = p
    # The switch that sends a packet changes it, and its checksums.
    actions = f"mod_dl_dst:{portal_mac},mod_nw_dst:{portal_ip},output:{portal.port}"
    net.send(switch=portal.switch, actions=actions, data=p.data)


@net.on("packet_in", tap=answers)
def to_guest(p):
    q = asked.get((p.ipv4_dst, p.tcp_dst))
    if q is not None:
        actions = f"mod_dl_src:{q.eth_dst},mod_dl_dst:{q.eth_src},mod_nw_src:{q.ipv4_dst}"
        net.send(switch=q.switch, actions=f"{actions},output:{q.port}", data=p.data)


def let_out():
    for guest in map(str.strip, sys.stdin):
        if guest in web.body["at"]:
            web.body["at"].remove(guest)
            web.put() if web.body["at"] else web.close()
            flows.pop(names[guest], None)
            print(guest, "is out", flush=True)


threading.Thread(target=let_out, daemon=True).start()
print("closed for", len(guests), "guests", flush=True)
net.run()
