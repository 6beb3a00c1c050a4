"""ExecuTorch's pipeline with our partitioners, and what runs its files: shared by the tests of this folder."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

pytest.importorskip("executorch.exir", reason="ExecuTorch is not installed")

from executorch.exir import EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import get_lowered_submodules
from referee import StockProgram
from torch.export import ExportedProgram

import delegatekit
from delegatekit.plugins import get_backend
from delegatekit_executorch import DelegateKitPartitioner, partitioner
from delegatekit_toolkit.accuracy import estimate, tolerance

#: Backends whose delegates the runtime of ExecuTorch's wheel runs.
STOCK = ("xnnpack",)


@dataclass(frozen=True)
class Lowered:
    """A program that ExecuTorch's pipeline lowered."""

    edge: EdgeProgramManager
    partitioner: DelegateKitPartitioner
    buffer: bytes

    def delegates(self, method: str = "forward") -> list[Any]:
        """The lowered modules of a method."""
        return [module for _, module, _ in get_lowered_submodules(self.edge.exported_program(method).graph_module)]


def exported(module: torch.nn.Module, inputs: Sequence[Any], dynamic_shapes: Any = None) -> ExportedProgram:
    """The program of a module in eval mode."""
    module = copy.deepcopy(module).eval()
    return torch.export.export(module, tuple(inputs), dynamic_shapes=dynamic_shapes, strict=False)


def lowered(program: ExportedProgram, backend: str, **options: Any) -> Lowered:
    """The program, lowered by the pipeline with the partitioner of one backend."""
    ours = partitioner(backend, **options)
    edge = to_edge_transform_and_lower(program, partitioner=[ours])
    return Lowered(edge, ours, bytes(edge.to_executorch().buffer))


def run(buffer: bytes, backend: str, inputs: Sequence[torch.Tensor], method: str = "forward") -> torch.Tensor:
    """The file's first output: in ExecuTorch's runtime where that has the delegate, else in our engine."""
    if backend in STOCK:
        result: torch.Tensor = StockProgram(buffer).method(method)(tuple(inputs))[0]
        return result
    return delegatekit.load(buffer)[method](*inputs)


def limit(program: ExportedProgram, eager: torch.Tensor, backend: str) -> float:
    """The largest error of a program's result that rounding explains, as conformance has it."""
    precision = get_backend(backend).compute_precision()
    dtype = str(eager.dtype).removeprefix("torch.")
    return tolerance(dtype, precision, estimate(program).reduction_length) * float(eager.detach().abs().max())


def close(result: torch.Tensor, eager: torch.Tensor, backend: str, program: ExportedProgram) -> None:
    """Assert that a result of the program is eager's, up to the backend's rounding."""
    torch.testing.assert_close(result, eager.detach(), rtol=0, atol=limit(program, eager, backend))
