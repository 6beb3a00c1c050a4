"""Quantized operators: each one that a scheme's rules name, with drawn examples, several in one program.

Patterns have operators in the forms of networks. Drawn examples have the other forms: a flag, another axis, an operand
that is broadcast, a kernel as large as the image. Backends that take quantized programs alone are tried with no others.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from delegatekit.plugins import discovery
from delegatekit_api.schemes import QuantizationScheme

from ..context import IMPORTS, Context
from ..diversity import most_diverse
from ..drawing import draw
from ..joined import Joined, join
from ..outcome import Outcome, Verdict
from ..recipe import Recipe
from ..strategies import OperatorStrategy, load_operators
from ..trial import flatten, words
from .base import Case
from .quantized import scheme_names, try_quantized
from .specimens import missing_compiler

#: Number of recipes in a program, and of those drawn for each chosen one.
_JOINED = 4
_DRAWN = 4
#: The dtype that is quantized.
_DTYPE = "float32"
#: The quick profile tries one of this many operators with another target.
_ELSEWHERE = 3
#: Outputs of a few elements have no meaningful ratio: steps alone judge them.
_NO_DECIBELS = 0.0


@dataclass(frozen=True)
class Quantized:
    """Recipes in one program, quantized by a scheme."""

    scheme: str
    recipes: Joined
    #: True if the inputs are sums: some operators are quantized only if their inputs are.
    led: bool = False
    #: Options beside those of the run: those of another target.
    options: tuple[tuple[str, Any], ...] = ()

    def module_of(self, recipe: Recipe) -> nn.Module:
        """The module that is quantized for a recipe."""
        return _Led(recipe.module()) if self.led else recipe.module()

    def describe(self) -> str:
        """One line."""
        beside = "".join(f" with {name}={value}" for name, value in self.options)
        return f"{self.scheme}{beside}: {self.recipes.describe()}"


class QuantizedOperator(Case):
    """One operator by the backend's schemes."""

    def __init__(self, operator: OperatorStrategy) -> None:
        self.name = f"quantized/{operator.operator}"
        self._operator = operator

    @property
    def tags(self) -> Mapping[str, str]:
        """Room and operator."""
        return {"room": "quantized", "operator": self._operator.operator}

    @property
    def cost(self) -> float:
        """Quantizing takes most of it."""
        return 2.0

    def examples(self, context: Context) -> Sequence[Quantized]:
        """A program for each scheme that names the operator: in the quick profile for two of them, the first always.

        Schemes of other targets only are tried with their options; and the first scheme with those of one other
        target, which may lower it in another way. In the quick profile this holds for some operators.
        """
        number = zlib.crc32(self.name.encode())
        named = schemes_for(context, self._operator.operator)
        others = _of_targets(context, self._operator.operator)
        targets = _targets_with(named[0][0].name, context) if named else []
        elsewhere = [(*named[0], targets[number % len(targets)])] if targets else []
        if context.profile.joined == 1:
            named = named[:1] + named[1 + number % (len(named) - 1) :][:1] if len(named) > 2 else named
            others = others[number % len(others) :][:1] if others else []
            others, elsewhere = (others, elsewhere) if number % _ELSEWHERE == 0 else ([], [])
        others += elsewhere
        if not named and not others:
            return ()
        count = _JOINED * context.profile.joined
        drawn = draw(self._operator.recipes(_DTYPE), count * _DRAWN, context.seed_of(self.name))
        chosen = most_diverse([recipe for recipe in drawn if is_plain(recipe)], count)
        programs = list(join(chosen, _JOINED))
        here = [Quantized(scheme.name, program, led) for scheme, led in named for program in programs]
        return here + [
            Quantized(scheme.name, program, led, options) for scheme, led, options in others for program in programs
        ]

    def further(self, first: Sequence[Quantized], context: Context) -> Sequence[Quantized]:
        """The first program with the options of the last target, which may take what others refuse."""
        known = [example for example in first if not example.options][:1]
        return [
            replace(example, options=options)
            for example in known
            for options in _targets_with(example.scheme, context)[-1:]
        ]

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        """True if the backend took the operator: by its name, or as its decomposition."""
        name = self._operator.operator
        refused = any(reason.startswith(f"{name}:") for outcome in tried for reason in outcome.refusals)
        return any(name in outcome.taken or (outcome.taken and not refused) for outcome in tried)

    def run(self, example: Quantized, context: Context) -> Outcome:
        """Quantize, lower, run, compare; on a fault, each recipe by itself."""
        return try_program(example, self.name, context)


def try_program(example: Quantized, case: str, context: Context) -> Outcome:
    """The outcome of a program of the case, or of the first of its recipes that is wrong by itself."""
    start = time.perf_counter()
    outcome = _try(example.recipes.whole, example, context)
    if outcome.verdict.is_fault and len(example.recipes.parts) > 1:
        for part in example.recipes.parts:
            alone = _try(part, example, context)
            if alone.verdict.is_fault:
                outcome = replace(alone, example=f"{example.scheme}: {part.describe()}")
                break
    if outcome.verdict.is_fault:
        outcome = replace(outcome, snippet=snippet_of(case, context))
    seconds = time.perf_counter() - start
    return replace(outcome, example=outcome.example or example.describe(), seconds=seconds)


def _try(recipe: Recipe, example: Quantized, context: Context) -> Outcome:
    try:
        inputs = recipe.inputs()
        module = example.module_of(recipe)
    except Exception as error:
        return Outcome(Verdict.NOT_EXPORTABLE, f"the example cannot be built: {words(error)}")
    if example.options:
        context = context.beside(dict(example.options))
    return try_quantized(module, inputs, example.scheme, context, decibels=_NO_DECIBELS)


def snippet_of(case: str, context: Context) -> str:
    """A script that tries a case again."""
    imports = f"from delegatekit_conformance.cases.quantized_operators import show\n{IMPORTS}\n"
    return f"{imports}show({case!r}, {context.script})\n"


class _Led(nn.Module):
    """A module that gets the sums of its inputs with themselves."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The module's result for the sums."""
        return self.module(*(value + value if value.is_floating_point() else value for value in inputs))


def show(name: str, context: Context) -> None:
    """Try a case's examples, and print the outcomes; for snippets."""
    from . import all_cases

    case = all_cases(context)[name]
    first = case.examples(context)
    for example in (*first, *case.further(first, context)):
        outcome = case.run(example, context)
        print(f"{outcome.verdict.value}: {outcome.example}: {outcome.detail}")


def schemes_for(context: Context, operator: str) -> list[tuple[QuantizationScheme, bool]]:
    """The schemes whose rules name the operator, and whether each requires that its inputs are quantized already."""
    backend = discovery.get_backend(context.backend)
    found = []
    for scheme in backend.quantization_schemes(backend.make_options(context.options)):
        rules = [rule for rule in scheme.rules if any(_is_meant(name, operator) for name in rule.operators)]
        if rules:
            found.append((scheme, any(rule.shares or rule.follows for rule in rules)))
    return found


def _of_targets(context: Context, operator: str) -> list[tuple[QuantizationScheme, bool, tuple[tuple[str, Any], ...]]]:
    """The schemes that name the operator and that only other targets have, each with the options of the first such."""
    backend = discovery.get_backend(context.backend)
    known = {scheme.name for scheme in backend.quantization_schemes(backend.make_options(context.options))}
    found = []
    for options in other_targets(context):
        chosen = context.beside(dict(options))
        for scheme, led in schemes_for(chosen, operator):
            if scheme.name not in known:
                known.add(scheme.name)
                found.append((scheme, led, chosen.option_items))
    return found


def other_targets(context: Context) -> list[tuple[tuple[str, Any], ...]]:
    """The options of the run with those of each target but the run's own, if they can be compiled for here."""
    backend = discovery.get_backend(context.backend)
    own = backend.make_options(context.options)
    found = [context.for_target(target) for target in backend.targets() if target.options]
    others = [one for one in found if backend.make_options(one.options) != own]
    return [one.option_items for one in others if not missing_compiler(one)]


def _targets_with(scheme: str, context: Context) -> list[tuple[tuple[str, Any], ...]]:
    """The options of those other targets for which the backend has the scheme."""
    found = [(options, context.beside(dict(options))) for options in other_targets(context)]
    return [options for options, chosen in found if scheme in scheme_names(chosen)]


def _is_meant(name: str, operator: str) -> bool:
    """True if a rule's name, with or without the overload, is that of the operator."""
    whole = operator.removeprefix("aten.")
    return name.removeprefix("aten.") in (whole, whole.partition(".")[0])


def is_plain(recipe: Recipe) -> bool:
    """True if there is something to quantize: floats with elements, an input, finite numbers throughout.

    A table of constants that integers choose rows of has no floats among its inputs.
    """
    tensors = [tensor for _, tensor in recipe.tensors]
    if not recipe.has_elements or recipe.calls or any(tensor.values[0] == "special" for tensor in tensors):
        return False
    if not any(tensor.dtype == _DTYPE for tensor in tensors) or all(tensor.constant for tensor in tensors):
        return False
    try:
        inputs = recipe.inputs()
        with torch.no_grad():
            results = flatten(recipe.module()(*inputs))
    except Exception:
        return False
    return all(bool(tensor.isfinite().all()) for tensor in (*inputs, *results))


def cases() -> Iterator[Case]:
    """All operators that can be quantized."""
    for operator in load_operators().values():
        if _DTYPE in operator.dtypes:
            yield QuantizedOperator(operator)
