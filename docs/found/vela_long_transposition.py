"""A transposition along more than 65536 elements cannot be compiled, with a message that names no reason."""

from __future__ import annotations

from tools import Tosa

PRODUCT = "Vela"
PACKAGE = "ethos-u-vela"
VERSION = "5.1.0"
AVOIDED = ("toolkit/src/delegatekit_toolkit/tosa/lowering/moves.py: Moves.transposed",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    t = Tosa()
    return t.wrong(t.add(t.tosa.Transpose((0, 2, 1)), [t.input(1, 70000, 2)], 1, 2, 70000))
