"""Finds the differences of two files, with what their debug maps and a run of both tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from delegatekit.engine import LoadedProgram
from delegatekit.files import Source
from delegatekit.reading import FileDelegate, FileMethod, FileProgram, open_program
from delegatekit_api import DelegateKitError
from delegatekit_toolkit.source_paths import short_source

from ..page.contents import Contents, Part, Step, contents
from ..profile import Origin, Origins, Times, call_times, instruction_times
from .differences import Differences
from .figures import ABSENT, BYTES, COUNT, SECONDS, Figure, Moved

RUNTIME: Final = "the runtime"
#: Seconds after which calls are no longer repeated.
_PATIENCE: Final = 60.0

_WITHOUT_MAPS: Final = (
    "without debug maps it is not known which operators moved: `lower --debug-map` writes them, --debug-maps reads them"
)


@dataclass(frozen=True)
class Timing:
    """Both programs, loaded, and the inputs on which a method of theirs is timed, in turns."""

    before: LoadedProgram
    after: LoadedProgram
    method: str
    inputs: Sequence[Any]
    runs: int = 20
    warm_up: int = 3


def diff(
    before: Source,
    after: Source,
    *,
    debug_maps: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
    timing: Timing | None = None,
) -> Differences:
    """The differences of two files (.pte or .bpte, paths or bytes). Needs neither plugins nor their runtimes.

    Args:
        before: the first file.
        after: the second.
        debug_maps: theirs, as `lower --debug-map` writes them: with them it is known which operators moved from one
            backend to another. Operators are the same if their module and name are, in the order of execution.
        timing: both programs with inputs, to time them.

    Raises FormatError for damaged files and for debug maps of others.
    """
    programs = open_program(before), open_program(after)
    figures = list(_of_files(*programs))
    kernels: list[Figure] = []
    moved: list[Moved] = []
    graphs: dict[str, tuple[Contents, Mapping[int, str]]] = {}
    for name in dict.fromkeys((*programs[0].methods, *programs[1].methods)):
        methods = [program.methods.get(name) for program in programs]
        figures += _of_methods(name, *methods)
        kernels += [item for item in _kernels(name, *methods) if item.changed]
        maps = debug_maps or (None, None)
        sides = [None if method is None else _Side(method, told) for method, told in zip(methods, maps, strict=True)]
        if debug_maps is not None:
            moved += _moved(name, *sides)
        for word, side in zip(("before", "after"), sides, strict=True):
            if side is not None:
                graphs[f"{word}: {name}"] = side.contents, side.others
    if timing is not None:
        figures += _times(timing, *programs)
    remarks = () if debug_maps is not None else (_WITHOUT_MAPS,)
    names = [Path(source).name if isinstance(source, str | Path) else word for word, source in _named(before, after)]
    return Differences(names[0], names[1], tuple(figures), tuple(moved), tuple(kernels), remarks, graphs)


def _named(before: Source, after: Source) -> Iterator[tuple[str, Source]]:
    yield "before", before
    yield "after", after


def _of_files(before: FileProgram, after: FileProgram) -> Iterator[Figure]:
    first, second = _sizes(before), _sizes(after)
    for name in dict.fromkeys((*first, *second)):
        yield Figure("", name, BYTES, first.get(name), second.get(name))


def _sizes(program: FileProgram) -> dict[str, int]:
    constants = {
        (method.name, value.constant): value.size
        for method in program.methods.values()
        for value in method.values
        if value.constant
    }
    found = {"file": program.size, "constants": sum(constants.values())}
    for method in program.methods.values():
        for delegate in method.delegates:
            name = f"blobs of {_backend(delegate)}"
            found[name] = found.get(name, 0) + len(delegate.blob)
    found["named data of backends"] = sum(map(len, program.named_data.values()))
    return found


def _of_methods(name: str, before: FileMethod | None, after: FileMethod | None) -> Iterator[Figure]:
    first, second = ({} if method is None else dict(_figures(method)) for method in (before, after))
    for key in dict.fromkeys((*first, *second)):
        yield Figure(name, *key, first.get(key), second.get(key))


def _figures(method: FileMethod) -> Iterator[tuple[tuple[str, str], float]]:
    yield ("planned memory", BYTES), sum(method.memory)
    yield ("instructions", COUNT), len(method.instructions)
    calls: Counter[str] = Counter()
    for item in method.instructions:
        calls[RUNTIME if item.delegate is None else f"delegates of {_backend(method.delegates[item.delegate])}"] += 1
    for place, count in calls.items():
        if place != RUNTIME:
            yield (f"calls of {place}", COUNT), count
    yield ("calls of the runtime's kernels", COUNT), sum(item.is_kernel for item in method.instructions)
    yield ("crossings", COUNT), _crossings(method)
    latencies: dict[str, float] = {}
    for delegate in method.delegates:
        if delegate.estimate is not None and delegate.estimate.latency is not None:
            backend = _backend(delegate)
            latencies[backend] = latencies.get(backend, 0.0) + delegate.estimate.latency
    for backend, seconds in latencies.items():
        yield (f"estimated time of {backend}", SECONDS), seconds


def _crossings(method: FileMethod) -> int:
    """The values that are handed from one delegate to another, from the runtime to one, or back."""
    writers: dict[int, int | None] = {}
    found = set()
    for item in method.instructions:
        for index in item.reads:
            if index in writers and writers[index] != item.delegate:
                found.add((index, item.delegate))
        writers.update(dict.fromkeys((*item.writes, *item.updates), item.delegate))
    return len(found)


def _kernels(name: str, before: FileMethod | None, after: FileMethod | None) -> Iterator[Figure]:
    counts = [
        Counter(item.calls for item in method.instructions if item.is_kernel) if method is not None else Counter[str]()
        for method in (before, after)
    ]
    for kernel in dict.fromkeys((*counts[0], *counts[1])):
        yield Figure(name, kernel, COUNT, counts[0][kernel], counts[1][kernel])


def _backend(delegate: FileDelegate) -> str:
    """The plugin that made a delegate, in whatever version; its id if the file does not name it."""
    return delegate.owner.distribution if delegate.owner.known else delegate.id


class _Side:
    """A method of one file: its operators by what they are, and its drawing."""

    def __init__(self, method: FileMethod, debug_map: Mapping[str, Any] | None) -> None:
        origins = Origins(debug_map, method.name, [item.calls for item in method.instructions])
        #: Module and name of an operator -> the operators of the drawing that are it, in order, and where they run.
        self.found: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
        #: Operators of the drawing that moved -> where they run in the other file.
        self.others: dict[int, str] = {}
        parts = [origins.parts_of_instruction(position) for position in range(len(method.instructions))]
        steps = [self._step(method, position, found) for position, found in enumerate(parts)]
        self.contents = contents(method.name, steps, method)
        for position, step in enumerate(steps):
            numbers = self.contents.operators[position]
            for place, origin in enumerate(parts[position]):
                number = numbers[place] if step.inside else numbers[0]
                module, operator = "; ".join(origin.modules), "; ".join(origin.operators)
                source = short_source("; ".join(origin.sources)).partition(": `")[0]
                told = number, step.made_by or RUNTIME, module or source
                self.found.setdefault((module, operator), []).append(told)

    def _step(self, method: FileMethod, position: int, parts: Sequence[Origin]) -> Step:
        item = method.instructions[position]
        made = [Part("; ".join(origin.operators), origin.modules, origin.sources) for origin in parts]
        if item.delegate is None:
            part = made[0] if made else Part(item.calls)
            return Step(position, item.calls, "", Part(item.calls, part.modules, part.sources))
        return Step(position, item.calls, _backend(method.delegates[item.delegate]), Part(item.calls), made)


def _moved(name: str, before: _Side | None, after: _Side | None) -> Iterator[Moved]:
    first, second = ({} if side is None else side.found for side in (before, after))
    groups: dict[tuple[str, str, str], list[str]] = {}
    for key in dict.fromkeys((*first, *second)):
        for one, other in zip_longest(first.get(key, ()), second.get(key, ())):
            places = ABSENT if one is None else one[1], ABSENT if other is None else other[1]
            if places[0] == places[1]:
                continue
            groups.setdefault((key[1], *places), []).append((one or other)[2])
            if before is not None and one is not None:
                before.others[one[0]] = places[1]
            if after is not None and other is not None:
                after.others[other[0]] = places[0]
    for (operator, *ends), where in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield Moved(name, operator, ends[0], ends[1], tuple(where))


def _times(timing: Timing, before: FileProgram, after: FileProgram) -> Iterator[Figure]:
    name = timing.method
    files = [before.methods[name], after.methods[name]]
    takes = [[str(method.values[index]) for index in method.inputs] for method in files]
    if takes[0] != takes[1]:
        what = f"takes {', '.join(takes[0]) or 'nothing'} before, {', '.join(takes[1]) or 'nothing'} after"
        raise DelegateKitError(what, where=f"method {name}", hint="times can be compared on the same inputs only")
    first, second = timing.before[name], timing.after[name]
    calls = [lambda: first.run(timing.inputs), lambda: second.run(timing.inputs)]
    whole = call_times(calls, runs=timing.runs, warm_up=timing.warm_up, seconds=_PATIENCE)
    yield _timed(name, "a call", whole[0], whole[1])
    parts = [
        _by_place(file, instruction_times(method, timing.inputs, runs=timing.runs, warm_up=timing.warm_up))
        for file, method in zip(files, (first, second), strict=True)
    ]
    for place in dict.fromkeys((*parts[0], *parts[1])):
        yield _timed(name, f"time of {place}", parts[0].get(place), parts[1].get(place))


def _by_place(method: FileMethod, times: Sequence[Times]) -> dict[str, Times]:
    """The sums of the instructions' times, by delegates of a backend, and by kernel."""
    found: dict[str, list[Times]] = {}
    for item, each in zip(method.instructions, times, strict=True):
        if item.delegate is not None:
            found.setdefault(f"delegates of {_backend(method.delegates[item.delegate])}", []).append(each)
        elif item.is_kernel:
            found.setdefault(item.calls, []).append(each)
    walls = {name: zip(*(each.wall for each in parts), strict=True) for name, parts in found.items()}
    return {name: Times(tuple(map(sum, calls))) for name, calls in walls.items()}


def _timed(method: str, name: str, before: Times | None, after: Times | None) -> Figure:
    spread = max((times.spread for times in (before, after) if times is not None), default=0.0)
    first, second = (None if times is None else times.median for times in (before, after))
    return Figure(method, name, SECONDS, first, second, spread)
