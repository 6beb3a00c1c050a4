"""Operator cases: one for each operator and dtype, with examples drawn by its strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

from hypothesis.strategies import SearchStrategy

from delegatekit.plugins import discovery
from delegatekit_api import DelegateKitError
from delegatekit_api.documentation import OperatorEntry

from ..context import Context
from ..diversity import most_diverse
from ..drawing import draw, shrink
from ..joined import Joined, join
from ..outcome import Outcome
from ..recipe import Recipe
from ..strategies import OperatorStrategy, load_operators
from ..strategies.followed import followed
from ..strategies.varying import varying
from ..trial import try_joined, try_recipe
from .base import Case

#: Number of examples drawn where one is tried: the first is the simplest, which is often empty, as others may be.
_TO_CHOOSE_FROM = 5
#: Number of recipes in a joined program, and of those drawn for each chosen one.
_JOINED = 8
_DRAWN = 4

#: One trial: one recipe, or several in one program.
Example: TypeAlias = Recipe | Joined


class RecipeCase(Case):
    """A case whose examples are recipes drawn from one strategy, alone and several in one program."""

    def strategy(self) -> SearchStrategy[Recipe]:
        """The strategy of the recipes."""
        raise NotImplementedError

    def count(self, context: Context) -> int:
        """The number of examples that are drawn and tried alone."""
        raise NotImplementedError

    def joined(self, context: Context) -> int:
        """The number of programs of several recipes tried where the backend takes something; none by default."""
        return 0

    def size_of_program(self, context: Context) -> int:
        """The number of recipes in each of these programs."""
        return _JOINED

    def varying(self, context: Context) -> int:
        """The number of recipes with dynamic sizes tried where the backend takes something; none by default."""
        return 0

    def examples(self, context: Context) -> Sequence[Example]:
        """The recipes: the simplest first, then at random; one alone is of the random ones and has numbers to read."""
        drawn = draw(self.strategy(), self._drawn(context), context.seed_of(self.name))
        if self.count(context) > 1:
            return drawn
        return [next((recipe for recipe in drawn[1:] if recipe.has_elements), drawn[-1])]

    def further(self, first: Sequence[Example], context: Context) -> Sequence[Example]:
        """Programs of several recipes, half of them at random, half the most diverse of many; and sizes that change.

        Backends refuse many of the diverse ones, so both are needed. Those with special values have programs of their
        own: results for NaN must not hide those for numbers.
        """
        known = [example for example in first if isinstance(example, Recipe)]
        names = set(map(repr, known))
        pool = [recipe for recipe in self._pool(context) if repr(recipe) not in names]
        plain, special = ([one for one in pool if _is_special(one) is wanted] for wanted in (False, True))
        count, size = self.joined(context), self.size_of_program(context)
        random = [recipe for recipe in plain if recipe.has_elements][: count * size // 2]
        left = [recipe for recipe in plain if recipe not in random]
        diverse = most_diverse(left, count * size - len(random), known=[*known, *random])
        programs = [*join([*random, *diverse], size), *join(most_diverse(special, -(-count * size // 4)), size)]
        return [*programs, *islice(filter(None, map(varying, plain)), self.varying(context))]

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        """True if the backend took nothing of several recipes."""
        return len(tried) > 1 and not _takes_any(tried)

    def _drawn(self, context: Context) -> int:
        return self.count(context) if self.count(context) > 1 else _TO_CHOOSE_FROM

    def _pool(self, context: Context) -> list[Recipe]:
        """The recipes that those of joined programs are chosen from."""
        return draw(self.strategy(), self._size_of_pool(context), context.seed_of(self.name))

    def _size_of_pool(self, context: Context) -> int:
        return self.joined(context) * self.size_of_program(context) * _DRAWN

    def run(self, example: Example, context: Context) -> Outcome:
        """A trial of the recipe, or of several in one program."""
        outcome = try_joined(example, context) if isinstance(example, Joined) else try_recipe(example, context)
        if (outcome.verdict.is_fault or outcome.core) and not outcome.snippet:
            outcome = replace(outcome, snippet=self.snippet(example, context))
        return outcome

    def snippet(self, example: Example, context: Context) -> str:
        """The program as Python."""
        return example.snippet(context.backend)

    def shrink(self, example: Example, fails: Callable[[Any], bool], context: Context) -> Example:
        """A smaller example: of a program the part that fails by itself, or the parts that fail together.

        Hypothesis shrinks what it drew, starting with the first failing one of the same series.
        """
        seed = context.seed_of(self.name)
        if not isinstance(example, Joined):
            return shrink(self.strategy(), self._drawn(context), seed, example, fails)
        try:
            part = next((part for part in example.parts if fails(part)), None)
        except TimeoutError:
            return example
        if part is None:
            return _fewer(example, fails)
        return shrink(self.strategy(), self._size_of_pool(context), seed, part, fails)


def rows_of(operator: str, context: Context) -> list[OperatorEntry] | None:
    """The rows that the backend's table has for an operator, in any overload; None if it has no table."""
    try:
        table = discovery.get_backend(context.backend).documentation().operators
    except DelegateKitError:  # the contract's rules report it
        return None
    return None if table is None else [row for row in table.entries if _base(row.operator) == _base(operator)]


def _is_passenger(operator: str, context: Context) -> bool:
    """True if the backend's table has the operator, in any overload, as a passenger."""
    return any(row.passenger for row in rows_of(operator, context) or ())


def _base(operator: str) -> str:
    """The common name of overloads, and of the forms that copy instead of giving a view."""
    return operator.rpartition(".")[0].removesuffix("_copy")


def _in_company(example: Example) -> Example:
    """The example with another operator; a program of special values is unchanged: their results are declared."""
    parts = example.parts if isinstance(example, Joined) else (example,)
    if any(map(_is_special, parts)):
        return example
    return Joined(tuple(map(followed, parts))) if isinstance(example, Joined) else followed(example)


def _last_in_company(example: Example) -> Example:
    if not isinstance(example, Joined) or any(map(_is_special, example.parts)):
        return example
    return Joined((*example.parts[:-1], followed(example.parts[-1])))


def _takes_any(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.delegates or outcome.verdict.is_fault for outcome in outcomes)


def _is_special(recipe: Recipe) -> bool:
    """True if a tensor has NaN or infinities."""
    return any(tensor.values[0] == "special" for _, tensor in recipe.tensors)


def _fewer(example: Joined, fails: Callable[[Any], bool]) -> Joined:
    """The program without the parts that it fails without, as far as the time for the search allows."""
    parts = example.parts
    with suppress(TimeoutError):
        for part in example.parts:
            fewer = tuple(other for other in parts if other is not part)
            if len(fewer) > 1 and fails(Joined(fewer)):
                parts = fewer
    return example if len(parts) == len(example.parts) else Joined(parts)


@dataclass(frozen=True)
class OperatorCase(RecipeCase):
    """One operator with one dtype."""

    operator: OperatorStrategy
    dtype: str

    @property
    def name(self) -> str:  # type: ignore[override]
        """ "operators/aten.add.Tensor/float32"."""
        return f"operators/{self.operator.operator}/{self.dtype}"

    @property
    def tags(self) -> Mapping[str, str]:
        """Room, operator and dtype."""
        return {"room": "operators", "operator": self.operator.operator, "dtype": self.dtype}

    def strategy(self) -> SearchStrategy[Recipe]:
        """The operator's."""
        return self.operator.recipes(self.dtype)

    def count(self, context: Context) -> int:
        """All for the operator's first dtype, half for float16, a third for other floats, a fifth for the rest."""
        return self._share(context.profile.examples)

    def joined(self, context: Context) -> int:
        """The same shares of the profile's programs."""
        return self._share(context.profile.joined)

    def varying(self, context: Context) -> int:
        """As many as programs of several recipes, for the operator's first dtype alone."""
        return context.profile.joined if self._is_first else 0

    def size_of_program(self, context: Context) -> int:
        """Half as many recipes for other dtypes than the operator's first."""
        return _JOINED if self._is_first else _JOINED // 2

    def further(self, first: Sequence[Example], context: Context) -> Sequence[Example]:
        """As every case's, the last recipe of each program with another operator after it: compilers join neighbors.

        Of an operator that the backend takes only in company each recipe.
        """
        more = super().further(first, context)
        if _is_passenger(self.operator.operator, context):
            return [_in_company(example) for example in more]
        return [_last_in_company(example) for example in more] if self._is_first else more

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        """True if the backend took nothing: of one recipe, for dtypes other than the operator's first.

        The one that is tried alone may be refused for its form, which other dtypes share.
        """
        return not _takes_any(tried) and (len(tried) > 1 or not self._is_first)

    @property
    def _is_first(self) -> bool:
        return self.dtype == self.operator.dtypes[0]

    def _share(self, number: int) -> int:
        if self._is_first:
            return number
        share = 2 if self.dtype == "float16" else 3 if "float" in self.dtype else 5
        return max(1, number // share)


def cases() -> Iterator[Case]:
    """All operators with all their dtypes."""
    for entry in load_operators().values():
        for dtype in entry.dtypes:
            yield OperatorCase(entry, dtype)
