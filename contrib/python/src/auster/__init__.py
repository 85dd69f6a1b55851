"""Applications for a network that `auster run --api` controls: events, packets and flow entries."""

from auster.network import Event, Flows, Network, OwnerFlows, Tap
from auster.packets import Packet, Place
from auster.stream import Error, Problem, Unreachable

__all__ = [
    "Error", "Event", "Flows", "Network", "OwnerFlows", "Packet", "Place", "Problem", "Tap",
    "Unreachable",
]
__version__ = "0.1.0"
