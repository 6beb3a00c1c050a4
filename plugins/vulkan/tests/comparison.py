"""Our blobs beside stock ExecuTorch's of the same programs, call by call: what differs, and why.

Calls are compared after copies into other layouts (`aten.clone.default`) are taken out, which are counted by
themselves. What agrees: operator, shapes, types and numbers of a call, and the contents of its constants.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Final

import torch
from torch import nn

import delegatekit
from delegatekit import pte
from delegatekit_api import TensorSpec
from delegatekit_conformance.models import ModelCase, build_model
from delegatekit_toolkit.testing import payload_of
from delegatekit_vulkan.blob import schema
from delegatekit_vulkan.blob.reader import parse, read_graph
from delegatekit_vulkan.ir.graph import Argument, Graph, Node, Tensor
from delegatekit_vulkan.ir.types import DataType

from .stock import stock_buffer

_COPY: Final = "aten.clone.default"


# -- models ------------------------------------------------------------------------------------------------------------


class TinyConvolutions(nn.Module):
    """Convolutions of all kinds with batch norms and clamps, a pool and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.depth = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Hardswish(), nn.Conv2d(8, 12, 1), nn.ReLU())
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities of 5 classes."""
        return torch.softmax(self.head(self.pool(self.depth(self.stem(x))).mean((-2, -1))), -1)


def _tiny(name: str) -> ModelCase:
    torch.manual_seed(0)
    return ModelCase(name, TinyConvolutions().eval(), (torch.randn(1, 3, 16, 16),))


def _eager_attention(name: str) -> ModelCase:
    """Attention in its parts: stock would break a fused one in pieces that its delegate does not take."""
    case = build_model(name, small=True)
    case.module.model.set_attn_implementation("eager")  # type: ignore[union-attr, operator]
    return case


def _small(name: str) -> ModelCase:
    return build_model(name, small=True)


#: Name -> how the model is built, and whether it is lowered to float16.
MODELS: Final[dict[str, tuple[Callable[[str], ModelCase], bool]]] = {
    "mobilenet-v2": (_small, False),
    "resnet-50": (_small, False),
    "vit-base": (_eager_attention, False),
    "bert-base": (_eager_attention, False),
    "llama-100m": (_eager_attention, False),
    "tiny convolutions, fp16": (_tiny, True),
}


# -- what is compared --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Totals:
    """Numbers of a file, over its Vulkan delegates."""

    delegates: int
    #: Calls of kernels outside the delegates.
    outside: int
    calls: int
    #: Calls that only copy a tensor, mostly into another layout.
    copies: int
    #: Distinct constants, and their bytes.
    constants: int
    constant_bytes: int
    #: Blocks of memory for what is computed, shared ones once, and their bytes without padding.
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
    #: What differs, in a line of text each, and how often.
    differences: Counter[str] = field(default_factory=Counter)


def compare(model: str) -> Comparison:
    """Lower a model of `MODELS` both ways and compare. Raises KeyError."""
    build, half = MODELS[model]
    case = build(model)
    theirs = _graphs(stock_buffer(case.module, case.inputs, **({"force_fp16": True} if half else {})))
    options = {"vulkan": {"fp16": half}}
    mine = _graphs(delegatekit.lower(case.export(), backends=["vulkan"], options=options).buffer)
    stock, ours = ([node for graph in graphs for node in graph.nodes] for graphs in (theirs.graphs, mine.graphs))
    pairs, alone = _aligned(_without_copies(stock), _without_copies(ours))
    differences = Counter(alone)
    same = 0
    for left, right in pairs:
        found = list(_differences(left, right))
        same += not any(not line.startswith("form ") for line in found)
        differences.update(found)
    return Comparison(model, _totals(theirs), _totals(mine), same, differences)


@dataclass(frozen=True)
class _File:
    graphs: list[Graph]
    #: Calls of kernels outside the delegates.
    outside: int


def _graphs(buffer: bytes) -> _File:
    """The graphs of a file's Vulkan delegates, in order."""
    file = pte.read(buffer)
    named = {key: bytes(data) for key, data in file.named_data.items()}
    graphs = []
    for plan in file.program.execution_plan or ():
        for table in plan.delegates or ():
            assert table.id == "VulkanBackend", table.id
            graphs.append(_graph(bytes(file.delegate_blob(table)), named))
    (method,) = delegatekit.inspect(buffer).methods
    return _File(graphs, sum(method.operators.values()))


def _graph(blob: bytes, named: dict[str, bytes]) -> Graph:
    tables, _ = parse(blob)
    values = [item.value for item in tables.values or ()]

    def specs(numbers: Sequence[int] | None) -> list[TensorSpec]:
        return [_spec(values[number]) for number in numbers or ()]

    return read_graph(payload_of(blob, specs(tables.input_ids), specs(tables.output_ids), named_data=named))


def _spec(table: Any) -> TensorSpec:
    """What the program calls the delegate with."""
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
    count = tensor.datatype.bytes
    for size in tensor.sizes:
        count *= size
    return count


def _content(constant: Tensor) -> tuple[Any, ...]:
    assert constant.data is not None
    return constant.datatype, constant.sizes, constant.data.contiguous().numpy().tobytes()


# -- alignment ---------------------------------------------------------------------------------------------------------


def _aligned(stock: list[Node], ours: list[Node]) -> tuple[list[tuple[Node, Node]], list[str]]:
    """Pairs of calls of the same operator on tensors of the same sizes, and a line for each call that has no partner.

    Calls without a partner at their place may have one at another: the order of independent calls is free.
    """
    names = [list(map(_signature, nodes)) for nodes in (stock, ours)]
    pairs, left, right = [], [], []
    for tag, a, b, c, d in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs += zip(stock[a:b], ours[c:d], strict=True)
        else:
            left += stock[a:b]
            right += ours[c:d]
    for node in list(left):
        partner = next((item for item in right if _signature(item) == _signature(node)), None)
        if partner is not None:
            left.remove(node)
            right.remove(partner)
            pairs.append((node, partner))
    return pairs, [f"only stock: {_signature(node)}" for node in left] + [f"only ours: {_signature(n)}" for n in right]


def _signature(node: Node) -> str:
    """Operator and tensors: "aten.add.Tensor(float32 (2, 3), float32 (3,)) -> float32 (2, 3)"."""
    tensors = ", ".join(_kind(value) for value in node.reads)
    results = ", ".join(_kind(value) for value in node.results)
    return f"{node.operator}({tensors}) -> {results}"


def _kind(value: object) -> str:
    if not isinstance(value, Tensor):
        return "number"
    return f"{'constant ' if value.data is not None else ''}{value!r}"


# -- pairs -------------------------------------------------------------------------------------------------------------


def _differences(stock: Node, ours: Node) -> Iterator[str]:
    """What differs between two calls of an operator: numbers, contents of constants, forms of results."""
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
    if torch.equal(stock, ours):
        return
    error = (stock.double() - ours.double()).abs().max() / stock.double().abs().max()
    size = "by rounding" if error <= 4 * torch.finfo(ours.dtype).eps else f"by {float(error):.1e} of the largest"
    yield f"constant in {where}: {size}"


def _text(argument: Argument) -> str:
    """An argument with its type, tensors without sizes."""
    if isinstance(argument, tuple):
        return f"[{', '.join(map(_text, argument))}]"
    if isinstance(argument, bool | int | float | str | None):
        return repr(argument)
    return "tensor" if isinstance(argument, Tensor) else "computed number"


def _form(tensor: Tensor) -> str:
    return f"{tensor.storage.name} {tensor.layout.name}"


# -- reasons -----------------------------------------------------------------------------------------------------------

#: Regular expressions of differences (whole lines), and why they are there.
REASONS: Final[dict[str, str]] = {}


def reason(difference: str) -> str | None:
    """Why a difference is there; None if nobody has said it."""
    return next((text for pattern, text in REASONS.items() if re.fullmatch(pattern, difference)), None)
