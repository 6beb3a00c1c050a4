"""The sketch that draws extreme sizes and numbers, for the strategies of operators as they are.

Where a strategy asks for a shape or a size, one of them becomes a size of a pool; where it asks for an integer it may
get one of its ends; where it makes a tensor, that may hold huge, tiny or equal numbers, or some far from zero. All else
that the strategy computes from these, its facts about accuracy too, follows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

from hypothesis.strategies import SearchStrategy

from ...recipe import Recipe, Ref, TensorRecipe, Values
from ..sketch import ALL_FLOATS, Sketch

T = TypeVar("T")

#: Lengths of rows: one more than a power of two, a prime, and those of image models with a class token.
ROWS = (129, 197, 1025)
#: Sizes that offsets of 14 bits do not reach.
VAST = (16385, 16391)
#: Numbers of channels that fill no vector of 4, 8 or 16.
CHANNELS = (17, 33, 65, 3, 127)
#: Elements of one tensor: an example is to cost milliseconds.
LARGEST = 1 << 17
#: The largest rank of a tensor.
RANK = 6
#: Tensors, and results, of one example.
_PARTS = 36
#: Numbers that bfloat16 holds exactly, half of them larger than all that float16 has.
_BEYOND = (0.5, -3.0, 98304.0, -131072.0)
#: The first row that an index of 14 bits cannot name.
_FAR = 16384


@dataclass(frozen=True)
class Theme:
    """The extreme property of an example.

    `sizes` are the pool of the one size that is large; `place` says which dimension of a shape it is: "last",
    "channels" (the second, if there is one) or "any". With `ends`, integers are mostly one of their ends. `numbers`
    says how tensors are changed: "huge", "tiny", "equal", "zero", "offset" or "beyond" (float16, some of them).
    """

    name: str
    sizes: tuple[int, ...] = ()
    place: str = "last"
    ends: bool = False
    numbers: str = ""


LONG = Theme("long rows", ROWS)
FAR = Theme("far offsets", VAST, "any")
ODD = Theme("odd channels", CHANNELS, "channels")
ENDS = Theme("ends of arguments", ends=True)
HUGE, TINY = Theme("huge numbers", numbers="huge"), Theme("tiny numbers", numbers="tiny")
BEYOND = Theme("numbers beyond float16", numbers="beyond")
EQUAL, ZERO = Theme("equal numbers", numbers="equal"), Theme("zeros", numbers="zero")
OFFSET = Theme("numbers far from zero", numbers="offset")


class Unsuitable(Exception):  # noqa: N818  it ends an attempt
    """Ends an example that a strategy, or its accuracy facts, rule out."""


class HurtfulSketch(Sketch):
    """A sketch that draws at random, without Hypothesis, and by a theme.

    `lever` is the number of the request for a size that gets one of the theme's pool, in the order in which the
    strategy makes them; -1 changes none. `largest` limits sizes for operators whose results grow with their square,
    and `elements` those of one tensor.
    """

    def __init__(
        self,
        seed: str,
        dtype: str,
        theme: Theme,
        *,
        lever: int = -1,
        largest: int | None = None,
        elements: int = LARGEST,
    ) -> None:
        super().__init__(_undrawable, dtype)
        self._random = random.Random(seed)
        self._theme = theme
        self._lever = lever
        self._largest = largest
        self._elements = elements
        self._long: int | None = None
        #: True if the integers are sizes of one shape.
        self._sizing = False
        #: Number of requests that could have got a size of the pool.
        self.levers = 0

    # Choices

    def integer(self, low: int, high: int) -> int:
        """Any integer, an end of the range, or a size of the pool where it seems to be one."""
        if not self._sizing and low == 1 and 2 <= high <= 12 and self._pulled():
            return self._size()
        if self._theme.ends and self._random.random() < 0.7:
            return self._random.choice((low, high))
        return self._random.randint(low, high)

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return self._random.choice(items)

    def flag(self) -> bool:
        """True or False."""
        return self._random.random() < 0.5

    def rarely(self, one_in: int = 6) -> bool:
        """True once in a while."""
        return self._random.random() < 1 / one_in

    def order(self, count: int) -> list[int]:
        """The numbers below `count` in any order, of many the last and the first ones before the others."""
        numbers = self._random.sample(range(count), count)
        if count <= _FAR:
            return numbers
        first = self._random.sample((*range(_FAR, count), 0, 1, _FAR - 1), count - _FAR + 3)
        known = set(first)
        return [*first, *(number for number in numbers if number not in known)]

    def require(self, condition: object) -> None:
        """Raises Unsuitable if the condition does not hold."""
        if not condition:
            raise Unsuitable

    # Shapes

    def shape(self, low: int = 0, high: int = 5, *, largest: int = 6, zeros: bool = True) -> tuple[int, ...]:
        """A small shape with elements, one of whose sizes may be large."""
        if high == 0 or not self._pulled():
            self._sizing = True
            found = super().shape(low, high, largest=largest, zeros=False)
            self._sizing = False
            return found
        rank = self._random.randint(max(low, 1), max(low, min(high, 3)))
        if self._theme.place == "channels" and high >= 2:
            rank = max(rank, self._random.choice((2, 3, min(high, 4))))
        sizes = [self._random.randint(1, 3 if rank <= 3 else 2) for _ in range(rank)]
        self._long = {"last": rank - 1, "channels": min(1, rank - 1)}.get(
            self._theme.place, self._random.randrange(rank)
        )
        sizes[self._long] = self._size()
        return tuple(sizes)

    def dim(self, rank: int) -> int:
        """A dimension: mostly the long one."""
        if self._long is not None and self._long < rank and not self.rarely(4):
            return self._long - rank * self.flag()
        return super().dim(rank)

    def dims(self, rank: int, *, at_least: int = 1) -> tuple[int, ...]:
        """Several dimensions: mostly the long one among them."""
        self.require(rank <= RANK)
        found = super().dims(rank, at_least=at_least)
        missing = self._long is not None and self._long < rank and self._long not in {dim % rank for dim in found}
        if missing and found and not self.rarely(4):
            return (self._long or 0, *found[1:])
        return found

    def _pulled(self) -> bool:
        self.levers += 1
        return self.levers - 1 == self._lever

    def _size(self) -> int:
        size = self._random.choice(self._theme.sizes)
        return size if self._largest is None else min(size, self._largest)

    # Tensors

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str | None = None,
        *,
        values: Values | None = None,
        constant: bool = False,
        special: bool = False,
        layouts: bool = True,
    ) -> Ref:
        """A tensor of the example, whose numbers may be changed by the theme."""
        self.require(len(shape) <= RANK and 0 < _elements(shape) <= self._elements and len(self._tensors) < _PARTS)
        # NaN and infinities are for the operators' own cases.
        ref = super().tensor(shape, dtype, values=_finite(values), constant=constant, layouts=layouts)
        name, made = self._tensors[-1]
        self._tensors[-1] = (name, replace(made, values=self._hurt(made)))
        return ref

    def recipe(self, *outputs: Ref, reduction_length: int = 1, depth: int = 1, **more: Any) -> Recipe:
        """The finished recipe; Unsuitable is raised for one of many results."""
        self.require(len(outputs) < _PARTS)
        return super().recipe(*outputs, reduction_length=reduction_length, depth=depth, **more)

    def _hurt(self, made: TensorRecipe) -> Values:
        kind, *numbers = made.values
        if self._theme.numbers == "beyond" and made.dtype in ALL_FLOATS:
            return ("among", _BEYOND)
        if kind == "distinct":
            self.require(_elements(made.shape) <= _DISTINCT[made.dtype])
        if kind == "integers" and _FAR <= numbers[1] < LARGEST and made.dtype in ("int64", "int32"):
            low, high = numbers  # places in a table: those at its end among them
            return ("among", tuple(sorted({low, 0, 1, high // 2, _FAR - 1, *range(_FAR, high + 1)})))
        if made.dtype not in ALL_FLOATS or kind not in ("normal", "uniform"):
            return made.values if self._theme.numbers != "equal" else self._equal(made)
        return self._changed(made, numbers)

    def _changed(self, made: TensorRecipe, numbers: list[Any]) -> Values:
        """Floats that are normal or between two numbers, as the theme wants them."""
        low, high = numbers or (-2.0, 2.0)
        wide = made.dtype in ("float32", "float64", "bfloat16")
        scale = {"huge": 1e5 if wide else 256.0, "tiny": 1e-6 if wide else 2.0**-8}.get(self._theme.numbers)
        if scale:
            return ("uniform", low * scale, high * scale)
        if self._theme.numbers == "offset":
            far = 1e4 if wide else 1000.0
            return ("uniform", far + low, far + high)
        if self._theme.numbers == "zero" and low <= 0 <= high:
            return ("among", (0.0,))
        return self._equal(made) if self._theme.numbers == "equal" else made.values

    def _equal(self, made: TensorRecipe) -> Values:
        """Numbers that are all the same."""
        kind, *numbers = made.values
        if kind == "among":
            return (kind, (self._random.choice(numbers[0]),))
        if kind == "integers":
            number = self._random.randint(*numbers)
            return (kind, number, number)
        if kind in ("uniform", "normal"):
            low, high = numbers or (-2.0, 2.0)
            return ("among", (low + (high - low) * self._random.choice((0.25, 0.5, 0.75)),))
        return made.values


#: Dtype -> number of elements of "distinct" that are different in it.
_DISTINCT = {"float32": 1 << 22, "float64": 1 << 22, "float16": 4096, "bfloat16": 512}
_DISTINCT |= {"int64": 1 << 31, "int32": 1 << 31, "int16": 1 << 16, "int8": 256, "uint8": 0, "bool": 0}


def _finite(values: Values | None) -> Values | None:
    """The kind of values, without NaN and infinities."""
    if values is not None and values[0] == "special":
        return ("integers", *values[1:]) if len(values) > 1 else ("normal",)
    if values is not None and values[0] == "among":
        return ("among", tuple(number for number in values[1] if math.isfinite(number)))
    return values


def _elements(shape: Sequence[int]) -> int:
    """The number of elements of a shape."""
    count = 1
    for size in shape:
        count *= size
    return count


def _undrawable(strategy: SearchStrategy[Any]) -> NoReturn:
    raise TypeError(f"{strategy!r} is drawn past the sketch's own methods")
