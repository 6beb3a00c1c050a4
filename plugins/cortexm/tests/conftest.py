"""Shared fixtures: a module is quantized, replaced by the library's operators, and compared in PyTorch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))  # the tests' helper modules, beside this file

import pytest
import torch

import delegatekit
from delegatekit.reading import open_program
from delegatekit_toolkit.testing import as_module

Run = Callable[..., list[str]]


@pytest.fixture
def replaced() -> Run:
    """replaced(model, *inputs, steps=1): the calls of its file; the test fails for results farther away than `steps`.

    Steps are those of the result's integers. The test fails, too, if any operator stays in float.
    """

    def run(model: Any, *inputs: torch.Tensor, steps: int = 1, scheme: str = "int8", **options: Any) -> list[str]:
        torch.manual_seed(0)
        samples = [inputs, *(tuple(torch.randn_like(item) for item in inputs) for _ in range(3))]
        module: Any = delegatekit.quantize(
            as_module(model), samples, backend="cortexm", scheme=scheme, options=options, progress=False
        )
        assert not module.quantization.kept, str(module.quantization)
        program = delegatekit.lower(module, inputs, backends=["cortexm"], options={"cortexm": options})
        (method,) = delegatekit.report(program).methods
        assert not method.fallback and len(method.delegates) == 1, str(delegatekit.report(program))
        found = open_program(program.buffer).methods["forward"]
        last = found.instructions[-1]
        assert last.calls == "cortex_m::dequantize_per_tensor.out"
        scale = next(found.values[index].content for index in last.reads if found.values[index].kind == "Double")
        for sample in samples:
            got, want = delegatekit.load(program.buffer)["forward"](*sample), module(*sample)
            assert float((got - want).abs().max()) <= (steps + 1e-3) * scale
        return [item.calls for item in found.instructions]

    return run


def library(calls: list[str]) -> list[str]:
    """The names of the library's operators among calls, conversions at the border left out."""
    names = [name.removeprefix("cortex_m::").removesuffix(".out") for name in calls if name.startswith("cortex_m::")]
    return [name for name in names if not name.endswith("quantize_per_tensor")]


@pytest.fixture
def operators(replaced: Run) -> Run:
    """As `replaced`: the names of the library's operators, without conversions."""
    return lambda *arguments, **named: library(replaced(*arguments, **named))
