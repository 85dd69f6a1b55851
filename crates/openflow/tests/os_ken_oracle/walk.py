"""A message read forward and written again, whatever its version."""

import struct

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
