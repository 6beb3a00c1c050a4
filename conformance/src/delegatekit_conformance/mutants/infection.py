"""Infection: the examples for which a mutant's expression has another value than the plugin's own.

A mutant is found by an example that reaches the change, that infects the state (the changed expression has another
value), and whose result shows it. `reach` tests the first for all examples. This tests the second, for all mutants in
one run of a plugin in which each changed expression is evaluated in both forms; of a constant, each expression that
reads it. An example that does not infect cannot kill, and is not tried with the mutant itself.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from delegatekit_toolkit.json_text import to_json

from ..cases import Case, all_cases
from ..context import Context
from ..outcome import Outcome
from ..runner import Pool, Source
from .around import Around
from .changes import Source as PythonSource
from .choice import alternately
from .chosen import Attempt, Chosen, chosen_cases, placeholders
from .constants import Constant, constant
from .example import mask
from .overlay import overlay
from .probe import watching
from .replay import keeping, leaves_delegates
from .sites import Mutant, Plugin, own_lines, runs_at_import

#: CPU seconds of examples that are run for each mutant with a site; all mutants share what is run.
_SECONDS = 10.0
#: Access of a source to its probes.
MODULE = '__import__("delegatekit_conformance.mutants.probe", fromlist=["probe"])'
_CALL = f"{MODULE}.probe"
#: A run with probes may take this many times as long as without.
_SLOWER = 3.0

#: Builtin functions, modules and methods that change nothing.
_BUILTINS = frozenset(
    {"abs", "all", "any", "bool", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "getattr", "hasattr"}
    | {"int", "isinstance", "len", "list", "map", "max", "min", "range", "repr", "reversed", "round", "set", "sorted"}
    | {"str", "sum", "tuple", "type", "zip"}
)
#: Those that make iterators.
_ITERATORS = frozenset({"enumerate", "filter", "iter", "map", "reversed", "zip"})
_MODULES = frozenset({"math", "np", "numpy", "torch", "operator", "itertools", "struct"})
_METHODS = re.compile(
    r"(is|has|can|as|to)_|(get|index|count|keys|values|items|startswith|endswith|removeprefix|removesuffix|partition"
    r"|rpartition|split|strip|lstrip|rstrip|join|lower|upper|bit_length|numel|dim|size|stride|tolist|item|max|min|any|all"
    r"|sum|prod|mean|abs|reshape|ravel|flatten|transpose|permute|squeeze|astype|view|detach|to|double|float|int|long"
    r"|union|intersection|difference|issubset|isdisjoint|removesuffix|encode|decode|dense)$"
)
#: Functions of the plugin count as pure, except those of such names, or of objects under construction.
_CHANGING = re.compile(
    r"_*(add|append|build|call|clear|close|compile|copy|emit|exec|load|lower|make|new|next|open|pop|print|put|read"
    r"|register|release|remove|rename|replace|reset|run|set|start|stop|store|super|update|write)(_|$)"
)
_BUILT = frozenset({"b", "builder", "graph", "nodes", "self", "writer", "program", "cls"})


@dataclass(frozen=True)
class Site:
    """The widest expression around a change that can be evaluated twice: its bytes, and the mutant's form."""

    start: int
    end: int
    after: str
    #: True if it is a condition: only its truth value matters.
    truth: bool


@dataclass(frozen=True)
class Probe:
    """A mutant with its sites: of a constant one for each expression that reads it."""

    mutant: Mutant
    #: The sites by file.
    sites: tuple[tuple[str, Site], ...]
    #: The value of the constant as the mutant has it; empty for other changes.
    value: str = ""


def probe_of(plugin: Plugin, mutant: Mutant, number: int) -> Probe | None:
    """The probe of a mutant, or None where it has no sites; it has the number where it is put into sources."""
    source = plugin.sources.get(mutant.file)
    if source is None:
        return None
    place = site(source, mutant.start, mutant.before, mutant.after)
    if place is not None:
        return None if runs_at_import(plugin, mutant) else Probe(mutant, ((mutant.file, place),))
    found = constant(plugin, mutant)
    if found is None or not _is_pure_text(found.value):
        return None
    sites = _read(plugin, found, f"{MODULE}.constants[{number}]")
    return Probe(mutant, sites, found.value) if sites else None


def _read(plugin: Plugin, found: Constant, value: str) -> tuple[tuple[str, Site], ...]:
    """The sites that read a constant, with another value in its place; none if one of them cannot be read twice."""
    sites: dict[tuple[str, int, int], Site] = {}
    for file, use in found.uses:
        source = plugin.sources[file]
        place = site(source, source.span(use)[0], source.text(use), value)
        if place is None:
            return ()
        # All that it reads of the constant is replaced.
        spans = sorted(source.span(other) for name, other in found.uses if name == file)
        spans = [span for span in spans if place.start <= span[0] and span[1] <= place.end]
        kept = pairwise((place.start, *(byte for span in spans for byte in span), place.end))
        text = value.join(source.data[first:last].decode() for first, last in islice(kept, 0, None, 2))
        sites[file, place.start, place.end] = replace(place, after=text)
    return tuple((file, place) for (file, _, _), place in sites.items())


#: Expressions that cannot stand alone: of the last one, the parentheses may be those of a call.
_PARTS = (ast.Starred, ast.Slice, ast.GeneratorExp)


def site(source: PythonSource, start: int, before: str, after: str) -> Site | None:
    """The site of a change from `before` to `after` at byte `start`, or None where there is none."""
    end = start + len(before.encode())
    found: Site | None = None
    node: ast.AST | None = _innermost(source, start, end)
    emptied = frozenset[str]() if node is None else _iterators(source.function(node))
    while node is not None and not isinstance(node, ast.stmt | ast.Lambda):
        if isinstance(source.parents.get(node), ast.Expr):
            return None  # a statement by itself is there for its effect, not for its value
        if isinstance(node, ast.expr) and not isinstance(node, _PARTS):
            first, last = source.span(node)
            text = source.data[first:start].decode() + after + source.data[end:last].decode()
            if not _is_pure(node) or not _is_pure_text(text) or source.function(node) is None:
                break
            if any(isinstance(part, ast.Name) and part.id in emptied for part in ast.walk(node)):
                break
            found = Site(first, last, text, _is_condition(node, source))
        node = source.parents.get(node)
    return found


def _innermost(source: PythonSource, start: int, end: int) -> ast.expr | None:
    """The smallest expression that has these bytes, and is neither in a pattern nor in a text."""
    found: tuple[int, ast.expr] | None = None
    for first, last, node in source.expressions:
        # Of two with the same bytes the inner one, which comes later.
        if first <= start and end <= last and (found is None or last - first <= found[0]):
            found = last - first, node
    if found is None or any(isinstance(outer, ast.pattern | ast.JoinedStr) for outer in source.above(found[1])):
        return None
    return found[1]


def _iterators(function: ast.AST | None) -> frozenset[str]:
    """The names that a function gives to iterators, which are empty where they are read once more."""
    names = set()
    for part in ast.walk(function) if function is not None else ():
        match part:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=made))) if made in _ITERATORS:
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.GeneratorExp()):
                names.add(name)
    return frozenset(names)


def _is_condition(node: ast.AST, source: PythonSource) -> bool:
    match source.parents.get(node):
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return test is node
        case ast.comprehension(ifs=tests):
            return node in tests
        case ast.UnaryOp(op=ast.Not()):
            return True
    return False


def _is_pure_text(text: str) -> bool:
    try:
        return _is_pure(ast.parse(f"({text}\n)", mode="eval"))
    except SyntaxError:
        return False


def _is_pure(node: ast.AST) -> bool:
    """True if evaluating an expression once more changes nothing, as far as its spelling shows."""
    if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
        return False
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await):
            return False
        if isinstance(part, ast.Call) and not _is_pure_call(part):
            return False
    return True


def _is_pure_call(call: ast.Call) -> bool:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    match call.func:
        case ast.Name(id=name) if name in _BUILTINS:
            return True
        case ast.Attribute(value=ast.Name(id=module)) if module in _MODULES:
            return True
        case ast.Attribute(attr=name):
            return bool(_METHODS.match(name))
        case ast.Name(id=name):
            stateful = any(isinstance(argument, ast.Name) and argument.id in _BUILT for argument in arguments)
            return not stateful and not _CHANGING.match(name)
    return False


# -- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Infections:
    """The result of the run: mutant -> attempt -> whether it infects; mutants without a site are missing."""

    known: Mapping[str, Mapping[str, bool]]
    #: The attempts that were run.
    run: frozenset[str]
    #: The mutants whose sites run once in a process, for the example that happens to come first.
    once: frozenset[str] = frozenset()
    #: The files of attempts that can be replayed (`replay`), by their names.
    kept: Mapping[str, str] = field(default_factory=dict)

    def order(self, mutant: Mutant, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The attempts that may kill the mutant: those that infect first, then those of which nothing is known."""
        known = self.known.get(mutant.name)
        if not known:
            return list(attempts)  # no site, or reached in processes of the plugin's own
        if mutant.name in self.once or not any(attempt.name in known for attempt in attempts):
            return list(attempts)  # it ran in another example this time
        infecting = [attempt for attempt in attempts if known.get(attempt.name)]
        return [*infecting, *(attempt for attempt in attempts if attempt.name not in self.run)]


def record(
    plugin: Plugin,
    context: Context,
    wanted: Iterable[tuple[Mutant, Sequence[Attempt]]],
    *,
    jobs: int = 1,
    source: Source = all_cases,
    reaches: Callable[[Attempt, str, int], bool] = lambda attempt, file, lines: True,
    replays: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Infections:
    """Run the examples that reach one of the mutants with a site, once, in a plugin with probes. `wanted` has them in
    their order; `reaches` is true if one ran lines of a file when the map was made.

    The folder `replays` gets files and calls of examples, also of mutants without a site that leave delegates alone.
    """
    probes: list[Probe] = []
    orders: list[Sequence[Attempt]] = []
    for mutant, reaching in wanted:
        probe = probe_of(plugin, mutant, len(probes))
        if probe is not None:
            probes.append(probe)
        if probe is not None or (replays is not None and leaves_delegates(plugin, mutant)):
            orders.append(reaching)
    attempts = {attempt.name: attempt for attempt in _first(orders, _SECONDS * len(orders))}
    if not attempts:
        return Infections({}, frozenset())
    tell(f"evaluating {len(probes)} changed expressions in {len(attempts)} examples")
    known: dict[str, dict[str, bool]] = {probe.mutant.name: {} for probe in probes}
    places = [_places(plugin, probe) for probe in probes]
    run = set()
    once = set()
    kept = {}
    with (
        TemporaryDirectory(prefix="conformance-infection-") as folder,
        overlay(plugin.folder, _sources(plugin, probes)) as first,
    ):
        given = partial(
            probed_cases,
            folder=folder,
            replays=str(replays or ""),
            of=source,
            attempts=tuple(attempts.values()),
            first=str(first),
            package=plugin.package,
            timeout=context.timeout,
        )
        patient = replace(context, timeout=context.timeout * _SLOWER)
        with Pool(patient, jobs=jobs, source=given, cases=placeholders(attempts.values())) as pool:
            for _ in pool.run(list(attempts)):
                pass
        for values in _lines(Path(folder)):
            attempt = attempts[values["name"]]
            if values["verdict"] != attempt.verdict or values["delegate_bytes"] != attempt.delegate_bytes:
                continue  # evaluating twice changed something: nothing is known
            run.add(attempt.name)
            if values["kept"]:
                kept[attempt.name] = values["kept"]
            for number, infects in values["seen"].items():
                name = probes[int(number)].mutant.name
                known[name][attempt.name] = infects
                # In another process, after others, it did not run there. Rules start threads, which are not recorded.
                if not (attempt.is_rule or any(reaches(attempt, *place) for place in places[int(number)])):
                    once.add(name)
    return Infections(known, frozenset(run), frozenset(once), kept)


def _first(orders: Sequence[Sequence[Attempt]], seconds: float) -> Iterator[Attempt]:
    """The first of each, then the second of each and so on, each once, for this many CPU seconds."""
    known: set[str] = set()
    for attempt in alternately(*orders):
        if attempt.name not in known:
            seconds -= attempt.seconds
            if seconds < 0:
                return
            known.add(attempt.name)
            yield attempt


def _places(plugin: Plugin, probe: Probe) -> list[tuple[str, int]]:
    """The lines, as masks by file, of the statements that have the sites."""
    found = []
    for file, place in probe.sites:
        source = plugin.sources[file]
        node = _innermost(source, place.start, place.end)
        found.append((file, -1 if node is None else mask(*own_lines(source.statement(node)))))
    return found


def _sources(plugin: Plugin, probes: Sequence[Probe]) -> Mapping[str, bytes]:
    """The sources with probes."""
    files: dict[str, list[tuple[int, Site]]] = {}
    values: dict[str, dict[int, str]] = {}
    for number, probe in enumerate(probes):
        for file, place in probe.sites:
            files.setdefault(file, []).append((number, place))
        if probe.value:
            values.setdefault(probe.mutant.file, {})[number] = probe.value
    return {
        file: probed(plugin.sources[file].data, files.get(file, ()), values.get(file, {}))
        for file in files.keys() | values.keys()
    }


def probed(data: bytes, sites: Sequence[tuple[int, Site]], values: Mapping[int, str] = MappingProxyType({})) -> bytes:
    """A source in which each expression is evaluated in its own form and in those of the sites, with their numbers.

    Expressions lie in one another or apart, so that a probe may be in the own form of another. `values` are other
    values of the module's constants, by number.
    """
    groups: dict[tuple[int, int, bool], list[tuple[int, str]]] = {}
    for number, place in sites:
        groups.setdefault((place.start, place.end, place.truth), []).append((number, place.after))
    # From the outside in: the widest first of those that begin together.
    order = sorted(groups, key=lambda group: (group[0], -group[1]))

    def text(start: int, end: int, inner: list[tuple[int, int, bool]]) -> str:
        found, place = "", start
        while inner:
            first, last, truth = group = inner.pop(0)
            inside = []
            while inner and inner[0][0] < last:
                inside.append(inner.pop(0))
            own = text(first, last, inside)
            numbers = [number for number, _ in groups[group]]
            others = "".join(f", lambda: ({after}\n)" for _, after in groups[group])
            found += data[place:first].decode() + f"{_CALL}({numbers}, lambda: ({own}\n){others}, truth={truth})"
            place = last
        return found + data[place:end].decode()

    # A value that cannot be computed counts as different wherever it is read.
    made = "".join(
        f"\ntry:\n    {MODULE}.constants[{number}] = ({value}\n)\nexcept Exception:\n    pass\n"
        for number, value in values.items()
    )
    return (text(0, len(data), list(order)) + made).encode()


def _lines(folder: Path) -> Iterator[Mapping[str, Any]]:
    for path in folder.iterdir():
        for line in path.read_text("utf-8").splitlines():
            with suppress(ValueError):  # its writer died
                yield json.loads(line)


def probed_cases(context: Context, *, folder: str, replays: str = "", **given: Any) -> Mapping[str, Case]:
    """The attempts as cases, in a worker, each of which records the results of its probes, and the replays."""
    return {name: Probed(case, Path(folder), replays) for name, case in chosen_cases(context, **given).items()}


class Probed(Around):
    """One example of a case in a plugin with probes."""

    slower = _SLOWER

    def __init__(self, case: Chosen, folder: Path, replays: str) -> None:
        super().__init__(case)
        self._folder, self._replays = folder, replays

    def tried(self, example: Any, context: Context) -> Outcome:
        """The case's outcome; a line in a file of this process has the results of the probes."""
        with watching() as seen, keeping() as found:
            outcome = super().tried(example, context)
        path = Path(self._replays, hashlib.sha256(self.name.encode()).hexdigest()[:24])
        values = {
            "kept": str(path) if self._replays and found.write(path) else "",
            "name": self.name,
            "verdict": outcome.verdict.value,
            "delegate_bytes": outcome.delegate_bytes,
            "seen": {str(number): found for number, found in seen.items()},
        }
        with (self._folder / str(os.getpid())).open("a", encoding="utf-8") as file:
            file.write(to_json(values, indent=None, compact=True) + "\n")
        return outcome
