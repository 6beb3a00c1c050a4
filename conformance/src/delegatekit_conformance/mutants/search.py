"""The search for a corpus: `python -m delegatekit_conformance.mutants.search BACKEND`.

All expressions of a plugin that mutants would change are evaluated in all their forms, while many more recipes run than
a profile has. It keeps those in which forms differ that the quick profile's examples do not separate, until each form
differs in two of the suite's examples, as far as the drawn recipes can.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from delegatekit.files import write_text
from delegatekit.plugins import discovery
from delegatekit_toolkit.json_text import to_json

from .. import corpus
from ..cases import Case, all_cases
from ..cases.operators import OperatorCase
from ..cases.quantized_operators import Quantized, is_plain, schemes_for, try_program
from ..context import PROFILES, Context
from ..drawing import draw
from ..joined import Joined
from ..outcome import CaseResult, Outcome
from ..recipe import Recipe
from ..runner import Pool
from ..strategies import load_operators
from ..strategies.graphs import graphs
from ..strategies.varying import varying
from ..trial import try_recipe
from .__main__ import command
from .around import Around
from .changes import changes
from .chosen import Placeholder, import_from, off_first_imports
from .infection import Site, probed, site
from .overlay import overlay
from .probe import watching
from .sites import Plugin

#: Recipes that are drawn for the first dtype of an operator, and in relation to these: recipes of other dtypes, recipes
#: for each scheme that quantizes it, those that are tried with sizes that change, too, and random graphs in all.
RECIPES = 64
_OTHERS, _QUANTIZED, _VARYING, _GRAPHS = 1 / 4, 1 / 20, 1 / 4, 3
#: Recipes that tell whether the backend takes the operator with this dtype.
_TRIED = 4
#: Number of the suite's examples in which each form should differ: a difference is not always visible.
_TIMES = 2
#: Recipes that a corpus has at most.
_MOST = 800
#: Examples with probes may take this many times as long as without.
_SLOWER = 4.0
#: Prefix of the names of the quick profile's cases; and of those that are not recorded.
_BASE = "base/"
_LEFT_OUT = ("corpus/", "growth/")
#: Cases that every backend passes.
_SOUND = (
    "operators/aten.add.Tensor/float32",
    "operators/aten.convolution.default/float32",
    "patterns/linear-relu-chain",
)


@dataclass(frozen=True)
class Tried:
    """An example that was run: the forms that differed in it, a bit each."""

    case: str
    #: The recipe; None for an example of the quick profile.
    recipe: Recipe | None
    seconds: float
    forms: int


def search(
    backend: str,
    *,
    recipes: int = RECIPES,
    jobs: int = 1,
    seed: int = 1,
    tell: Callable[[str], None] = lambda text: None,
) -> corpus.Corpus:
    """A corpus for the backend's plugin as it is installed. Recipes of the corpus that it has are tried again."""
    plugin = Plugin.of(backend)
    context = Context(backend, replace(PROFILES["quick"], alone=False), seed=seed, stock=False)
    sources, count = _instrumented(plugin)
    tell(f"{count} changes of expressions in {len(sources)} files")
    found = list(_tried(plugin, context, sources, recipes, jobs, tell))
    base = [one.forms for one in found if one.recipe is None]
    chosen = choose(base, [one for one in found if one.recipe is not None])
    known, after = _union(base), _union([*base, *(one.forms for one in chosen)])
    tell(
        f"{known.bit_count()} of {count} differ in the quick profile's examples, "
        f"{after.bit_count()} with {len(chosen)} recipes more, of {len(found) - len(base)}"
    )
    result: dict[str, list[Recipe]] = {}
    for one in chosen:
        if one.recipe is not None:
            result.setdefault(one.case, []).append(one.recipe)
    return result


def choose(base: Sequence[int], tried: Sequence[Tried]) -> list[Tried]:
    """The tried examples with differing forms that do not differ in `_TIMES` examples yet, most of them first."""
    counts = [0] * _TIMES  # the forms that differ in at least 1, 2 ... examples
    for forms in base:
        _count(counts, forms)
    left = [one for one in tried if one.recipe is not None and corpus.is_short(one.recipe)]
    chosen: list[Tried] = []
    while left and len(chosen) < _MOST:
        values = [(_worth(counts, one.forms), -one.seconds) for one in left]
        best = max(range(len(left)), key=values.__getitem__)
        if not values[best][0]:
            break
        one = left.pop(best)
        _count(counts, one.forms)
        chosen.append(one)
        # An example without worth never gains any.
        left = [other for other, (worth, _) in zip(left, values[:best] + values[best + 1 :], strict=True) if worth]
    return chosen


def _count(counts: list[int], forms: int) -> None:
    for place in range(len(counts)):
        counts[place], forms = counts[place] | forms, counts[place] & forms


def _worth(counts: Sequence[int], forms: int) -> int:
    """New forms count most, then those that differ in few examples."""
    worth, weight = 0, len(counts)
    for known in counts:
        worth += weight * (forms & ~known).bit_count()
        forms &= known
        weight -= 1
    return worth


def _union(forms: Sequence[int]) -> int:
    found = 0
    for mask in forms:
        found |= mask
    return found


def _instrumented(plugin: Plugin) -> tuple[Mapping[str, bytes], int]:
    """The plugin's sources with a form for each change of an expression, and the number of forms."""
    found: dict[str, bytes] = {}
    number = 0
    for file, source in plugin.sources.items():
        sites: dict[int, Site] = {}
        for change in changes(source.data):
            before = source.data[change.start : change.end].decode()
            place = site(source, change.start, before, change.after)
            if place is not None and place not in sites.values():
                sites[number] = place
                number += 1
        if sites:
            found[file] = probed(source.data, list(sites.items()))
    return found, number


def _tried(
    plugin: Plugin,
    context: Context,
    sources: Mapping[str, bytes],
    recipes: int,
    jobs: int,
    tell: Callable[[str], None],
) -> Iterator[Tried]:
    names = list(candidates(context))
    with TemporaryDirectory(prefix="conformance-search-") as folder, overlay(plugin.folder, sources) as first:
        given = partial(candidates, recipes=recipes, folder=folder, first=str(first), package=plugin.package)
        patient = replace(context, timeout=context.timeout * _SLOWER)
        with Pool(patient, jobs=jobs, source=given, cases={name: Placeholder(name) for name in names}) as pool:
            _check(pool.run_case(f"{_BASE}{name}") for name in _SOUND)
            for number, _ in enumerate(pool.run(names), 1):
                if number % 500 == 0 or number == len(names):
                    tell(f"{number} of {len(names)} cases tried")
        for path in Path(folder).iterdir():
            for line in path.read_text("utf-8").splitlines():
                with suppress(ValueError):  # its writer died
                    values = json.loads(line)
                    recipe = corpus.decoded(values["recipe"])
                    yield Tried(values["case"], recipe, values["seconds"], int(values["forms"], 16))


def _check(results: Iterable[CaseResult]) -> None:
    """Raise RuntimeError if the plugin with probes behaves differently."""
    for result in results:
        if result.verdict.is_fault:
            raise RuntimeError(f"{result.case} is faulty in the plugin with probes: {result.faults[0].detail}")


# -- in a worker ------------------------------------------------------------------------------------------------------


def candidates(
    context: Context, *, recipes: int = RECIPES, folder: str = "", first: str = "", package: str = ""
) -> Mapping[str, Case]:
    """The quick profile's cases, and those of recipes that a corpus may have; by name, each writes into the folder."""
    if first:
        import_from(first, package)
        off_first_imports()
    known = corpus.load(context.backend)
    others = {name: case for name, case in all_cases(context).items() if not name.startswith(_LEFT_OUT)}
    found: list[Case] = []
    for entry in load_operators().values():
        found += (Drawn(OperatorCase(entry, dtype), recipes, dtype == entry.dtypes[0], known) for dtype in entry.dtypes)
        found += (
            QuantizedDrawn(entry.operator, scheme.name, recipes, known)
            for scheme, _ in schemes_for(context, entry.operator)
        )
    found.append(Graphs(recipes, known))
    base = {f"{_BASE}{name}": case for name, case in others.items()}
    return {name: Watched(name, case, folder) for name, case in (base | {case.name: case for case in found}).items()}


class _Recipes(Case):
    """Recipes of one subject: those of the present corpus, and others."""

    def __init__(self, subject: str, known: corpus.Corpus) -> None:
        self.name = subject
        self._known = list(known.get(subject, ()))


class Drawn(_Recipes):
    """Recipes of an operator and a dtype: the known ones, drawn ones, and those whose sizes change."""

    def __init__(self, case: OperatorCase, recipes: int, is_first: bool, known: corpus.Corpus) -> None:
        super().__init__(f"{case.operator.operator}/{case.dtype}", known)
        self._case, self._is_first = case, is_first
        self._count = recipes if is_first else round(recipes * _OTHERS)

    def _all(self, context: Context) -> Sequence[Recipe]:
        return draw(self._case.strategy(), self._count, context.seed_of(self._case.name))

    def examples(self, context: Context) -> Sequence[Recipe]:
        """A few that show whether the backend takes them."""
        return [*self._known, *islice((one for one in self._all(context) if one.has_elements), _TRIED)]

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        """True if the backend takes none."""
        return not any(outcome.delegates for outcome in tried)

    def further(self, first: Sequence[Recipe], context: Context) -> Sequence[Recipe]:
        """The others, and some with sizes that change."""
        names = set(map(repr, first))
        plain = [one for one in self._all(context) if one.has_elements and repr(one) not in names]
        if not self._is_first:
            return plain
        return [*plain, *filter(None, map(varying, plain[: round(self._count * _VARYING)]))]

    def run(self, example: Recipe, context: Context) -> Outcome:
        """A trial."""
        return try_recipe(example, context)


class QuantizedDrawn(_Recipes):
    """Recipes of an operator that a scheme quantizes."""

    def __init__(self, operator: str, scheme: str, recipes: int, known: corpus.Corpus) -> None:
        super().__init__(f"{corpus.QUANTIZED}{operator}/{scheme}", known)
        self._operator, self._scheme = operator, scheme
        self._count = max(1, round(recipes * _QUANTIZED))

    def examples(self, context: Context) -> Sequence[Recipe]:
        """The known ones, and drawn ones."""
        drawn = draw(load_operators()[self._operator].recipes("float32"), 4 * self._count, context.seed_of(self.name))
        return [*self._known, *islice(filter(is_plain, drawn), self._count)]

    def run(self, example: Recipe, context: Context) -> Outcome:
        """A trial of the recipe alone."""
        led = {scheme.name: led for scheme, led in schemes_for(context, self._operator)}[self._scheme]
        return try_program(Quantized(self._scheme, Joined((example,)), led), self.name, context)


class Graphs(_Recipes):
    """Random graphs."""

    def __init__(self, recipes: int, known: corpus.Corpus) -> None:
        super().__init__(corpus.GRAPHS, known)
        self._count = recipes * _GRAPHS

    def examples(self, context: Context) -> Sequence[Recipe]:
        """The known ones, and drawn ones."""
        return [*self._known, *draw(graphs(), self._count, context.seed_of(self.name))]

    def run(self, example: Recipe, context: Context) -> Outcome:
        """A trial."""
        return try_recipe(example, context)


class Watched(Around):
    """A case of the search whose examples record the forms that differ."""

    def __init__(self, name: str, case: Case, folder: str) -> None:
        super().__init__(case, name=name)
        self._folder = folder

    def tried(self, example: Any, context: Context) -> Outcome:
        """The case's outcome without its words; a line in a file of this process has the results of the probes."""
        with watching() as seen:
            outcome = super().tried(example, context)
            forms = sum(1 << number for number, differs in seen.items() if differs)
        is_base = self.name.startswith(_BASE)
        if is_base or (outcome.delegates and not outcome.verdict.is_fault and not outcome.core):
            values = {
                "case": self.name,
                "recipe": None if is_base else corpus.encoded(example),
                "seconds": round(outcome.seconds, 3),
                "forms": hex(forms),
            }
            with (Path(self._folder) / str(os.getpid())).open("a", encoding="utf-8") as file:
                file.write(to_json(values, indent=None, compact=True) + "\n")
        return Outcome(outcome.verdict, outcome.detail, delegates=outcome.delegates)


# -- the command ------------------------------------------------------------------------------------------------------


def run(
    backend: Annotated[str, typer.Argument(help="Name of the backend, as `delegatekit backends` lists it.")],
    recipes: Annotated[
        int, typer.Option(min=1, help="Number drawn for an operator's first dtype; others in proportion.")
    ] = RECIPES,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes that try recipes.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed draws the same recipes.")] = 1,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for the corpus; the plugin's own by default.")
    ] = None,
) -> None:
    """Search recipes that reach code of a plugin beyond the quick profile's examples."""
    from delegatekit.cli.console import remark, say

    path = write or Plugin.of(backend).folder / corpus.FILE
    discovery.get_backend(backend)
    found = search(backend, recipes=recipes, jobs=jobs, seed=seed, tell=say)
    write_text(path, corpus.written(found))
    remark(f"wrote {path}")


if __name__ == "__main__":
    command(run)
