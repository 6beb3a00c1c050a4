"""Norms over rows, groups and channels, in the compiled stream and the reference model, compared with eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import delegatekit
from delegatekit_api import QuantizationError
from delegatekit_ethosu.blob import pack, unpack
from delegatekit_ethosu.compiler import compile_program
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.runtime.stream.machine import Machine
from delegatekit_ethosu.targets import TARGETS
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import reference

Shape = tuple[int, ...]

BIAS, SMALL = torch.arange(8.0), torch.full((8,), 1e-3)


def varied(module: nn.Module) -> nn.Module:
    """The module with weights of both signs, one of them 0, and biases."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(0.8 if "weight" in name else 0.0, 0.6)
            parameter.view(-1)[0] = 0.0
    return module


class ChannelsLast(nn.Module):
    """Layer norm over the channels of an image after a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 24, 3), varied(nn.LayerNorm(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convolution(self.norm(self.convolution(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)[:, :3])


class Block(nn.Module):
    """Half of a transformer block, after a patch embedding and before a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.first, self.last = varied(nn.LayerNorm(32)), varied(nn.LayerNorm(32))
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.last(x + self.down(functional.gelu(self.up(self.first(x)))))


NORMS: dict[str, tuple[Callable[[], Any], Shape]] = {
    "rows": (lambda: varied(nn.LayerNorm(40)), (2, 7, 40)),
    "one row": (lambda: varied(nn.LayerNorm(192)), (192,)),
    "two elements": (lambda: varied(nn.LayerNorm(2)), (5, 2)),
    "two axes": (lambda: varied(nn.LayerNorm((3, 17))), (4, 3, 17)),
    "images": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), varied(nn.LayerNorm((6, 5, 4)))), (2, 3, 7, 6)),
    "channels last": (ChannelsLast, (1, 3, 8, 8)),
    "no parameters": (lambda: nn.LayerNorm(40, elementwise_affine=False), (3, 40)),
    "no bias": (lambda: varied(nn.LayerNorm(40, bias=False)), (3, 40)),
    "bias only": (lambda: lambda x: functional.layer_norm(x, (8,), None, BIAS), (3, 8)),
    "weight 1": (lambda: nn.LayerNorm(40), (3, 40)),
    "large bias": (lambda: lambda x: functional.layer_norm(x, (8,), SMALL, BIAS), (3, 8)),
    "eps that counts": (lambda: varied(nn.LayerNorm(40, eps=3.0)), (3, 40)),
    "eps that is all": (lambda: varied(nn.LayerNorm(40, eps=1e9)), (3, 40)),
    "groups": (lambda: varied(nn.GroupNorm(3, 12)), (2, 12, 5, 3)),
    "groups of numbers": (lambda: varied(nn.GroupNorm(3, 12)), (2, 12)),
    "one group": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), varied(nn.GroupNorm(1, 8))), (2, 3, 6, 6)),
    "instances": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), varied(nn.InstanceNorm2d(8, affine=True))), (2, 3, 9, 8)),
    "instances, 1-d": (lambda: nn.InstanceNorm1d(8), (2, 8, 21)),
    "root mean square": (lambda: varied(nn.RMSNorm(40)), (2, 7, 40)),
    "root mean square, plain": (lambda: nn.RMSNorm(40, eps=1e-3, elementwise_affine=False), (7, 40)),
    "block": (Block, (1, 3, 16, 16)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_eagers_but_for_a_thousandth(name: str, agrees: Any) -> None:
    make, shape = NORMS[name]
    agrees(make(), torch.randn(shape), share=0.001)


@pytest.mark.sweep
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_int16_are_within_a_step(name: str, agrees: Any) -> None:
    make, shape = NORMS[name]
    several = name in ("channels last", "images", "block", "one group", "instances")
    agrees(make(), torch.randn(shape), scheme="int16", steps=3 if several else 1, share=0.4 if several else 0.02)


def hard_rows(size: int, scale: float) -> torch.Tensor:
    """Rows of one value, of two adjacent ones, of extremes, far from 0; the largest value is 4."""
    place = torch.arange(size)
    rows = [torch.full((size,), value) for value in (-4.0, 0.0, 0.7, 4.0)]
    rows += [value + scale * (place == 1) for value in (-3.0, 0.0, 2.5)]
    rows += [value + scale * (place % 2) for value in (-3.0, 0.0, 2.5)]
    rows += [torch.where(place == 0, 4.0, -4.0), torch.where(place % 3 == 0, 4.0, -4.0)]
    rows += [3.5 + 0.1 * torch.randn(size), torch.randn(size).clamp(-4, 4), 8 * torch.rand(size) - 4]
    return torch.stack(rows)


def in_double(module: Any, norm: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The result of a quantized norm in double precision, since float32 is too imprecise for such rows; its step."""
    before, after = (node for node in module.graph.nodes if ".quantize_per_tensor" in str(node.target))
    scale, zero = before.args[1:3]
    given = (before.target(x, *before.args[1:]).double() - zero) * scale
    step, middle, low, high = after.args[1:5]
    with torch.no_grad():
        found = (norm.double()(given) / step).round() + middle
    return (found.clamp(low, high) - middle) * step, step


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("size", [2, 3, 197, 4096])
@pytest.mark.parametrize("scheme", ["int8", "int16"])
def test_rows_that_hardly_vary_are_as_exact(size: int, centred: bool, scheme: str, whole: Any) -> None:
    norm = varied((nn.LayerNorm if centred else nn.RMSNorm)(size, eps=1e-5)).eval()
    x = hard_rows(size, 8 / 255 if scheme == "int8" else 8 / 65535)
    module, lower, _ = whole(norm, x, scheme=scheme)
    (got,) = lower(module, x).run()
    want, step = in_double(module, copy.deepcopy(norm), x)
    away = ((got - want) / step).abs()
    assert float(away.max()) < 1.01
    # Sums that end between two integers are rounded up: those of small integers often do.
    assert float((away > 0.5).double().mean()) <= max(0.001 if scheme == "int8" else 0.02, 1.5 / x.numel())


@pytest.mark.parametrize("scheme", ["int8", "int16"])
def test_streams_of_all_sizes_compute_what_the_reference_does(scheme: str, whole: Any) -> None:
    if not reference.availability().available:
        pytest.skip("needs Arm's reference model")
    x = torch.randn(2, 3, 16, 16)
    module, lower, _ = whole(nn.Sequential(Block(), varied(nn.RMSNorm(32))), x, scheme=scheme)
    program = tosa.write(lower(module, x).graph)
    (given,) = tosa.read(program).inputs
    kind = np.iinfo(scheme)
    integers = np.random.default_rng(0).integers(kind.min, kind.max, given.shape, kind.dtype, endpoint=True)
    (want,) = reference.run(program, [integers])
    for target in (name for name in TARGETS if name.startswith("ethos-u55")):
        compiled = compile_program(program, EthosUOptions(target=target))
        (got,) = Machine(unpack(pack(compiled), {})).run([integers])
        assert np.array_equal(got.reshape(want.shape), want), target


REFUSED: dict[str, tuple[Callable[[], Any], Shape, str]] = {
    "one element": (lambda: nn.LayerNorm(1), (3, 1), "a norm of 1 elements: 2 to 16384 are possible"),
    "long": (lambda: nn.LayerNorm(20000), (2, 20000), "a norm of 20000 elements: 2 to 16384 are possible"),
    "long, no mean": (lambda: nn.RMSNorm(5000), (2, 5000), "a norm of 5000 elements: 2 to 4096 are possible"),
    "recorded": (
        lambda: nn.InstanceNorm2d(4, track_running_stats=True),
        (1, 4, 5, 5),
        "normalizes by recorded statistics",
    ),
    "computed": (
        lambda: lambda x: functional.layer_norm(x, (8,), x[0]),
        (3, 8),
        "is computed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_norms_that_are_not_for_the_npu_are_not_quantized(name: str, module_of: Any) -> None:
    make, shape, reason = REFUSED[name]
    with pytest.raises(QuantizationError, match=reason):
        delegatekit.quantize(module_of(make()), [(torch.randn(shape),)], backend="ethosu")


@pytest.mark.parametrize(
    "make",
    [*(lambda: nn.LayerNorm(8), lambda: nn.GroupNorm(2, 8), lambda: nn.InstanceNorm1d(8), lambda: nn.RMSNorm(8))],
)
def test_norms_in_float_are_portable(make: Callable[[], nn.Module]) -> None:
    module, x = varied(make()).eval(), torch.randn(2, 8, 8)
    program = delegatekit.lower(module, (x,), backends=["ethosu"])
    assert not delegatekit.report(program).methods[0].delegates
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](x), module(x))


@pytest.mark.parametrize("operator", ["layer_norm", "rms_norm", "instance_norm", "group_norm"])
def test_norms_that_are_left_out_are_portable(operator: str) -> None:
    norms = {
        "layer_norm": nn.LayerNorm(8),
        "rms_norm": nn.RMSNorm(8),
        "instance_norm": nn.InstanceNorm1d(6),
        "group_norm": nn.GroupNorm(2, 6),
    }
    module, x = nn.Sequential(nn.Linear(8, 8), varied(norms[operator]), nn.Linear(8, 8)).eval(), torch.randn(2, 6, 8)
    quantized = delegatekit.quantize(module, [(x,)], backend="ethosu")
    options = {"ethosu": {"leave_out": (operator,)}}
    program = delegatekit.lower(quantized, (x,), backends=["ethosu"], options=options)
    assert len(delegatekit.report(program).methods[0].delegates) == 2
    got, want = delegatekit.load(program.buffer)["forward"](x), quantized(x)
    assert float((got - want).abs().max()) < 0.03 * float(want.abs().max())
