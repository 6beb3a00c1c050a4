"""Programs that are given quantized: integers read by operators that quantizers usually do not let read them, and
weights that are places in tables.

A file may have constants of integers that are moved, cut, joined and put into functions, numbers of half precision that
are quantized, scales that are computed, and rows that are quantized in each call for no product. A backend computes
with the numbers that they represent, or leaves it to others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch import nn

from delegatekit.quantization.tables import load_operator

from ..context import Context
from ..outcome import Outcome
from ..recipe import define
from .base import Case
from .quantized import judged
from .requantized import GivenCase

_Q: Final[Any] = torch.ops.quantized_decomposed
_A: Final[Any] = torch.ops.torchao
_INT8: Final = (-128, 127, torch.int8)


def _numbers(x: torch.Tensor, scale: float, zero: int = 0) -> Any:
    """The numbers of integers with one scale."""
    return _Q.dequantize_per_tensor(x, scale, zero, *_INT8)


def _rounded(x: torch.Tensor, scale: float, zero: int = 0) -> Any:
    """Numbers that were integers with one scale."""
    return _numbers(_Q.quantize_per_tensor(x, scale, zero, *_INT8), scale, zero)


class Constants(nn.Module):
    """Integers of a constant, in scales of rows and in one scale, outside products."""

    def __init__(self) -> None:
        super().__init__()
        self.integers = nn.Buffer(torch.randint(-127, 128, (6, 4), dtype=torch.int8))
        self.scales = nn.Buffer(torch.rand(6) / 64 + 1 / 128)
        self.zeros = nn.Buffer(torch.zeros(6, dtype=torch.int64))

    def forward(self, x: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(3, 4) and scales of its columns."""
        w = _Q.dequantize_per_channel(self.integers, self.scales, self.zeros, 0, *_INT8)
        whole = _numbers(self.integers, 1 / 64)
        moved = w.reshape(2, 3, 4) * x, w.mT[:, :3] + x.mT, torch.cat((w, x)), whole.mT[:, :3] * x.mT
        functions = w.tanh()[:3] * x, whole.reshape(2, 3, 4).tanh() + x
        columns = _Q.quantize_per_channel(x, scales, self.zeros[:4], 1, *_INT8)
        columns = _Q.dequantize_per_channel(columns, scales, self.zeros[:4], 1, *_INT8)
        products = nn.functional.linear(x, w), x @ w.mT
        return *moved, *functions, *products, _rounded(x.half(), 1 / 32).relu(), columns * 2.0


class Between(nn.Module):
    """Operators between integers, with one operand that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.integers = nn.Buffer(torch.randint(-127, 128, (4, 4), dtype=torch.int8))
        self.row = nn.Buffer(torch.randn(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(3, 4) and (4) -> five of (3, 4), two of (6, 4)."""
        given, w = _rounded(x, 1 / 32, 3), _numbers(self.integers, 1 / 64)
        sums = given + self.row, given * y, nn.functional.linear(given, w, y), nn.functional.linear(given, w, self.row)
        joined = torch.cat((given, x)), torch.cat((given, _rounded(x, 1 / 8)))
        return tuple(_rounded(one, 1 / 32) for one in (*sums, *joined, given + 0.25))


class Rows(nn.Module):
    """Rows that are quantized in each call: for other operators, of half precision, to bytes without a sign."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(3, 4) -> three of the same shape."""
        found = self._rows(x, torch.int8, -128), self._rows(x, torch.uint8, 0), self._rows(x.half(), torch.int8, -128)
        return tuple(one.relu() for one in found)

    def _rows(self, x: torch.Tensor, dtype: torch.dtype, low: int) -> Any:
        form = dtype, low, low + 255
        scale, zero = _A.choose_qparams_affine(x, "ASYMMETRIC", (1, 4), *form, 2.0**-14, None, torch.int32)
        return _A.dequantize_affine(_A.quantize_affine(x, (1, 4), scale, zero, *form), (1, 4), scale, zero, *form)


class Tables(nn.Module):
    """Weights that are places in tables: for the whole, for each two columns, each three rows, and blocks of both."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Buffer(torch.randint(0, 8, (6, 4), dtype=torch.uint8))
        self.one = nn.Buffer(torch.randn(1, 1, 8, 1))
        self.columns = nn.Buffer(torch.randn(1, 2, 32, 1).double())
        self.rows = nn.Buffer(torch.randn(2, 1, 16, 1))
        self.blocks = nn.Buffer(torch.randn(3, 2, 8, 1))
        self.kernels = nn.Buffer(torch.randint(0, 4, (2, 3, 2), dtype=torch.uint8))
        self.kernel = nn.Buffer(torch.randn(1, 1, 1, 4, 1))

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(3, 4) and words."""
        look_up, places = torch.ops.quant.dequantize_codebook, self.places.to(torch.int32)
        one, columns = look_up(places, self.one, 3, [-1, -1]), look_up(places, self.columns, 5, [-1, 2])
        rows, blocks = look_up(places, self.rows, 4, [3, -1]), look_up(places, self.blocks, 3, [2, 2], torch.float16)
        products = nn.functional.linear(x, one), nn.functional.linear(x, columns), x @ rows.mT
        moved = rows.reshape(2, 3, 4) * x, one.mT[:, :3] + x.mT, torch.cat((columns, x)), blocks.float().tanh()[:3] * x
        kernels = look_up(self.kernels.to(torch.int32), self.kernel, 2, [-1, -1, -1])
        return *products, *moved, nn.functional.embedding(words, rows), nn.functional.conv1d(x[None], kernels)


class IntegersCase(GivenCase):
    """One of these modules, for backends that have schemes: only their tables are about integers."""

    def __init__(self, module: type[nn.Module], inputs: Sequence[Sequence[int]], *words: torch.Tensor) -> None:
        self.name = f"quantized/given-{module.__name__.lower()}"
        self._module, self._inputs, self._words = module, inputs, words

    def schemes(self, context: Context) -> Sequence[str]:
        """The first scheme, by which nothing is quantized: for the precision of a backend's device."""
        return super().schemes(context)[:1]

    def try_scheme(self, scheme: str, context: Context) -> Outcome:
        """Lower, run, compare with the module in eager."""
        define("quantized_decomposed")
        define("torchao")
        load_operator()
        inputs = tuple(
            torch.rand(shape) / 32 + 1 / 64 if len(shape) == 1 else torch.randn(shape) for shape in self._inputs
        )
        return judged(self._module().eval(), (*inputs, *self._words), scheme, context)


def cases() -> Iterator[Case]:
    """One for each module."""
    yield IntegersCase(Constants, ((3, 4), (4,)))
    yield IntegersCase(Between, ((3, 4), (4,)))
    yield IntegersCase(Rows, ((3, 4),))
    yield IntegersCase(Tables, ((3, 4),), torch.tensor([[5, 0, 2]]))
