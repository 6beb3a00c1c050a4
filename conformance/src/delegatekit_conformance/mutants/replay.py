"""Replays: files and calls of examples, run again in milliseconds by a plugin whose runtime is changed.

A change of a runtime, or of a shader, leaves delegates as they are. An example that gets the same bytes from the
changed runtime finds nothing; one that gets others may. The first run of an example, with all that it takes to lower
and to compare, keeps what is needed for that.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import delegatekit

from ..cases import Case
from ..context import Context
from ..outcome import Outcome, Verdict
from ..runner import Limits, Pool
from ..trial import flatten
from .chosen import Attempt, Placeholder, import_from, off_first_imports
from .overlay import overlay
from .sites import Mutant, Plugin

#: The room of a plugin that runs delegates.
_ROOM = "runtime"
#: Files of an example that are kept, calls of each, and bytes of all.
_FILES, _CALLS, _BYTES = 12, 8, 1 << 22
#: CPU seconds that all replays, and each of them, may take.
_BASE, _EACH = 10.0, 0.1
_NAME = "what examples ran"
_LIMITS = Limits(crashes=1)


def leaves_delegates(plugin: Plugin, mutant: Mutant) -> bool:
    """True if a mutant changes the code that runs delegates, and not the code that makes them."""
    return mutant.file in plugin.shaders or mutant.room == _ROOM


@dataclass
class Kept:
    """The files and calls of an example."""

    #: The files, each with its calls: method, pickled inputs and results.
    files: list[tuple[bytes, list[tuple[str, bytes, list[torch.Tensor]]]]] = field(default_factory=list)
    #: True if it did nothing else with them.
    is_whole: bool = True

    def write(self, path: Path) -> bool:
        """Write it, if it can be replayed; True if it was written."""
        if not self.is_whole or not any(calls for _, calls in self.files):
            return False
        data = pickle.dumps(self.files)
        if len(data) > _BYTES:
            return False
        path.write_bytes(data)
        return True


@contextmanager
def keeping() -> Iterator[Kept]:
    """Loads and calls of this process within the block, through the public functions."""
    kept, load = Kept(), delegatekit.load

    def watched(source: Any, **more: Any) -> Any:
        program = load(source, **more)
        if more or not isinstance(source, bytes) or len(kept.files) == _FILES:
            kept.is_whole = False
            return program
        kept.files.append((source, []))
        return _Program(program, kept)

    delegatekit.load = watched
    try:
        yield kept
    finally:
        delegatekit.load = load


class _Program:
    """A loaded file whose methods' calls are kept."""

    def __init__(self, program: Any, kept: Kept) -> None:
        self._program, self._kept, self._calls = program, kept, kept.files[-1][1]

    def __getitem__(self, name: str) -> Any:
        return _Method(self._program[name], name, self._kept, self._calls)

    def __getattr__(self, name: str) -> Any:
        self._kept.is_whole = False
        return getattr(self._program, name)


class _Method:
    """A method whose calls are kept."""

    def __init__(self, method: Any, name: str, kept: Kept, calls: list[Any]) -> None:
        self._method, self._name, self._kept, self._calls = method, name, kept, calls

    def run(self, inputs: Any) -> Any:
        """The method's results."""
        given = pickle.dumps(inputs)
        results = self._method.run(inputs)
        if len(self._calls) == _CALLS:
            self._kept.is_whole = False
        else:
            self._calls.append((self._name, given, [item.clone() for item in flatten(results)]))
        return results

    def __getattr__(self, name: str) -> Any:
        self._kept.is_whole = False
        return getattr(self._method, name)


def is_same(path: Path) -> bool:
    """True if the file written there gives the same bytes again."""
    for data, calls in pickle.loads(path.read_bytes()):
        program = delegatekit.load(data)
        for name, inputs, results in calls:
            now = flatten(program[name].run(pickle.loads(inputs)))
            if len(now) != len(results) or not all(map(_are_alike, now, results)):
                return False
    return True


def _are_alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    same = left.dtype == right.dtype and left.shape == right.shape
    return same and torch.equal(*(item.contiguous().reshape(-1).view(torch.uint8) for item in (left, right)))


def replayed(
    plugin: Plugin, changed: Mapping[str, bytes], replays: Mapping[str, str], context: Context
) -> Mapping[str, bool]:
    """For each of the replays, True if it gives the same bytes with files of the plugin changed.

    Those that the process did not reach, because it ended or hung in an earlier one, are missing.
    """
    if not replays:
        return {}
    with overlay(plugin.folder, changed) as first, TemporaryDirectory(prefix="conformance-replays-") as folder:
        given = partial(
            _cases, replays=dict(replays), results=f"{folder}/results", first=str(first), package=plugin.package
        )
        own = replace(context, timeout=1.0)
        with Pool(own, limits=_LIMITS, source=given, cases={_NAME: Placeholder(_NAME)}) as pool:
            pool.run_case(_NAME)
        found: dict[str, bool] = {}
        with suppress(FileNotFoundError):
            for line in Path(folder, "results").read_text("utf-8").splitlines():
                same, _, name = line.partition(" ")
                found[name] = same == "same"
    return found


def _cases(
    context: Context, *, replays: Mapping[str, str], results: str, first: str, package: str
) -> Mapping[str, Case]:
    """The one case of a worker."""
    import_from(first, package)
    off_first_imports()
    return {_NAME: _Replays(replays, Path(results))}


class _Replays(Case):
    """Replays all, one after the other, and records the result of each."""

    name = _NAME

    def __init__(self, replays: Mapping[str, str], results: Path) -> None:
        self._replays = replays
        self._results = results

    @property
    def cost(self) -> float:
        """All of them are one example."""
        return _BASE + _EACH * len(self._replays)

    def examples(self, context: Context) -> Sequence[str]:
        """The one."""
        return (_NAME,)

    def run(self, example: str, context: Context) -> Outcome:
        """Replay, and write."""
        with self._results.open("a", encoding="utf-8", buffering=1) as file:
            for name, path in self._replays.items():
                try:
                    same = is_same(Path(path))
                except Exception:  # a changed runtime may raise anything
                    same = False
                file.write(f"{'same' if same else 'other'} {name}\n")
        return Outcome(Verdict.PASSED)


def steady(plugin: Plugin, kept: Mapping[str, str], context: Context) -> Mapping[str, str]:
    """The replays that give the same bytes again with the plugin as it is."""
    found = replayed(plugin, {}, kept, context)
    return {name: path for name, path in kept.items() if found.get(name)}


def ordered(attempts: Iterable[Attempt], same: Mapping[str, bool]) -> list[Attempt]:
    """Attempts whose replays give other bytes, then those without a replay; the others find nothing."""
    left = [attempt for attempt in attempts if not same.get(attempt.name)]
    return [*(one for one in left if one.name in same), *(one for one in left if one.name not in same)]
