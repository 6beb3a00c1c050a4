"""The process of `decompressor`: python -I decompressor_process.py PATH...

A question is a stream of weights, its answer the weights as int16 values, little-endian.
"""

from __future__ import annotations

import sys
from array import array


def main() -> None:
    """Answer until the input ends."""
    sys.path[:0] = sys.argv[1:]
    from ethosu import mlw_codec

    from delegatekit_toolkit.processes import answer

    def weights(stream: bytes) -> bytes:
        values = array("h", mlw_codec.decode(bytearray(stream)))
        if sys.byteorder == "big":
            values.byteswap()
        return values.tobytes()

    answer(weights)


if __name__ == "__main__":
    main()
