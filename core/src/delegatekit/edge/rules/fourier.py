"""Fourier transforms as products with matrices of cosines and sines, on pairs of real parts."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch.fx import Node

from ..builder import EdgeBuilder, Value
from ..draft import Draft
from .complex_numbers import added, known_parts
from .table import Family
from .writing import pair, parts

aten = torch.ops.aten

FOURIER: Final = Family("fourier")

#: Limit of a transform's length: its matrices have as many rows and columns.
_LONGEST: Final = 4096


@FOURIER.rule(aten._fft_c2c.default)
def _fourier(b: EdgeBuilder, call: Draft) -> Value:
    x, dims, forward = call["self", "dim", "forward"]
    scale = _scale(b, x, dims, call["normalization"])
    for number, dim in enumerate(dims):
        x = _transformed(b, x, dim, forward=forward, scale=1.0 if number else scale)
    return x


@FOURIER.rule(aten._fft_r2c.default)
def _fourier_of_real(b: EdgeBuilder, call: Draft) -> Value:
    x, dims, onesided = call["self", "dim", "onesided"]
    scale = _scale(b, x, dims, call["normalization"])
    for number, dim in enumerate(reversed(dims)):  # the last one gives half of the result
        half = onesided and not number
        x = _transformed(b, x, dim, forward=True, scale=1.0 if number else scale, half=half)
    return x


@FOURIER.rule(aten._fft_c2r.default)
def _fourier_to_real(b: EdgeBuilder, call: Draft) -> Value:
    x, dims, size = call["self", "dim", "last_dim_size"]
    sizes = [*(b.shape(x)[dim] for dim in dims[:-1]), size]
    scale = _normalized(b, sizes, call["normalization"])
    for dim in dims[:-1]:
        x = _transformed(b, x, dim, forward=False, scale=1.0)
    _check_length(b, size)
    # The absent half is the conjugate of the other: all but the first and the middle count twice.
    half = size // 2 + 1
    weights = torch.full((half, 1), 2.0, dtype=torch.float64)
    weights[0] = 1
    if size % 2 == 0:
        weights[-1] = 1
    cos, sin = (item[:half] * weights * scale for item in _waves(size))
    real, imaginary = (b.call(aten.slice.Tensor, part, dims[-1], 0, half) for part in parts(b, x))
    terms = (_along(b, part, dims[-1], wave) for part, wave in ((real, cos), (imaginary, sin)))
    return b.call(aten.sub.Tensor, *terms)


def _scale(b: EdgeBuilder, x: Node, dims: Any, normalization: int) -> float:
    return _normalized(b, [b.shape(x)[dim] for dim in dims], normalization)


def _normalized(b: EdgeBuilder, sizes: list[Any], normalization: int) -> float:
    for size in sizes:
        _check_length(b, size)
    count = math.prod(sizes)
    return (1.0, 1 / math.sqrt(count), 1 / count)[normalization]


def _check_length(b: EdgeBuilder, size: Any) -> None:
    if not isinstance(size, int):
        b.refuse(
            "is a Fourier transform over a size that changes from call to call", hint="export with that size fixed"
        )
    if size > _LONGEST:
        b.refuse(
            f"is a Fourier transform over {size} elements; up to {_LONGEST} are computed, as matrix products",
            hint="transform shorter frames (torch.stft), or do it outside of the program",
        )


def _waves(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of 2 pi j k / size, in float64."""
    steps = torch.arange(size)
    angles = (steps[:, None] * steps % size).double() * (2 * math.pi / size)
    return angles.cos(), angles.sin()


def _transformed(b: EdgeBuilder, x: Node, dim: int, *, forward: bool, scale: float, half: bool = False) -> Node:
    size = b.shape(x)[dim]
    columns = size // 2 + 1 if half else size
    cos, sin = (item[:, :columns] * scale for item in _waves(size))
    wave = {False: cos, True: -sin if forward else sin}

    def multiply(part: Node, turned: bool) -> Node:
        return _along(b, part, dim, wave[turned])

    real, imaginary = known_parts(b, x)
    if imaginary is None:
        return pair(b, multiply(real, False), multiply(real, True))
    return pair(
        b,
        added(b, multiply(real, False), multiply(imaginary, True), sign=-1),
        added(b, multiply(real, True), multiply(imaginary, False)),
    )


def _along(b: EdgeBuilder, x: Node, dim: int, matrix: torch.Tensor) -> Node:
    """`x` with its elements along `dim` multiplied by a matrix."""
    last = b.call(aten.transpose.int, x, dim, -1)
    product = b.call(aten.matmul.default, last, b.constant(matrix.to(b.dtype(x)).contiguous(), "_wave"))
    return b.call(aten.transpose.int, product, dim, -1)  # type: ignore[no-any-return]
