"""The sketch of a strategy: draws shapes, tensors and numbers, and becomes a recipe.

Sizes are small (mostly up to 6) because every shape that a kernel treats differently is small, too: an example must run
in milliseconds. What Hypothesis draws first is what it shrinks to: contiguous tensors of small sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import assume
from hypothesis.strategies import SearchStrategy

from ..recipe import Recipe, Ref, Step, TensorRecipe, Values

T = TypeVar("T")

FLOATS = ("float32", "float16", "bfloat16")
#: Floats with double precision.
ALL_FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "int64", "int16", "int8", "uint8")
ALL = (*FLOATS, *INTEGERS, "bool")
NUMBERS = (*FLOATS, *INTEGERS)

#: The largest size that is drawn, but for these lengths of rows: just above one, two and four registers of 16 lanes.
_LARGEST = 6
_LONG = (17, 35, 70)


class Sketch:
    """One example under construction: call `tensor` for inputs, `call` for steps and `recipe` at the end.

    `dtype` is that of the case. `draw` is Hypothesis' own.
    """

    def __init__(self, draw: Callable[[SearchStrategy[Any]], Any], dtype: str) -> None:
        self.draw = draw
        self.dtype = dtype
        self._tensors: list[tuple[str, TensorRecipe]] = []
        self._steps: list[Step] = []

    # Numbers

    @property
    def is_float(self) -> bool:
        """True if the case's dtype is a floating-point one."""
        return self.dtype in ALL_FLOATS

    def integer(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        value: int = self.draw(st.integers(low, high))
        return value

    def order(self, count: int) -> list[int]:
        """The numbers below `count` in any order; shrinks to the usual one."""
        numbers: list[int] = self.draw(st.permutations(range(count)))
        return numbers

    def require(self, condition: object) -> None:
        """Ends the example without one if the condition does not hold."""
        assume(condition)

    def choice(self, items: Sequence[T]) -> T:
        """One of the items; shrinks to the first."""
        value: T = self.draw(st.sampled_from(items))
        return value

    def flag(self) -> bool:
        """True or False; shrinks to False."""
        value: bool = self.draw(st.booleans())
        return value

    def rarely(self, one_in: int = 6) -> bool:
        """True once in a while; shrinks to False."""
        return self.integer(0, one_in - 1) == one_in - 1

    def number(self) -> float | int:
        """A scalar argument that fits the dtype: small, exact in binary, of either sign."""
        if self.is_float:
            return self.choice((2.0, 0.5, -1.5, 0.0, 3.0, 2, -1))
        return self.choice((2, 3, 0, 1) if self.dtype in ("uint8", "bool") else (2, 3, -1, 0))

    # Shapes

    def shape(self, low: int = 0, high: int = 5, *, largest: int = _LARGEST, zeros: bool = True) -> tuple[int, ...]:
        """A shape of rank `low` to `high`, seldom of rank 0; with `zeros`, now and then one without elements.

        Often all sizes are equal: then only the numbers show that dimensions were mixed up. Now and then a row
        is longer than a vector register, and no multiple of it.
        """
        # Little can go wrong with a single number.
        rank = self.choice([rank for rank in range(low, high + 1) for _ in range(3 if rank else 1)])
        largest = min(largest, 4) if rank >= 4 else largest
        shape = [self.integer(1, largest) for _ in range(rank)]
        if rank > 1 and self.rarely(4):
            shape = shape[:1] * rank
        if zeros and rank and self.rarely(9):
            shape[self.integer(0, rank - 1)] = 0
        elif rank and rank <= 3 and largest >= _LARGEST and self.rarely(10):
            shape[-1] = self.choice(_LONG)
        return tuple(shape)

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`: with ones in it, or of a lower rank; mostly the same."""
        if not shape or not self.rarely(2):
            return tuple(shape)
        start = self.integer(0, len(shape))
        if self.flag():
            return tuple(shape[start:])
        return tuple(1 if self.flag() and size != 0 else size for size in shape[start:])

    def dim(self, rank: int) -> int:
        """A dimension, often the last, also counted from the end; 0 or -1 for a tensor of rank 0, as PyTorch allows."""
        if rank > 1 and self.rarely(4):
            return self.choice((-1, rank - 1))
        return self.integer(-max(rank, 1), max(rank, 1) - 1)

    def dims(self, rank: int, *, at_least: int = 1) -> tuple[int, ...]:
        """Several different dimensions, also counted from the end."""
        count = self.integer(min(at_least, rank), rank)
        return tuple(dim - rank if self.flag() else dim for dim in self.order(rank)[:count])

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
        """A tensor of the example. Without `values`: normal floats, integers from -5 to 5 (0 to 9), any bools.

        `special` allows NaN and infinities once in a while; with `layouts` it may lie in memory in other ways.
        """
        dtype = dtype or self.dtype
        if values is None:
            values = self._values(dtype)
            if special and dtype in ALL_FLOATS and self.rarely():
                values = ("special",)
        layout = self._layout(len(shape)) if layouts and not constant else "contiguous"
        name = f"x{len(self._tensors)}"
        # Tensors of one example must not be equal to one another.
        seed = 10 * self.integer(0, 3) + len(self._tensors)
        self._tensors.append((name, TensorRecipe(tuple(shape), dtype, values, layout, constant, seed)))
        return Ref(name)

    def weight(self, shape: Sequence[int], dtype: str | None = None, *, values: Values | None = None) -> Ref:
        """A tensor that is mostly a constant of the module, as weights are, and sometimes an input."""
        return self.tensor(shape, dtype, values=values, constant=not self.rarely(4))

    def dtype_of(self, tensor: Ref) -> str:
        """The dtype of a tensor of the example."""
        return dict(self._tensors)[tensor.name].dtype

    def _values(self, dtype: str) -> Values:
        if dtype in ALL_FLOATS:
            return ("normal",)
        if dtype == "bool":
            return ("integers", 0, 1)
        return ("integers", 0, 9) if dtype == "uint8" else ("integers", -5, 5)

    def _layout(self, rank: int) -> str:
        if not self.rarely(3):
            return "contiguous"
        choices = ["strided"] if rank else ["contiguous"]
        if rank >= 2:
            choices += ["transposed", "expanded"]
        if rank in (4, 5):
            choices = ["channels_last", *choices]
        return self.choice(choices)

    # Steps

    def call(self, target: str, *args: Any, **kwargs: Any) -> Ref:
        """A call of an overload or of a function below torch; lists become tuples. Returns its result."""
        name = f"y{len(self._steps)}"
        frozen = tuple((key, _frozen(value)) for key, value in kwargs.items())
        self._steps.append(Step(name, target, _frozen(args), frozen))
        return Ref(name)

    def recipe(self, *outputs: Ref, reduction_length: int = 1, depth: int = 1, **more: Any) -> Recipe:
        """The finished recipe; without `outputs`, the last step's result. `more` are fields of `Recipe`."""
        # A program without inputs is a different matter.
        self.require(any(not tensor.constant for _, tensor in self._tensors))
        return Recipe(
            tuple(self._tensors),
            tuple(self._steps),
            outputs or (Ref(self._steps[-1].name),),
            reduction_length=max(1, reduction_length),
            depth=depth,
            **more,
        )


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return value
