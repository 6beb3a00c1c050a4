"""The cases of the room: operators by family, and modules by group, several in one program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from ...context import Context
from ...outcome import Outcome
from ...recipe import Recipe
from ...strategies import OperatorStrategy, load_operators
from .. import dynamic, patterns, state
from ..base import Case
from ..subjects import Register, script
from .compilers import Way
from .modules import MODULES
from .subjects import DTYPES, Module, Piece, Program, module_of, recipes
from .trial import try_program

#: Number of modules in a program.
_MODULES = 6
#: Number of recipes of an operator and dtype that the thorough profile tries.
_SEVERAL = 8
#: The group of operators that only stock's tools for the backend have.
_OWN = "own"
#: Groups whose modules are lowered by themselves.
_ALONE = ("apart", "bytes", "fused", "state", "dynamic")


class _Foreign(Case):
    """A case whose examples are programs for one of stock's compilers."""

    def __init__(self, way: Way, subject: str) -> None:
        self.name = f"foreign/{way.name}/{subject}"
        self._way, self._subject = way, subject

    @property
    def cost(self) -> float:
        """Stock's compilers take most of it."""
        return 5.0

    def _programs(self, pieces: Sequence[Piece], size: int) -> list[Program]:
        """Programs of up to `size` pieces each."""
        starts = range(0, len(pieces), size)
        return [Program(self._way, tuple(pieces[start : start + size])) for start in starts]

    def run(self, example: Program, context: Context) -> Outcome:
        """A trial of the program."""
        outcome = try_program(example, context)
        if outcome.verdict.is_fault and not outcome.snippet:
            outcome = replace(outcome, snippet=self.snippet(example, context))
        return outcome

    def snippet(self, example: Program, context: Context) -> str:
        """The program as Python, where it is one recipe or module."""
        if len(example.pieces) == 1:
            (piece,) = example.pieces
            return _script(piece, example, context)
        return ""

    def shrink(self, example: Program, fails: Callable[[Any], bool], context: Context) -> Program:
        """The first piece that fails by itself, if one does."""
        try:
            alone = (replace(example, pieces=(piece,)) for piece in example.pieces)
            return next((program for program in alone if fails(program)), example)
        except TimeoutError:
            return example


class OperatorCase(_Foreign):
    """One operator: its first recipe, and others of each dtype in the thorough profile.

    Stock's compilers refuse every third one, and a whole program with it: so each is lowered by itself.
    """

    def __init__(self, way: Way, operator: OperatorStrategy) -> None:
        super().__init__(way, operator.operator)
        self._operator = operator

    @property
    def tags(self) -> Mapping[str, str]:
        """Room and operator."""
        return {"room": "foreign", "operator": self._operator.operator}

    @property
    def cost(self) -> float:
        """One small program."""
        return 0.5

    def examples(self, context: Context) -> Sequence[Program]:
        """Programs of one recipe."""
        known = [dtype for dtype in self._operator.dtypes if dtype in DTYPES]
        found: list[Recipe] = []
        for dtype in known if context.profile.large_models else known[:1]:
            found += recipes(self._operator, dtype, _SEVERAL if context.profile.large_models else 1, context)
        return self._programs(found, 1)


def operators(context: Context, way: Way) -> Iterator[OperatorStrategy]:
    """The operators that the profile tries in a way: one of several, others for another seed."""
    step = way.share(context.profile.name).operators
    for name, entry in load_operators().items():
        if any(dtype in DTYPES for dtype in entry.dtypes) and context.seed_of(f"foreign/{name}") % step == 0:
            yield entry


class ModuleCase(_Foreign):
    """The modules of one group; those with buffers that change, or with sizes that do, by themselves."""

    def examples(self, context: Context) -> Sequence[Program]:
        """Programs of several modules."""
        modules = _own(self._way) if self._subject == _OWN else groups()[self._subject]
        if self._subject not in (*MODULES, _OWN):
            modules = modules[:: self._way.share(context.profile.name).others]
        return self._programs(modules, 1 if self._subject in _ALONE else _MODULES)


def tried_groups(context: Context, way: Way) -> Iterator[str]:
    """The groups of modules that the profile tries in a way."""
    share = way.share(context.profile.name)
    if way.own and _OWN in (share.groups or (_OWN,)):
        yield _OWN
    for name in groups():
        if share.others if name not in MODULES else name in (share.groups or MODULES):
            yield name


def _own(way: Way) -> tuple[Module, ...]:
    return tuple(map(module_of, way.own))


@cache
def groups() -> Mapping[str, tuple[Module, ...]]:
    """The room's own modules by group; and those of the rooms `patterns`, `state` and `dynamic`."""
    rooms = {"patterns": patterns.pattern, "state": state.state, "dynamic": dynamic.dynamic}
    return {**MODULES, **{name: tuple(_modules(register)) for name, register in rooms.items()}}


def _modules(register: Register) -> list[Module]:
    return [Module(case.build, case.stateful, name) for name, case in register.cases.items()]


def _script(piece: Recipe | Module, program: Program, context: Context) -> str:
    """A script that has stock's compiler lower a piece, and runs its file here."""
    lowering = _LOWER.format(backend=context.backend, way=program.way.name)
    if isinstance(piece, Recipe):
        text = piece.snippet(context.backend)
        start = text.index("program = delegatekit.lower(")
        end = text.index("method = ", start)
        rest = text[end:].replace("program.buffer", "data")
        exported = "exported = torch.export.export(module, inputs, strict=False)\n"
        return f"{text[:start]}{exported}{lowering}{rest}"
    if isinstance(piece.build, partial):  # it has no text of its own
        return ""
    return script(piece.build, f'{lowering}method = delegatekit.load(data)["forward"]')


_LOWER = """from delegatekit_conformance.cases.foreign.compilers import ways_of, write

data = write(ways_of("{backend}")["{way}"].partitioner, exported)
"""
