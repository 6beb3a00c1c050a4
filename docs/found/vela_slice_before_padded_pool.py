"""A padded pool of a part of a batch reads the wrong pixels."""

from __future__ import annotations

from tools import Tosa

PRODUCT = "Vela"
PACKAGE = "ethos-u-vela"
VERSION = "5.1.0"
AVOIDED = ("plugins/ethosu/src/delegatekit_ethosu/ir/emission.py: _is_misread",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    t = Tosa()
    part = t.sliced(t.input(4, 8, 8, 8), (2, 0, 0, 0), 2, 8, 8, 8)
    return t.wrong(t.add(t.tosa.MaxPool2d((3, 3), (1, 1), (1, 1, 1, 1)), [part], 2, 8, 8, 8))
