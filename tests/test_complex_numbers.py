"""Complex numbers inside a program: pairs of real ones, which eager, the engine and the stock runtime agree on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from function_module import Function
from referee import check
from torch import nn

import delegatekit
from delegatekit_api import UnsupportedError

Z = torch.complex(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), torch.randn(3, 4))
REAL = torch.linspace(-2, 3, 12).reshape(3, 4)
PAIRS = torch.stack([REAL, REAL.flip(1) * 0.5 + 0.1], -1)
OTHERS = torch.stack([REAL * 0.7 - 0.2, REAL.flip(0)], -1)
SIGNAL = torch.sin(torch.arange(128.0)) + 0.3 * torch.cos(torch.arange(128.0) * 2.3)


def of_pairs(functions: Iterable[Callable[..., torch.Tensor]]) -> Function:
    """Functions of complex numbers on inputs (..., 2), in one program; results as (..., 2) where they are complex."""
    chosen = list(functions)

    def as_real(result: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(result.resolve_conj()) if result.is_complex() else result

    def apply(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        numbers = [torch.view_as_complex(item) for item in inputs]
        return tuple(as_real(function(*numbers)) for function in chosen)

    return Function(apply)


ONE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "abs": torch.abs,
    "angle": torch.angle,
    "conj": torch.conj,
    "real part": lambda z: z.real * 2,
    "imaginary part": lambda z: z.imag + 1,
    "neg": torch.neg,
    "exp": torch.exp,
    "log": torch.log,
    "sgn": torch.sgn,
    "reciprocal": torch.reciprocal,
    "power": lambda z: z**3,
    "square": torch.square,
    "plus a complex number": lambda z: z + (1 - 2j),
    "plus a number": lambda z: z + 3,
    "minus a complex number": lambda z: z - 1j,
    "a complex number minus": lambda z: (2 + 1j) - z,
    "times a complex number": lambda z: z * (1 - 2j),
    "a complex number times": lambda z: 1j * z,
    "times a number": lambda z: z * 3,
    "divided by a complex number": lambda z: z / (1 - 2j),
    "divided by a number": lambda z: z / 4,
    "a number divided by it": lambda z: 2 / z,
    "times a complex constant": lambda z: z * Z,
    "times a real tensor": lambda z: z * REAL,
    "a real tensor minus it": lambda z: REAL - z,
    "divided by a real tensor": lambda z: z / (REAL + 9),
    "sum": lambda z: z.sum(),
    "sum along": lambda z: z.sum(1, keepdim=True),
    "mean": lambda z: z.mean(0),
    "cumsum": lambda z: z.cumsum(1),
    "transpose": lambda z: z.t(),
    "reshape": lambda z: z.reshape(2, 6)[:, 1:4],
    "permute and flatten": lambda z: z[None].permute(2, 0, 1).flatten(),
    "expand": lambda z: z[:, None].expand(3, 2, 4),
    "squeeze": lambda z: z.unsqueeze(0).squeeze(),
    "cat": lambda z: torch.cat([z, z * 2j]),
    "cat with a real tensor": lambda z: torch.cat([z, REAL.to(torch.complex64)]),
    "stack": lambda z: torch.stack([z, z.conj()]),
    "split": lambda z: torch.split(z, 2, 1)[1],
    "unbind": lambda z: z.unbind(0)[2],
    "index": lambda z: z[torch.tensor([2, 0])],
    "index_select": lambda z: z.index_select(1, torch.tensor([3, 1])),
    "flip and roll": lambda z: z.flip(0).roll(1, 1),
    "repeat": lambda z: z.repeat(2, 1),
    "pad": lambda z: nn.functional.pad(z, (1, 2), value=3.0),
    "where": lambda z: torch.where(z.real > 0, z, z.conj() * 2),
    "masked_fill": lambda z: z.masked_fill(z.imag > 0, 0.5),
    "equal": lambda z: z == z.conj(),
    "not equal": lambda z: z != 1,
    "matrix product": lambda z: z @ z.mH,
    "product with a constant": lambda z: z @ Z.t(),
    "batched product": lambda z: torch.bmm(z[None], z.t()[None]),
    "einsum": lambda z: torch.einsum("ij,kj->ik", z, z),
    "to double": lambda z: z.to(torch.complex128),
    "zeros and ones": lambda z: torch.zeros_like(z) + z * torch.ones(3, 4, dtype=torch.complex64),
    "full": lambda z: z + torch.full((3, 4), 2 - 1j),
    "vector": lambda z: torch.mv(z, z[0]),
    "linear": lambda z: nn.functional.linear(z, Z, Z[:, 0]),
    "isnan": torch.isnan,
    "is it finite in the end": lambda z: (z.abs() ** 2).sqrt(),
}
TWO: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "add scaled": lambda x, y: torch.add(x, y, alpha=2),
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "equal": torch.eq,
    "outer product": lambda x, y: x[:, :, None] * y[:, None, :],
}


@pytest.mark.parametrize("start", range(0, len(ONE), 10))
def test_operators_on_a_complex_number(start: int) -> None:
    functions = list(ONE.values())[start : start + 10]
    check(of_pairs(functions), (PAIRS,), [(PAIRS,), (OTHERS,)])


def test_operators_on_two_complex_numbers() -> None:
    check(of_pairs(TWO.values()), (PAIRS, OTHERS), [(PAIRS, OTHERS), (OTHERS, PAIRS)])


FOURIER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rfft": lambda x: torch.view_as_real(torch.fft.rfft(x)),
    "rfft of odd length": lambda x: torch.fft.rfft(x[..., :11]).abs(),
    "fft": lambda x: torch.view_as_real(torch.fft.fft(x, norm="ortho")),
    "fft of fewer": lambda x: torch.fft.fft(x, n=9).imag,
    "two transforms": lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real,
    "fft2": lambda x: torch.fft.fft2(x, norm="forward").real,
    "ifft": lambda x: torch.fft.ifft(torch.complex(x, x * 2)).imag,
    "filter": lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.linspace(1, 0, 9), n=16),
    "irfft of odd length": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=13),
    "rfft2 and back": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2),
    "hfft": lambda x: torch.fft.hfft(torch.complex(x, x * 0.5)),
    "fftshift": lambda x: torch.fft.fftshift(torch.fft.fft(x)).abs(),
}


def test_fourier_transforms() -> None:
    images = SIGNAL.reshape(8, 16)
    all_of_them = Function(lambda x: tuple(function(x) for function in FOURIER.values()))
    check(all_of_them, (images,), [(images,), (images.flip(1) * 3,)], tolerance=1e-4)


def test_a_spectrogram_and_its_signal_again() -> None:
    def spectrogram(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        window = torch.hann_window(16)
        spectrum = torch.stft(x, 16, 4, window=window, return_complex=True)
        back = torch.istft(spectrum * 2, 16, 4, window=window)
        return torch.view_as_real(spectrum), torch.log(spectrum.abs() ** 2 + 1e-6), back

    signals = SIGNAL.reshape(2, 64)
    check(Function(spectrogram), (signals,), [(signals,), (signals * 2,)], tolerance=1e-4)


class Rotary(nn.Module):
    """Llama's rotary embedding, written with polar numbers."""

    frequencies: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(8.0), 1.0 / 100 ** (torch.arange(0, 8, 2) / 8))
        self.register_buffer("frequencies", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.frequencies[: x.shape[1]][None, :, None]).flatten(3).type_as(x)


def test_rotary_embeddings_by_polar_numbers_with_a_length_that_changes() -> None:
    length = torch.export.Dim("length", min=2, max=8)
    calls = [(torch.randn(1, size, 2, 8),) for size in (5, 8, 2)]
    for backends in ([], ["xnnpack"]):
        check(Rotary(), calls[0], calls, dynamic_shapes=({1: length},), backends=backends)


def test_the_length_of_large_and_small_numbers_neither_overflows_nor_vanishes() -> None:
    extremes = torch.tensor([[3e30, 4e30], [3e-30, 4e-30], [0.0, 0.0], [0.0, -2.0]])
    check(of_pairs([torch.abs]), (extremes,), [(extremes,)])


def test_only_real_operators_are_left() -> None:
    program = delegatekit.lower(Rotary(), (torch.randn(1, 4, 2, 8),), backends=[])
    for node in program.methods["forward"].edge.graph.nodes:
        value = node.meta.get("val")
        assert not isinstance(value, torch.Tensor) or not value.is_complex()


@pytest.mark.parametrize(
    ("function", "inputs", "reason"),
    [
        (lambda z: z * 2, (Z,), "complex inputs"),
        (lambda x: torch.complex(x, x), (REAL,), "complex results"),
        (lambda x: torch.linalg.eigvals(x[:3, :3]).real, (REAL,), "complex numbers"),
        (lambda x: torch.complex(x, x).tan().real, (REAL,), "complex numbers"),
        (lambda x: (torch.complex(x, x) ** 0.5).real, (REAL,), "to the power 0.5"),
        (lambda x: torch.fft.fft(x).real, (torch.zeros(5000),), "5000 elements"),
    ],
)
def test_what_has_no_real_form_is_refused_with_its_source_line(
    function: Callable[..., Any], inputs: tuple[Any, ...], reason: str
) -> None:
    with pytest.raises(UnsupportedError, match=reason) as caught:
        delegatekit.lower(Function(function), inputs, backends=[])
    assert "function_module.py" in str(caught.value)


def test_a_transform_over_a_changing_size_is_refused() -> None:
    size = torch.export.Dim("size", min=4, max=64)
    with pytest.raises(UnsupportedError, match="size that changes"):
        delegatekit.lower(
            Function(lambda x: torch.fft.fft(x).real), (SIGNAL[:32],), backends=[], dynamic_shapes=(({0: size},),)
        )


def test_angles_have_their_signs() -> None:
    corners = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 0.0]])
    program = check(of_pairs([torch.angle]), (corners,), [(corners,)])
    assert delegatekit.load(program.buffer)["forward"](corners)[0][4] == pytest.approx(math.pi)
