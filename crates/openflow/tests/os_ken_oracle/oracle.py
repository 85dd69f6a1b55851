"""os-ken as an oracle: reads messages in hex from standard input, writes each again, in hex.

Everything that os-ken has a class for goes through that class, read and written: matches, actions,
instructions, buckets, bands, properties, and whole messages where it both reads and writes them.
What it only reads (replies) or only writes (requests) goes through the layout in its constants.
What it cannot read or write is answered with `error` and a reason.
"""

import signal
import struct
import sys

import v10
import v13
from walk import Walk

HEADER = "!BBHI"

VERSIONS = {version.o.OFP_VERSION: version for version in (v10, v13)}

# Some lengths, legal ones too, send os-ken round in circles. A message takes it under 5 ms.
SPIN_S_MAX = 2


def rewrite(data):
    version, kind, length, xid = struct.unpack_from(HEADER, data)
    v = VERSIONS[version]

    def read():
        return v.p.msg_parser(v.DP, version, kind, length, xid, data)

    if kind in v.WHOLE:
        message = read()
        v.before_writing(message)
        message.serialize()
        return message.buf
    if kind in v.READ:
        read()
    w = Walk(data)
    v.WALKS[kind](w)
    if w.at != len(data):
        raise ValueError(f"{len(data) - w.at} bytes are left")
    struct.pack_into(HEADER, w.out, 0, version, kind, len(w.out), xid)
    return w.out


def spinning(_signal, _frame):
    raise TimeoutError("os-ken spins")


def main():
    signal.signal(signal.SIGALRM, spinning)
    for line in sys.stdin:
        try:
            signal.setitimer(signal.ITIMER_REAL, SPIN_S_MAX)
            print(bytes(rewrite(bytes.fromhex(line))).hex())
        except Exception as error:
            print(f"error {type(error).__name__}: {error}".replace("\n", " "))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
