"""What the tests share: lower a module whole, run it in the stock ExecuTorch runtime, compare with eager PyTorch."""

from __future__ import annotations

import copy
import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from torch.utils import _pytree as pytree

import delegatekit
from delegatekit import pte
from delegatekit.edge import build_edge
from delegatekit_api import Call, DelegatePayload, TensorSpec
from delegatekit_toolkit.sizes import dynamic_count, largest
from delegatekit_xnnpack import plugin
from delegatekit_xnnpack.blob import schema
from delegatekit_xnnpack.blob.reader import parse
from delegatekit_xnnpack.blob.writer import SerializedGraph, serialize
from delegatekit_xnnpack.ir.graph import Graph
from delegatekit_xnnpack.ir.types import Shape
from delegatekit_xnnpack.options import XnnpackOptions


class Apply(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


@dataclass(frozen=True)
class Lowered:
    """A module that XNNPACK took whole."""

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    buffer: bytes
    graph: schema.XNNGraph
    #: Names of the blob's nodes -> how many there are.
    nodes: Counter[str] = field(default_factory=Counter)

    def run(self) -> list[torch.Tensor]:
        """The outputs of the stock runtime."""
        from executorch.extension.pybindings import _C

        # The program does not keep its bytes alive: self.buffer does.
        program = _C._load_program_from_buffer(self.buffer)
        return list(program.load_method("forward")(self.inputs))

    def eager(self) -> list[torch.Tensor]:
        """The outputs of PyTorch in double precision."""
        module = copy.deepcopy(self.module).double()
        with torch.no_grad():
            return pytree.tree_leaves(module(*(tensor.double() for tensor in self.inputs)))


def as_module(model: Any) -> torch.nn.Module:
    return (model if isinstance(model, torch.nn.Module) else Apply(model)).eval()


def tolerance(reduction_length: int) -> float:
    """The error allowed for float32 results of size 1: 8 units in the last place, and what sums of that length lose.

    Rounding errors of a sum of n terms grow like sqrt(n); the factor 2 leaves room for their tail.
    """
    return 2.0**-23 * (8.0 + 2.0 * math.sqrt(reduction_length))


def _lower_whole(model: Any, *inputs: torch.Tensor, **options: Any) -> Lowered:
    module = as_module(model)
    program = delegatekit.lower(module, inputs, backends=["xnnpack"], options={"xnnpack": options})
    (method,) = program.report().methods
    assert len(method.delegates) == 1 and not method.fallback, str(program.report())
    buffer = program.buffer
    file = pte.read(buffer)
    (delegate,) = file.program.execution_plan[0].delegates
    graph = parse(file.delegate_blob(delegate))
    nodes = Counter(type(node.xnode_union).__name__ for node in graph.xnodes or ())
    return Lowered(module, inputs, buffer, graph, nodes)


@pytest.fixture
def lower_whole() -> Callable[..., Lowered]:
    """lower_whole(model, *inputs, **options): one delegate and nothing else, or the test fails."""
    return _lower_whole


@pytest.fixture
def matches_eager() -> Callable[..., Lowered]:
    """matches_eager(model, *inputs, terms=1): lowers whole, runs, compares; `terms` is the longest sum inside."""

    def check(model: Any, *inputs: torch.Tensor, terms: int = 1, **options: Any) -> Lowered:
        lowered = _lower_whole(model, *inputs, **options)
        allowed = tolerance(terms)
        results, expected = lowered.run(), lowered.eager()
        assert len(results) == len(expected)
        for result, want in zip(results, expected, strict=True):
            torch.testing.assert_close(result.double(), want, rtol=allowed, atol=allowed)
        return lowered

    return check


@pytest.fixture
def agrees_at_sizes() -> Callable[..., Any]:
    """agrees_at_sizes(model, calls, dynamic_shapes, terms=1): one delegate, or the test fails; both engines, each call.

    The first call is the example that the model is exported with.
    """

    def check(model: Any, calls: Sequence[tuple[Any, ...]], dynamic_shapes: Any, *, terms: int = 1) -> Any:
        module = as_module(model)
        exported = torch.export.export(module, calls[0], dynamic_shapes=dynamic_shapes, strict=False)
        program = delegatekit.lower(exported, backends=["xnnpack"])
        (method,) = program.report().methods
        assert len(method.delegates) == 1 and not method.fallback, str(program.report())
        from executorch.extension.pybindings import _C

        buffer = program.buffer
        loaded = _C._load_program_from_buffer(buffer)
        stock, engine = loaded.load_method("forward"), delegatekit.load(buffer)["forward"]
        precise, allowed = copy.deepcopy(module).double(), tolerance(terms)
        for call in calls:
            with torch.no_grad():
                wanted = pytree.tree_leaves(precise(*(tensor.double() for tensor in call)))
            for results in (stock(tuple(call)), pytree.tree_leaves(engine(*call))):
                assert [tuple(result.shape) for result in results] == [tuple(want.shape) for want in wanted]
                for result, want in zip(results, wanted, strict=True):
                    torch.testing.assert_close(result.double(), want, rtol=allowed, atol=allowed)
        return program

    return check


@pytest.fixture
def refusals() -> Callable[..., list[str]]:
    """refusals(model, *inputs, **options): the reasons for which nodes of the model are not taken."""

    def check(
        model: Any, *inputs: torch.Tensor, keep: Sequence[str] = (), dynamic_shapes: Any = None, **options: Any
    ) -> list[str]:
        partitioner = plugin.create_partitioner(XnnpackOptions(**options))
        exported = torch.export.export(as_module(model), inputs, dynamic_shapes=dynamic_shapes)
        view = build_edge(exported, keep={*partitioner.keep_operators(), *keep}).view
        nodes = [
            node
            for node in view.graph.nodes
            if node.op == "call_function" and isinstance(node.meta["val"], torch.Tensor)
        ]
        return [verdict.reason for node in nodes if not (verdict := partitioner.check(Call(node, view))).supported]

    return check


def _delegate_file(serialized: SerializedGraph, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> bytes:
    dynamism = pte.schema.TensorShapeDynamism
    values = [
        pte.schema.EValue(
            pte.schema.Tensor(
                scalar_type=pte.schema.ScalarType.FLOAT,
                sizes=list(map(largest, shape)),
                dim_order=list(range(len(shape))),
                shape_dynamism=dynamism.DYNAMIC_BOUND if dynamic_count(shape) else dynamism.STATIC,
            )
        )
        for shape in (*inputs, *outputs)
    ]
    arguments = list(range(len(values)))
    plan = pte.schema.ExecutionPlan(
        name="forward",
        container_meta_type=pte.schema.ContainerMetadata("", ""),
        values=values,
        inputs=arguments[: len(inputs)],
        outputs=arguments[len(inputs) :],
        chains=[pte.schema.Chain([], [], [pte.schema.Instruction(pte.schema.DelegateCall(0, arguments))])],
        operators=[],
        delegates=[
            pte.schema.BackendDelegate(
                id="XnnpackBackend",
                processed=pte.schema.BackendDelegateDataReference(pte.schema.DataLocation.SEGMENT, 0),
                compile_specs=[],
            )
        ],
        non_const_buffer_sizes=[0, 0],
    )
    return pte.to_bytes(
        pte.PteImage(plans=(plan,), delegate_blobs=(serialized.blob,), named_data=serialized.named_data)
    )


def _payload(graph: Graph) -> DelegatePayload:
    serialized = serialize(graph)
    named = {item.key: memoryview(_bytes(item.data)) for item in serialized.named_data}
    shapes = [value.shape for value in graph.inputs], [value.shape for value in graph.outputs]
    return DelegatePayload(
        delegate_id="XnnpackBackend",
        blob=memoryview(serialized.blob),
        compile_specs=(),
        inputs=tuple(map(_spec, shapes[0])),
        outputs=tuple(map(_spec, shapes[1])),
        named_data=named,
        as_program=lambda keys: _delegate_file(serialized, *shapes),
    )


def _spec(shape: Shape) -> TensorSpec:
    return TensorSpec("float32", tuple(map(largest, shape)), dynamic=dynamic_count(shape) > 0)


def _bytes(data: Any) -> bytes:
    return data.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.fixture
def payload_of() -> Callable[[Graph], DelegatePayload]:
    """payload_of(graph): what core would hand to the runtime for a graph (float32 arguments)."""
    return _payload


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
