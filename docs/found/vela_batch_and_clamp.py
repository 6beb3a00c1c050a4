"""A convolution of one pixel with a clamp reads only the first row of a batch.

The other rows are taken for padding.
"""

from __future__ import annotations

from tools import Tosa

PRODUCT = "Vela"
PACKAGE = "ethos-u-vela"
VERSION = "5.1.0"
AVOIDED = ("toolkit/src/delegatekit_toolkit/tosa/lowering/filters.py: one_sample",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    t = Tosa()
    zero = t.constant([0])
    operands = [t.input(4, 1, 1, 16), t.weights(8, 1, 1, 16), t.constant([0] * 8, "INT32"), zero, zero]
    sums = t.add(t.tosa.Conv2d(), operands, 4, 1, 1, 8, dtype="INT32")
    return t.wrong(t.add(t.tosa.Clamp(-20, 30), [t.rescaled(sums, 0.01)], 4, 1, 1, 8))
