"""A network of real Open vSwitch bridges on this machine, for scripts that break or attack it.

Two processes of ovs-vswitchd have every second switch each, in network namespaces of their own; so
has each host. The controller, relays and the caller share a namespace without a name (`enter`). All
names begin with the process id, and each process is ended by its own id.
"""

import asyncio
import ctypes
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
beds = itertools.count()


def enter(variable="BED_INSIDE"):
    """Starts this script again in a network namespace of its own."""
    if os.geteuid() != 0:
        raise SystemExit("this makes namespaces and bridges: run it as root")
    for tool in ("ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "ip", "tc", "ping", "ethtool"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is missing: run scripts/setup")
    if not os.environ.get(variable):
        os.environ[variable] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    run("ip", "link", "set", "lo", "up")


def run(*words, check=True, **more):
    done = subprocess.run(words, text=True, capture_output=True, **more)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")
    return done


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def end(process, with_signal=signal.SIGTERM):
    if process.poll() is None:
        process.send_signal(with_signal)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(done, seconds, what):
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise SystemExit(f"{what}: not within {seconds} s")
        time.sleep(0.1)


class Shape:
    """Switches, links, hosts with their switches, and two hosts across the first link."""

    def __init__(self, switches, links, hosts, across):
        self.switches, self.links, self.hosts, self.across = switches, links, hosts, across

    @classmethod
    def named(cls, name):
        if name == "tree":  # depth 2, fanout 3
            links = [(1, n) for n in (2, 3, 4)] + [(2 + (n - 5) // 3, n) for n in range(5, 14)]
            return cls(range(1, 14), links, {n: n for n in range(5, 14)}, (5, 8))
        if name == "ring":
            links = [(1, 2), (2, 3), (3, 4), (4, 1)]
            return cls(range(1, 5), links, {n: n for n in range(1, 5)}, (1, 2))
        at = lambda x, y: 1 + y % 3 * 3 + x % 3
        places = list(itertools.product(range(3), range(3)))
        links = [(at(x, y), at(x + 1, y)) for x, y in places]
        links += [(at(x, y), at(x, y + 1)) for x, y in places]
        return cls(range(1, 10), links, {n: n for n in range(1, 10)}, (1, 2))


class Bed:
    """One network: bridges, hosts in namespaces, a controller and, if wanted, relays."""

    protocol = "OpenFlow13"

    def __init__(self, auster, shape, dir, relayed=False, delayed=False, config=None,
                 relay_words=()):
        self.auster, self.shape, self.dir = auster, shape, pathlib.Path(dir)
        self.relayed, self.config, self.relay_words = relayed, config, relay_words
        self.prefix = f"z{os.getpid()}{chr(97 + next(beds) % 26)}"
        self.processes, self.namespaces = {}, []
        self.last_port = {n: 0 for n in shape.switches}
        self.cables, self.at = [], {}  # cables: pairs of (vswitchd, interface); at: of each host
        self.to_do = ([], [])  # for ovs-vsctl, of each vswitchd
        self.port = free_port()
        self.delay = Delay(self.port) if delayed else None

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes.values()):
            end(process)
        for name in self.namespaces:
            run("ip", "netns", "del", name, check=False)
        if self.delay:
            self.delay.end()

    # What is started.

    def start(self, name, *words, space=None, env=None, append=False):
        how = "ab" if append else "wb"
        if space:
            words = ("ip", "netns", "exec", space, *words)
        with open(self.dir / f"{name}.log", how) as log, open(self.dir / f"{name}.out", how) as out:
            process = subprocess.Popen(
                words, stdout=out, stderr=log, env=env, start_new_session=True)
        self.processes[name] = process
        return process

    def space(self, name):
        space = f"{self.prefix}{name}"
        run("ip", "netns", "add", space)
        self.namespaces.append(space)
        run("ip", "-n", space, "link", "set", "lo", "up")
        return space

    def build(self):
        self.spaces = [self.start_vswitchd(0), self.start_vswitchd(1)]
        self.start_controller()
        for n in self.shape.switches:
            self.to_do[n % 2].extend(
                ["--", "add-br", self.bridge(n), "--", "set", "bridge", self.bridge(n),
                 "datapath_type=netdev", "fail-mode=secure", f"protocols={self.protocol}",
                 f"other-config:datapath-id={n:016x}", "other-config:disable-in-band=true"])
        for a, b in self.shape.links:
            one, other = self.new_port(a), self.new_port(b)
            run("ip", "link", "add", one, "netns", self.spaces[a % 2], "type", "veth", "peer",
                "name", other, "netns", self.spaces[b % 2])
            self.plug(a, one)
            self.plug(b, other)
            self.cables.append(((a % 2, one), (b % 2, other)))
        for host, n in self.shape.hosts.items():
            self.add_host(host, n)
        target = self.delay.port if self.delay else self.port
        target = self.start_relays(target) if self.relayed else target
        self.targets = {n: f"tcp:10.78.{n % 2}.1:{target}" for n in self.shape.switches}
        for n in self.shape.switches:
            self.to_do[n % 2].extend(["--", "set-controller", self.bridge(n), self.targets[n]])
        for which in (0, 1):
            if self.to_do[which]:
                self.vsctl(which, *self.to_do[which][1:])
        wait_for(self.is_whole, 90, "all links at the beginning")

    def start_vswitchd(self, which):
        """One vswitchd with its database, and a cable for its control connections."""
        space = self.space(f"v{which}")
        dir = self.dir / f"v{which}"
        dir.mkdir()
        db, sock = dir / "conf.db", dir / "db.sock"
        run("ovsdb-tool", "create", str(db), SCHEMA)
        env = dict(os.environ, OVS_RUNDIR=str(dir), OVS_LOGDIR=str(dir), OVS_DBDIR=str(dir))
        self.start(f"db-{which}", "ovsdb-server", str(db), f"--remote=punix:{sock}", space=space,
                   env=env)
        wait_for(sock.exists, 20, "ovsdb-server")
        self.vsctl(which, "--no-wait", "init")
        self.start(f"vswitchd-{which}", "ovs-vswitchd", "--pidfile", f"unix:{sock}", space=space,
                   env=env)
        here, there = f"{self.prefix}m{which}", f"{self.prefix}c{which}"
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", space)
        run("ip", "addr", "add", f"10.78.{which}.1/30", "dev", here)
        run("ip", "link", "set", here, "up")
        run("ip", "-n", space, "addr", "add", f"10.78.{which}.2/30", "dev", there)
        run("ip", "-n", space, "link", "set", there, "up")
        return space

    def start_controller(self):
        self.status = self.dir / "status.sock"
        self.status.unlink(missing_ok=True)
        words = [self.auster, "run", f"ptcp:{self.port}", "--status", str(self.status), "--json"]
        words += ["--config", str(self.config)] if self.config else []
        self.start("auster", *words, append=True)
        wait_for(self.status.exists, 20, "auster run")

    def start_relays(self, controller):
        """A pair of relays for all bridges, over QUIC. Returns the port that bridges dial."""
        pki = self.dir / "pki"
        run(self.auster, "pki", "init", "--dir", str(pki))
        run(self.auster, "pki", "controller", "ctl", "--dir", str(pki), cwd=self.dir)
        run(self.auster, "pki", "switch", "sw", "--dir", str(pki), cwd=self.dir)
        keys = lambda name, ca: ["-p", str(self.dir / f"{name}-privkey.pem"),
                                 "-c", str(self.dir / f"{name}-cert.pem"),
                                 "-C", str(pki / ca / "cacert.pem")]
        link, local = free_port(), free_port()
        self.start("relay-c", self.auster, "relay", "controller", "--listen",
                   f"pquic:{link}:127.0.0.1", "--openflow", f"tcp:127.0.0.1:{controller}",
                   "--status", f"unix:{self.dir}/relay.sock", *self.relay_words,
                   *keys("ctl", "switchca"))
        self.start("relay-s", self.auster, "relay", "switch", "--openflow", f"ptcp:{local}",
                   "--connect", f"quic:127.0.0.1:{link}", *self.relay_words,
                   *keys("sw", "controllerca"))
        time.sleep(2)
        return local

    # Switches, ports and hosts.

    def bridge(self, n):
        return f"{self.prefix}s{n}"

    def vsctl(self, which, *words):
        return run("ovs-vsctl", f"--db=unix:{self.dir}/v{which}/db.sock", "--timeout=30", *words)

    def ofctl(self, n, command, *words):
        path = f"{self.dir}/v{n % 2}/{self.bridge(n)}.mgmt"
        return run("ovs-ofctl", "-O", self.protocol, command, path, *words).stdout

    def new_port(self, n):
        self.last_port[n] += 1
        return f"{self.bridge(n)}p{self.last_port[n]}"

    def plug(self, n, name):
        run("ip", "-n", self.spaces[n % 2], "link", "set", name, "up")
        self.to_do[n % 2].extend(["--", "add-port", self.bridge(n), name, "--", "set", "interface",
                                  name, f"ofport_request={self.last_port[n]}"])

    def add_host(self, host, n):
        outside, inside, space = self.new_port(n), f"{self.prefix}h{host}", self.space(f"n{host}")
        run("ip", "link", "add", outside, "netns", self.spaces[n % 2], "type", "veth", "peer",
            "name", inside, "netns", space)
        run("ip", "netns", "exec", space, "ethtool", "-K", inside, "tx", "off", check=False)
        for words in (["link", "set", inside, "address", mac_text(host), "up"],
                      ["addr", "add", f"10.77.0.{host}/24", "dev", inside]):
            run("ip", "-n", space, *words)
        self.plug(n, outside)
        self.at[host] = (n, self.last_port[n], outside)

    def host_space(self, host):
        return f"{self.prefix}n{host}"

    def in_host(self, host, *words, check=True):
        return run("ip", "netns", "exec", self.host_space(host), *words, check=check)

    def wire(self, host, kind=3):
        """A raw socket at the host's interface; `kind` is an Ethernet type, 3 is all."""
        with inside(self.host_space(host)):
            wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind))
            wire.bind((f"{self.prefix}h{host}", kind))
        return wire

    # What is measured.

    def ask(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(2)
            s.connect(str(self.status))
            text = b"".join(iter(lambda: s.recv(1 << 16), b""))
        return json.loads(text)

    def links(self):
        """Directions of links that are up, or None without an answer."""
        try:
            links = self.ask()["links"]
            return links if isinstance(links, int) else len(links)
        except (OSError, ValueError, KeyError):
            return None

    def is_whole(self):
        return self.links() == 2 * len(self.shape.links)

    def counters(self, which):
        """Of each interface of a vswitchd: frames that it has received and sent."""
        pid = self.processes[f"vswitchd-{which}"].pid
        lines = pathlib.Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
        fields = (line.replace(":", " ").split() for line in lines)
        return {name: (int(counts[1]), int(counts[9])) for name, *counts in fields}

    def frames(self):
        """Frames that the cables have carried, each way."""
        counters = [self.counters(which) for which in (0, 1)]
        return sum(counters[which][name][1] for which, name in itertools.chain(*self.cables))

    def received(self, host):
        """Frames that a switch has received from a host."""
        n, _, outside = self.at[host]
        return self.counters(n % 2)[outside][0]

    def events(self):
        return (self.dir / "auster.out").read_text(errors="replace").splitlines()

    def alarms(self):
        return [line for line in self.events() if '"alarm"' in line]

    def pairs(self):
        return set(itertools.permutations(self.shape.hosts, 2))

    def ping(self, pairs):
        """Those of the pairs that do not ping."""
        asked = {}
        for host in {a for a, _ in pairs}:
            each = " ".join(str(b) for a, b in pairs if a == host)
            line = f"for n in {each}; do ping -c1 -W1 10.77.0.$n >&2 || echo $n & done; wait"
            asked[host] = subprocess.Popen(
                ["ip", "netns", "exec", self.host_space(host), "sh", "-c", line],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lost = {a: process.communicate()[0].split() for a, process in asked.items()}
        return {(a, int(b)) for a, others in lost.items() for b in others}


class Delay:
    """Passes connections on to the controller; what passes is late by `seconds`, each way."""

    def __init__(self, to_port):
        self.to_port, self.seconds = to_port, 0.0
        self.loop = asyncio.new_event_loop()
        start = asyncio.start_server(self.serve, "0.0.0.0", 0)
        server = self.loop.run_until_complete(start)
        self.port = server.sockets[0].getsockname()[1]
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def end(self):
        async def cancel():
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            self.loop.call_soon(self.loop.stop)

        asyncio.run_coroutine_threadsafe(cancel(), self.loop)
        self.thread.join(5)

    async def serve(self, reader, writer):
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.to_port)
            await asyncio.gather(self.pass_on(reader, to_writer), self.pass_on(to_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def pass_on(self, reader, writer):
        queue = asyncio.Queue()

        async def late():
            while (item := await queue.get()) is not None:
                due, data = item
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                writer.write(data)
                await writer.drain()
            writer.close()

        writing = asyncio.ensure_future(late())
        while data := await reader.read(1 << 16):
            queue.put_nowait((time.monotonic() + self.seconds, data))
        queue.put_nowait(None)
        await writing


class inside:
    """With the calling thread in a named network namespace."""

    def __init__(self, space):
        self.space, self.libc = space, ctypes.CDLL(None, use_errno=True)

    def set(self, fd):
        if self.libc.setns(fd, 0x40000000):
            raise OSError(ctypes.get_errno(), f"network namespace {self.space}")

    def __enter__(self):
        self.before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.space}", os.O_RDONLY)
        self.set(there)
        os.close(there)

    def __exit__(self, *_):
        self.set(self.before)
        os.close(self.before)


# Frames.

BROADCAST = b"\xff" * 6


def mac(host):
    return struct.pack("!HI", 0x0200, 0x7700 + host)


def mac_text(host):
    return ":".join(f"{byte:02x}" for byte in mac(host))


def ip(host):
    return bytes([10, 77, 0, host])


def arp(operation, src, sender, target, dst=BROADCAST, sha=None, tha=bytes(6)):
    """An ARP message: 1 asks, 2 answers. `sha` is the hardware address that it claims."""
    head = struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, operation)
    return (dst + src + head + (sha or src) + sender + tha + target).ljust(60, b"\0")
