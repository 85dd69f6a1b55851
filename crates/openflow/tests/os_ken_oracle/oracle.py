"""os-ken as an oracle: reads messages in hex from standard input, writes each again, in hex.

Everything that os-ken has a class for goes through that class, read and written: matches, actions,
instructions, buckets, bands, properties, and whole messages where it both reads and writes them.
What it only reads (replies) or only writes (requests) goes through the layout in its constants.
What it cannot read or write is answered with `error` and a reason.
"""

import signal
import sys

import later
import v10
from v13 import V12, V13
from walk import rewrite

VERSIONS = {version.o.OFP_VERSION: version for version in (v10, V12, V13, later.V14, later.V15)}

# Some lengths, legal ones too, send os-ken round in circles. A message takes it under 5 ms.
SPIN_S_MAX = 2


def spinning(_signal, _frame):
    raise TimeoutError("os-ken spins")


def main():
    signal.signal(signal.SIGALRM, spinning)
    for line in sys.stdin:
        try:
            signal.setitimer(signal.ITIMER_REAL, SPIN_S_MAX)
            data = bytes.fromhex(line)
            print(bytes(rewrite(VERSIONS[data[0]], data)).hex())
        except Exception as error:
            print(f"error {type(error).__name__}: {error}".replace("\n", " "))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
