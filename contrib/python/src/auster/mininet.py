"""auster for Mininet: mn --custom contrib/python/src/auster/mininet.py --controller auster

Options of `auster run` go behind it: --controller 'auster,options=--forwarding off --api 8080'
"""

import socket
import time
from pathlib import Path

from mininet.node import Controller

START_S_MAX = 5.0


class Auster(Controller):  # type: ignore[misc]
    """`auster run` as a controller that Mininet starts and stops."""

    def __init__(self, name: str, options: str = "", **params: object) -> None:
        params.setdefault("command", "auster")
        # `%d` is the port that Mininet has chosen.
        arguments = f"run ptcp:%d:127.0.0.1 {options.replace('%', '%%')}"
        Controller.__init__(self, name, cargs=arguments, **params)

    def start(self) -> None:
        """Starts auster. If it ends before it listens, fails with what it said.

        Mininet itself leaves that in /tmp/NAME.log and goes on without a controller.
        """
        Controller.start(self)
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            if self.command not in self.cmd("jobs -r"):
                said = Path(f"/tmp/{self.name}.log").read_text().strip()
                raise RuntimeError(f"{self.command} did not start: {said}")
            with socket.socket() as probe:
                if probe.connect_ex((self.ip, self.port)) == 0:
                    return
            time.sleep(0.05)


controllers = {"auster": Auster}
