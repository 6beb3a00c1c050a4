"""A transposed convolution of half of the channels forgets its padding."""

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
    part = t.sliced(t.input(1, 4, 4, 16), (0, 0, 0, 8), 1, 4, 4, 8)
    operands = [part, t.weights(8, 2, 2, 8), t.constant([0] * 8, "INT32"), zero, zero]
    sums = t.add(t.tosa.TransposeConv2d((0, 0, 0, 0), (2, 2)), operands, 1, 8, 8, 8, dtype="INT32")
    return t.wrong(t.rescaled(sums, 0.001))
