"""Quantized programs in the edge dialect: integers for backends that keep the operators, arithmetic for others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from torch import nn

import delegatekit
import delegatekit_api
from delegatekit.edge import build_edge
from delegatekit_api.nodes import operator_name
from delegatekit_api.schemes import DEQUANTIZE, DEQUANTIZE_TABLES, QUANTIZE
from delegatekit_toolkit.quantized import dynamic_quantization_of

quantized = torch.ops.quantized_decomposed
X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


class Call(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Weighted(nn.Module):
    """A linear layer whose weight is int8 with a scale for each channel."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.register_buffer("weight", torch.randint(-127, 128, (4, 8), dtype=torch.int8, generator=generator))
        self.register_buffer("scales", torch.rand(4, generator=generator))
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        arguments = (self.scales, self.zeros, 0, -127, 127, torch.int8)
        return nn.functional.linear(x, quantized.dequantize_per_channel.default(self.weight, *arguments))


def static(x: torch.Tensor) -> torch.Tensor:
    q = quantized.quantize_per_tensor.default(x, 0.013, -7, -128, 127, torch.int8)
    return quantized.dequantize_per_tensor.default(q, 0.013, -7, -128, 127, torch.int8)


def found_in_each_call(x: torch.Tensor) -> torch.Tensor:
    scale, zero = quantized.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
    q = quantized.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
    return quantized.dequantize_per_tensor.tensor(q, scale, zero, -128, 127, torch.int8)


def per_channel(x: torch.Tensor) -> torch.Tensor:
    scales, zeros = torch.tensor([0.01, 0.02, 0.03]), torch.tensor([3, 0, -5])
    q = quantized.quantize_per_channel.default(x, scales, zeros, 0, -128, 127, torch.int8)
    return quantized.dequantize_per_channel.default(q, scales, zeros, 0, -128, 127, torch.int8)


FUNCTIONS = {"static": static, "found in each call": found_in_each_call, "per channel": per_channel}


@pytest.mark.parametrize("factor", [1.0, 1e4, 1e-6, 0.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_without_a_backend_quantization_is_pytorchs_arithmetic_bit_by_bit(name: str, factor: float) -> None:
    module, x = Call(FUNCTIONS[name]), X * factor
    buffer = bytes(delegatekit.lower(module, (x,), backends=[]).buffer)
    assert torch.equal(delegatekit.load(buffer)["forward"](x), module(x))
    from executorch.extension.pybindings import _C

    (stock,) = _C._load_program_from_buffer(buffer).load_method("forward")([x])
    assert torch.equal(stock, module(x))


def test_weights_are_numbers_unless_a_backend_keeps_their_dequantize() -> None:
    program = torch.export.export(Weighted(), (X,))
    plain = build_edge(program)
    assert [operator_name(node) for node in plain.graph.nodes if node.op == "call_function"] == ["aten.linear.default"]
    kept = build_edge(program, keep=DEQUANTIZE)
    (node,) = (node for node in kept.graph.nodes if operator_name(node) in DEQUANTIZE)
    found = delegatekit_api.Call(node, kept.view).quantization
    assert found is not None and found.axis == 0 and found.is_symmetric and found.dtype is torch.int8
    assert (found.minimum, found.maximum) == (-127, 127)
    assert torch.equal(found.scale, Weighted().scales)  # type: ignore[arg-type]


def test_static_parameters_are_read() -> None:
    method = build_edge(torch.export.export(Call(static), (X,)), keep=QUANTIZE | DEQUANTIZE)
    nodes = [node for node in method.graph.nodes if node.op == "call_function"]
    assert len(nodes) == 2
    for node in nodes:
        found = delegatekit_api.Call(node, method.view).quantization
        assert found is not None and (found.scale, found.zero_point) == (0.013, -7) and not found.is_symmetric
        assert dynamic_quantization_of(delegatekit_api.Call(node, method.view)) is None


def test_each_reader_of_a_kept_dequantize_keeps_its_own() -> None:
    def read_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = quantized.quantize_per_tensor.default(x, 0.013, -7, -128, 127, torch.int8)
        first, second = (quantized.dequantize_per_tensor.default(q, 0.013, -7, -128, 127, torch.int8) for _ in range(2))
        return first, second.sin()

    method = build_edge(torch.export.export(Call(read_twice), (X,)), keep=QUANTIZE | DEQUANTIZE)
    readers = [len(node.users) for node in method.graph.nodes if operator_name(node) in DEQUANTIZE]
    assert readers == [1, 1]


def test_a_weight_that_is_a_tensor_subclass_is_taken_apart() -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    config = quantization.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=quantization.granularity.PerGroup(32)
    )
    module, x = nn.Sequential(nn.Linear(64, 16)).eval(), torch.randn(3, 64)
    quantization.quantize_(module, config)
    program = delegatekit.lower(module, (x,), backends=[])
    assert torch.equal(delegatekit.load(program.buffer)["forward"](x), module(x))
    operators = ("choose_qparams_affine", "quantize_affine", "dequantize_affine")
    kept = build_edge(torch.export.export(module, (x,)), keep=[f"torchao.{name}.default" for name in operators])
    last = [node for node in kept.graph.nodes if operator_name(node) == "torchao.dequantize_affine.default"]
    chains = [
        chain
        for chain in (dynamic_quantization_of(delegatekit_api.Call(node, kept.view)) for node in last)
        if chain is not None
    ]
    weights = [found for node in last if (found := delegatekit_api.Call(node, kept.view).quantization) is not None]
    assert len(chains) == len(weights) == 1
    assert chains[0].source.node is kept.inputs[0] and len(chains[0].nodes) == 5
    assert weights[0].group == 32 and (weights[0].minimum, weights[0].maximum) == (-8, 7)


class Tabled(nn.Module):
    """A linear layer whose weight is looked up, as torchao exports it: a table for every 16 columns."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        pytest.importorskip("torchao.prototype.quantization.codebook_coreml")
        generator = torch.Generator().manual_seed(1)
        self.codes = nn.Buffer(torch.randint(0, 16, (rows, columns), dtype=torch.uint8, generator=generator))
        self.tables = nn.Buffer(torch.randn(1, columns // 16, 16, 1, generator=generator))

    @property
    def weight(self) -> torch.Tensor:
        found: torch.Tensor = torch.ops.quant.dequantize_codebook(self.codes.to(torch.int32), self.tables, 4, [-1, 16])
        return found

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight)


#: The second is so large that neither its places as int32, nor its numbers would be constants like others.
TABLED = [(8, 32), (1100, 2048)]


@pytest.mark.parametrize("size", TABLED, ids=str)
def test_looked_up_weights_are_constants(size: tuple[int, int]) -> None:
    module = Tabled(*size)
    edge = build_edge(torch.export.export(module, (torch.randn(3, size[1]),)))
    (node,) = (node for node in edge.graph.nodes if node.op == "call_function")
    assert operator_name(node) == "aten.linear.default"
    assert torch.equal(edge.constants[node.args[1]], module.weight)


@pytest.mark.parametrize("size", TABLED, ids=str)
def test_a_backend_that_keeps_the_look_up_sees_places_and_tables(size: tuple[int, int]) -> None:
    module = Tabled(*size)
    edge = build_edge(torch.export.export(module, (torch.randn(3, size[1]),)), keep=[DEQUANTIZE_TABLES])
    first, second = (node for node in edge.graph.nodes if node.op == "call_function")
    call = delegatekit_api.Call(first, edge.view)
    assert call.operator == DEQUANTIZE_TABLES and operator_name(second) == "aten.linear.default"
    assert call["codes"].dtype is torch.int32
    assert torch.equal(call["codes"].constant, module.codes.int())  # type: ignore[arg-type]
    assert torch.equal(call["codebook"].constant, module.tables)  # type: ignore[arg-type]
    assert delegatekit_api.Call(second, edge.view)["weight"].is_known


def test_places_that_are_computed_are_looked_up_in_each_call() -> None:
    class Computed(Tabled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = torch.ops.quant.dequantize_codebook(x.to(torch.int32), self.tables, 4, [-1, 16])
            return weight * 2

    module, x = Computed(8, 32), torch.arange(24.0).remainder(16).reshape(-1, 1).expand(24, 32).contiguous()
    buffer = bytes(delegatekit.lower(module, (x,), backends=[]).buffer)
    assert torch.equal(delegatekit.load(buffer)["forward"](x), module(x))
