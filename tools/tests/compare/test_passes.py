"""Passes: right ones are told, one that changes the results is named, with its change and the model's line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from crooked import Faulty
from torch import nn

import delegatekit as dk
from delegatekit_toolkit.fusion import Fusion
from delegatekit_toolkit.passes import Pass, PassResult
from delegatekit_toolkit.rewriting import EditableProgram

aten = torch.ops.aten
INPUTS = (torch.randn(4, 8, generator=torch.Generator().manual_seed(1)),)


class Net(nn.Module):
    """Three layers, with a SiLU after each, and a choice at the end."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            y = layer(x)
            x = torch.sigmoid(y) * y
        return x, x.argmax(-1)


def written_out(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x) * x


@dataclass(frozen=True)
class Scaled(Pass[EditableProgram]):
    """The result of one of the linear layers, times a factor."""

    factor: float
    layer: int = 1

    def __call__(self, program: EditableProgram) -> PassResult[EditableProgram]:
        """One change."""
        call = list(program.calls("aten.linear.default"))[self.layer]
        product = program.call(
            call, aten.mul.Scalar, program.call(call, call.node.target, *call.node.args), self.factor
        )
        return PassResult(program, (program.replace(call, product, "a factor"),))


SILU = Fusion(written_out, nn.functional.silu, example=(torch.ones(2, 3),), name="silu")
GELU = Fusion(written_out, nn.functional.gelu, example=(torch.ones(2, 3),), name="gelu")


def compare(*passes: Any, **settings: Any) -> dk.Comparison:
    return dk.compare(Net().eval(), INPUTS, **{"backends": ["reference"], "passes": list(passes), **settings})


def test_a_right_pass_is_right_and_told() -> None:
    found = compare(SILU)
    assert found.right, str(found)
    (judged,) = found.passes
    assert (judged.name, judged.changes, judged.measured.right, judged.change) == ("silu", 3, True, "")
    assert "pass silu, 3 changes: right" in str(found)
    assert [item.name for item in found.operators].count("aten.silu.default") == 3


def test_a_pass_that_computes_something_else_is_named() -> None:
    found = compare(SILU, GELU)  # nothing is left for the second
    assert found.right and len(found.passes) == 1
    found = compare(GELU)
    assert not found.right and found.first is not None and found.first.kind == "pass"
    culprit = found.first.operator
    assert culprit.place == "pass gelu" and culprit.name == "aten.mul.Tensor"
    assert "test_passes.py" in culprit.source and "torch.sigmoid(y) * y" in culprit.source
    assert all(item.measured.right for item in found.operators)
    assert not found.outputs[0].measured.right
    assert "a pass changes the program's results; all 7 operators after it are right" in str(found)


def test_of_several_passes_and_changes_the_wrong_one_is_named() -> None:
    found = compare(Scaled(1.0), Scaled(1.0005, 2), SILU)
    assert [item.measured.right for item in found.passes] == [True, False, True]
    assert found.first is not None and found.first.operator.place == "pass Scaled(factor=1.0005, layer=2)"
    assert found.first.operator.module == "layers.2"
    assert "first in Scaled(factor=1.0005, layer=2): aten.linear.default (linear_default_2) in layers.2" in str(found)


def test_a_wrong_backend_is_still_named_after_right_passes(faulty: Faulty) -> None:
    faulty("times1.0005 aten.silu.default")
    found = compare(SILU, backends=["crooked"])
    assert found.passes[0].measured.right
    assert found.first is not None and found.first.operator.name == "aten.silu.default"


WRONG = """
from delegatekit_api import hookimpl
import delegatekit_reference.plugin as sound
from dataclasses import replace
from delegatekit_toolkit.fusion import Fusion
import torch

@hookimpl
def describe_backend():
    return replace(
        sound.describe_backend(), name="hasty", delegate_id="HastyBackend", distribution="delegatekit-hasty",
        version="1.2",
    )

create_partitioner, preprocess, create_runtime = sound.create_partitioner, sound.preprocess, sound.create_runtime

def written_out(x):
    return torch.sigmoid(x) * x

@hookimpl
def passes(options):
    return [Fusion(written_out, torch.nn.functional.gelu, example=(torch.ones(2, 3),), name="quick")]
"""


def test_the_passes_of_backends_are_judged_as_well(install_plugin: Callable[..., Path]) -> None:
    install_plugin("hasty", WRONG)
    found = compare(backends=["hasty"])
    assert found.first is not None and found.first.kind == "pass"
    assert found.passes[0].name == "quick of backend hasty (delegatekit-hasty 1.2)"


MODEL = """
import torch
from torch import nn

from delegatekit_toolkit.fusion import Fusion


class Net(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * x


def written_out(x):
    return torch.sigmoid(x) * x


def make():
    return Net().eval(), (torch.randn(2, 8),)


RIGHT = Fusion(written_out, nn.functional.silu, example=(torch.ones(2, 3),), name="silu")
WRONG = Fusion(written_out, nn.functional.gelu, example=(torch.ones(2, 3),), name="gelu")
"""


def test_the_command_takes_passes(command_with: Callable[[str], Callable[..., Any]]) -> None:
    call = command_with(MODEL)
    assert (
        "pass silu, 1 change: right" in call("compare", "models:make", "-b", "reference", "--pass", "models:RIGHT").out
    )
    found = call("compare", "models:make", "-b", "reference", "--pass", "models:WRONG", "--json", code=1)
    first = json.loads(found.out)["first"]
    assert first["kind"] == "pass" and first["operator"]["place"] == "pass gelu"
