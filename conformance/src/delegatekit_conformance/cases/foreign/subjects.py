"""Programs for stock's compilers: one or several pieces, each a recipe or a module, in one program."""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.export import ExportedProgram

from ...context import Context
from ...drawing import draw
from ...recipe import Recipe
from ...strategies import OperatorStrategy
from ...trial import Part, Subject, flatten
from ..subjects import Builder, Built, subject_of
from .compilers import Own, Way

#: The dtypes of tensors for stock's compilers.
DTYPES = ("float32", "float16", "int32", "bool")
#: Number of recipes drawn for each that is kept: with elements, in order, of these dtypes, without NaN.
_DRAWN = 6


@dataclass(frozen=True)
class Module:
    """A module by the function that builds it."""

    build: Builder
    stateful: bool = False
    #: Its name in the report.
    title: str = ""

    def made(self) -> tuple[nn.Module, Sequence[tuple[Any, ...]], Any]:
        """The module in eval mode, the inputs of its calls, and the dynamic sizes. Raises the builder's exceptions."""
        torch.manual_seed(0)
        module, calls, *dynamic = self.build()
        return module.eval().requires_grad_(False), calls, dynamic[0] if dynamic else None

    def subject(self, way: Way) -> Subject:
        """The subject of a trial in a way. Raises exceptions of the builder and of torch.export."""
        module, calls, shapes = self.made()
        calls = [call for call in calls if not _changes_below(way.least_size, call, calls[0])]
        return subject_of(module, calls, shapes, stateful=self.stateful)

    def describe(self) -> str:
        """One line."""
        return self.title or (self.build.__doc__ or self.build.__name__).strip().splitlines()[0]


def module_of(own: Own) -> Module:
    """The module that calls an operator of stock's tools."""
    return Module(partial(_built, own), title=own.title)


def _built(own: Own) -> Built:
    importlib.import_module(own.library)
    return _Call(own), [tuple(torch.randn(shape) for shape in own.shapes)]


class _Call(nn.Module):
    """The operator, which has its name once its library is imported."""

    def __init__(self, own: Own) -> None:
        super().__init__()
        self.own = own

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The result of the operator."""
        operator = functools.reduce(getattr, self.own.operator.split("."), torch.ops)
        return operator(*tensors, *self.own.numbers)  # type: ignore[operator]


def _changes_below(least: int, call: Sequence[Any], first: Sequence[Any]) -> bool:
    """True if a size is below the least in a call and differs from that in the first one."""
    pairs = zip(call, first, strict=True)
    sizes = [zip(x.shape, y.shape, strict=True) for x, y in pairs if isinstance(x, torch.Tensor)]
    return any(size < least and size != usual for pair in sizes for size, usual in pair)


Piece: TypeAlias = Recipe | Module


class _Together(nn.Module):
    """Modules that share nothing: the inputs are those of all in order, and so are the outputs."""

    def __init__(self, parts: Sequence[nn.Module], counts: Sequence[int]) -> None:
        super().__init__()
        self.parts, self.counts = nn.ModuleList(parts), tuple(counts)
        self.eval()

    def forward(self, *inputs: Any) -> Any:
        """The tensors that the modules return."""
        found, start = [], 0
        for part, count in zip(self.parts, self.counts, strict=True):
            found += flatten(part(*inputs[start : start + count]))
            start += count
        return tuple(found)


@dataclass(frozen=True)
class Program:
    """Pieces that stock's compiler lowers together in one of its ways.

    Its files are kept, and are pickled with the program: they do not depend on the backend.
    """

    way: Way
    pieces: tuple[Piece, ...]

    @cached_property
    def written(self) -> dict[str, Any]:
        """The files by way; `trial` fills them in."""
        return {}

    @cached_property
    def halves(self) -> tuple[Program, Program]:
        """Two programs of half the pieces each."""
        middle = len(self.pieces) // 2
        return replace(self, pieces=self.pieces[:middle]), replace(self, pieces=self.pieces[middle:])

    @property
    def precision(self) -> str:
        """The precision that its results are judged in: that of states, where buffers change."""
        stateful = any(isinstance(piece, Module) and piece.stateful for piece in self.pieces)
        return (stateful and self.way.states) or self.way.precision

    def describe(self) -> str:
        """One line: all pieces."""
        return "; ".join(piece.describe() for piece in self.pieces)

    def subject(self) -> Subject:
        """The subject of a trial: pieces are judged apart. Raises exceptions of the builders and of torch.export."""
        subjects = [Subject.of_recipe(one) if isinstance(one, Recipe) else one.subject(self.way) for one in self.pieces]
        if len(subjects) == 1:
            return subjects[0]
        parts = []
        with torch.no_grad():
            for one in subjects:
                count = len(flatten(copy.deepcopy(one.module)(*one.calls[0])))
                parts.append(Part(count, one.accuracy))
        module = _Together([one.module for one in subjects], [len(one.calls[0]) for one in subjects])
        loosest = replace(subjects[0].accuracy, ill_conditioned=any(one.accuracy.ill_conditioned for one in subjects))
        return Subject(module, (tuple(x for one in subjects for x in one.calls[0]),), loosest, parts=tuple(parts))

    def exported(self) -> ExportedProgram:
        """The program. Raises exceptions of the builders and of torch.export."""
        shapes: Any = None
        if len(self.pieces) == 1 and isinstance(self.pieces[0], Module):
            module, calls, shapes = self.pieces[0].made()
            inputs = calls[0]
        else:
            made = [(one.module(), one.inputs()) if isinstance(one, Recipe) else _first(one) for one in self.pieces]
            module = made[0][0] if len(made) == 1 else _Together([one for one, _ in made], [len(x) for _, x in made])
            inputs = tuple(value for _, given in made for value in given)
        with torch.no_grad():
            return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)


def _first(piece: Module) -> tuple[nn.Module, tuple[Any, ...]]:
    """A module with the inputs of its first call."""
    module, calls, _ = piece.made()
    return module, calls[0]


def recipes(entry: OperatorStrategy, dtype: str, count: int, context: Context) -> list[Recipe]:
    """Up to `count` recipes of an operator that stock's compilers can take."""
    drawn = draw(entry.recipes(dtype), count * _DRAWN, context.seed_of(f"foreign/{entry.operator}/{dtype}"))
    return [recipe for recipe in drawn if _is_plain(recipe)][-count:]


def _is_plain(recipe: Recipe) -> bool:
    """True if no tensor is empty, has another memory order, or has NaN or a dtype that stock's compilers refuse."""
    tensors = [tensor for _, tensor in recipe.tensors]
    return (
        recipe.has_elements
        and not recipe.sizes
        and all(tensor.layout == "contiguous" and tensor.values[0] != "special" for tensor in tensors)
        and all(tensor.dtype in (*DTYPES, "int64") for tensor in tensors)
    )
