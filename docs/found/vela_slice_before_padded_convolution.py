"""A padded convolution of half of the channels of a batch reads the wrong pixels."""

from __future__ import annotations

from tools import Tosa

PRODUCT = "Vela"
PACKAGE = "ethos-u-vela"
VERSION = "5.1.0"
AVOIDED = ("plugins/ethosu/src/delegatekit_ethosu/ir/emission.py: _is_misread",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    t = Tosa()
    zero = t.constant([0])
    part = t.sliced(t.input(2, 8, 8, 16), (0, 0, 0, 8), 2, 8, 8, 8)
    operands = [part, t.weights(8, 3, 3, 8), t.constant([0] * 8, "INT32"), zero, zero]
    sums = t.add(t.tosa.Conv2d((1, 1, 1, 1)), operands, 2, 8, 8, 8, dtype="INT32")
    return t.wrong(t.rescaled(sums, 0.001))
