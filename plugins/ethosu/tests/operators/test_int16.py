"""The scheme int16: in the compiled stream and the reference model, compared with eager, and whole networks."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from softmaxes import SOFTMAXES
from torch import nn
from torch.nn import functional

import delegatekit
from delegatekit.quantization import flow
from delegatekit_api import QuantizationError
from delegatekit_ethosu.targets import TARGETS
from delegatekit_toolkit.tosa.reference import availability

_spec = importlib.util.spec_from_file_location("ethosu_networks16", Path(__file__).with_name("networks.py"))
assert _spec is not None and _spec.loader is not None
networks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(networks)

X = (1, 8, 12, 12)
relu = functional.relu

#: Sums in int48 are multiplied with 15 bits: values half a step or less away may be rounded to the next.
ROUNDED: dict[str, tuple[Callable[[], Any], tuple[tuple[int, ...], ...]]] = {
    "linear": (lambda: nn.Linear(32, 20), ((4, 32),)),
    "3x3": (lambda: nn.Conv2d(8, 16, 3, padding=1), (X,)),
    "stride 4": (lambda: nn.Conv2d(8, 16, 7, stride=4, padding=3), ((1, 8, 30, 33),)),
    "groups": (lambda: nn.Conv2d(8, 16, 3, padding=1, groups=2), ((2, 8, 12, 12),)),
    "norm and relu6": (
        lambda: nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU6()),
        (X,),
    ),
    "hardtanh": (lambda: nn.Sequential(nn.Conv2d(8, 16, 3), nn.Hardtanh(-0.5, 0.5)), (X,)),
    "depthwise": (lambda: nn.Conv2d(8, 16, 3, 2, 1, groups=8), (X,)),
    "depthwise, two for each": (lambda: nn.Conv2d(8, 16, 3, 2, 1, groups=8), (X,)),
    "windows of padding alone": (lambda: nn.Conv2d(8, 4, 1, stride=2, padding=1), ((2, 8, 5, 6),)),
    "transposed, padded more than its kernel adds": (lambda: nn.ConvTranspose2d(8, 4, 1, 2, 1), ((1, 8, 5, 6),)),
    "1-d": (lambda: nn.Conv1d(8, 16, 5, padding=2, stride=2), ((2, 8, 41),)),
    "transposed": (lambda: nn.ConvTranspose2d(8, 16, 3, 2, 1, output_padding=1), (X,)),
    "transposed, longer than its kernel": (lambda: nn.ConvTranspose2d(8, 6, 2, 2, output_padding=1), ((2, 8, 5, 4),)),
    "transposed, stride 1": (lambda: nn.ConvTranspose2d(8, 6, 3), (X,)),
    "transposed, groups": (lambda: nn.ConvTranspose2d(8, 6, 4, 2, 1, groups=2), ((2, 8, 12, 12),)),
    "transposed, stride 3": (lambda: nn.ConvTranspose2d(8, 6, 3, 3), ((2, 8, 5, 6),)),
    "transposed, strides": (lambda: nn.ConvTranspose2d(8, 6, (4, 3), (1, 4), (2, 0), (0, 1)), ((1, 8, 5, 6),)),
    "transposed, 1-d": (lambda: nn.ConvTranspose1d(8, 6, 4, stride=2, padding=1), ((1, 8, 20),)),
    "transposed, several samples, relu": (
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2, 2), nn.ReLU()),
        ((2, 3, 8, 8),),
    ),
    "bounds after another shape": (
        lambda: lambda x: relu(x.sum((3, 4), keepdim=True).sum(0, keepdim=True)),
        ((3, 2, 1, 2, 1, 1),),
    ),
    "average": (lambda: nn.AvgPool2d(3, 2, 1), (X,)),
    "average, the NPU's own": (lambda: nn.Sequential(nn.Conv2d(8, 4, 3), nn.AvgPool2d(2)), (X,)),
    "to one": (lambda: nn.AdaptiveAvgPool2d(1), (X,)),
    "mean": (lambda: lambda x: x.mean((2, 3)), (X,)),
    "mean of a middle axis": (lambda: lambda x: x.mean(1), ((2, 5, 20),)),
    "sum": (lambda: lambda x: x.sum(-1), ((2, 5, 20),)),
    "bilinear": (lambda: nn.Sequential(nn.Conv2d(8, 4, 1), nn.Upsample(scale_factor=2, mode="bilinear")), (X,)),
    "slopes": (lambda: nn.PReLU(8), (X,)),
    "leaky": (lambda: nn.LeakyReLU(0.1), (X,)),
    "hardswish": (nn.Hardswish, (X,)),
    "hardsigmoid": (nn.Hardsigmoid, (X,)),
}
#: Arithmetic of 32 bits, and operators that only move or select values.
EXACT: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "sum": (torch.add, (X, (8, 1, 1))),
    "sum and relu": (lambda a, b: relu(a + b), (X, X)),
    "difference": (torch.sub, (X, X)),
    "product": (torch.mul, (X, X)),
    "square": (lambda x: x * x, (X,)),
    "numbers": (lambda x: x * 0.3 + 1.7, (X,)),
    "larger": (torch.maximum, (X, X)),
    "smaller": (lambda a, b: torch.minimum(a, 3 * b), (X, X)),
    "divided": (lambda x: x / 3, (X,)),
    "bounds": (lambda x: x.clamp(-0.3, 0.7), (X,)),
    "relu": (relu, (X,)),
    "absolute": (torch.abs, (X,)),
    "negative": (torch.neg, (X,)),
    "maximum": (nn.MaxPool2d(3, 2, 1), (X,)),
    "largest": (lambda x: x.amax((2, 3)), (X,)),
    "smallest": (lambda x: x.amin(1), (X,)),
    "smallest of repeated pixels": (lambda x: functional.interpolate(x, scale_factor=2).amin(3), (X,)),
    "negative of repeated pixels": (lambda x: -functional.interpolate(x, scale_factor=2), ((2, 3, 4, 5),)),
    "smallest of rows": (lambda x: (3 * x).amin(2).abs(), ((2, 2, 5, 5),)),
    "largest of columns": (lambda x: (3 * x).amax(-1).abs(), ((8, 2, 8, 2),)),
    "joined": (lambda a, b: torch.cat([relu(a), relu(b)], 1), (X, (1, 3, 12, 12))),
    "slice": (lambda x: relu(x)[:, 1:5, ::2], (X,)),
    "padded": (lambda x: functional.pad(relu(x), (1, 2, 0, 3)), (X,)),
    "view and permutation": (lambda x: relu(x).view(1, 8, 144).permute(0, 2, 1), (X,)),
    "expanded": (lambda x: relu(x).expand(2, 8, 12, 12) + 1, ((1, 8, 1, 12),)),
    "turned": (lambda x: relu(x).flip(2, 3), (X,)),
    "pixels shuffled": (lambda x: functional.pixel_shuffle(relu(x), 2), (X,)),
    "nearest, other factors": (lambda x: functional.interpolate(relu(x), (9, 30)), ((2, 4, 3, 5),)),
    "nearest": (lambda x: functional.interpolate(relu(x), scale_factor=4), ((2, 4, 3, 5),)),
}
SMOOTH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: getattr(torch, name) for name in ("sigmoid", "tanh", "exp", "expm1", "erf", "atan", "asinh")},
    **{name: getattr(functional, name) for name in ("silu", "gelu", "mish", "softplus", "logsigmoid")},
    **{name: getattr(functional, name) for name in ("elu", "celu", "selu")},
    "exponential of negative numbers": lambda x: torch.exp(-x.abs()),
    "exponential of negative numbers, less 1": lambda x: torch.expm1(-3 * x.abs()),
    "tangens of large numbers": lambda x: torch.tanh(1e3 * x),
    "tangens of huge numbers": lambda x: torch.tanh(1e9 * x),
    "sigmoid of nothing": lambda x: torch.sigmoid(1e-7 * x),
    "behind moves": lambda x: (x + x).flatten(2).transpose(1, 2).tanh(),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", ROUNDED)
def test_sums_are_within_a_step_of_eager(name: str, agrees: Any) -> None:
    make, shapes = ROUNDED[name]
    agrees(make(), *map(torch.randn, shapes), scheme="int16", share=0.4)


@pytest.mark.sweep
@pytest.mark.parametrize("name", EXACT)
def test_arithmetic_and_moves_are_eagers(name: str, agrees: Any) -> None:
    model, shapes = EXACT[name]
    agrees(model, *map(torch.randn, shapes), scheme="int16", share=0.01)


def test_a_bias_that_is_too_large_for_its_steps_makes_them_coarser(agrees: Any) -> None:
    layer = nn.Linear(8, 4)
    with torch.no_grad():
        layer.weight[0] = 0.0  # the scale of its weights is the smallest possible
        layer.bias[0] = 3.0
    agrees(layer, torch.randn(5, 8) * 1e-3, scheme="int16", share=0.4)


@pytest.mark.sweep
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_are_interpolated(name: str, whole: Any) -> None:
    x = torch.randn(1, 8, 12, 7) * 3
    module, lower, ratio = whole(SMOOTH[name], x, scheme="int16")
    for target in ("ethos-u55-32", *["ethos-u85-256"] * availability().available):
        delegated = lower(module, x, target=target)
        assert "TABLE" in delegated.operators
        assert ratio(delegated.run()[0], module(x)) > 70


#: Function -> the factor of normal numbers: strongly curved functions bend between a few entries of the table.
WIDE = {"asinh": 20, "exp": 4, "gelu": 30, "silu": 40, "softplus": 60, "elu": 30, "tanh": 1, "expm1": 3}


@pytest.mark.sweep
@pytest.mark.parametrize("name", WIDE)
def test_smooth_functions_of_wide_ranges_are_within_a_step(name: str, agrees: Any) -> None:
    x = torch.randn(1, 8, 12, 12) * WIDE[name]
    agrees(SMOOTH[name], x, scheme="int16", share=0.5)


@pytest.mark.parametrize("name", SOFTMAXES)
def test_softmax_is_as_in_eager(name: str, whole: Any) -> None:
    function, shape, size = SOFTMAXES[name]
    x = torch.randn(shape) * size
    module, lower, ratio = whole(function, x, scheme="int16")
    for target in ("ethos-u55-32", *["ethos-u85-256"] * availability().available):
        assert ratio(lower(module, x, target=target).run()[0], module(x)) > 60


@pytest.mark.parametrize("hidden", [-1e6, -1e9, torch.finfo(torch.float32).min])
def test_softmax_of_scores_far_apart_is_as_in_eager(hidden: float, whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Our own quantizer leaves them in float; others do not.
    monkeypatch.setattr(flow, "unfit_layers", lambda prepared, layers: {})
    x = torch.randn(3, 9)
    x[1, 2:5] = hidden
    module, lower, ratio = whole(lambda x: x.clamp_max(3.0).softmax(-1), x, scheme="int16")
    for target in ("ethos-u55-32", *["ethos-u85-256"] * availability().available):
        assert ratio(lower(module, x, target=target).run()[0], module(x)) > 60


def test_another_scale_behind_another_shape_is_the_pools_own(whole_program: Any) -> None:
    """Vela (5.1) fuses it with the pool in the wrong shape."""
    import torch.ao.quantization.fx._decomposed  # registers the operators

    def stored(x: torch.Tensor, scale: float) -> torch.Tensor:
        q, kind = torch.ops.quantized_decomposed, (-32768, 32767, torch.int16)
        return q.dequantize_per_tensor(q.quantize_per_tensor(x, scale, 0, *kind), scale, 0, *kind)

    class Largest(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = stored(stored(x, 1e-4).reshape(3, 2, 7, 9), 1e-4)
            x = stored(stored(x.amax(2, True), 1e-4).unsqueeze(3), 1e-4)
            return stored(functional.relu6(x), 0.96e-4)

    options = {"target": "ethos-u55-32", "verify": availability().available}
    delegated = whole_program(Largest(), torch.randn(2, 3, 7, 9), **options)
    assert float((delegated.run()[0] - delegated.eager()[0]).abs().max()) < 1e-4


NARROW: dict[str, tuple[Any, tuple[tuple[int, ...], ...], str]] = {
    "steep function": (torch.reciprocal, (X,), "smooth functions only"),
    "steps": (torch.floor, (X,), "smooth functions only"),
    "product of matrices": (torch.mm, ((7, 16), (16, 9)), "no products of int16 matrices; an Ethos-U85 has"),
    "padding left out": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (X,), "exclude the padding"),
    "sizes rounded up": (nn.AvgPool2d(3, 2, ceil_mode=True), (X,), "rounded up"),
}


@pytest.mark.parametrize("name", NARROW)
def test_what_the_npu_cannot_do_in_int16_is_not_quantized(name: str, module_of: Any) -> None:
    model, shapes, reason = NARROW[name]
    with pytest.raises(QuantizationError, match=reason):
        delegatekit.quantize(module_of(model), [tuple(map(torch.randn, shapes))], backend="ethosu", scheme="int16")


class Steps(nn.Module):
    """From int16 to int8, which has tables, and back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = torch.ops.quantized_decomposed
        wide, narrow = (1e-4, 0, -32768, 32767, torch.int16), (0.02, 3, -128, 127, torch.int8)
        for kind in (wide, narrow):
            x = q.dequantize_per_tensor(q.quantize_per_tensor(x, *kind), *kind)
        narrow = (0.0079, 0, -128, 127, torch.int8)
        x = x.tanh()
        for kind in (narrow, wide):
            x = q.dequantize_per_tensor(q.quantize_per_tensor(x, *kind), *kind)
        return q.dequantize_per_tensor(q.quantize_per_tensor(x * x, *wide), *wide)


class Saturating(nn.Module):
    """A function whose result leaves the range of its integers on each side of a dip."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self.scale = most / 32767

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, wide = torch.ops.quantized_decomposed, (0, -32768, 32767, torch.int16)
        x = q.dequantize_per_tensor(q.quantize_per_tensor(x, 8 / 32767, *wide), 8 / 32767, *wide)
        x = functional.silu(x)
        return q.dequantize_per_tensor(q.quantize_per_tensor(x, self.scale, *wide), self.scale, *wide)


@pytest.mark.parametrize(("most", "is_taken"), [(4.0, True), (0.1, False)])
def test_a_function_that_straight_lines_do_not_follow_is_left_outside(most: float, is_taken: bool) -> None:
    import torch.ao.quantization.fx._decomposed  # registers the operators

    explained = delegatekit.explain(Saturating(most), (torch.linspace(-8, 8, 64)[None],), backends=["ethosu"])
    reasons = [row.reasons["ethosu"] for row in explained.rows if row.backend is None]
    told = any(re.search(r"straight lines lead \d{3} steps of the result away", reason) for reason in reasons)
    assert told is not is_taken, reasons


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_integers_change_their_type_where_the_program_says_so(target: str, whole_program: Any) -> None:
    import torch.ao.quantization.fx._decomposed  # registers the operators

    module, x = Steps(), torch.rand(64, 9) * 2 - 1
    delegated = whole_program(module, x, target=target)
    if target.startswith("ethos-u55") or availability().available:
        # int16 values half-way between two int8 are rounded to the larger.
        away = (delegated.run()[0] - module(x)).abs()
        assert float((away > 1.5e-4).float().mean()) < 0.01


SWEEP = [pytest.param(name, marks=pytest.mark.slow) for name in ("segmentation", "squeezed", "perceptron")]


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["digits", "keywords", *SWEEP])
def test_networks_are_one_delegate_on_every_accelerator(name: str, whole: Any) -> None:
    module, x = networks.network(name)
    floating = module(x).detach()
    narrow, _, _ = whole(module, x, samples=12)
    module, lower, ratio = whole(module, x, samples=12, scheme="int16")
    results = {}
    for target in TARGETS:
        delegated = lower(module, x, target=target)
        if target in ("ethos-u55-64", "ethos-u55-256") or (target == "ethos-u85-512" and availability().available):
            results[target] = delegated.run()[0]
            assert ratio(results[target], module(x)) > 65
    # The remaining noise comes from the weights.
    assert ratio(results["ethos-u55-64"], floating) > ratio(narrow(x).detach(), floating) + 3
    assert all(torch.equal(result, results["ethos-u55-64"]) for result in results.values())
