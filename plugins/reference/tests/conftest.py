"""What the tests share: lower a module with the reference backend, run it, compare bit by bit with eager PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from torch.utils import _pytree as pytree

import delegatekit
from delegatekit import pte
from delegatekit.edge import build_edge
from delegatekit_api import Call, DelegatePayload, TensorSpec
from delegatekit_reference import plugin
from delegatekit_reference.blob import read_blob, write_blob
from delegatekit_reference.graph import Graph, Range, Tensor
from delegatekit_reference.options import ReferenceOptions


class Apply(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def as_module(model: Any) -> torch.nn.Module:
    return (model if isinstance(model, torch.nn.Module) else Apply(model)).eval()


def same_bits(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal dtypes, shapes and elements, NaNs and the signs of zeros included."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    bits = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (got, want)]
    if not torch.equal(*bits):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@dataclass(frozen=True)
class Lowered:
    """A program, its file, and the graphs of its delegates."""

    program: Any
    buffer: bytes
    graphs: tuple[Graph, ...]

    @property
    def graph(self) -> Graph:
        (graph,) = self.graphs
        return graph

    @property
    def operators(self) -> list[str]:
        return [step.operator for graph in self.graphs for step in graph.steps]


def _lower(model: Any, inputs: Sequence[Any], *, dynamic_shapes: Any = None, **options: Any) -> Lowered:
    exported = torch.export.export(as_module(model), tuple(inputs), dynamic_shapes=dynamic_shapes, strict=False)
    program = delegatekit.lower(exported, backends=["reference"], options={"reference": options})
    buffer = program.buffer
    file = pte.read(buffer)
    tables = [delegate for plan in file.program.execution_plan for delegate in plan.delegates]
    return Lowered(program, buffer, tuple(read_blob(file.delegate_blob(table)) for table in tables))


@pytest.fixture
def lower() -> Callable[..., Lowered]:
    """lower(model, inputs, dynamic_shapes=None, **options)."""
    return _lower


@pytest.fixture
def equals_eager() -> Callable[..., Lowered]:
    """equals_eager(model, *calls, dynamic_shapes=None, whole=True, **options): every call equals eager, bit by bit.

    The first call is the example; `whole` demands one delegate and nothing else.
    """

    def check(model: Any, *calls: tuple[Any, ...], dynamic_shapes: Any = None, whole: bool = True, **options: Any):
        module = as_module(model)
        lowered = _lower(module, calls[0], dynamic_shapes=dynamic_shapes, **options)
        (method,) = lowered.program.report().methods
        if whole:
            assert len(method.delegates) == 1 and not method.fallback, str(lowered.program.report())
        forward = delegatekit.load(lowered.buffer)["forward"]
        for call in calls:
            with torch.no_grad():
                want = pytree.tree_leaves(module(*call))
            got = pytree.tree_leaves(forward(*call))
            assert len(got) == len(want)
            for mine, yours in zip(got, want, strict=True):
                same_bits(mine, yours)
        return lowered

    return check


@pytest.fixture
def refusals() -> Callable[..., list[str]]:
    """refusals(model, *inputs, **options): the reasons for which nodes of the model are not taken."""

    def check(model: Any, *inputs: Any, keep: Sequence[str] = (), **options: Any) -> list[str]:
        partitioner = plugin.create_partitioner(ReferenceOptions.from_mapping(options))
        exported = torch.export.export(as_module(model), inputs, strict=False)
        view = build_edge(exported, keep={*partitioner.keep_operators(), *keep}).view
        nodes = [node for node in view.graph.nodes if node.op == "call_function" and "getitem" not in node.name]
        return [verdict.reason for node in nodes if not (verdict := partitioner.check(Call(node, view))).supported]

    return check


def _spec(tensor: Tensor) -> TensorSpec:
    largest = tuple(size.high if isinstance(size, Range) else size for size in tensor.shape)
    return TensorSpec(tensor.dtype, largest, dynamic=any(isinstance(size, Range) for size in tensor.shape))


@pytest.fixture
def payload_of() -> Callable[..., DelegatePayload]:
    """payload_of(graph or blob, like=graph, data={}): what core would hand to the runtime."""

    def make(
        blob: Graph | bytes, *, like: Graph | None = None, data: Mapping[str, bytes] | None = None
    ) -> DelegatePayload:
        graph = like or blob
        assert isinstance(graph, Graph)
        return DelegatePayload(
            delegate_id="ReferenceBackend",
            blob=memoryview(write_blob(blob) if isinstance(blob, Graph) else blob),
            compile_specs=(),
            inputs=tuple(map(_spec, graph.inputs)),
            outputs=tuple(map(_spec, graph.results)),
            named_data={key: memoryview(value) for key, value in (data or {}).items()},
            as_program=lambda keys: b"",
        )

    return make


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
