"""Shared fixtures of the lowering tests: quantize a module, lower it whole, run it on the host, compare with eager."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

import delegatekit
from delegatekit import pte
from delegatekit_api.nodes import argument
from delegatekit_ethosu.blob import TOSA_SPEC
from delegatekit_toolkit import tosa
from delegatekit_toolkit.testing import as_module
from delegatekit_toolkit.tosa.reader import read
from delegatekit_toolkit.tosa.reference import availability

#: Sources of results: the command stream itself on the host, and the TOSA program in Arm's reference model.
TARGETS = ("ethos-u55-128", "ethos-u85-256")


def quantized(
    model: Any, *inputs: torch.Tensor, scheme: str = "int8", samples: int = 4, target: str = TARGETS[0]
) -> Any:
    """The module quantized with random inputs like the given; the test fails if any part stays in float."""
    data = [inputs, *(tuple(map(_like, inputs)) for _ in range(samples))]
    options = {"target": target}
    found = delegatekit.quantize(as_module(model), data, backend="ethosu", scheme=scheme, options=options)
    assert not found.quantization.kept, str(found.quantization)
    return found


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Other numbers; indices and booleans stay."""
    return torch.randn_like(tensor) if tensor.is_floating_point() else tensor


@dataclass(frozen=True)
class Delegated:
    """A quantized module lowered to one delegate, for one accelerator."""

    module: Any
    inputs: tuple[torch.Tensor, ...]
    program: Any
    buffer: bytes
    graph: tosa.Graph

    @property
    def operators(self) -> list[str]:
        return [operation.operator.name for operation in self.graph.operations]

    def run(self) -> list[torch.Tensor]:
        return pytree.tree_leaves(delegatekit.load(self.buffer)["forward"](*self.inputs))

    def eager(self) -> list[torch.Tensor]:
        return pytree.tree_leaves(self.module(*self.inputs))

    def steps(self) -> list[float]:
        """The scale of each output; 1 for booleans."""
        (output,) = (node for node in self.module.graph.nodes if node.op == "output")
        found = zip(pytree.tree_leaves(output.args[0]), self.eager(), strict=True)
        return [1.0 if value.dtype is torch.bool else _scale(node) for node, value in found]


def _scale(node: Node) -> float:
    while "dequantize_per_tensor" not in str(node.target):
        node = node.args[0]  # type: ignore[assignment]
    scale: float = argument(node, "scale")
    return scale


def lowered(module: Any, *inputs: torch.Tensor, target: str = TARGETS[0], **options: Any) -> Delegated:
    """The quantized module as one delegate, with only quantize and dequantize outside, or the test fails."""
    chosen = {"target": target, "keep_tosa": True, **options}
    program = delegatekit.lower(module, inputs, backends=["ethosu"], options={"ethosu": chosen})
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1, str(delegatekit.report(program))
    buffer = program.buffer
    file = pte.read(buffer)
    (delegate,) = file.program.execution_plan[0].delegates
    specs = {spec.key: bytes(spec.value) for spec in delegate.compile_specs or ()}
    graph = read(bytes(file.named_data[specs[TOSA_SPEC].decode()]))
    return Delegated(module, inputs, program, buffer, graph)


def ratio(got: torch.Tensor, want: torch.Tensor) -> float:
    """Signal to noise, dB."""
    noise = float((got - want).double().square().sum())
    return math.inf if noise == 0 else 10 * math.log10(float(want.double().square().sum()) / noise)


@pytest.fixture
def agrees() -> Callable[..., dict[str, Delegated]]:
    """agrees(model, *inputs, scheme="int8", steps=1): quantized, one delegate; equal to eager, except for a thousandth.

    `steps` is the allowed difference of any result, and `share` the part of results that may differ: sums that end
    between two integers are rounded up, and by PyTorch to the even one. It is quantized for the first of the targets.
    """

    def check(
        model: Any,
        *inputs: torch.Tensor,
        steps: int = 1,
        share: float = 0.003,
        scheme: str = "int8",
        targets: Sequence[str] = TARGETS,
        **options: Any,
    ) -> dict[str, Delegated]:
        module, found = quantized(model, *inputs, scheme=scheme, target=targets[0]), {}
        for target in targets:
            delegated = found[target] = lowered(module, *inputs, target=target, **options)
            if not target.startswith("ethos-u55") and not availability().available:
                continue
            results = delegated.run()
            for got, want, step in zip(results, delegated.eager(), delegated.steps(), strict=True):
                assert got.shape == want.shape
                away = ((got.float() - want.float()) / step).abs()
                assert float(away.max()) < steps + 0.01, f"{target}: {float(away.max())} steps"
                wrong = float((away > 0.5).float().mean())
                assert wrong <= max(share, 1.5 / got.numel()), f"{target}: {wrong:.2%} differ"
        return found

    return check


@pytest.fixture
def refusals() -> Callable[..., list[str]]:
    """refusals(module, *inputs, **options): the reasons for refusing operators of an exported module."""

    def check(module: Any, *inputs: torch.Tensor, **options: Any) -> list[str]:
        explanation = delegatekit.explain(module, inputs, backends=["ethosu"], options={"ethosu": options})
        return [line for line in str(explanation).splitlines() if line.strip()]

    return check


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def whole() -> Callable[..., Any]:
    """whole(model, x, samples=4, scheme="int8"): the quantized module; functions that lower and compare it (dB)."""

    def make(
        model: Any, x: torch.Tensor, samples: int = 4, scheme: str = "int8"
    ) -> tuple[Any, Callable[..., Delegated], Any]:
        return quantized(model, x, samples=samples, scheme=scheme), lowered, ratio

    return make


@pytest.fixture
def whole_program() -> Callable[..., Delegated]:
    """whole_program(module, *inputs, target): a program that is quantized already, lowered whole."""
    return lowered


@pytest.fixture
def decibels() -> Callable[[torch.Tensor, torch.Tensor], float]:
    """decibels(got, want): signal to noise."""
    return ratio


@pytest.fixture
def module_of() -> Callable[[Any], torch.nn.Module]:
    """module_of(function): the function as a module."""
    return as_module
