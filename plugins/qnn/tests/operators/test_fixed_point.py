"""Operators that are computed on integers, against the fake-quantized module: within two steps of 8 bits, or 1.5e-3."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit_toolkit.testing import as_module

quantized_decomposed = torch.ops.quantized_decomposed


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


ROWS = (2, 6, 8)
IMAGES = (1, 4, 8, 8)
MATRIX = drawn(8, 4, seed=1)

#: A module for inputs of these shapes.
CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "sums": (lambda x, y: (F.relu(x + y), x - y[:, :1], x + 0.7), (ROWS, ROWS)),
    "sums with factors": (
        lambda x, y: (
            *(torch.sub(x, y, alpha=1.5), torch.add(x, y, alpha=1.5), torch.add(x, y, alpha=-0.5)),
            *(torch.sub(x, y, alpha=-3), torch.sub(x, y, alpha=0)),
        ),
        (ROWS, ROWS),
    ),
    "products": (lambda x, y: (x * y, x * 0.3, x / 3), (ROWS, ROWS)),
    "extremes": (lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), (ROWS, ROWS)),
    "functions": (lambda x: (F.gelu(x), F.hardswish(x), torch.sigmoid(x), F.elu(x), F.leaky_relu(x, 0.1)), (ROWS,)),
    "logarithm and line": (lambda x: (torch.maximum(torch.log(F.relu(x) + 1), x), F.hardsigmoid(x)), (ROWS,)),
    "hyperbolic tangent": (torch.tanh, (ROWS,)),
    "softmax": (lambda x: (x.softmax(-1), x.softmax(1)), (ROWS,)),
    "reductions": (lambda x: (x.mean(1), x.sum(-1), x.amax(1)), (ROWS,)),
    "norms": (nn.Sequential(nn.LayerNorm(8), nn.RMSNorm(8)), (ROWS,)),
    "norms of one element": (lambda x: (F.rms_norm(x, [1]), F.layer_norm(x, [1])), ((2, 3, 1),)),
    "linear": (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5, bias=False)), (ROWS,)),
    "matrices": (lambda x, y: x @ y.transpose(1, 2), (ROWS, ROWS)),
    "products of many axes and of vectors": (lambda x, y: (x.reshape(2, 1, 1, 6, 8) @ y.mT, y @ x[0, 0]), (ROWS, ROWS)),
    "attention": (F.scaled_dot_product_attention, (ROWS, ROWS, ROWS)),
    "convolution": (nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1), nn.ReLU6(), nn.Conv2d(8, 8, 3, groups=8)), (IMAGES,)),
    "grouped convolution": (nn.Conv2d(4, 6, 3, groups=2, bias=False), (IMAGES,)),
    "convolution over one axis": (nn.Conv1d(6, 4, 3, padding=1), (ROWS,)),
    "transposed convolution": (nn.ConvTranspose2d(4, 4, 3, 2, 1, 1), (IMAGES,)),
    "pools": (lambda x: (F.avg_pool2d(x, 2), F.max_pool2d(x + 1, 3, 2, 1), F.adaptive_avg_pool2d(x, 1)), (IMAGES,)),
    "averages at borders": (
        lambda x: (
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x[..., :7, :7], 5, 3, 2, count_include_pad=False),
        ),
        (IMAGES,),
    ),
    "pools with other divisors": (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=3), (IMAGES,)),
    "every second window of two at borders": (
        lambda x: (F.max_pool2d(x, 2, 2, 1) + 1, F.avg_pool2d(x[..., :7], 2, 2, 1)),
        (IMAGES,),
    ),
    "moves": (lambda x: (x.transpose(1, 2).reshape(2, 48) + 1, x[:, 1:3] + 1, torch.cat([x, x], 1) + 1), (ROWS,)),
    "one output channel": (nn.Sequential(nn.Linear(8, 1), nn.Linear(1, 4)), (ROWS,)),
    "constant matrices": (lambda x: (x @ MATRIX, torch.addmm(MATRIX[0], x[0], MATRIX)), (ROWS,)),
    "clamps": (lambda x: (F.relu6(F.relu(x * 5)), (x * 1).clamp(0.5, -0.5), F.hardtanh(x + 0.1, -0.5, 2.0)), (ROWS,)),
    "padding after": (lambda x: (F.pad(x, (0, 1, 0, 2)) + 1, F.pad(x, (0, 1, 0, 1, 0, 1)) + 1), (IMAGES,)),
    "padding": (lambda x: (F.pad(x, (1, 1)) + 1, x.flip(1) + 1), (ROWS,)),
}
QUICK = {
    "every second window of two at borders",
    "logarithm and line",
    "one output channel",
    "clamps",
    "sums",
    "sums with factors",
    "functions",
    "softmax",
    "linear",
    "convolution",
    "norms",
}


def steps(quantized: torch.fx.GraphModule) -> list[float]:
    """The scale of each output."""
    (outputs,) = quantized.graph.output_node().args
    return [_scale(output) for output in torch.utils._pytree.tree_leaves(outputs)]


def _scale(node: torch.fx.Node) -> float:
    while node.target is not torch.ops.quantized_decomposed.dequantize_per_tensor.default:
        node = node.all_input_nodes[0]
    return float(node.args[1])  # type: ignore[arg-type]


def test_relu_behind_weights_of_four_bits_over_four_axes_is_right(simulator: None) -> None:
    check(nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 32)), ((1, 3, 2, 32),), "16a4w")


def test_gaps_in_windows_of_one_element_change_nothing(simulator: None) -> None:
    check(nn.Conv2d(2, 8, 1, (3, 1), dilation=(2, 1)), ((3, 2, 2, 2),), "16a8w")


def test_the_logarithm_of_a_softmax_of_many_elements_is_right(simulator: None) -> None:
    check(lambda x: x.log_softmax(-1), ((6, 129),), "8a8w")


def test_floats_beside_integers_are_looked_up_and_repeated(simulator: None) -> None:
    """By computed places along a later axis; and where PyTorch's single precision takes the pixel before."""

    def model(x: torch.Tensor, y: torch.Tensor, places: torch.Tensor) -> Any:
        pixels = y.reshape(1, 2, 6, 8)
        return x + 1, y.index_select(1, places), y[:, places], F.interpolate(pixels, size=(6 * 41, 8))

    inputs = (drawn(*ROWS), drawn(*ROWS, seed=1), torch.tensor([3, 0, 5, 3], dtype=torch.int32))
    quantized = delegatekit.quantize(as_module(model).eval(), [inputs], backend="qnn", scheme="8a8w")
    results = delegatekit.load(delegatekit.lower(quantized, inputs, backends=["qnn"]).buffer)["forward"](*inputs)
    for result, reference in zip(results[1:], quantized(*inputs)[1:], strict=True):
        # The processor has numbers of half precision: each is rounded to one, and no more.
        assert torch.allclose(result, reference, rtol=2.0**-11, atol=2.0**-24)


def test_a_norm_with_a_computed_weight_is_right(simulator: None) -> None:
    check(lambda x, weight: F.rms_norm(x, [4, 3], weight[:1].expand(4, 3), 0.1), ((2, 4, 4, 3), (4, 3)), "16a4w")


@pytest.mark.parametrize("base", [128.0, -128.0])
def test_the_logarithm_of_a_softmax_of_numbers_far_from_zero_is_right(base: float, simulator: None) -> None:
    x = torch.randint(0, 4, (6, 20), generator=torch.Generator().manual_seed(0)) * 2 + base
    check_calls(lambda x: x.log_softmax(-1), [(x,)], "8a8w")


@pytest.mark.parametrize(("scale", "zero_point"), [(0.0392, 0), (1.9725, 0), (0.0157, 85)])
def test_the_library_quantizes_by_a_product_of_float16(scale: float, zero_point: int, simulator: None) -> None:
    """The entry of `conformance.toml` on numbers near the middle between two steps, as an equation."""

    def rounded(x: torch.Tensor) -> torch.Tensor:
        integers = quantized_decomposed.quantize_per_tensor(x, scale, zero_point, 0, 255, torch.uint8)
        return quantized_decomposed.dequantize_per_tensor(integers, scale, zero_point, 0, 255, torch.uint8)

    x = (torch.rand(2000, generator=torch.Generator().manual_seed(0)) * 255 - zero_point) * scale
    program = delegatekit.lower(as_module(rounded).eval(), (x,), backends=["qnn"])
    (result,) = torch.utils._pytree.tree_leaves(delegatekit.load(program.buffer)["forward"](x))
    product = x.half() * torch.tensor(1 / scale).half()
    assert torch.equal((result / scale).round() + zero_point, (product.float().round() + zero_point).clamp(0, 255))


def test_floats_are_rounded_to_steps_before_a_function_of_floats_reads_them(simulator: None) -> None:
    check(torch.tanh, ((7,),), "8a8w", factor=10_000)
    check(torch.tanh, ((2, 3, 3, 2, 4),), "8a8w", factor=10_000)


@pytest.mark.sweep
@pytest.mark.parametrize("scheme", ["8a8w", "16a8w"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_results_are_those_of_the_quantized_module(name: str, scheme: str, simulator: None) -> None:
    check(*CASES[name], scheme)


def check(model: Any, shapes: tuple[tuple[int, ...], ...], scheme: str, *, factor: float = 1.0) -> None:
    """Check the model's results for random numbers times a factor."""
    calls = [
        tuple(factor * drawn(*shape, seed=10 * call + place) for place, shape in enumerate(shapes)) for call in range(8)
    ]
    check_calls(model, calls, scheme)


def check_calls(model: Any, calls: list[tuple[torch.Tensor, ...]], scheme: str) -> None:
    """The model is one delegate, whose results for the first of the calls are those of the quantized module."""
    quantized = delegatekit.quantize(as_module(model).eval(), calls, backend="qnn", scheme=scheme)
    program = delegatekit.lower(quantized, calls[0], backends=["qnn"])
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1 and not method.fallback, str(delegatekit.report(program))
    results = torch.utils._pytree.tree_leaves(delegatekit.load(program.buffer)["forward"](*calls[0]))
    references = torch.utils._pytree.tree_leaves(quantized(*calls[0]))
    for result, reference, step in zip(results, references, steps(quantized), strict=True):
        largest = float(reference.abs().max())
        allowed = 1.5e-3 * largest if scheme.startswith("16") else 2.05 * step
        assert float((result - reference).abs().max()) <= allowed
