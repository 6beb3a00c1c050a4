"""The process of `decompressor`: python -I decompressor_process.py PATH... Reads streams, writes their weights.

Each message is a count (uint32, little-endian) and that many bytes, or that many int16 values. It ends with its input.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array


def main() -> None:
    """Answer until there is no more to read."""
    # What the decoder prints must not come among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path[:0] = sys.argv[1:]
    from ethosu import mlw_codec

    while len(head := sys.stdin.buffer.read(4)) == 4:
        data = sys.stdin.buffer.read(struct.unpack("<I", head)[0])
        values = array("h", mlw_codec.decode(bytearray(data)))
        if sys.byteorder == "big":
            values.byteswap()
        answers.write(struct.pack("<I", len(values)))
        answers.write(values)
        answers.flush()


if __name__ == "__main__":
    main()
