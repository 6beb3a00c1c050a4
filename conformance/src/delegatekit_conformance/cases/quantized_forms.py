"""Quantized programs for two targets: one accelerator may refuse operators that another computes with its own kernels.

Each program has many forms of one family, of which a target takes some: comparisons, rows chosen by indices, masks that
are computed, sizes of images, axes. It is tried with the run's own options, and with those of the last target that the
backend lists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.functional import avg_pool2d, embedding, interpolate, max_pool1d, max_pool2d

from ..context import Context
from ..outcome import Outcome, Verdict
from .base import Case
from .patterns import pattern
from .quantized import NO_SCHEMES, scheme_names, try_quantized
from .quantized_operators import other_targets, snippet_of

#: A module, and its inputs.
Built: TypeAlias = "tuple[nn.Module, tuple[torch.Tensor, ...]]"


@dataclass(frozen=True)
class Tried:
    """A scheme, with options beside those of the run; no scheme where the backend has none."""

    scheme: str
    options: tuple[tuple[str, Any], ...] = ()

    def describe(self) -> str:
        """One line."""
        return self.scheme + "".join(f" with {name}={value}" for name, value in self.options)


class FormsCase(Case):
    """One program, by the first scheme, and by the first and the last one for the last target."""

    def __init__(self, name: str, build: Callable[[], Built]) -> None:
        self.name = f"quantized/forms-of-{name}"
        self._build = build

    @property
    def cost(self) -> float:
        """Quantizing takes most of it."""
        return 4.0

    def examples(self, context: Context) -> Sequence[Tried]:
        """The first scheme; the first and the last of the last target."""
        found = [Tried(name) for name in scheme_names(context)[:1]]
        for options in other_targets(context)[-1:]:
            names = scheme_names(context.beside(dict(options)))
            found += [Tried(name, options) for name in dict.fromkeys((*names[:1], *names[-1:]))]
        return found or (Tried(NO_SCHEMES),)

    def run(self, example: Tried, context: Context) -> Outcome:
        """Quantize, lower, run, compare."""
        start = time.perf_counter()
        if example.scheme == NO_SCHEMES:
            return Outcome(Verdict.NOT_APPLICABLE, NO_SCHEMES, example=NO_SCHEMES)
        chosen = context.beside(dict(example.options))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            outcome = try_quantized(*self._build(), example.scheme, chosen)
        if outcome.verdict.is_fault:
            outcome = replace(outcome, snippet=snippet_of(self.name, context))
        return replace(outcome, example=example.describe(), seconds=time.perf_counter() - start)


def choices() -> Built:
    """Rows of tables by indices, numbers by booleans, and scores that a computed mask hides from a softmax."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(9, 6)

        def forward(self, indices: torch.Tensor, order: torch.Tensor, queries: torch.Tensor) -> Any:
            rows = self.table(indices)
            scores = queries @ rows.mT
            positive, small = scores > 0.0, scores < scores.mT
            hidden = (positive & small) ^ ~(positive | (scores >= 1.0))
            # In one row all is hidden.
            weights = scores.masked_fill(hidden | (scores.cumsum(1) == scores), -1e4).softmax(-1)
            # Where others are lower still, a softmax does not ignore them; and a mask may repeat scores.
            near = queries[..., :5].clamp(max=-100.0).masked_fill(hidden, -90.0).softmax(-1)
            more = (scores[:1] * 0.5).masked_fill(hidden, -1e4).softmax(1)
            deep = scores.reshape(1, 1, 2, 5, 5).masked_fill(hidden, -1e4).softmax(-1)
            chosen = torch.where(hidden, scores, 0.25)
            taken = torch.add(scores, scores.mT, alpha=-0.5), torch.sub(scores, 0.5, alpha=-2.0)
            computed = embedding(order, queries[0] + queries[1]) + 1.0
            filled = scores.masked_fill(hidden, 0.25) @ rows
            others = near, more, deep, chosen, filled, *taken, rows.index_select(1, order)
            return weights @ rows, *others, hidden, computed

    inputs = torch.randint(9, (2, 5), dtype=torch.int32), torch.tensor([3, 0, 3], dtype=torch.int32)
    return Model(), (*inputs, torch.randn(2, 5, 6))


def sizes() -> Built:
    """Images of other sizes: of the program's inputs, whose scale is another than the result's, and of sums."""

    class Model(nn.Module):
        def forward(self, image: torch.Tensor, column: torch.Tensor) -> Any:
            computed = image + image
            larger = [
                interpolate(one, size=size, mode="bilinear", align_corners=corners)
                for one in (image, computed)
                for size, corners in (((6, 8), False), ((5, 7), False), ((5, 7), True))
            ]
            repeated = [interpolate(computed, size=size) for size in ((9, 12), (6, 12), (5, 7))]
            larger.append(interpolate(computed, size=(12, 16), mode="bilinear"))
            # Single precision selects another pixel here; and an image that is made very small.
            rounded = interpolate(column[:, :, :2], size=(82, 1))
            return *larger, *repeated, rounded, interpolate(column, size=(4, 1), mode="bilinear")

    return Model(), (torch.randn(1, 2, 3, 4) + 0.5, torch.randn(1, 1, 64, 1))


def windows() -> Built:
    """Pools of negative numbers with windows beyond the border, all settings of averages beside each other; long ones.

    A window, or a kernel, of more than 4096 elements may have one row, or as many as a smaller one.
    """

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.row, self.area = nn.Conv2d(1, 2, (1, 4097)), nn.Conv2d(2, 2, (64, 65), groups=2)

        def forward(self, images: torch.Tensor, rows: torch.Tensor, long: torch.Tensor) -> Any:
            computed = images + images
            maxima = max_pool2d(computed, 3, 2, 1), max_pool2d(images, (2, 4), 5, (1, 2), ceil_mode=True)
            averages = [
                avg_pool2d(one, 3, (2, 4), 1, ceil_mode, counted, divisor)
                for one, ceil_mode, counted, divisor in (
                    (computed, True, True, None),
                    (images[:1], True, False, None),
                    (computed, False, True, None),
                    (computed[:1], False, False, None),
                    (images, True, False, 5),
                )
            ]
            row = (long + long).repeat(1, 1, 1, 6)
            area = row.reshape(1, 2, 65, 66)
            far = avg_pool2d(row, (1, 4097), 1), avg_pool2d(area, (64, 65), 1), self.row(row), self.area(area)
            return *maxima, *averages, max_pool1d(rows + rows, 3, 2, 1, ceil_mode=True), *far

    # 0 is at the end of the range: most integers of such numbers have the other sign.
    long = torch.randn(1, 1, 2, 715)
    return Model(), (torch.randn(2, 2, 6, 7) * 0.3 - 2.0, torch.randn(2, 3, 8) * 0.3 - 2.0, long)


def convolutions() -> Built:
    """Groups of 4 and of 5 channels, kernels of one pixel with strides and borders, two kernels for a channel.

    Of the narrow images, some layers read only padding: the bias remains.
    """

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.Conv2d
            self.apart = nn.ModuleList([layer(6, 6, 3, padding=1, groups=6), layer(6, 12, (3, 2), groups=6)])
            self.by_eight = nn.ModuleList(
                [
                    layer(8, 8, 3, 2, groups=8),
                    layer(8, 16, 3, padding=2, dilation=2, groups=8),
                    layer(8, 8, 3, groups=2),
                    layer(8, 10, (1, 3), groups=2, bias=False),
                    layer(8, 4, 1, 2),
                    layer(8, 5, 1, padding=1),
                ]
            )
            self.by_ten = nn.ModuleList([layer(10, 8, 1, groups=2), layer(10, 20, 3, padding=1, groups=2)])
            self.column = nn.ModuleList([layer(3, 5, 1, (1, 2), (0, 1)), layer(3, 5, (3, 1), (1, 3), 1)])
            self.columns = nn.ModuleList([layer(4, 3, (1, 2), padding=(0, 1), dilation=(1, 3))])

        def forward(self, images: torch.Tensor) -> Any:
            computed = images + images
            given = (computed[:, :6], self.apart), (computed[:, 1:9], self.by_eight), (computed, self.by_ten)
            narrow = (computed[:, :3, :, :1], self.column), (computed[:, :4, :, :2], self.columns)
            return [layer(part) for part, layers in (*given, *narrow) for layer in layers]

    return Model(), (torch.randn(1, 10, 6, 5),)


def transposed() -> Built:
    """Transposed convolutions: strides that differ, of one row, to one column, beyond the kernel, of one axis."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.ConvTranspose2d
            self.plain, self.apart = layer(2, 3, (3, 2), padding=(2, 0)), layer(2, 3, 3, (3, 2), output_padding=(2, 0))
            self.wide, self.high = layer(2, 2, (1, 3), (1, 2), (0, 1)), layer(2, 2, (2, 3), (1, 2))
            self.column = layer(2, 2, (2, 3), 2, (0, 1), bias=False)
            self.rows = nn.ConvTranspose1d(2, 3, 2, 2, 1)

        def forward(self, images: torch.Tensor) -> Any:
            computed = images + images
            row, column = computed[:, :, :1], computed[..., :1]
            rows = self.wide(row), self.high(row), self.rows(computed[:, :, 1])
            columns = self.wide(column[:, :, :1]), self.column(column)
            return self.plain(computed), self.apart(computed), *rows, *columns

    return Model(), (torch.randn(1, 2, 3, 4),)


def axes() -> Built:
    """As many axes as there may be, axes that are long, some of middle size, and numbers that are far apart."""

    class Model(nn.Module):
        def forward(self, deep: torch.Tensor, long: torch.Tensor, middle: torch.Tensor) -> Any:
            sums, far = deep + deep, long + long
            stepped = sums[:, :, ::2], sums[..., 1::2], sums.roll(5), sums.repeat(1, 1, 1, 1, 1, 1)
            extremes = deep.amin((1, 3)), sums.amin(2), long.amax(1), far[:, :5].amin(0)
            steep = long * 4.0
            softmaxes = steep[:, :257].softmax(1), steep.softmax(1) + long, (long * 4000.0).log_softmax(1)
            many = (middle + middle).repeat(2, 1, 1)
            between = many.sum(1), many.mean(1), many.mean((0, 1)), many.amax(1), many.amin(1), many.softmax(1)
            return *stepped, *extremes, *softmaxes, far.reshape(100, 6).sum(0), *between

    return Model(), (torch.randn(2, 1, 3, 2, 2, 4), torch.randn(2, 300), torch.randn(3, 40, 27))


def moves() -> Built:
    """Axes exchanged of more elements than a processor moves at a time."""

    class Model(nn.Module):
        def forward(self, images: torch.Tensor, blocks: torch.Tensor) -> Any:
            computed = images + images
            turned = (blocks + blocks).permute(0, 4, 3, 2, 1)
            return computed.permute(0, 3, 1, 2), computed.transpose(1, 2) * 0.5, turned

    return Model(), (torch.randn(1, 3, 151, 150), torch.randn(1, 2, 151, 7, 70))


def products() -> Built:
    """Layers with one, two and three columns beyond whole blocks, for several rows and for one."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, columns) for columns in (65, 66, 131))

        def forward(self, rows: torch.Tensor, row: torch.Tensor) -> Any:
            return *(layer(rows) for layer in self.layers), self.layers[1](row)

    return Model(), (torch.randn(9, 64), torch.randn(1, 64))


def comparisons() -> Built:
    """The pattern of comparisons, logic and choices by these."""
    module, (inputs, *_), *_ = pattern.cases["choices"].build()
    return module, inputs


def cases() -> Iterator[Case]:
    """One for each family."""
    yield FormsCase("comparisons", comparisons)
    yield FormsCase("choices", choices)
    yield FormsCase("sizes", sizes)
    yield FormsCase("windows", windows)
    yield FormsCase("convolutions", convolutions)
    yield FormsCase("transposed", transposed)
    yield FormsCase("axes", axes)
    yield FormsCase("moves", moves)
    yield FormsCase("products", products)
