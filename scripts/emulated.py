"""An OpenFlow 1.3 switch as far as a controller's session needs one."""

import asyncio
import struct

HELLO, ERROR, ECHO, ECHO_REPLY, FEATURES, FEATURES_REPLY = 0, 1, 2, 3, 5, 6
GET_CONFIG, GET_CONFIG_REPLY, PACKET_IN, PORT_STATUS, PACKET_OUT = 7, 8, 10, 12, 13
MULTIPART, MULTIPART_REPLY, BARRIER, BARRIER_REPLY = 18, 19, 20, 21
ROLE, ROLE_REPLY, GET_ASYNC, GET_ASYNC_REPLY = 24, 25, 26, 27
PORT_DESC, DESCRIPTION = 13, 0
BROADCAST = b"\xff" * 6


def message(kind, xid, body=b""):
    return struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body


def port_desc(dpid, port):
    mac = struct.pack("!HI", 0x0600 + port, dpid)
    name = b"p%d" % port
    return struct.pack("!I4x6s2x16sIIIIIIII", port, mac, name, 0, 4, 0, 0, 0, 0, 10_000_000, 0)


def packet_in(port, data):
    oxm = struct.pack("!HHII4x", 1, 12, 0x80000004, port)
    head = struct.pack("!IHBBQ", 0xFFFFFFFF, len(data), 0, 0, 0xFFFFFFFFFFFFFFFF)
    return message(PACKET_IN, 0, head + oxm + b"\0\0" + data)


def port_status(dpid, port, is_down):
    """The port's link went down, or came up."""
    desc = port_desc(dpid, port)
    desc = desc[:36] + struct.pack("!I", is_down) + desc[40:]
    return message(PORT_STATUS, 0, struct.pack("!B7x", 2) + desc)


def ipv4(src, dst, sender, target, payload):
    length = 20 + len(payload)
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 0, 0, 64, 253, 0, sender, target)
    return dst + src + b"\x08\x00" + head + payload


def arp(operation, src, dst, sender, target_mac, target):
    return dst + src + struct.pack("!HHHBBH6s4s6s4s", 0x0806, 1, 0x0800, 6, 4, operation, src,
                                   sender, target_mac, target)


class Session(asyncio.Protocol):
    """One switch over all its connections. It keeps no entries; `emit` gets what leaves a port."""

    def __init__(self, dpid, ports):
        self.dpid, self.ports = dpid, ports
        self.transport, self.buffer, self.is_up = None, b"", False

    def emit(self, port, data):
        pass

    def connection_made(self, transport):
        self.transport, self.buffer = transport, b""
        self.send(message(HELLO, 1, struct.pack("!HHI", 1, 8, 1 << 4)))

    def connection_lost(self, reason):
        self.transport, self.is_up = None, False

    def send(self, data):
        if self.transport is not None:
            self.transport.write(data)

    def data_received(self, data):
        self.buffer += data
        at = 0
        while len(self.buffer) - at >= 8:
            _, kind, length, xid = struct.unpack_from("!BBHI", self.buffer, at)
            if len(self.buffer) - at < length:
                break
            self.take(kind, xid, self.buffer[at + 8:at + length])
            at += length
        self.buffer = self.buffer[at:]

    def take(self, kind, xid, body):
        if kind == ECHO:
            self.send(message(ECHO_REPLY, xid, body))
        elif kind == FEATURES:
            features = struct.pack("!QIBB2xII", self.dpid, 0, 8, 0, 0x4F, 0)
            self.send(message(FEATURES_REPLY, xid, features))
        elif kind == GET_CONFIG:
            self.send(message(GET_CONFIG_REPLY, xid, struct.pack("!HH", 0, 0xFFFF)))
        elif kind == BARRIER:
            self.send(message(BARRIER_REPLY, xid))
        elif kind == ROLE:
            self.send(message(ROLE_REPLY, xid, body))
        elif kind == GET_ASYNC:
            self.send(message(GET_ASYNC_REPLY, xid))
        elif kind == MULTIPART:
            which, = struct.unpack_from("!H", body)
            answer = b""
            if which == PORT_DESC:
                answer = b"".join(port_desc(self.dpid, p) for p in self.ports)
                self.is_up = True
            elif which == DESCRIPTION:
                answer = struct.pack("!256s256s256s32s256s", b"auster", b"emulated", b"1", b"", b"")
            self.send(message(MULTIPART_REPLY, xid, struct.pack("!HH4x", which, 0) + answer))
        elif kind == PACKET_OUT:
            _, _, length = struct.unpack_from("!IIH", body)
            actions, data = body[16:16 + length], body[16 + length:]
            while len(actions) >= 8:
                action, size = struct.unpack_from("!HH", actions)
                if action == 0:
                    self.emit(struct.unpack_from("!I", actions, 4)[0], data)
                actions = actions[max(size, 8):]
