"""Products with a constant zero become zero, where the other factor may be infinite or NaN."""

from __future__ import annotations

from tools import CannotRunHereError

PRODUCT = "Arm's model converter"
PACKAGE = "ai-ml-sdk-model-converter"
VERSION = "0.11.0"
AVOIDED = ("plugins/vgf/src/delegatekit_vgf/ir/builder.py: product",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    try:
        from delegatekit_vgf.blob.container import unpack
        from delegatekit_vgf.blob.spirv import read_graph
        from delegatekit_vgf.compiler import availability, convert
    except ImportError as error:
        raise CannotRunHereError(f"delegatekit-vgf is not installed ({error})") from error
    from delegatekit_toolkit import tosa

    if not availability().available:
        raise CannotRunHereError(availability().reason)
    graph, kind = tosa.Graph("found"), tosa.DType.FP32
    x, zero = graph.input("x", (3,), kind), graph.constant([0.0], kind)
    product = graph.add(tosa.Mul(), [x, zero, graph.constant([0], tosa.DType.INT8)], (3,), kind, "product")
    graph.output(graph.add(tosa.Maximum(), [product, x], (3,), kind, "largest"))
    found = [operation.operator.name for operation in read_graph(unpack(convert(tosa.write(graph)))).operations]
    return None if "MUL" in found else f"max(0 x, x) became {' and '.join(found)} with a constant"
