"""A real Open vSwitch and a real `auster run` for a test, both in a folder of its own."""

import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import auster

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
PROGRAM = os.environ.get("AUSTER", os.path.join(ROOT, "target/debug/auster"))
EXAMPLES = os.path.join(ROOT, "contrib/python/examples")
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
# A bound against hanging, not a claim.
PATIENCE_S = 180


def wait_for(what, look):
    """What `look` gives, once that is something."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not in {PATIENCE_S} s")
        time.sleep(0.05)


def mac(n):
    return f"0a:00:00:00:00:{n:02x}"


def frame(src, dst, kind=0x0800, payload=b""):
    """An Ethernet frame between two of our hosts; 255 are all."""
    ends = [bytes.fromhex("ff" * 6 if n == 255 else mac(n).replace(":", "")) for n in (dst, src)]
    return (b"".join(ends) + struct.pack("!H", kind) + payload).ljust(60, b"\0")


def ip(src, dst, proto=17, payload=b"", src_ip=None, dst_ip=None):
    """An IPv4 packet from 10.0.0.SRC to 10.0.0.DST."""
    ends = bytes(src_ip or [10, 0, 0, src]) + bytes(dst_ip or [10, 0, 0, dst])
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0, 64, proto, 0) + ends
    words = sum(struct.unpack("!10H", head))
    words = (words & 0xFFFF) + (words >> 16)
    head = head[:10] + struct.pack("!H", ~words & 0xFFFF) + head[12:]
    return frame(src, dst, 0x0800, head + payload)


def udp(src, dst, rest=b""):
    return struct.pack("!HHHH", src, dst, 8 + len(rest), 0) + rest


def tcp(src, dst):
    """A SYN."""
    return struct.pack("!HHIIBBHHH", src, dst, 0, 0, 0x50, 2, 1000, 0, 0)


def arp(src, dst_ip, op=1):
    from_, to = bytes.fromhex(mac(src).replace(":", "")), bytes([10, 0, 0, dst_ip])
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, op)
    return frame(src, 255, 0x0806, head + from_ + bytes([10, 0, 0, src]) + bytes(6) + to)


class Real(unittest.TestCase):
    """Bridges br1, br2, … with ports pA1, pA2, … under their numbers, and `auster run`."""

    options = ()
    bridges = 1
    ports = 3

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="auster-python-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.run_of = None
        self.api = f"unix:{self.folder}/api"
        self.addCleanup(self.stop_auster)
        self.addCleanup(self.stop_switches)
        self.start_switches()
        self.start_auster()
        self.net = auster.Network(self.api)
        self.addCleanup(self.net.close)
        wait_for("all switches", self.is_up)

    def is_up(self):
        try:
            switches = self.net.topology()["switches"]
        except auster.Unreachable:  # its socket is there before it listens
            return False
        with_ports = [switch for switch in switches if switch["ports"]]
        return len(with_ports) == self.bridges

    def path(self, name):
        return os.path.join(self.folder, name)

    def command(self, *words):
        names = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR")
        environment = {**os.environ, **{name: self.folder for name in names}}
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}")
        return done.stdout

    def start_switches(self):
        self.command("ovsdb-tool", "create", self.path("db"), SCHEMA)
        common = ["--detach", "--no-chdir", "-vfile:off", "-vconsole:off", "-vsyslog:off"]

        def daemon(name, *words):
            own = [f"--pidfile={self.path(name)}.pid", f"--unixctl={self.path(name)}.ctl"]
            self.command(name, *words, *own, *common)

        daemon("ovsdb-server", self.path("db"), f"--remote=punix:{self.path('db.sock')}")
        self.vsctl("--no-wait", "init")
        daemon("ovs-vswitchd", f"unix:{self.path('db.sock')}", "--enable-dummy=override",
               "--disable-system")
        for n in range(1, self.bridges + 1):
            self.vsctl("add-br", f"br{n}", "--", "set", "bridge", f"br{n}", "datapath_type=dummy",
                       "protocols=OpenFlow13", "fail_mode=secure",
                       f"other_config:datapath-id={n:016x}", "other_config:disable-in-band=true",
                       "--", "set-controller", f"br{n}", f"unix:{self.path('of')}", "--", "set",
                       "controller", f"br{n}", "max_backoff=1000")
            for port in range(1, self.ports + 1):
                name = f"p{n}{port}"
                self.vsctl("add-port", f"br{n}", name, "--", "set", "interface", name,
                           "type=dummy", f"ofport_request={port}",
                           f"options:tx_pcap={self.path(name)}.pcap")

    def stop_switches(self):
        for name in ("ovs-vswitchd", "ovsdb-server"):
            try:
                with open(self.path(f"{name}.pid")) as file:
                    os.kill(int(file.read()), signal.SIGTERM)
            except (OSError, ValueError):
                pass

    def start_auster(self):
        log = open(self.path("log"), "a")
        self.addCleanup(log.close)
        words = ["run", f"punix:{self.path('of')}", "--api", self.api, *self.options]
        self.run_of = subprocess.Popen([PROGRAM, *words], stdout=log, stderr=log)

        def is_there():
            with open(self.path("log")) as text:
                self.assertIsNone(self.run_of.poll(), text.read())
            return os.path.exists(self.path("api"))

        wait_for("the API", is_there)

    def stop_auster(self):
        if self.run_of is not None:
            self.run_of.terminate()
            self.run_of.wait(PATIENCE_S)
            self.run_of = None

    def vsctl(self, *words):
        return self.command("ovs-vsctl", f"--db=unix:{self.path('db.sock')}", *words)

    def entries(self, bridge=1):
        target = f"unix:{self.path(f'br{bridge}.mgmt')}"
        return self.command("ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", target)

    def receive(self, port, data):
        """Puts a frame into a port such as p11."""
        self.command("ovs-appctl", f"--target={self.path('ovs-vswitchd.ctl')}",
                     "netdev-dummy/receive", port, data.hex())

    def sent(self, port):
        """All frames that have left a port, but LLDP."""
        try:
            with open(self.path(f"{port}.pcap"), "rb") as file:
                data = file.read()
        except OSError:
            return []
        frames, at = [], 24
        while at + 16 <= len(data):
            size = struct.unpack_from("<I", data, at + 8)[0]
            frame = data[at + 16:at + 16 + size]
            at += 16 + size
            if len(frame) == size and frame[12:14] != b"\x88\xcc":
                frames.append(frame)
        return frames

    def until_sent(self, port, data, again=None):
        """Waits for a frame at a port; `again` is called before each look."""

        def look():
            if again is not None:
                again()
            return data in self.sent(port)

        wait_for(f"{data.hex()} at {port}", look)

    def cable(self, a, b):
        """Joins two bridges, by ports such as l12 and l21."""
        for here, there, way in ((a, b, "pstream=punix"), (b, a, "stream=unix")):
            port, link = f"l{here}{there}", self.path(f"{a}{b}")
            self.vsctl("add-port", f"br{here}", port, "--", "set", "interface", port,
                       "type=dummy", f"options:{way}:{link}")

    def cut(self, a, b):
        for port in (f"l{a}{b}", f"l{b}{a}"):
            self.vsctl("del-port", port)

    def example(self, name, *words):
        """Starts an example in a process of its own, until the end of the test."""
        return self.process(os.path.join(EXAMPLES, name), self.api, *words)

    def text(self, text):
        """Starts a program that is written for the usual address."""
        file = self.path("program.py")
        with open(file, "w") as program:
            program.write(text.replace("http://localhost:8080", self.api))
        return self.process(file)

    def process(self, *words):
        environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "contrib/python/src"),
                       "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen([sys.executable, *words], env=environment, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        process.lines = []

        def read():
            with process.stdout:
                for line in process.stdout:
                    process.lines.append(line.rstrip())

        reader = threading.Thread(target=read)
        reader.start()

        def end():
            process.terminate()
            process.wait(PATIENCE_S)
            process.stdin.close()
            reader.join(PATIENCE_S)

        self.addCleanup(end)
        return process

    def until_said(self, process, text):
        def look():
            if process.poll() is not None:
                raise AssertionError(f"the example has ended: {process.lines}")
            return any(text in line for line in process.lines)

        wait_for(f"'{text}'", look)
