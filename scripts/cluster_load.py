"""Hosts at the bridges of `cluster_net`: conversations that go on, broadcasts that a controller
alone carries, and first packets of pairs that have not spoken to each other."""

import select
import socket
import struct
import threading
import time

from cluster_net import BRIDGES

ETHERTYPE = 0x88b5
UNICAST_S, BROADCAST_S, PAIR_S = 1 / 1000, 1 / 500, 1 / 250
# Hosts at each port. Each of one port begins to speak to each of the other, one after the other.
HOSTS = 80
INTRODUCED_S = 1 / 400


def frame(dst, src, kind, n):
    return (dst + src + struct.pack("!H", ETHERTYPE) + kind + struct.pack("!I", n)).ljust(60, b"\0")


def mac(n, port, host):
    return bytes((2, 0, 0, n, port, host))


class Load(threading.Thread):
    """Sends at each bridge, and notes what came and when."""

    def __init__(self):
        super().__init__(daemon=True)
        self.senders, self.receivers = [], []
        for n in range(BRIDGES):
            for end_of, into in (("a", self.senders), ("b", self.receivers)):
                s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
                s.bind((f"h{n}{end_of}", ETHERTYPE))
                s.setblocking(False)
                into.append(s)
        self.sent, self.came = {}, {}  # number: time; number: times
        self.broadcasts_came = {}
        self.pairs_sent, self.pairs_came = {}, {}
        self.lock, self.goes_on, self.makes_pairs = threading.Lock(), True, True

    def introduce(self):
        """Has all hosts of each bridge speak, so that they are known."""
        for host in range(HOSTS + 1):
            for n in range(BRIDGES):
                for port, s in ((1, self.senders[n]), (2, self.receivers[n])):
                    self.put(s, frame(b"\xff" * 6, mac(n, port, host), b"H", 0))
                    time.sleep(INTRODUCED_S / 2)

    def run(self):
        number = beat = pair = 0
        next_unicast = next_broadcast = next_pair = time.monotonic()
        poll = select.poll()
        by_fd = {s.fileno(): (n, s) for n, s in enumerate(self.receivers)}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        while self.goes_on:
            now = time.monotonic()
            while next_unicast <= now:
                n = number % BRIDGES
                self.sent[number] = now
                self.put(self.senders[n], frame(mac(n, 2, HOSTS), mac(n, 1, HOSTS), b"U", number))
                number, next_unicast = number + 1, next_unicast + UNICAST_S
            while next_broadcast <= now:
                n = beat % BRIDGES
                self.put(self.senders[n], frame(b"\xff" * 6, mac(n, 1, HOSTS), b"B", beat))
                beat, next_broadcast = beat + 1, next_broadcast + BROADCAST_S
            while next_pair <= now:
                if self.makes_pairs:
                    n, of_bridge = pair % BRIDGES, pair // BRIDGES
                    dst = mac(n, 2, of_bridge % HOSTS)
                    src = mac(n, 1, of_bridge // HOSTS % HOSTS)
                    self.pairs_sent[pair] = now
                    self.put(self.senders[n], frame(dst, src, b"P", pair))
                    pair += 1
                next_pair += PAIR_S
            next_up = min(next_unicast, next_broadcast, next_pair)
            for fd, _ in poll.poll(max(0, next_up - time.monotonic()) * 1000):
                n, s = by_fd[fd]
                self.receive(n, s)

    def put(self, s, data):
        try:
            s.send(data)
        except BlockingIOError:
            pass

    def receive(self, n, s):
        while True:
            try:
                data = s.recv(2048)
            except BlockingIOError:
                return
            now, kind, number = time.monotonic(), data[14:15], struct.unpack("!I", data[15:19])[0]
            with self.lock:
                if kind == b"U":
                    self.came.setdefault(number, []).append(now)
                elif kind == b"B":
                    self.broadcasts_came.setdefault(number, []).append((n, now))
                elif kind == b"P":
                    self.pairs_came.setdefault(number, now)

    def forget(self):
        with self.lock:
            self.sent, self.came, self.broadcasts_came = {}, {}, {}
            self.pairs_sent, self.pairs_came = {}, {}

    def gap(self, start, until):
        """The longest time of any bridge between two broadcasts that came, in seconds."""
        longest = 0
        for n in range(BRIDGES):
            times = sorted(t for came in self.broadcasts_came.values()
                           for m, t in came if m == n and start <= t <= until)
            ends = [start, *times, until]
            longest = max([longest, *(b - a for a, b in zip(ends, ends[1:]))])
        return longest

    def first_pair(self, since):
        """The time from `since` until the first packet of a new pair that was sent later has come:
        at the first bridge, and at the last one. Seconds."""
        firsts = {}
        for pair, at in sorted(self.pairs_sent.items()):
            came = self.pairs_came.get(pair)
            if at >= since and came is not None:
                firsts.setdefault(pair % BRIDGES, came - since)
        if len(firsts) < BRIDGES:
            return float("inf"), float("inf")
        return min(firsts.values()), max(firsts.values())
