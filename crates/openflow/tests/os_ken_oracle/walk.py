"""A message read forward and written again, whatever its version."""

import struct

HEADER = "!BBHI"
HEADER_SIZE = 8


class Walk:
    """Reads `data` forward and writes what it read to `out`."""

    def __init__(self, data):
        self.data, self.at, self.out = data, HEADER_SIZE, bytearray(HEADER_SIZE)

    def fixed(self, layout):
        """A structure without parts. Padding becomes zeros."""
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        self.out += struct.pack(layout, *values)
        return values

    def rest(self):
        self.out += self.data[self.at :]
        self.at = len(self.data)

    def part(self, cls, length=lambda part: part.len):
        """A structure with a class that reads and writes it."""
        part = cls.parser(self.data, self.at)
        written = bytearray()
        part.serialize(written, 0)
        self.at += length(part)
        self.out += written

    def parts(self, cls, end):
        while self.at < end:
            self.part(cls)

    def close(self, start, at, layout="!H"):
        """The length of the part that began at `start` of `out`, as os-ken would count it."""
        struct.pack_into(layout, self.out, start + at, len(self.out) - start)


def repeated(layout):
    def walk(w):
        while w.at < len(w.data):
            w.fixed(layout)

    return walk


def once(layout):
    return lambda w: w.fixed(layout)


def nothing(w):
    pass


def experimenter(w):
    w.fixed("!I")
    w.rest()


def multipart(bodies, layout):
    def walk(w):
        kind, _ = w.fixed(layout)
        bodies[kind](w)

    return walk


def rewrite(v, data):
    """A whole message, read and written by os-ken as far as it has a class that does both."""
    version, kind, length, xid = struct.unpack_from(HEADER, data)

    def read():
        return v.p.msg_parser(v.DP, version, kind, length, xid, data)

    if kind in v.WHOLE:
        message = read()
        v.before_writing(message)
        message.serialize()
        return message.buf
    if kind in v.READ and not v.is_misread(data):
        read()
    w = Walk(data)
    v.WALKS[kind](w)
    if w.at != len(data):
        raise ValueError(f"{len(data) - w.at} bytes are left")
    struct.pack_into(HEADER, w.out, 0, version, kind, len(w.out), xid)
    return w.out
