"""Indices at the ends of a table: the last element is read or written right, an index beyond it is an error.

Eager raises there. A device may do anything that its page documents; on the host no numbers should come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import torch

import delegatekit
from delegatekit_api import DelegateKitError

from ..context import Context
from ..recipe import Recipe, Ref
from .base import Broken, Case, NotApplicable, Rule
from .specimens import recipe_of, tensor_of, tried

_SIZE: Final = 5
_X, _AT, _NEW = Ref("x"), Ref("i"), Ref("n")
_TENSORS = {"x": tensor_of(_SIZE, 3), "i": tensor_of(2, dtype="int64", values=("literal", (0, _SIZE - 1)))}
_WITH_NEW = {**_TENSORS, "n": tensor_of(2, 3, seed=1)}
#: Indices of each element, for operators that need as many as there are new numbers.
_EACH = ("e", "aten.expand.default", Ref("u"), (2, 3))
_COLUMN = ("u", "aten.unsqueeze.default", _AT, 1)

#: Further tensors of the programs.
_BESIDE = {"aten.sin.default", "aten.expand_copy.default", "aten.unsqueeze_copy.default"}

#: Programs whose second input has the indices: 0 and the last row.
PROGRAMS: Final[Mapping[str, Recipe]] = {
    "embedding": recipe_of(
        {"i": _TENSORS["i"], "w": tensor_of(_SIZE, 3, constant=True)},
        ("r", "aten.embedding.default", Ref("w"), _AT),
    ),
    "index_select": recipe_of(
        _TENSORS, ("s", "aten.sin.default", _X), ("r", "aten.index_select.default", Ref("s"), 0, _AT)
    ),
    "index": recipe_of(_TENSORS, ("s", "aten.sin.default", _X), ("r", "aten.index.Tensor", Ref("s"), (_AT,))),
    "gather": recipe_of(
        _TENSORS, ("s", "aten.sin.default", _X), _COLUMN, _EACH, ("r", "aten.gather.default", Ref("s"), 0, Ref("e"))
    ),
    "index_put": recipe_of(
        _WITH_NEW, ("r", "aten.index_put.default", _X, (_AT,), _NEW), ("s", "aten.sin.default", Ref("r"))
    ),
    "index_add": recipe_of(
        _WITH_NEW, ("r", "aten.index_add.default", _X, 0, _AT, _NEW), ("s", "aten.sin.default", Ref("r"))
    ),
    "scatter": recipe_of(
        _WITH_NEW, _COLUMN, _EACH, ("r", "aten.scatter.src", _X, 0, Ref("e"), _NEW), ("s", "aten.sin.default", Ref("r"))
    ),
}


def _check(recipe: Recipe, context: Context) -> str:
    program, outcome = tried(recipe, context, "at the last element")
    taken = set(outcome.taken) - _BESIDE
    if not taken:
        raise NotApplicable("the backend does not take it")
    method, inputs = delegatekit.load(program.buffer)["forward"], recipe.inputs()
    for beyond in (_SIZE, 3 * _SIZE):
        given = tuple(_beyond(tensor, beyond) for tensor in inputs)
        with suppress(DelegateKitError):
            method(*given)
            raise Broken(f"index {beyond} of {_SIZE} elements gives numbers, and no error")
    return ", ".join(sorted(taken))


def _beyond(tensor: torch.Tensor, index: int) -> torch.Tensor:
    return torch.tensor([0, index], dtype=tensor.dtype) if tensor.dtype is torch.int64 else tensor


def cases() -> Iterator[Case]:
    """One for each program."""
    for name, recipe in PROGRAMS.items():
        check = partial(_check, recipe)
        check.__doc__ = "An index beyond the end is an error, the last one is none."
        yield Rule(f"contract/index-beyond-the-end:{name}", check)
