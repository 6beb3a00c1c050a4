"""A single number on the left of a difference with five axes: the commands read beyond its end."""

from __future__ import annotations

from tools import Tosa

PRODUCT = "Vela"
PACKAGE = "ethos-u-vela"
VERSION = "5.1.0"
AVOIDED = ("plugins/ethosu/src/delegatekit_ethosu/ir/emission.py: VelaEmission.single",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    t = Tosa()
    seven = t.constant([[[[[7]]]]], "INT32")
    x = t.rescaled(t.input(2, 2, 2, 2, 8), 1.0, "INT32")
    return t.wrong(t.rescaled(t.add(t.tosa.Sub(), [seven, x], 2, 2, 2, 2, 8, dtype="INT32"), 0.5))
