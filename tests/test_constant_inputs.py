"""Constants that a plugin wants as inputs of its delegates: in the file beside them, right everywhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.pte import read
from delegatekit.pte.schema import ExecutionPlan
from delegatekit_api import PluginError

_PLUGIN = """
from delegatekit_api import *
from delegatekit_reference.compile import compile_partition
from delegatekit_reference.options import ReferenceOptions
from delegatekit_reference.runtime import ReferenceRuntime
from delegatekit_reference.support import ReferencePartitioner

class Outside(ReferencePartitioner):
    def constant_is_input(self, program, constant): return {answer}

@hookimpl
def describe_backend():
    return BackendDescription(
        "outside", "OutsideBackend", "delegatekit-outside", "1.2", "keeps small constants outside",
        options=ReferenceOptions, supports_dynamic_shapes=True,
    )

@hookimpl
def create_partitioner(options): return Outside(options)

@hookimpl
def preprocess(partition, options): return compile_partition(partition)

@hookimpl
def create_runtime(): return ReferenceRuntime()
"""
_SMALL = "program.constants[constant].numel() < 10"


class Scaled(nn.Module):
    """A layer whose scale and offset are small, and whose weights are not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, bias=False)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.offset = nn.Buffer(torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer, scaled and moved."""
        found: torch.Tensor = self.layer(x) * self.scale + self.offset
        return found


@pytest.fixture
def install(install_plugin: Any) -> Any:
    return lambda answer: install_plugin("outside", _PLUGIN.format(answer=answer))


@pytest.fixture
def model() -> Scaled:
    torch.manual_seed(0)
    model = Scaled()
    model.eval()
    return model


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("answer", "inside", "outside"), [("False", 3, 0), ("True", 0, 3), (_SMALL, 1, 2)])
@pytest.mark.parametrize("isolate", [False, True])
def test_a_delegate_gets_the_constants_that_the_plugin_wants_as_inputs(
    answer: str, inside: int, outside: int, isolate: bool, install: Any, model: Scaled
) -> None:
    install(answer)
    compiling = delegatekit.Compiling(isolate=isolate)
    program = delegatekit.lower(model, (X,), backends=["outside"], compiling=compiling)
    (delegate,) = program.methods["forward"].delegates
    assert (len(delegate.partition.constants), len(delegate.partition.inputs)) == (inside, 1 + outside)
    (plan,) = read(program.buffer).program.execution_plan or [ExecutionPlan()]
    constants = [item.val for item in plan.values or () if getattr(item.val, "data_buffer_idx", 0)]
    assert len(constants) == outside
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](X), model(X))


def test_the_constants_may_change_in_size_with_nothing_else(install: Any, model: Scaled) -> None:
    install(_SMALL)
    rows = torch.export.Dim("rows", min=2, max=6)
    program = delegatekit.lower(model, (X,), backends=["outside"], dynamic_shapes=({0: rows},))
    loaded = delegatekit.load(program.buffer)["forward"]
    for count in (2, 3, 6):
        torch.testing.assert_close(loaded(X[:1].repeat(count, 1)), model(X[:1].repeat(count, 1)))


def test_a_lowered_module_brings_them_along(install: Any, model: Scaled) -> None:
    install(_SMALL)
    other = Scaled()
    other.layer, other.scale = model.layer, nn.Parameter(torch.tensor(8.0))
    lowered = [delegatekit.to_backend(item, (X,), backend="outside") for item in (model, other)]
    for module, wanted in zip(lowered, (model, other), strict=True):
        torch.testing.assert_close(module(X), wanted(X))
    both = nn.Sequential(*lowered)
    torch.testing.assert_close(both(X), other(model(X)))
    program = delegatekit.lower(both, (X,), backends=[])
    assert len(program.methods["forward"].delegates) == 2
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](X), other(model(X)))


def test_an_answer_that_is_neither_true_nor_false_is_the_plugins_fault(install: Any, model: Scaled) -> None:
    install("'perhaps'")
    with pytest.raises(PluginError, match="what constant_is_input returned"):
        delegatekit.lower(model, (X,), backends=["outside"])


def test_a_plugin_that_fails_to_answer_is_named_with_the_constant(install: Any, model: Scaled) -> None:
    install("1 / 0")
    with pytest.raises(PluginError, match="outside failed while saying which constants are inputs"):
        delegatekit.lower(model, (X,), backends=["outside"])
