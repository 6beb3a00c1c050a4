"""A worker's task as plain data: its limits, a job, and the selection and sharding of cases."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..cases import Case
from ..context import Context

#: A shard may carry this much more than its equal part before a case goes to its next shard by hash.
_SLACK = 1.1
#: An example of a case of one example may take this multiple of the case's declared cost, if that is more than
#: `Context.timeout`: a case that is known to take long is not a hang.
_COST_FACTOR = 4.0


#: Gives the cases for a context.
Source = Callable[[Context], Mapping[str, Case]]


@dataclass(frozen=True)
class Limits:
    """Resources that a worker may use, and the number of times that one may die."""

    #: Bytes of private memory that a worker may have (Linux: RLIMIT_DATA), or None.
    memory: int | None = 8 << 30
    #: After this many crashes or hangs in one case, the rest of its examples is not tried.
    crashes: int = 3
    #: A worker is replaced by a fresh one after this many cases.
    recycle: int = 400
    #: Time limits are CPU seconds of the worker. A step that uses less of the processor may last this many times its
    #: limit; one that uses none at all in the second half of its limit is ended then.
    patience: float = 5.0


@dataclass(frozen=True)
class Job:
    """A piece of work for a worker: the examples of one case from `first` on."""

    case: str
    #: The file that the worker writes its progress to; files beside it hold what goes to stderr, and tracebacks.
    journal: str
    first: int = 0
    #: Try that example only, and look for no smaller one.
    only: bool = False


def limit_of(case: Case, examples: int, timeout: float) -> float:
    """CPU seconds that one of this many examples of a case may take."""
    return max(timeout, _COST_FACTOR * case.cost) if examples == 1 else timeout


def select(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """The names that match any of the patterns, in their order; no pattern selects all.

    A pattern is one of fnmatch for the whole name ("operators/*conv*"), or leading parts of it ("operators",
    "operators/aten.add.Tensor").
    """
    return [name for name in names if not patterns or any(_matches(name, pattern) for pattern in patterns)]


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/")


def shard(cases: Mapping[str, Case], names: Sequence[str], index: int, count: int) -> list[str]:
    """The names of shard `index` (from 1) of `count`, in their order. All shards together are all names.

    A case goes to the first shard with room, in the order of its name's hash: a new case moves few others
    (consistent hashing with bounded loads), and the costs are even.
    """
    room = _SLACK * sum(cases[name].cost for name in names) / count
    loads = [0.0] * count
    place: dict[str, int] = {}
    for name in sorted(names, key=lambda name: (-cases[name].cost, zlib.crc32(name.encode()))):
        cost = cases[name].cost
        choices = sorted(range(count), key=lambda number: zlib.crc32(f"{number}:{name}".encode()))
        free = [number for number in choices if loads[number] + cost <= room]
        chosen = free[0] if free else min(choices, key=loads.__getitem__)
        loads[chosen] += cost
        place[name] = chosen
    return [name for name in names if place[name] == index - 1]
