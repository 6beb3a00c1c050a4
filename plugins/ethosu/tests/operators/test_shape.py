"""Operators that move values, and upsampled images, compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import delegatekit
from delegatekit_ethosu.blob import pack, unpack
from delegatekit_ethosu.compiler import compile_program
from delegatekit_ethosu.ir.emission import VelaEmission
from delegatekit_ethosu.options import EthosUOptions
from delegatekit_ethosu.runtime import stream
from delegatekit_ethosu.targets import TARGETS
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import reference

X = (1, 8, 12, 12)
relu = functional.relu
MOVES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "joined": (lambda a, b: torch.cat([relu(a), b.tanh()], 1), (X, (1, 3, 12, 12))),
    "joined along the last axis": (lambda a, b: torch.cat([relu(a), relu(b)], -1), ((3, 4), (3, 5))),
    "stacked": (lambda a, b: torch.stack([relu(a), relu(b)], 1), ((3, 4), (3, 4))),
    "split": (lambda x: torch.split(x + x, 3, 1), (X,)),
    "halves": (lambda x: torch.mul(*torch.chunk(relu(x), 2, 1)), (X,)),
    "slice": (lambda x: relu(x)[:, 1:5, ::2], (X,)),
    "slice, every third": (lambda x: relu(x)[..., 1::3], (X,)),
    "slice, every second of six axes": (lambda x: relu(x)[..., ::2], ((2, 3, 1, 2, 2, 6),)),
    "slice, every second of a middle axis": (lambda x: relu(x)[:, :, 1::2], ((2, 2, 5, 2, 3, 2),)),
    "slice, every second of the first axis": (lambda x: relu(x)[::2], ((5, 2, 2, 2, 3, 2),)),
    "selected": (lambda x: relu(x)[:, 2], (X,)),
    "padded": (lambda x: functional.pad(x.tanh(), (1, 2, 0, 3)), (X,)),
    "view and permutation": (lambda x: relu(x).view(1, 8, 144).permute(0, 2, 1), (X,)),
    "rows of pixels": (lambda x: functional.avg_pool2d(x, 2).flatten(2).transpose(1, 2) + 1, (X,)),
    "flat": (lambda x: functional.max_pool2d(x, 2).flatten(1), (X,)),
    "expanded": (lambda x: relu(x).expand(2, 8, 12, 12) + 1, ((1, 8, 1, 12),)),
    "repeated": (lambda x: relu(x).repeat(1, 2, 1, 1), (X,)),
    "turned": (lambda x: relu(x).flip(2, 3), (X,)),
    "channels turned": (lambda x: relu(x).flip(1), (X,)),
    "axes of one": (lambda x: relu(x).squeeze(0).unsqueeze(-1), (X,)),
    "pixels shuffled": (lambda x: functional.pixel_shuffle(relu(x), 2), (X,)),
    "pixels shuffled back": (lambda x: functional.pixel_unshuffle(relu(x), 2), (X,)),
    "pixels of many images shuffled": (lambda x: functional.pixel_shuffle(relu(x), 2), ((2, 3, 4, 3, 5),)),
    "pixels of many images shuffled back": (lambda x: functional.pixel_unshuffle(relu(x), 2), ((2, 1, 3, 4, 6),)),
    "pixels of one image shuffled": (lambda x: functional.pixel_shuffle(relu(x), 3), ((9, 4, 5),)),
    "stacked and joined": (lambda x: torch.stack([x, relu(x), x.tanh()], 2).flatten(0, 1).sigmoid(), ((2, 3, 5),)),
    "stacked behind": (lambda x, y: torch.stack([relu(x), y], -1), (X, X)),
    "rolled": (lambda x: relu(x).roll((1, -2), (2, 3)), (X,)),
    "rolled as a whole": (lambda x: relu(x).roll(-5).sigmoid(), ((2, 3, 5),)),
}


#: Shape, the last block of this size, and another shape for it: Vela reads such a block at wrong addresses unless it is
#: copied first.
BLOCKS = (
    ((2, 3, 4), (2, 3, 1), (2, 1, 1, 3)),
    ((2, 6, 3), (2, 6, 1), (2, 1, 6, 1)),
    ((16, 4, 4), (8, 1, 1), (4, 1, 1, 2)),
    ((1, 4, 2, 4), (1, 4, 2, 2), (4, 1, 1, 4)),
    ((3, 4, 16), (3, 4, 1), (2, 1, 1, 6)),
    ((4, 3, 2), (4, 1, 2), (2, 1, 4, 1)),
)


@pytest.mark.parametrize(("shape", "size", "other"), BLOCKS)
def test_blocks_in_other_shapes_are_read_where_they_are(
    shape: tuple[int, ...], size: tuple[int, ...], other: tuple[int, ...]
) -> None:
    pytest.importorskip("tosa_reference_model", reason="tosa-tools is not installed")
    b, int8 = VelaEmission("blocks", TARGETS["ethos-u55-128"]), tosa.DType.INT8
    reversal = b.graph.constant(np.arange(-128, 128)[::-1], int8)
    x = b.emit(tosa.Table(), (b.graph.input("x", shape, int8), reversal), shape, int8)
    block = b.sliced(x, [whole - part for whole, part in zip(shape, size, strict=True)], size)
    b.graph.output(b.emit(tosa.Clamp(-90, 100), (b.reshaped(block, other),), other, int8))
    program = tosa.write(b.finish())
    data = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    options = EthosUOptions(target="ethos-u55-128")
    (result,) = stream.Machine(unpack(pack(compile_program(program, options)))).run([data])
    (expected,) = reference.run(program, [data])
    np.testing.assert_array_equal(result.reshape(other), expected)


@pytest.mark.sweep
@pytest.mark.parametrize("name", MOVES)
def test_what_is_moved_is_as_in_eager(name: str, agrees: Any) -> None:
    model, shapes = MOVES[name]
    agrees(model, *map(torch.randn, shapes))


#: Moved in several steps by operators of the edge program, with nothing quantized between them.
SEVERAL: dict[str, tuple[Callable[..., Any], str]] = {
    "cut": (lambda x: functional.pad(x.tanh(), (1, -2)), "pad"),
    "channels shuffled": (nn.Sequential(nn.Conv2d(8, 16, 3), nn.ChannelShuffle(4)), "channel_shuffle"),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_what_is_moved_in_several_steps_stays_in_float(name: str, module_of: Any) -> None:
    model, operator = SEVERAL[name]
    x = torch.randn(X)
    module = delegatekit.quantize(module_of(model), [(x,)], backend="ethosu")
    ((layer,), (moved,)) = module.quantization.quantized, module.quantization.kept
    assert (moved.operator, moved.reason.split()[-2:]) == (operator, ["not", "quantized"])
    program = delegatekit.lower(module, (x,), backends=["ethosu"])
    assert len(delegatekit.report(program).methods[0].delegates) == 1, layer
    steps = [node.args[1] for node in module.graph.nodes if "dequantize_per_tensor" in str(node.target)]
    # A result may be rounded to the other neighbor.
    torch.testing.assert_close(
        delegatekit.load(program.buffer)["forward"](x), module(x), rtol=0, atol=1.01 * max(steps)
    )


SIZES = [(2, (1, 8, 6, 7)), (4, (1, 4, 5, 6)), (8, (1, 3, 4, 3)), (2, (2, 4, 5, 6)), (4, (2, 4, 3, 5))]


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize(("factor", "shape"), SIZES)
def test_images_are_made_larger_as_in_eager(mode: str, factor: int, shape: tuple[int, ...], agrees: Any) -> None:
    agrees(nn.Upsample(scale_factor=factor, mode=mode), torch.randn(shape))
    # With the scale of the input, results half-way between two integers are frequent.
    shared = nn.Sequential(nn.Conv2d(shape[1], 4, 1), nn.Upsample(scale_factor=factor, mode=mode))
    agrees(shared, torch.randn(shape), share=0.003 if mode == "nearest" else 0.2)


@pytest.mark.parametrize("factors", [(3, 3), (1, 2), (2, 1), (2, 4), (6, 4), (5, 1), (16, 16)])
@pytest.mark.sweep
@pytest.mark.parametrize("samples", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_pixels_are_repeated_by_whole_factors(factors: tuple[int, int], samples: int, agrees: Any) -> None:
    upsample = nn.Upsample((5 * factors[0], 4 * factors[1]))
    agrees(upsample, torch.randn(samples, 6, 5, 4))
    # Between convolutions, joined with others, and of a slice.
    agrees(nn.Sequential(nn.Conv2d(6, 4, 1), upsample, nn.Conv2d(4, 3, 3, padding=1)), torch.randn(samples, 6, 5, 4))
    x, y = torch.randn(samples, 6, 5, 4), torch.randn(samples, 2, 5 * factors[0], 4 * factors[1])
    agrees(lambda x, y: torch.cat([upsample(relu(x)[:, 1:4]), y.tanh()], 1), x, y)


def shuffled(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


LARGE: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "middle axes": (lambda x: x.transpose(1, 2) + 1, (2, 257, 3, 257)),
    "images of several samples": (nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), (2, 3, 260, 260)),
    "pixels shuffled": (lambda x: functional.pixel_shuffle(relu(x), 4), (1, 48, 80, 80)),
    "axes after one of size 1": (lambda x: (x + x).permute(0, 4, 3, 2, 1), (1, 2, 151, 7, 70)),
}


@pytest.mark.parametrize("name", LARGE)
def test_more_than_65536_elements_are_moved(name: str, agrees: Any) -> None:
    model, shape = LARGE[name]
    agrees(model, torch.randn(shape), targets=["ethos-u55-128"])


def test_moves_that_are_undone_are_none(agrees: Any) -> None:
    """Vela (5.1) removes such moves, too, and then adds in the wrong shape."""
    x = torch.randn(1, 4, 8, 8)
    for delegated in agrees(lambda x: shuffled(shuffled(x + x.amax(2, True))).permute(0, 3, 1, 2), x).values():
        assert delegated.operators.count("TRANSPOSE") == 1
    for delegated in agrees(lambda x: shuffled(x.relu()).transpose(1, 2), x).values():
        assert delegated.operators.count("TRANSPOSE") <= 2


def test_results_in_the_middle_leave_the_delegate(agrees: Any) -> None:
    agrees(lambda x: (relu(x), relu(x) + 1), torch.randn(X))
    agrees(lambda x: (relu(x), relu(x).flatten(1)), torch.randn(X))


def test_results_that_others_read_in_another_order_leave_the_delegate(agrees: Any) -> None:
    agrees(lambda x: (relu(x).reshape(2, 4, 5), relu(x).reshape(2, 4, 5).transpose(1, 2)), torch.randn(2, 2, 2, 5))
    agrees(lambda x: (x.amin(2), x.amin(2).transpose(1, 2).sigmoid()), torch.randn(2, 2, 5, 5))


def test_large_images_are_joined_with_others(agrees: Any) -> None:
    upsample = nn.Upsample(scale_factor=4)
    agrees(lambda x, y: torch.cat([upsample(relu(x)), y.tanh()], 1), torch.randn(1, 3, 3, 4), torch.randn(1, 2, 12, 16))
