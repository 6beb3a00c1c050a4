"""Integers beyond 32 bits: a backend whose integers have 32 refuses them, or computes with all of their bits.

Each number comes alone, in one operand, below all integers of 32 bits or above them: where both come at once, a check
of one side finds what the other would have to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import torch

import delegatekit
from delegatekit_api import DelegateKitError

from ..context import Context
from ..recipe import Recipe, Ref, TensorRecipe
from .base import Broken, Case, NotApplicable, Rule
from .specimens import recipe_of, tensor_of, tried

_X, _Y, _MASK = Ref("x"), Ref("y"), Ref("m")
#: Just beyond 32 bits on both sides, and what is 1 or -1 without the upper half.
_NUMBERS: Final = (-(2**31) - 1, -(2**32) + 1, -(2**32) - 1, 2**31, 2**32 + 1, 2**32 - 1)


def _small(seed: int = 0) -> TensorRecipe:
    return tensor_of(2, 5, dtype="int64", values=("literal", (1, -1, 0, 2, 1, 0, 1, -1, 1, -2)), seed=seed)


_TWO = {"x": _small(), "y": _small(seed=1)}
_CHOOSING = {"m": tensor_of(2, 5, dtype="bool", values=("integers", 0, 1)), **_TWO}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

#: Programs of int64, in which a number beyond 32 bits is computed with, compared or moved.
PROGRAMS: Final[Mapping[str, Recipe]] = {
    **{f"{name}.Tensor": recipe_of(_TWO, ("r", f"aten.{name}.Tensor", _X, _Y), exact=True) for name in _COMPARISONS},
    **{
        f"{name}.Scalar": recipe_of({"x": _small()}, ("r", f"aten.{name}.Scalar", _X, 1), exact=True)
        for name in _COMPARISONS
    },
    **{
        name: recipe_of(_TWO, ("r", f"aten.{name}", _X, _Y), exact=True)
        for name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "maximum.default", "minimum.default")
    },
    "clamp": recipe_of({"x": _small()}, ("r", "aten.clamp.default", _X, -3, 3), exact=True),
    "where": recipe_of(_CHOOSING, ("r", "aten.where.self", _MASK, _X, _Y), exact=True),
    "masked_fill": recipe_of(
        {name: _CHOOSING[name] for name in ("m", "x")}, ("r", "aten.masked_fill.Scalar", _X, _MASK, 1), exact=True
    ),
    "amax": recipe_of({"x": _small()}, ("r", "aten.amax.default", _X, (1,)), exact=True),
    "amin": recipe_of({"x": _small()}, ("r", "aten.amin.default", _X, (1,)), exact=True),
    "sum": recipe_of({"x": _small()}, ("r", "aten.sum.dim_IntList", _X, (1,)), exact=True),
    "cat": recipe_of(_TWO, ("r", "aten.cat.default", (_X, _Y), 1), exact=True),
    "to-float": recipe_of({"x": _small()}, ("r", "aten._to_copy.default", _X, {"dtype": torch.float32}), exact=True),
}


def _check(recipe: Recipe, context: Context) -> str:
    program, outcome = tried(recipe, context, "of small numbers")
    if not outcome.taken:
        raise NotApplicable("the backend does not take it")
    method, module, inputs = delegatekit.load(program.buffer)["forward"], recipe.module(), recipe.inputs()
    refused = 0
    wide = [place for place, tensor in enumerate(inputs) if tensor.dtype is torch.int64]
    for place in wide:
        for number in _NUMBERS:
            given = [tensor.clone() for tensor in inputs]
            # At the first element, and at the last one: both operands have another number there.
            given[place].view(-1)[0 if number % 2 else -1] = number
            wanted = module(*(tensor.clone() for tensor in given))
            try:
                (found,) = method.run(tuple(given))
            except DelegateKitError:
                refused += 1
                continue
            if not torch.equal(found, wanted):
                wrong = int((found != wanted).sum())
                raise Broken(f"{number} in input {place} gives no error, and {wrong} of {wanted.numel()} wrong results")
    return f"{refused} of {len(wide) * len(_NUMBERS)} inputs refused"


def cases() -> Iterator[Case]:
    """One for each program."""
    for name, recipe in PROGRAMS.items():
        check = partial(_check, recipe)
        check.__doc__ = "Integers beyond 32 bits, on either side and in any operand, are computed with or refused."
        yield Rule(f"contract/integers-beyond-32-bits:{name}", check, cost=0.2)
