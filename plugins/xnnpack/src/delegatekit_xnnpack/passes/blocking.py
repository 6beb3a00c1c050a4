"""Shared parts of the passes that split large matrix products into blocks whose weights stay in the cache.

XNNPACK multiplies a few rows at a time with the whole weight. A weight larger than the cache is then read from memory
again for every few rows, and the product waits for it. These forms of splitting cost next to nothing in comparison:

* two products with elementwise functions between, as in transformers: block by block of the values between,
  whose contributions to the second product are added up (`split_between`);
* any other large product: a batch of products, one for each block of columns, brought into order by a transpose
  (`batch_columns`);
* a convolution with a large filter: several convolutions, whose results are joined (`split_channels`).

The numbers stay the same up to the order of sums. `benchmarks/runtime.py` measures the gain.
"""

from __future__ import annotations

import math

from delegatekit_toolkit.sizes import Dynamic, largest

from ..ir import operators as ops
from ..ir.graph import Node, Value
from ..ir.types import DataType, Shape, static

#: With fewer blocks than this, weights stay in one piece if a copy of the result must pay off.
LARGE_ALONE = 5
#: Fewer rows are multiplied with the weight at once, or nearly.
_FEWEST_ROWS = 16
#: Block widths are multiples of this many columns, which fill whole vectors.
_COLUMN_STEP = 16


def part(value: Value, axis: int, start: int, width: int) -> Value:
    """Some of a constant along an axis; all of it if it is broadcast along it."""
    if not value.shape or value.shape[axis] == 1:
        return value
    assert value.data is not None
    data = value.data.reshape(static(value.shape)).narrow(axis, start, width)
    return Value(tuple(data.shape), value.datatype, data)


def is_product(node: Node) -> bool:
    """True if a node multiplies rows with a constant float32 weight."""
    return isinstance(node.operator, ops.FullyConnected) and is_float(node)


def is_float(node: Node) -> bool:
    """True if all is float32, and all but the first operand constant."""
    constants = all(value.data is not None for value in node.inputs[1:])
    return constants and all(value.datatype is DataType.FLOAT32 for value in node.inputs)


def rows(node: Node) -> int:
    """The maximum number of rows of a product in a call."""
    return math.prod(map(largest, node.inputs[0].shape[:-1]))


def are_few(rows: int) -> bool:
    """True if blocks gain nothing for this many rows."""
    return rows < _FEWEST_ROWS


def weight_bytes(node: Node) -> int:
    """Size of a product's weight in float32."""
    return 4 * math.prod(static(node.inputs[1].shape))


def block_count(columns: int, bytes: int, block_bytes: int) -> int:
    """The smallest number of blocks of equal width whose weights are small enough; 1 if there is none."""
    fewest = -(-bytes // block_bytes)
    steps, rest = divmod(columns, _COLUMN_STEP)
    counts = range(fewest, min(2 * fewest, steps) + 1)
    return 1 if rest else next((count for count in counts if steps % count == 0), 1)


def reshaped(nodes: list[Node], source: Node, value: Value, shape: Shape) -> Value:
    """The value under another shape, by a new node that does a part of the work of `source`."""
    if value.shape == shape:
        return value
    sizes = tuple(0 if isinstance(size, Dynamic) else size for size in shape)
    return append(nodes, source, ops.Reshape(sizes), (value,), shape)


def append(nodes: list[Node], source: Node, operator: ops.Operator, inputs: tuple[Value, ...], shape: Shape) -> Value:
    """The output of a new node that does a part of the work of `source`."""
    output = Value(shape)
    clamp = None if isinstance(operator, ops.Concatenate) else source.clamp
    output.producer = Node(operator, inputs, output, clamp, source.debug_handles)
    nodes.append(output.producer)
    return output


def becomes(node: Node, replaced: Node) -> None:
    """Let a node compute the output of another one."""
    node.output = replaced.output
    node.output.producer = node
    node.debug_handles = tuple(dict.fromkeys((*node.debug_handles, *replaced.debug_handles)))
