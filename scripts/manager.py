#!/usr/bin/env python3
"""Stands in for systemd: a service with a listening socket and a store for its descriptors.

    scripts/manager.py [--no-store] --listen ADDRESS:PORT PROGRAM WORD…

It passes the socket (LISTEN_FDS), waits for READY=1, and keeps what the service leaves with FDSTORE
until that is taken away with FDSTOREREMOVE. A line on its standard input is a command: `stop` ends the
service with SIGTERM, `kill` with SIGKILL, `start` starts it, and `junk` puts descriptors into the store
that are no connections. It answers with a line, and ends with its input.
"""

import argparse
import ctypes
import fcntl
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

libc = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


class Manager:
    """Holds the listening socket, if there is one, and the descriptors of the store by name."""

    def __init__(self, folder, listening=None, has_store=True, is_process=False):
        self.path, self.is_process = pathlib.Path(folder) / "notify", is_process
        self.listening, self.has_store = listening, has_store
        self.heard, self.stored = None, []

    def start(self, *words, **more):
        """Starts the service. Returns it once it is ready, with the number of what it got."""
        if self.heard:
            self.heard.close()
        self.path.unlink(missing_ok=True)
        self.heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.heard.bind(str(self.path))
        env = dict(os.environ, NOTIFY_SOCKET=str(self.path))
        passed = list(self.stored)
        if self.listening:
            passed.insert(0, ("auster-run.socket", self.listening.fileno()))
            env["LISTEN_FDS"] = str(len(passed))
            env["LISTEN_FDNAMES"] = ":".join(name for name, _ in passed)
            words = ("sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *words)
        # Above the numbers that they are to have.
        above = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3 + len(passed)) for _, fd in passed]
        numbers = tuple(range(3, 3 + len(passed)))

        def place():
            if self.is_process:
                # It ends with the thread that has started it.
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for fd, number in zip(above, numbers):
                os.dup2(fd, number)

        process = subprocess.Popen(
            words, env=env, start_new_session=True, pass_fds=numbers, preexec_fn=place, **more)
        for fd in above:
            os.close(fd)
        count = len(self.stored)
        while b"READY=1" not in self.hear(60):
            pass
        return process, count

    def end(self, process, with_signal=signal.SIGTERM):
        """Ends the service, and keeps what it leaves."""
        process.send_signal(with_signal)
        while process.poll() is None:
            self.hear(0.005)
        while self.hear(0):
            pass

    def hear(self, wait):
        """The lines of the next message, none if none comes in time."""
        self.heard.settimeout(wait)
        try:
            message, fds, _, _ = socket.recv_fds(self.heard, 4096, 253)
        except (TimeoutError, BlockingIOError):
            return []
        lines = message.split(b"\n")
        names = [line[7:].decode() for line in lines if line.startswith(b"FDNAME=")]
        if b"FDSTORE=1" in lines and self.has_store:
            self.stored += [(names[0], fd) for fd in fds]
            fds = []
        if b"FDSTOREREMOVE=1" in lines:
            fds += [fd for name, fd in self.stored if name in names]
            self.stored = [(name, fd) for name, fd in self.stored if name not in names]
        # Those of BARRIER=1, too: that is its answer.
        for fd in fds:
            os.close(fd)
        return lines

    def put_junk(self):
        """What is no connection, ended, or under a name that no service gives."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            other = socket.create_connection(server.getsockname())
            ended, _ = server.accept()
            ended.shutdown(socket.SHUT_RDWR)
            near.close()
            datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            pipe, _ = os.pipe()
            junk = [("kept-1.3", pipe), ("kept-1.3", os.open("/dev/null", os.O_RDONLY)),
                    ("kept-1.3", datagrams.detach()), ("kept-1.3", ended.detach()),
                    ("kept-1.3", os.dup(server.fileno())), ("kept-", os.dup(other.fileno())),
                    ("kept-9.9 \x7f", os.dup(other.fileno())), ("kept-1.3", other.detach())]
        self.stored += junk
        return len(junk)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--listen", required=True)
    parser.add_argument("--store", default=True, action=argparse.BooleanOptionalAction)
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    host, port = args.listen.rsplit(":", 1)
    with tempfile.TemporaryDirectory() as folder, \
            socket.create_server((host, int(port)), backlog=4096) as listening:
        manager, process = Manager(folder, listening, args.store, True), None
        try:
            for command in map(str.strip, sys.stdin):
                answer = command
                if command == "start":
                    process, count = manager.start(*args.words)
                    answer = f"started with {count}"
                elif command in ("stop", "kill"):
                    how = {"stop": signal.SIGTERM, "kill": signal.SIGKILL}[command]
                    manager.end(process, how)
                    answer = f"ended and left {len(manager.stored)}"
                elif command == "junk":
                    answer = f"put in {manager.put_junk()}"
                print(f"manager: {answer}", flush=True)
        finally:
            if process and process.poll() is None:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
