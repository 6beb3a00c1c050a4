"""Shared fixtures: lower a module with the reference backend, run it, compare bit by bit with eager PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from delegatekit_api import DelegatePayload
from delegatekit_conformance import testkit
from delegatekit_reference import plugin
from delegatekit_reference.blob import read_blob, write_blob
from delegatekit_reference.ir.graph import Graph
from delegatekit_reference.options import ReferenceOptions
from delegatekit_toolkit import testing as toolkit


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


def _graphs(lowered: testkit.Lowered) -> Lowered:
    graphs = tuple(read_blob(delegate.blob) for delegate in lowered.delegates)
    return Lowered(lowered.program, lowered.buffer, graphs)


@pytest.fixture
def lower() -> Callable[..., Lowered]:
    """lower(model, inputs, dynamic_shapes=None, **options)."""

    def check(model: Any, inputs: Sequence[Any], *, dynamic_shapes: Any = None, **options: Any) -> Lowered:
        lowered = testkit.lower(
            model, *inputs, backend="reference", options=options, dynamic_shapes=dynamic_shapes, whole=False
        )
        return _graphs(lowered)

    return check


@pytest.fixture
def equals_eager() -> Callable[..., Lowered]:
    """equals_eager(model, *calls, dynamic_shapes=None, whole=True, **options): every call equals eager, bit by bit.

    The first call is the example; `whole` requires one delegate and nothing else.
    """

    def check(
        model: Any, *calls: tuple[Any, ...], dynamic_shapes: Any = None, whole: bool = True, **options: Any
    ) -> Lowered:
        lowered = testkit.lower(
            model, *calls[0], backend="reference", options=options, dynamic_shapes=dynamic_shapes, whole=whole
        )
        testkit.compare(lowered, *calls, engines=[testkit.ENGINE])
        return _graphs(lowered)

    return check


@pytest.fixture
def refusals() -> Callable[..., list[str]]:
    """refusals(model, *inputs, keep=(), **options): the reasons for refusing calls of the model."""

    def check(model: Any, *inputs: Any, keep: Sequence[str] = (), **options: Any) -> list[str]:
        partitioner = plugin.create_partitioner(ReferenceOptions.from_mapping(options))
        return testkit.refusals(partitioner, model, *inputs, keep=keep)

    return check


@pytest.fixture
def payload_of() -> Callable[..., DelegatePayload]:
    """payload_of(graph or blob, like=graph, data={}): the payload that the core would pass to the runtime."""

    def make(
        blob: Graph | bytes, *, like: Graph | None = None, data: Mapping[str, bytes] | None = None
    ) -> DelegatePayload:
        graph = like or blob
        assert isinstance(graph, Graph)
        return toolkit.payload_of(
            write_blob(blob) if isinstance(blob, Graph) else blob,
            [item.spec for item in graph.inputs],
            [item.spec for item in graph.results],
            named_data=data,
            delegate_id="ReferenceBackend",
        )

    return make


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
