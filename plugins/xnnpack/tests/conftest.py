"""Shared fixtures: lower a whole module, run it in the stock ExecuTorch runtime, compare with eager PyTorch."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from torch.utils import _pytree as pytree

import delegatekit
from delegatekit import pte
from delegatekit_api import DelegatePayload, PreprocessResult, TensorSpec
from delegatekit_conformance import testkit
from delegatekit_toolkit import testing
from delegatekit_toolkit.sizes import dynamic_count, largest
from delegatekit_toolkit.testing import as_module, float32_tolerance
from delegatekit_xnnpack import plugin
from delegatekit_xnnpack.blob import schema
from delegatekit_xnnpack.blob.reader import parse
from delegatekit_xnnpack.blob.writer import SerializedGraph, serialize
from delegatekit_xnnpack.ir.graph import Graph
from delegatekit_xnnpack.ir.types import Shape
from delegatekit_xnnpack.options import XnnpackOptions


class Lowered(testkit.Lowered):
    """A module lowered to one XNNPACK delegate. It runs on the stock runtime by default."""

    @property
    def graph(self) -> schema.XNNGraph:
        """The blob's graph."""
        return parse(self.delegate.blob)

    @property
    def nodes(self) -> Counter[str]:
        """Names of the blob's nodes -> their counts."""
        return Counter(type(node.xnode_union).__name__ for node in self.graph.xnodes or ())

    def run(self, *inputs: Any, engine: str = testkit.STOCK) -> list[torch.Tensor]:
        """The outputs of one engine."""
        return super().run(*inputs, engine=engine)

    def eager(self, *inputs: Any, dtype: torch.dtype | None = torch.float64) -> list[torch.Tensor]:
        """The outputs of PyTorch, in double precision by default."""
        return super().eager(*inputs, dtype=dtype)


def _lower_whole(model: Any, *inputs: torch.Tensor, **options: Any) -> Lowered:
    lowered = testkit.lower(model, *inputs, backend="xnnpack", options=options)
    return Lowered(lowered.module, lowered.inputs, lowered.program, lowered.buffer)


@pytest.fixture
def lower_whole() -> Callable[..., Lowered]:
    """lower_whole(model, *inputs, **options): one delegate and nothing else, or the test fails."""
    return _lower_whole


@pytest.fixture
def matches_eager() -> Callable[..., Lowered]:
    """matches_eager(model, *inputs, terms=1): lowers whole, runs, compares; `terms` is the longest sum inside."""

    def check(model: Any, *inputs: torch.Tensor, terms: int = 1, **options: Any) -> Lowered:
        lowered = _lower_whole(model, *inputs, **options)
        testkit.compare(lowered, tolerance=float32_tolerance(terms), engines=(testkit.STOCK,))
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
        (method,) = delegatekit.report(program).methods
        assert len(method.delegates) == 1 and not method.fallback, str(delegatekit.report(program))
        from executorch.extension.pybindings import _C

        buffer = program.buffer
        loaded = _C._load_program_from_buffer(buffer)
        stock, engine = loaded.load_method("forward"), delegatekit.load(buffer)["forward"]
        precise, allowed = copy.deepcopy(module).double(), float32_tolerance(terms)
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
    """refusals(model, *inputs, **options): the reasons for refusing nodes of the model."""

    def check(model: Any, *inputs: torch.Tensor, keep: Sequence[str] = (), dynamic_shapes: Any = None, **options: Any):
        partitioner = plugin.create_partitioner(XnnpackOptions(**options))
        return testkit.refusals(partitioner, model, *inputs, keep=keep, dynamic_shapes=dynamic_shapes)

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
    shapes = [value.shape for value in graph.inputs], [value.shape for value in graph.outputs]
    specs = [[_spec(shape) for shape in side] for side in shapes]
    compiled = PreprocessResult(serialized.blob, named_data=serialized.named_data)
    payload = testing.payload_of(compiled, *specs, delegate_id="XnnpackBackend")
    return replace(payload, as_program=lambda keys: _delegate_file(serialized, *shapes))


def _spec(shape: Shape) -> TensorSpec:
    return TensorSpec("float32", tuple(map(largest, shape)), dynamic=dynamic_count(shape) > 0)


@pytest.fixture
def payload_of() -> Callable[[Graph], DelegatePayload]:
    """payload_of(graph): the payload that the core would pass to the runtime for a graph (float32 arguments)."""
    return _payload


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
