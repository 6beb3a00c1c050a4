"""What OpenVINO must not compute as one: its compiler crashes."""

from __future__ import annotations

from typing import Any, Final

#: Operations that are no functions of single elements. Those that give a tensor another shape are left out.
_NOT_ELEMENTWISE: Final = frozenset(
    (
        *("Parameter", "Constant", "Result", "Transpose", "Slice", "Concat", "Split", "Broadcast", "Tile", "TopK"),
        *("MatMul", "Softmax", "LogSoftmax", "Convolution", "GroupConvolution", "Gather", "GatherND", "MVN", "Pad"),
        *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceLogicalOr"),
    )
)


def must_stay_apart(model: Any) -> bool:
    """True if a model has attention whose result is joined with a computed tensor, and read by several nodes.

    OpenVINO computes attention and the elementwise functions after it as one: there its compiler ends the process.
    """
    return any(
        node.get_type_name() == "MatMul" and _is_share(node.input_value(0)) and _crashes(node)
        for node in model.get_ordered_ops()
    )


def _is_share(output: Any) -> bool:
    """True if an output is softmax's, or a function of it."""
    passed: set[str] = set()
    waiting = [output.get_node()]
    while waiting:
        node = waiting.pop()
        if node.get_type_name() == "Softmax":
            return True
        if node.get_friendly_name() not in passed and node.get_type_name() not in _NOT_ELEMENTWISE:
            passed.add(node.get_friendly_name())
            waiting += [value.get_node() for value in node.input_values()]
    return False


def _crashes(product: Any) -> bool:
    """True if functions of a product are also of something computed, and one of their results is read twice."""
    is_joined, is_shared = False, False
    passed = {product.get_friendly_name()}
    waiting = [product]
    while waiting:
        node = waiting.pop()
        readers = [port.get_node() for port in node.output(0).get_target_inputs()]
        is_shared |= node is not product and len(readers) > 1
        for reader in readers:
            name = reader.get_friendly_name()
            if name in passed or reader.get_type_name() in _NOT_ELEMENTWISE:
                continue
            passed.add(name)
            waiting.append(reader)
            others = [value.get_node() for value in reader.input_values()]
            is_joined |= any(
                other.get_friendly_name() not in passed and other.get_type_name() not in ("Parameter", "Constant")
                for other in others
            )
    return is_joined and is_shared
