"""A product of matrices that gets another shape and is padded is written in the wrong places."""

from __future__ import annotations

from tools import Tosa

PRODUCT = "Vela"
PACKAGE = "ethos-u-vela"
VERSION = "5.1.0"
AVOIDED = ("plugins/ethosu/src/delegatekit_ethosu/ir/emission.py: VelaEmission._is_product",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    t = Tosa()
    zero = t.constant([0])
    product = t.add(t.tosa.Matmul(), [t.input(2, 8, 8), t.input(2, 8, 8), zero, zero], 2, 8, 8, dtype="INT32")
    whole = t.add(t.tosa.Reshape(), [t.rescaled(product, 0.001), t.constant((1, 2, 8, 8), "SHAPE")], 1, 2, 8, 8)
    pads = t.constant((0, 0, 0, 0, 1, 1, 1, 1), "SHAPE")
    return t.wrong(t.add(t.tosa.Pad(), [whole, pads, zero], 1, 2, 10, 10))
