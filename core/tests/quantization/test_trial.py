"""The backend is asked about layers as if they were quantized: those that it refuses stay in float, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit

pytest.importorskip("torchao")

BACKEND = """
from delegatekit_api import *
from delegatekit_api.schemes import *

INT8 = TensorQuantization("int8")
INT16 = TensorQuantization("int16", symmetric=True)
WEIGHT = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL)

class Sevens:
    '''Takes no results with 7 elements along an axis in int8, no products of unlike scales, no tanh on integers.'''

    def keep_operators(self):
        return QUANTIZE | DEQUANTIZE | {"aten.linear.default", "aten.tanh.default", "aten.matmul.default"}

    def check(self, call):
        if call.operator in QUANTIZE | DEQUANTIZE:
            return Verdict.yes(passenger=True)
        given = call.operands[0].quantization
        if given is not None and "int8" in str(given.dtype) and 7 in call.result.shape:
            return Verdict.no(f"{call.operands[0].name}: seven is too many")
        if call.operator in ("aten.matmul.default", "aten.bmm.default") and call.result.shape[-1] == 9:
            return Verdict.no("nine is too many to multiply")
        found = [item.quantization for item in call.operands]
        if call.operator == "aten.mul.Tensor" and found[0] != found[1]:
            return Verdict.no("the factors have scales of their own")
        return Verdict.yes()

    def propose(self, program):
        return None

    def float_reason(self, layer):
        return "tanh has no table" if any("tanh" in call.operator for call in layer) else None

@hookimpl
def describe_backend():
    return BackendDescription("sevens", "SevensBackend", "delegatekit-sevens", "1.2", "x")

@hookimpl
def create_partitioner(options):
    return Sevens()

def scheme(name, *more, **settings):
    return QuantizationScheme(name, "", rules=(
        QuantizationRule(("linear",), INT8, WEIGHT, None, INT8, ("relu",)),
        *more,
        QuantizationRule(("tanh", "mul", "softmax", "matmul"), INT8, output=INT8),
        QuantizationRule(("view", "transpose", "relu"), shares=True),
    ), qat=True, **settings)

@hookimpl
def quantization_schemes():
    return [
        scheme("int8", takes_apart=("scaled_dot_product_attention",)),
        scheme("either", QuantizationRule(("linear",), INT16, WEIGHT, None, INT16, ("relu",))),
    ]
"""


@pytest.fixture(autouse=True)
def _backend(install_plugin: Callable[..., Any]) -> None:
    install_plugin("sevens", BACKEND)


class Fn(nn.Module):
    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *self.layers)


def told(module: nn.Module, *shape: int, scheme: str = "int8") -> dict[str, str]:
    """Operator -> the reason why it stays in float, "" if it is quantized."""
    torch.manual_seed(0)
    result: Any = delegatekit.quantize(module.eval(), [torch.randn(shape)], backend="sevens", scheme=scheme)
    return {layer.operator: layer.reason for layer in result.quantization.layers}


def test_a_refused_layer_stays_in_float_and_what_shares_its_scale_too() -> None:
    module = Fn(lambda x, a, b: (a(x).view(-1, 2, 2), b(x).transpose(0, 1)), nn.Linear(4, 4), nn.Linear(4, 7))
    torch.manual_seed(0)
    result: Any = delegatekit.quantize(module.eval(), [torch.randn(3, 4)], backend="sevens", scheme="int8")
    assert [(layer.quantized, layer.reason) for layer in result.quantization.layers] == [
        (True, ""),
        (False, "x_1: seven is too many"),
    ]
    counts = [str(node.target) for node in result.graph.nodes]
    # The input, the layer that is taken, and its view; nothing after the other.
    assert sum("quantize_per_tensor" in name and "dequantize" not in name for name in counts) == 3


def test_the_next_rule_is_tried() -> None:
    module = nn.Sequential(nn.Linear(4, 7), nn.ReLU())
    result: Any = delegatekit.quantize(module.eval(), [torch.randn(3, 4)], backend="sevens", scheme="either")
    assert not result.quantization.kept
    dtypes = {node.args[5] for node in result.graph.nodes if "quantize_per_tensor" in str(node.target)}
    assert dtypes == {torch.int16}


def test_what_is_taken_but_computed_in_float_is_not_quantized() -> None:
    found = told(Fn(lambda x, a: torch.tanh(a(x)), nn.Linear(4, 4)), 3, 4)
    assert found == {"linear": "", "tanh": "tanh has no table"}


def test_values_with_parameters_of_their_own_are_told_apart() -> None:
    found = told(Fn(lambda x, a, b: (a(x) * b(x), a(x) * a(x)), nn.Linear(4, 4), nn.Linear(4, 4)), 3, 4)
    assert found["mul"] in ("", "the factors have scales of their own")
    two = told(Fn(lambda x, a, b: a(x) * b(x), nn.Linear(4, 4), nn.Linear(4, 4)), 3, 4)
    assert two == {"linear": "", "mul": "the factors have scales of their own"}


def test_what_is_taken_apart_stays_whole_if_a_part_is_refused() -> None:
    def attention(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        y = layer(x)
        return nn.functional.scaled_dot_product_attention(y, y, y)

    whole = "scaled_dot_product_attention"
    assert whole not in told(Fn(attention, nn.Linear(4, 4)), 1, 8, 4)
    refused = told(Fn(attention, nn.Linear(4, 4)), 1, 9, 4)
    assert refused == {"linear": "", whole: "nine is too many to multiply"}


def test_training_is_asked_about_as_it_is_converted() -> None:
    layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)).train()
    prepared: Any = delegatekit.prepare_qat(layers, (torch.randn(3, 4),), backend="sevens", scheme="int8")
    assert len(prepared.meta["delegatekit.quantization"].quantized) == 2
