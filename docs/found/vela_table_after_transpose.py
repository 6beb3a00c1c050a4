"""On the Ethos-U55 with 64 MACs the table after a transposition lies past the end of the internal memory."""

from __future__ import annotations

from tools import Tosa

PRODUCT = "Vela"
PACKAGE = "ethos-u-vela"
VERSION = "5.1.0"
AVOIDED = ("toolkit/src/delegatekit_toolkit/tosa/lowering/builder.py: TosaBuilder.tabled",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    t = Tosa()
    moved = t.add(t.tosa.Transpose((0, 3, 1, 2)), [t.input(1, 8, 8, 4)], 1, 4, 8, 8)
    table = t.constant(list(range(-128, 128)))
    return t.wrong(t.add(t.tosa.Table(), [moved, table], 1, 4, 8, 8), target="ethos-u55-64")
