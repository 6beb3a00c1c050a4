"""The time of a method by module, by kernel class or by source line: each a tree whose parts add up to the whole.

An operator inside a delegate counts with its share of the delegate's time: it is measured in calls of its own, in which
everything takes longer. What several modules or lines have in one operator is a part of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final, Literal, TypeAlias, get_args

from delegatekit_api import DelegateKitError

from .measured import ITSELF, InstructionProfile, Origin

#: The ways to add up the times.
Grouping: TypeAlias = Literal["module", "kernel", "line"]
GROUPINGS: Final[tuple[str, ...]] = get_args(Grouping)

#: The end of a name that only counts: "Fully Connected (NC, F32) GEMM #12", "convolution_default_3".
_COUNT: Final = re.compile(r"(?: #|_)\d+$")
#: The name of a plugin in its distribution's name and version: "delegatekit-demo 0.1.0" is "demo".
_MAKER: Final = re.compile(r"^delegatekit-(\S+) \S+$")
_RUNTIME: Final = "runtime"
#: Characters of a line that are shown.
_LONGEST: Final = 60
_WITHOUT_LINE: Final = "(no line known)"


@dataclass
class Part:
    """A part of a method's time, with the parts that it has."""

    name: str
    #: Seconds of a call, those of its parts included.
    seconds: float = 0.0
    #: Instructions and operators in it.
    count: int = 0
    #: Seconds by who runs them: a backend, or "runtime" for its own kernels.
    runners: dict[str, float] = field(default_factory=dict)
    #: In execution order.
    parts: list[Part] = field(default_factory=list)
    #: Numbered parts that are alike and are one here: their seconds.
    each: tuple[float, ...] = ()

    @property
    def own(self) -> float:
        """Seconds that are in none of its parts."""
        return sum(self.own_runners.values())

    @property
    def own_runners(self) -> dict[str, float]:
        """As `runners`, without what its parts have; nothing where it is its parts."""
        if self.count == sum(item.count for item in self.parts):
            return {}
        inner = [item.runners for item in self.parts]
        own = {name: seconds - sum(item.get(name, 0.0) for item in inner) for name, seconds in self.runners.items()}
        return {name: max(0.0, seconds) for name, seconds in own.items()}

    def _add(self, cost: _Cost) -> None:
        self.seconds += cost.seconds
        self.count += 1
        self.runners[cost.runner] = self.runners.get(cost.runner, 0.0) + cost.seconds


@dataclass(frozen=True)
class _Cost:
    """An instruction, or an operator inside a delegate, with the seconds that it takes of a call."""

    seconds: float
    runner: str
    kernel: str
    origin: Origin


def parts_of(method: str, instructions: Iterable[InstructionProfile], by: str) -> Part:
    """The tree of a method's time. Raises DelegateKitError for another way than `GROUPINGS`."""
    path = _PATHS.get(by)
    if path is None:
        raise DelegateKitError(f"there are no profiles by {by!r}", hint=f"choose {', '.join(GROUPINGS)}")
    whole = Part(f"method {method}")
    known: dict[tuple[str, ...], Part] = {(): whole}
    for cost in _costs(instructions):
        names = path(cost)
        for end in range(len(names) + 1):
            place = names[:end]
            if place not in known:
                known[place] = Part(place[-1])
                known[place[:-1]].parts.append(known[place])
            known[place]._add(cost)
    return whole


def folded(part: Part) -> Part:
    """The tree with numbered modules that are alike as one, and with a module that has a single one as one with it."""
    groups: dict[object, list[Part]] = {}
    for item in (_joined(folded(item)) for item in part.parts):
        is_numbered = item.name.isdecimal() and item.parts
        groups.setdefault(_modules_in(item) if is_numbered else item.name, []).append(item)
    return replace(part, parts=[group[0] if len(group) == 1 else _numbered(group) for group in groups.values()])


def _modules_in(part: Part) -> frozenset[str]:
    """The modules right below a part: what makes it like others. The first and the last of many may be fused more."""
    return frozenset(name for item in part.parts for name in item.name.split(", ")) - {ITSELF}


def _joined(part: Part) -> Part:
    """A part that has nothing but one other, as one with it."""
    if len(part.parts) != 1 or part.parts[0].count != part.count:
        return part
    (only,) = part.parts
    return replace(only, name=f"{part.name}.{only.name}")


def _numbered(group: Sequence[Part]) -> Part:
    numbers = sorted(int(item.name) for item in group)
    has_gaps = numbers[-1] - numbers[0] >= len(numbers)
    name = ",".join(map(str, numbers)) if has_gaps else f"{numbers[0]}-{numbers[-1]}"
    return replace(_merged(group), name=name, each=tuple(item.seconds for item in group))


def _merged(group: Sequence[Part]) -> Part:
    """Parts with the same parts inside, as one."""
    whole = Part(group[0].name)
    inner: dict[str, list[Part]] = {}
    for item in group:
        whole.seconds += item.seconds
        whole.count += item.count
        for runner, seconds in item.runners.items():
            whole.runners[runner] = whole.runners.get(runner, 0.0) + seconds
        for part in item.parts:
            inner.setdefault(part.name, []).append(part)
    whole.parts = [parts[0] if len(parts) == 1 else _merged(parts) for parts in inner.values()]
    return whole


def _costs(instructions: Iterable[InstructionProfile]) -> Iterator[_Cost]:
    for item in instructions:
        inside = sum(operator.times.median for operator in item.operators)
        maker = _MAKER.match(item.made_by)
        runner = maker[1] if maker else item.made_by or _RUNTIME
        if not inside:
            yield _Cost(item.times.median, runner, item.calls, item.origin)
            continue
        scale = item.times.median / inside
        for operator in item.operators:
            origin = operator.origin if operator.origin != Origin() else item.origin
            yield _Cost(operator.times.median * scale, runner, _COUNT.sub("", operator.name), origin)


def _by_module(cost: _Cost) -> tuple[str, ...]:
    return tuple(cost.origin.module.split(".")) if cost.origin.module else ()


def _by_kernel(cost: _Cost) -> tuple[str, ...]:
    return cost.runner, cost.kernel


def _by_line(cost: _Cost) -> tuple[str, ...]:
    """The file, and in it the line with its text, or several lines."""
    places = [_place(source) for source in cost.origin.sources]
    files = list(dict.fromkeys(file for file, _, _ in places))
    if len(files) != 1:
        return (_WITHOUT_LINE if not files else " and ".join(map(short_path, files)),)
    lines = sorted({int(number): text for _, number, text in places if number.isdecimal()}.items())
    if len(lines) == 1:
        number, text = lines[0]
        return short_path(files[0]), f"{number}: {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}"
    numbers = [str(number) for number, _ in lines]
    told = ", ".join(numbers) if len(numbers) <= 3 else f"{numbers[0]} to {numbers[-1]} ({len(numbers)} lines)"
    return short_path(files[0]), told


def _place(source: str) -> tuple[str, str, str]:
    """File, line and text of "/path/model.py:12: `x = self.a(x)`"."""
    where, _, text = source.partition(": `")
    file, _, line = where.rpartition(":")
    return file, line, text.removesuffix("`")


def short_path(path: str) -> str:
    """The end of a path that says enough: the file and its folder.

    >>> short_path("/home/me/nets/models/unet.py"), short_path("unet.py")
    ('models/unet.py', 'unet.py')
    """
    return "/".join(PurePath(path).parts[-2:])


_PATHS: Final[Mapping[str, Callable[[_Cost], tuple[str, ...]]]] = {
    "module": _by_module,
    "kernel": _by_kernel,
    "line": _by_line,
}
