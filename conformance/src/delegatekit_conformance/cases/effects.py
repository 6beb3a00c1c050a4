"""Effects of option values: a value that acts as the default in all programs is reported, and is no fault.

A described effect of a value may be invisible in small programs: one program is several times as large as
the largest number that is a default. `conform diff` reports a value that no longer has an effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from delegatekit.plugins import discovery
from delegatekit_api import DelegateKitError, OptionError
from delegatekit_api.nodes import operator_name

from ..context import Context
from ..declaration import ACTS_AS
from ..outcome import Outcome, Verdict
from ..recipe import Recipe, Ref
from ..trial import words
from .base import Case
from .contract.compiler import content
from .options import text, values
from .specimens import DYNAMIC, LARGE, SPECIMENS, delegates, lower, recipe_of, tensor_of

#: The first part of the cases' names, before the option and its value.
_PREFIX = "options/effect:"
#: Programs in the order in which they are tried, up to the first that the value changes; and those of quick profiles.
_PROGRAMS: Mapping[str, Recipe] = {"large weights": LARGE, "dynamic": DYNAMIC, **SPECIMENS}
_SHORT = ("large weights", "dynamic", "softmax", "convolution", "quantized linear")
#: Weights have this many times as many bytes as the largest default, but not more than this.
_TIMES, _MOST = 6, 1 << 24
#: The specimens reach sizes of defaults below this.
_SMALL = 1 << 12


class EffectCase(Case):
    """One value of one option beside the option's default; an example is the value in words."""

    def __init__(self, option: str, value: Any, default: Any, size: int) -> None:
        self.name = f"{_PREFIX}{option}={text(value)}"
        self._option, self._value, self._default, self._size = option, value, default, size

    @property
    def cost(self) -> float:
        """Some lowerings."""
        return 1.0

    def examples(self, context: Context) -> Sequence[str]:
        """The value."""
        return (f"{self._option} = {text(self._value)}, beside {text(self._default)}",)

    def run(self, example: str, context: Context) -> Outcome:
        """Lower programs with both, up to the first that differs."""
        tried = 0
        for name, recipe in self._programs(context).items():
            found = _lowered(recipe, self._with(self._value, context))
            if found is None:
                return Outcome(Verdict.NOT_APPLICABLE, "the value is refused", example=example)
            if found != _known(recipe, context.backend, self._with(self._default, context).option_items):
                return Outcome(Verdict.PASSED, f"changes {name}", example=example)
            tried += 1
        return Outcome(
            Verdict.NOT_APPLICABLE, f"{ACTS_AS}{text(self._default)}, in all of {tried} programs", example=example
        )

    def _with(self, value: Any, context: Context) -> Context:
        return context.beside({self._option: value})

    def _programs(self, context: Context) -> dict[str, Recipe]:
        names = _SHORT if context.profile.name == "quick" else tuple(_PROGRAMS)
        larger = {"layers larger than the defaults": _layers(self._size)} if self._size else {}
        return {**{name: _PROGRAMS[name] for name in names}, **larger}


@cache
def _layers(size: int) -> Recipe:
    """Two layers, whose weights have as many bytes, with a function in between."""
    width = 256 * math.ceil(math.sqrt(size / 4) / 256)
    return recipe_of(
        {
            "x": tensor_of(64, width),
            "v": tensor_of(width, width, constant=True, seed=1),
            "w": tensor_of(width, width, constant=True, seed=2),
        },
        ("l", "aten.linear.default", Ref("x"), Ref("v")),
        ("r", "aten.relu.default", Ref("l")),
        ("m", "aten.linear.default", Ref("r"), Ref("w")),
    )


@cache
def _known(recipe: Recipe, backend: str, options: tuple[tuple[str, Any], ...]) -> Any:
    return _lowered(recipe, Context(backend, options=dict(options)))


@cache
def _exported(recipe: Recipe) -> ExportedProgram:
    return recipe.export()


def _lowered(recipe: Recipe, context: Context) -> Any:
    """All that lowering gives: contents of delegates, and operators outside them. None if the options are refused."""
    try:
        program = lower(recipe, context, _exported(recipe))
    except OptionError:
        return None
    except DelegateKitError as error:
        return words(error)
    steps = [
        [operator_name(node) for node in ((step,) if isinstance(step, Node) else step.partition.nodes)]
        for method in program.methods.values()
        for step in method.steps
    ]
    return steps, [content(delegate) for delegate in delegates(program, context.backend)]


def cases_for(context: Context) -> Iterator[Case]:
    """A case for each value that is not the default; in the quick profile for numbers and switches alone."""
    try:
        options = discovery.get_backend(context.backend).description.options
        rows = {row.name: row for row in options.describe()}
        found = list(values(options))
    except DelegateKitError:
        return
    numbers = [row.default for row in rows.values() if type(row.default) is int and row.default >= _SMALL]
    size = min(_MOST, _TIMES * max(numbers)) if numbers else 0
    names = set()
    for name, value in found:
        case = EffectCase(name, value, rows[name].default, size)
        wanted = context.profile.name != "quick" or isinstance(value, bool | int | float)
        if wanted and name not in context.options and value != rows[name].default and case.name not in names:
            names.add(case.name)
            yield case
