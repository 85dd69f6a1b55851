"""Three members of a cluster, an etcd of three and 20 bridges of one Open vSwitch, on this machine.

Each member is in a network namespace of its own, so that it can be cut from the others, from etcd,
or from both, and still reach the switches. All it sends and gets is routed here, and a cut is a
rule that drops what goes from one address to another.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess

from bed import SCHEMA, end, free_port, run, wait_for

BRIDGES = 20
NAMES = ("a", "b", "c")
ETCD = "10.78.0.1"
# Small enough to be filled.
ETCD_BYTES_MAX = 16 << 20
# Two files of etcd's log of 64 MiB each, and its database.
DISK_MIB = 150


def address(name):
    return f"10.77.{1 + NAMES.index(name)}.1"


class Network:
    def __init__(self, auster, folder):
        self.auster, self.dir, self.processes = auster, pathlib.Path(folder), {}
        self.of_port, self.bell_port = free_port(), free_port()
        self.etcd_ports = [(free_port(), free_port()) for _ in NAMES]
        self.ends = ",".join(f"http://{ETCD}:{c}" for c, _ in self.etcd_ports)
        self.cuts, self.disks, self.disk_mib = set(), [], DISK_MIB

    def start(self, name, *words, env=None):
        with open(self.dir / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                words, stdout=log, stderr=log, env=env, start_new_session=True)

    # Namespaces and cuts.

    def space(self, name):
        return f"zc{os.getpid()}{name}"

    def make_spaces(self):
        run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        # What is cut is looked at before what is this machine's own.
        run("ip", "rule", "add", "pref", "100", "lookup", "local")
        run("ip", "rule", "del", "pref", "0")
        run("ip", "addr", "add", f"{ETCD}/32", "dev", "lo")
        for name in NAMES:
            space, ours = self.space(name), address(name)[:-1] + "254"
            run("ip", "netns", "add", space)
            run("ip", "link", "add", "name", f"to-{name}", "type", "veth", "peer", "name", "m0",
                "netns", space)
            run("ip", "addr", "add", f"{ours}/24", "dev", f"to-{name}")
            run("ip", "link", "set", f"to-{name}", "up")
            run("ip", "-n", space, "addr", "add", f"{address(name)}/24", "dev", "m0")
            for device in ("lo", "m0"):
                run("ip", "-n", space, "link", "set", device, "up")
            run("ip", "-n", space, "route", "add", "default", "via", ours)

    def cut(self, a, b):
        """Drops what goes between two addresses."""
        for ends in ((a, b), (b, a)):
            if ends not in self.cuts:
                self.cuts.add(ends)
                run("ip", "rule", "add", "pref", "10", "from", ends[0], "to", ends[1], "blackhole")

    def mend(self):
        for a, b in self.cuts:
            run("ip", "rule", "del", "pref", "10", "from", a, "to", b, "blackhole")
        self.cuts.clear()

    # etcd.

    def signal_etcd(self, number):
        for n in range(len(NAMES)):
            self.processes[f"etcd{n}"].send_signal(number)

    def start_etcd(self, n, folder=None):
        clients, peers = self.etcd_ports[n]
        self.start(f"etcd{n}", "etcd", f"--name=m{n}", f"--data-dir={folder or self.etcd_dir(n)}",
                   f"--listen-client-urls=http://{ETCD}:{clients}",
                   f"--advertise-client-urls=http://{ETCD}:{clients}",
                   f"--listen-peer-urls=http://127.0.0.1:{peers}",
                   f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
                   f"--initial-cluster={self.etcd_members()}",
                   f"--quota-backend-bytes={ETCD_BYTES_MAX}",
                   "--heartbeat-interval=50", "--election-timeout=500")

    def make_disks(self):
        """Gives each etcd a small disk of its own, in memory."""
        for n in range(len(NAMES)):
            disk = self.etcd_dir(n).parent
            disk.mkdir()
            run("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "etcd", str(disk))
            self.disks.append(disk)

    def enlarge_disks(self):
        self.disk_mib += DISK_MIB
        for disk in self.disks:
            run("mount", "-o", f"remount,size={self.disk_mib}m", str(disk))

    def etcd_dir(self, n):
        return self.dir / f"disk{n}" / "etcd"

    def etcd_members(self):
        return ",".join(f"m{i}=http://127.0.0.1:{p}" for i, (_, p) in enumerate(self.etcd_ports))

    def start_all_etcd(self):
        for n in range(len(NAMES)):
            self.start_etcd(n)

    def end_all_etcd(self):
        for n in range(len(NAMES)):
            end(self.processes[f"etcd{n}"], signal.SIGKILL)

    def ctl(self, *words, ends=None, **more):
        return run("etcdctl", f"--endpoints={ends or self.ends}", *words,
                   env=dict(os.environ, ETCDCTL_API="3"), **more)

    def etcd_leader(self):
        """The number of etcd's leader, or None."""
        done = self.ctl("endpoint", "status", "-w=json", check=False)
        for row in json.loads(done.stdout or "[]"):
            status = row["Status"]
            if status["header"]["member_id"] == status.get("leader"):
                port = int(row["Endpoint"].rsplit(":", 1)[1])
                return [c for c, _ in self.etcd_ports].index(port)
        return None

    def value(self, key):
        """The document of a key, or None if it is not there or etcd does not answer."""
        done = self.ctl("--command-timeout=1s", "get", f"/auster/v1/{key}", "--print-value-only",
                        check=False)
        return json.loads(done.stdout) if done.stdout.strip() else None

    def owner(self):
        """The first in the order of members that etcd has, or None while it does not answer."""
        own = self.value("own/0")
        return own and own["order"][0]

    # Members.

    def config(self, name):
        return str(self.dir / f"{name}.toml")

    def start_member(self, name):
        ends = ", ".join(f'"{end_of}"' for end_of in self.ends.split(","))
        pathlib.Path(self.config(name)).write_text(
            f'listen = "ptcp:{self.of_port}:{address(name)}"\n'
            f'[cluster]\netcd = [{ends}]\nname = "{name}"\n'
            f'listen = "ptcp:{self.bell_port}:{address(name)}"\n'
            f'state = "state"\n')
        api = self.dir / f"{name}.api"
        api.unlink(missing_ok=True)
        self.start(name, "ip", "netns", "exec", self.space(name), self.auster, "run", "--config",
                   self.config(name), "--api", f"unix:{api}", "--log", "info")

    def order(self, *words):
        """`auster cluster …`, as an operator beside etcd says it."""
        return run(str(self.auster), "cluster", *words, "--config", self.config("a"))

    def metric(self, name, metric):
        """The sum of a metric's samples at a member."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(str(self.dir / f"{name}.api"))
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: s.recv(1 << 16), b"")).decode()
        samples = (line.split() for line in text.splitlines() if line.startswith(metric))
        return sum(float(value) for _, value in samples)

    # Switches.

    def start_switch(self):
        env = dict(os.environ, OVS_RUNDIR=str(self.dir), OVS_LOGDIR=str(self.dir),
                   OVS_DBDIR=str(self.dir))
        run("ovsdb-tool", "create", f"{self.dir}/conf.db", SCHEMA)
        self.start("ovsdb", "ovsdb-server", f"{self.dir}/conf.db",
                   f"--remote=punix:{self.dir}/db.sock", env=env)
        wait_for((self.dir / "db.sock").exists, 20, "ovsdb-server")
        self.vsctl("--no-wait", "init")
        self.start("vswitchd", "ovs-vswitchd", f"unix:{self.dir}/db.sock", env=env)
        targets = [f"tcp:{address(name)}:{self.of_port}" for name in NAMES]
        for n in range(BRIDGES):
            for end_of in "ab":
                run("ip", "link", "add", f"h{n}{end_of}", "type", "veth",
                    "peer", "name", f"p{n}{end_of}")
                for device in (f"h{n}{end_of}", f"p{n}{end_of}"):
                    run("sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1")
                    run("ip", "link", "set", device, "up")
            self.vsctl("add-br", f"br{n}", "--", "set", "bridge", f"br{n}",
                       "datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure",
                       "other-config:disable-in-band=true",
                       f"other-config:datapath-id={n + 1:016x}",
                       "--", "add-port", f"br{n}", f"p{n}a", "--", "add-port", f"br{n}", f"p{n}b",
                       "--", "set-controller", f"br{n}", *targets)

    def vsctl(self, *words):
        return run("ovs-vsctl", f"--db=unix:{self.dir}/db.sock", "--timeout=30", *words).stdout

    def entries(self):
        """All entries of all bridges, with their cookies."""
        entries = set()
        for n in range(BRIDGES):
            dumped = run("ovs-ofctl", "-OOpenFlow13", "--no-stats", "dump-flows",
                         f"unix:{self.dir}/br{n}.mgmt").stdout
            entries |= {(n, line.strip()) for line in dumped.splitlines()}
        return entries

    def roles(self):
        """By member, the number of bridges that have it as master and as slave."""
        rows = json.loads(self.vsctl("--format=json", "--columns=target,role", "list",
                                     "controller"))["data"]
        roles = {name: {} for name in NAMES}
        for target, role in rows:
            for name in NAMES:
                if f":{address(name)}:" in target:
                    roles[name][str(role)] = roles[name].get(str(role), 0) + 1
        return roles

    def master(self):
        """The member that serves all bridges, or None."""
        roles = self.roles()
        return next((name for name in NAMES if roles[name].get("master") == BRIDGES), None)

    def settled(self):
        """The member that serves all bridges, once the others are slaves everywhere and all are in
        etcd's order, which it begins."""
        found = []

        def done():
            roles = self.roles()
            masters = [name for name in NAMES if roles[name].get("master") == BRIDGES]
            slaves = [name for name in NAMES if roles[name].get("slave") == BRIDGES]
            found[:] = masters
            if len(masters) != 1 or len(slaves) != len(NAMES) - 1:
                return False
            own = self.value("own/0")
            return own and own["order"][0] == masters[0] and set(own["order"]) == set(NAMES)

        wait_for(done, 90, "one master and two slaves, all in the order")
        return found[0]

    def end(self):
        for process in reversed(self.processes.values()):
            end(process)
        for disk in self.disks:
            run("umount", str(disk), check=False)
        for name in NAMES:
            run("ip", "netns", "del", self.space(name), check=False)
