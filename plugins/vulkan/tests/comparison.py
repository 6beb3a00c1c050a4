"""Compares our blobs with stock ExecuTorch's of the same programs, call by call.

Calls are compared after removing copies into other layouts (`aten.clone.default`), which are counted separately.
Compared are: operator, shapes, types and numbers of a call, and the contents of its constants.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Final, TypeAlias

import torch

import delegatekit
from delegatekit import pte
from delegatekit_api import TensorSpec
from delegatekit_toolkit.testing import payload_of
from delegatekit_vulkan.blob import schema
from delegatekit_vulkan.blob.reader import parse, read_graph
from delegatekit_vulkan.ir.graph import Argument, Graph, Node, Tensor
from delegatekit_vulkan.ir.types import DataType

from .stock import stock_buffer
from .stock_models import MODELS

_COPY: Final = "aten.clone.default"
_PREPACK: Final = "et_vk.prepack.default"
#: Numbers of a call that follow from its sizes.
_SHAPED: Final = re.compile(r"argument 1 of aten\.(view|permute|expand|squeeze|unsqueeze)_copy")


# -- compared data ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Totals:
    """Statistics of a file, over its Vulkan delegates."""

    delegates: int
    #: Calls of kernels outside the delegates.
    outside: int
    calls: int
    #: Calls that only copy a tensor, mostly into another layout.
    copies: int
    #: Distinct constants, and their bytes.
    constants: int
    constant_bytes: int
    #: Memory blocks for computed values, shared ones once, and their bytes without padding.
    objects: int
    object_bytes: int


@dataclass(frozen=True)
class Comparison:
    """A model in both lowerings."""

    model: str
    stock: Totals
    ours: Totals
    #: Calls that are in both.
    same: int
    #: The differences, in a line of text each, with their counts.
    differences: Counter[str] = field(default_factory=Counter)


def compare(model: str) -> Comparison:
    """Lower a model of `MODELS` both ways and compare. Raises KeyError."""
    build, half = MODELS[model]
    case = build(model)
    theirs = _file(stock_buffer(case.module, case.inputs, **({"force_fp16": True} if half else {})))
    options = {"vulkan": {"fp16": half}}
    mine = _file(delegatekit.lower(case.export(), backends=["vulkan"], options=options).buffer)
    stock, ours = ([node for graph in graphs for node in graph.nodes] for graphs in (theirs.graphs, mine.graphs))
    pairs, resized, alone = _aligned(_without_copies(stock), _without_copies(ours))
    differences = Counter(alone)
    for left, right in resized:
        differences[f"sizes of {left.operator}{_axes(left, right)}"] += 1
    found = [list(_differences(*pair)) for pair in pairs]
    differences.update(line for lines in found for line in lines)
    differences.update(line for pair in resized for line in _differences(*pair) if not _SHAPED.search(line))
    same = sum(all(line.startswith("form ") for line in lines) for lines in found)
    return Comparison(model, _totals(theirs), _totals(mine), same, differences)


@dataclass(frozen=True)
class _File:
    graphs: list[Graph]
    #: Calls of kernels outside the delegates.
    outside: int


def _file(buffer: bytes) -> _File:
    (method,) = delegatekit.inspect(buffer).methods
    return _File(graphs_of(buffer), sum(method.operators.values()))


def graphs_of(buffer: bytes) -> list[Graph]:
    """The graphs of a file's Vulkan delegates, in order."""
    file = pte.read(buffer)
    named = {key: bytes(data) for key, data in file.named_data.items()}
    graphs = []
    for plan in file.program.execution_plan or ():
        for table in plan.delegates or ():
            assert table.id == "VulkanBackend", table.id
            graphs.append(_graph(bytes(file.delegate_blob(table)), named))
    return graphs


def _graph(blob: bytes, named: dict[str, bytes]) -> Graph:
    tables, _ = parse(blob)
    values = [item.value for item in tables.values or ()]

    def specs(numbers: Sequence[int] | None) -> list[TensorSpec]:
        return [_spec(values[number]) for number in numbers or ()]

    return read_graph(payload_of(blob, specs(tables.input_ids), specs(tables.output_ids), named_data=named))


def _spec(table: Any) -> TensorSpec:
    """The program's type of the delegate's argument."""
    number = table.datatype if table.staging_datatype == schema.UNSET else table.staging_datatype
    return TensorSpec(str(DataType(number).torch).removeprefix("torch."), tuple(table.dims or ()))


def _without_copies(nodes: list[Node]) -> list[Node]:
    return [node for node in nodes if node.operator != _COPY]


def _totals(file: _File) -> Totals:
    nodes = [node for graph in file.graphs for node in graph.nodes]
    constants = {_content(value): _bytes(value) for graph in file.graphs for value in graph.constants()}
    objects: Counter[tuple[int, int]] = Counter()
    for index, graph in enumerate(file.graphs):
        computed = [item for node in graph.nodes for item in node.results if isinstance(item, Tensor)]
        for number, tensor in enumerate(dict.fromkeys((*graph.inputs, *computed))):
            key = (index, tensor.memory if tensor.memory >= 0 else -1 - number)
            objects[key] = max(objects[key], _bytes(tensor))
    return Totals(
        len(file.graphs),
        file.outside,
        len(nodes),
        sum(node.operator == _COPY for node in nodes),
        len(constants),
        sum(constants.values()),
        len(objects),
        sum(objects.values()),
    )


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor.sizes) * tensor.datatype.bytes


def _content(constant: Tensor) -> tuple[Any, ...]:
    assert constant.data is not None
    return constant.datatype, constant.sizes, constant.data.contiguous().numpy().tobytes()


# -- alignment ---------------------------------------------------------------------------------------------------------

_Pairs: TypeAlias = "list[tuple[Node, Node]]"
_Key: TypeAlias = Callable[[Node], str]


def _aligned(stock: list[Node], ours: list[Node]) -> tuple[_Pairs, _Pairs, list[str]]:
    """Calls on tensors of the same sizes, calls of the same operators on others, and a line for each unmatched call.

    The order of independent calls is free: a call without a partner at its position may have one elsewhere.
    """
    equal, left, right = _in_order(stock, ours, _signature)
    moved, left, right = _anywhere(left, right, _signature)
    packed, left, right = _anywhere(left, right, _constants_of)
    resized, left, right = _in_order(left, right, _kind_of_call)
    lines = [*(f"only stock: {node.operator}" for node in left), *(f"only ours: {node.operator}" for node in right)]
    return equal + moved, packed + resized, lines


def _in_order(stock: list[Node], ours: list[Node], key: _Key) -> tuple[_Pairs, list[Node], list[Node]]:
    """Pairs of equal keys in the same order, and the calls without a partner."""
    matcher = SequenceMatcher(None, list(map(key, stock)), list(map(key, ours)), autojunk=False)
    pairs = [(a + i, b + i) for a, b, size in matcher.get_matching_blocks() for i in range(size)]
    return _parted(stock, ours, pairs)


def _anywhere(stock: list[Node], ours: list[Node], key: _Key) -> tuple[_Pairs, list[Node], list[Node]]:
    """Pairs of equal keys wherever they are, and the calls without a partner. Empty keys have none."""
    places: dict[str, list[int]] = {}
    for index, node in reversed(list(enumerate(ours))):
        places.setdefault(key(node), []).append(index)
    found = [
        (index, places[key(node)].pop()) for index, node in enumerate(stock) if key(node) and places.get(key(node))
    ]
    return _parted(stock, ours, found)


def _parted(stock: list[Node], ours: list[Node], pairs: list[tuple[int, int]]) -> tuple[_Pairs, list[Node], list[Node]]:
    left, right = ({pair[side] for pair in pairs} for side in (0, 1))
    return (
        [(stock[a], ours[b]) for a, b in pairs],
        [node for index, node in enumerate(stock) if index not in left],
        [node for index, node in enumerate(ours) if index not in right],
    )


def _kind_of_call(node: Node) -> str:
    """Operator, and type and number of elements of the results."""
    kinds = [(item.datatype.name, math.prod(item.sizes)) for item in node.results if isinstance(item, Tensor)]
    return f"{node.operator} {kinds} {_constants_of(node) if node.operator == _PREPACK else ''}"


def _constants_of(node: Node) -> str:
    """Operator and contents of the constants; empty for a call without any."""
    contents = [_content(item) for item in node.reads if isinstance(item, Tensor) and item.data is not None]
    return f"{node.operator} {hash(tuple(contents))}" if contents else ""


def _signature(node: Node) -> str:
    """Operator and tensors: "aten.add.Tensor(float32 (2, 3), float32 (3,)) -> float32 (2, 3)"."""
    content = f" {_constants_of(node)}" if node.operator == _PREPACK else ""
    return f"{node.operator}({', '.join(map(_kind, node.reads))}) -> {', '.join(map(_kind, node.results))}{content}"


def _kind(value: object) -> str:
    if not isinstance(value, Tensor):
        return "number"
    return f"{'constant ' if value.data is not None else ''}{value!r}"


# -- pairs -------------------------------------------------------------------------------------------------------------


def _differences(stock: Node, ours: Node) -> Iterator[str]:
    """Differences between two calls of an operator: numbers, contents of constants, forms of results."""
    name = stock.operator
    if len(stock.arguments) != len(ours.arguments):
        yield f"number of arguments of {name}: stock {len(stock.arguments)}, ours {len(ours.arguments)}"
    for index, (theirs, mine) in enumerate(zip(stock.arguments, ours.arguments, strict=False)):
        if isinstance(theirs, Tensor) and isinstance(mine, Tensor):
            if theirs.data is not None and mine.data is not None:
                yield from _constants(f"argument {index} of {name}", theirs.data, mine.data)
        elif _text(theirs) != _text(mine):
            yield f"argument {index} of {name}: stock {_text(theirs)}, ours {_text(mine)}"
    for left, right in zip(stock.results, ours.results, strict=True):
        if isinstance(left, Tensor) and isinstance(right, Tensor) and _form(left) != _form(right):
            yield f"form of {name}: stock {_form(left)}, ours {_form(right)}"


def _constants(where: str, stock: torch.Tensor, ours: torch.Tensor) -> Iterator[str]:
    if stock.shape != ours.shape:
        yield f"constant in {where}: stock {tuple(stock.shape)}, ours {tuple(ours.shape)}"
        return
    if torch.equal(stock, ours):
        return
    error = (stock.double() - ours.double()).abs().max() / stock.double().abs().max()
    size = "by rounding" if error <= 4 * torch.finfo(ours.dtype).eps else f"by {float(error):.1e} of the largest"
    yield f"constant in {where}: {size}"


def _axes(stock: Node, ours: Node) -> str:
    """Rank of the first operand, if it differs and not only because of the view's shape: ": stock 2"."""
    left, right = (next((item.rank for item in node.reads if isinstance(item, Tensor)), 0) for node in (stock, ours))
    return "" if left == right or _SHAPED.search(f"argument 1 of {stock.operator}") else f": stock {left}, ours {right}"


def _text(argument: Argument) -> str:
    """An argument with its type, tensors without sizes."""
    if isinstance(argument, tuple):
        return f"[{', '.join(map(_text, argument))}]"
    if isinstance(argument, bool | int | float | str | None):
        return repr(argument)
    return "tensor" if isinstance(argument, Tensor) else "computed number"


def _form(tensor: Tensor) -> str:
    return f"{tensor.storage.name} {tensor.layout.name}"
