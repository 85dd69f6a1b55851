"""auster for Mininet: mn --custom contrib/python/src/auster/mininet.py --controller auster

Options of `auster run` go behind it: --controller 'auster,options=--forwarding off --api 8080'
"""

from mininet.node import Controller


class Auster(Controller):  # type: ignore[misc]
    """`auster run` as a controller that Mininet starts and stops."""

    def __init__(self, name: str, options: str = "", **params: object) -> None:
        params.setdefault("command", "auster")
        # `%d` is the port that Mininet has chosen.
        arguments = f"run ptcp:%d:127.0.0.1 {options.replace('%', '%%')}"
        Controller.__init__(self, name, cargs=arguments, **params)


controllers = {"auster": Auster}
