"""A picture of the network, drawn again whenever it changes: topology_picture.py URL FILE.svg"""

import html
import math
import os
import sys

from auster import Network

if len(sys.argv) < 2:
    sys.exit(__doc__.strip())
url, file = (sys.argv[1:] + ["network.svg"])[:2]
net = Network(url)
SIZE = 600


def picture(topology):
    switches = topology["switches"]
    at = {}
    for n, switch in enumerate(switches):
        turn = 2 * math.pi * n / len(switches)
        at[switch["dpid"]] = [SIZE / 2 + SIZE * 0.4 * f(turn) for f in (math.sin, math.cos)]
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE}" height="{SIZE}">']
    for link in topology["links"]:
        ends = [at.get(link[end].split(":")[0]) for end in ("from", "to")]
        if None not in ends:
            (x1, y1), (x2, y2) = ends
            style = 'stroke="black"' if link["is_usable"] else 'stroke="red"'
            ends = f'x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}"'
            lines.append(f"<line {ends} {style}/>")
    for switch in switches:
        (x, y), fill = at[switch["dpid"]], "white" if switch["is_connected"] else "red"
        name = html.escape(f'{switch["name"] or switch["dpid"]}: {switch["host_count"]} hosts')
        lines.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="20" fill="{fill}" stroke="black"/>')
        lines.append(f'<text x="{x:.0f}" y="{y + 35:.0f}" text-anchor="middle">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


@net.on("switch_up", "switch_down", "link_up", "link_down", "host_learned", "reset")
def draw(event=None):
    topology = net.topology()
    with open(file + ".new", "w", encoding="utf-8") as new:
        new.write(picture(topology))
    os.replace(file + ".new", file)
    print(len(topology["switches"]), "switches,", len(topology["links"]), "links", flush=True)


draw()
net.run()
