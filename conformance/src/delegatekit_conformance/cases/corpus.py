"""The corpus: recipes beside the plugin that reach code that drawn examples rarely do, several in one program.

They are tried in every profile. `mutants.search` looks for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..context import Context
from ..corpus import GRAPHS, QUANTIZED, load
from ..joined import Joined, join
from ..outcome import Outcome
from ..recipe import Recipe
from ..trial import try_joined, try_recipe
from .base import Case
from .operators import Example
from .quantized_operators import Quantized, schemes_for, try_program

#: Number of recipes in a program: of the operator cases, and of quantized ones.
_JOINED = 8
_QUANTIZED = 4


class Kept(Case):
    """The recipes of one subject of the corpus: those whose sizes change, and graphs, by themselves."""

    def __init__(self, subject: str, recipes: Sequence[Recipe]) -> None:
        self.name = f"corpus/{subject}"
        self._subject = subject
        self._recipes = recipes

    @property
    def tags(self) -> Mapping[str, str]:
        """Room, operator and dtype."""
        operator, _, dtype = self._subject.partition("/")
        return {"room": "corpus", "operator": operator, "dtype": dtype} if dtype else {"room": "corpus"}

    def examples(self, context: Context) -> Sequence[Example]:
        """Programs of several recipes, and the recipes whose sizes change."""
        size = 1 if self._subject == GRAPHS else _JOINED
        return [*join(self._recipes, size), *(recipe for recipe in self._recipes if recipe.sizes)]

    def run(self, example: Example, context: Context) -> Outcome:
        """A trial."""
        return try_joined(example, context) if isinstance(example, Joined) else try_recipe(example, context)

    def snippet(self, example: Example, context: Context) -> str:
        """The program as Python."""
        return example.snippet(context.backend)


class KeptQuantized(Case):
    """The recipes of one operator that a scheme quantizes."""

    def __init__(self, subject: str, recipes: Sequence[Recipe]) -> None:
        self.name = f"corpus/{subject}"
        self._operator, _, self._scheme = subject.removeprefix(QUANTIZED).partition("/")
        self._recipes = recipes

    @property
    def tags(self) -> Mapping[str, str]:
        """Room and operator."""
        return {"room": "corpus", "operator": self._operator}

    @property
    def cost(self) -> float:
        """Quantizing takes most of it."""
        return 2.0

    def examples(self, context: Context) -> Sequence[Quantized]:
        """Programs of several recipes; none for a scheme that the backend no longer has."""
        led = {scheme.name: led for scheme, led in schemes_for(context, self._operator)}
        if self._scheme not in led:
            return ()
        return [Quantized(self._scheme, program, led[self._scheme]) for program in join(self._recipes, _QUANTIZED)]

    def run(self, example: Quantized, context: Context) -> Outcome:
        """Quantize, lower, run, compare."""
        return try_program(example, self.name, context)


def cases_for(context: Context) -> Iterator[Case]:
    """Those of the backend's corpus."""
    for subject, recipes in load(context.backend).items():
        if subject.startswith(QUANTIZED):
            yield KeptQuantized(subject, recipes)
        else:
            yield Kept(subject, recipes)
