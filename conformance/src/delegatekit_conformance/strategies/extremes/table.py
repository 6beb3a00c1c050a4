"""The table of extremes: for each operator that has a strategy, numbered extreme examples."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ...recipe import Recipe
from ..registry import OperatorStrategy, load_operators
from . import axes, overflow, whole  # noqa: F401  register their rows
from .changing import pointwise_changing
from .determined import is_determined, takes_long
from .rows import rows_of
from .sketch import (
    BEYOND,
    ENDS,
    EQUAL,
    FAR,
    HUGE,
    LONG,
    ODD,
    OFFSET,
    ROWS,
    TINY,
    ZERO,
    HurtfulSketch,
    Theme,
    Unsuitable,
)

#: Number of times that an undetermined example is drawn anew.
_ATTEMPTS = 6
#: Themes in the order in which they are tried, for floats and for others.
_FLOAT_THEMES = (ODD, FAR, LONG, ENDS)
_NUMBERS = (HUGE, TINY, EQUAL, OFFSET, ZERO)
_WHOLE_THEMES = (ODD, FAR, ENDS, LONG)

#: Dimension of a tensor that grows, in turns.
_PLACES = ("last", "any", "channels")

#: Elements of one tensor of a written example, of which some are about large weights.
_WRITTEN = 1 << 20

#: Operators whose results, or whose programs, grow faster than their inputs -> the largest size.
_LIMITS: Mapping[str, int] = {
    "aten.diag.default": 129,
    "aten.diag_embed.default": 65,
    "aten.eye.default": 129,
    "aten.unfold.default": 197,
    "aten.unbind.int": 17,
    "aten.split.Tensor": 33,
    "aten.tensor_split.sections": 33,
    "aten.unflatten.int": 33,
    "aten._pdist_forward.default": 129,
    "aten.meshgrid.indexing": 129,
    "aten.lstm.input": 5,
    "aten.gru.input": 5,
    "aten.rnn_tanh.input": 5,
    "aten.rnn_relu.input": 5,
    "aten.conv_transpose1d.default": 129,
    "aten.conv_transpose2d.input": 129,
    "aten.conv_transpose3d.input": 33,
    "aten.convolution.default": 129,
    "aten.conv3d.default": 33,
    "aten.conv3d.padding": 33,
    "aten.affine_grid_generator.default": 129,
    "aten.replication_pad3d.default": 1025,
    "aten.reflection_pad3d.default": 1025,
    "aten.upsample_trilinear3d.default": 197,
    "aten.upsample_trilinear3d.vec": 197,
    "aten.upsample_nearest3d.default": 1025,
    "aten.upsample_nearest3d.vec": 1025,
    "aten.repeat.default": 1025,
    "aten.tile.default": 1025,
    "aten.repeat_interleave.self_Tensor": 1025,
}
#: Strategies whose operators work element by element: a size of theirs may change from call to call.
_POINTWISE = ("elementwise", "comparisons")
#: The largest number of float16.
_LARGEST_HALF = 65504.0


@dataclass(frozen=True)
class Extremes:
    """The examples of one operator, numbered."""

    strategy: OperatorStrategy
    pointwise: bool

    @property
    def operator(self) -> str:
        """The overload's name."""
        return self.strategy.operator

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that there are examples for; the first of the operator's own if none of the usual ones is."""
        own = self.strategy.dtypes
        # Of int64, some backends take numbers of 32 bits only; the operators' own cases are about that.
        integer = next((dtype for dtype in ("int32", "int64") if dtype in own), "")
        chosen = tuple(dtype for dtype in own if dtype in ("float32", "float16", integer))
        return chosen or own[:1]

    def recipe(self, dtype: str, number: int, seed: int = 0) -> Recipe | None:
        """Example `number`, the same for the same seed; None if no draw is determined."""
        rows = rows_of(self.operator, dtype)
        for attempt in range(_ATTEMPTS):
            key = f"{self.operator} {dtype} {number} {seed} {attempt}"
            try:
                found = (
                    self._row(key, dtype, number)
                    if number < len(rows)
                    else self._themed(key, dtype, number - len(rows))
                )
            except (Unsuitable, RuntimeError, IndexError, ValueError, ZeroDivisionError):
                continue
            if found is not None and not takes_long(found) and is_determined(found):
                return found
        return None

    def _row(self, key: str, dtype: str, number: int) -> Recipe:
        sketch = HurtfulSketch(key, dtype, ENDS, elements=_WRITTEN)
        return rows_of(self.operator, dtype)[number](sketch, self.operator)

    def _themed(self, key: str, dtype: str, number: int) -> Recipe | None:
        """An example of one of the themes, in turns."""
        themes = self._themes(dtype, number)
        theme = themes[number % len(themes)]
        limit = _LIMITS.get(self.operator)
        before = HurtfulSketch(key, dtype, theme, largest=limit)
        recipe = self.strategy.draw(before)
        if not theme.sizes or not before.levers:
            return recipe
        lever = int(key.rpartition(" ")[2]) + _crc(key)
        sketch = HurtfulSketch(key, dtype, theme, lever=lever % before.levers, largest=limit)
        recipe = self.strategy.draw(sketch)
        if theme is LONG and self.pointwise and dtype == "float32":
            return next((found for size in ROWS if (found := pointwise_changing(recipe, size))), recipe)
        return recipe

    def beyond(self, seed: int = 0) -> Recipe | None:
        """An example of float32 that chooses or moves numbers beyond float16 by others, which are no floats.

        None if the operator has no such operand, or none that decides where a number goes.
        """
        if "float32" not in self.strategy.dtypes:
            return None
        for attempt in range(_ATTEMPTS):
            sketch = HurtfulSketch(f"{self.operator} beyond {seed} {attempt}", "float32", BEYOND)
            try:
                found = self.strategy.draw(sketch)
            except (Unsuitable, RuntimeError, IndexError, ValueError, ZeroDivisionError):
                continue
            others = [tensor for _, tensor in found.tensors if "float" not in tensor.dtype]
            sums = not found.exact and found.reduction_length > 1
            if others and not sums and is_determined(found) and _is_beyond(found):
                return found
        return None

    def sized(self, dtype: str, number: int, size: int) -> Recipe | None:
        """An example, the same for the same number, in which one size is as given; None if it has no such size.

        `number` chooses the example and the size in it: one after the other, of tensors and of windows.
        """
        if size > _LIMITS.get(self.operator, size):
            return None
        key = f"{self.operator} {dtype} {number}"
        theme = Theme("one size", (size,), _PLACES[number % len(_PLACES)])
        try:
            levers = HurtfulSketch(key, dtype, theme)
            self.strategy.draw(levers)
            if not levers.levers:
                return None
            sketch = HurtfulSketch(key, dtype, theme, lever=number % levers.levers, elements=_WRITTEN)
            return self.strategy.draw(sketch)
        except (Unsuitable, RuntimeError, IndexError, ValueError, ZeroDivisionError):
            return None

    def _themes(self, dtype: str, number: int) -> Sequence[Theme]:
        """The themes of a dtype; the one of numbers is another in each turn and for each operator."""
        if dtype not in ("float32", "float16", "bfloat16", "float64"):
            return _WHOLE_THEMES
        turn = number // (len(_FLOAT_THEMES) + 1) + _crc(self.operator)
        numbers = _NUMBERS[turn % len(_NUMBERS)]
        return (*_FLOAT_THEMES[:2], numbers, *_FLOAT_THEMES[2:])

    def written(self, dtype: str) -> int:
        """The number of numbered examples that are rows of their own; they come first."""
        return len(rows_of(self.operator, dtype))


def _is_beyond(recipe: Recipe) -> bool:
    """True if all results are finite, and one has numbers beyond float16 and others."""
    with torch.no_grad():
        results = torch.utils._pytree.tree_leaves(recipe.module()(*recipe.inputs()))
    sizes = [value.abs() for value in results if value.dtype is torch.float32]
    far = [size > _LARGEST_HALF for size in sizes]
    is_finite = all(bool(size.isfinite().all()) for size in sizes)
    return is_finite and any(bool(one.any()) and not bool(one.all()) for one in far)


def _crc(text: str) -> int:
    return zlib.crc32(text.encode())


@functools.cache
def load_extremes() -> Mapping[str, Extremes]:
    """The extremes of all operators by name."""
    return {name: Extremes(entry, entry.family in _POINTWISE) for name, entry in load_operators().items()}
