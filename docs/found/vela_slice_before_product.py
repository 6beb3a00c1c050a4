"""A product of matrices, one of which is a slice, writes beyond the end of the program's memory."""

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
    part = t.sliced(t.input(1, 8, 16), (0, 0, 8), 1, 8, 8)
    product = t.add(t.tosa.Matmul(), [part, t.input(1, 8, 8), zero, zero], 1, 8, 8, dtype="INT32")
    return t.wrong(t.rescaled(product, 0.001))
