"""A whole run: mutants are drawn, get their examples, and are judged here or on a cluster; finished ones are kept."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from delegatekit.files import check_outputs
from delegatekit.plugins import discovery
from delegatekit_api import FormatError
from delegatekit_toolkit.cluster import ClusterTask, Lost, able_workers, allow_children, connected, run_tasks
from delegatekit_toolkit.json_text import parse_object, to_json

from ..cases import all_cases
from ..context import PROFILES, Context
from ..errors import InputError
from ..expectations import Expectations, load
from ..run import versions
from ..runner import Source
from . import equivalent, infection, reach
from .choice import Chooser, beyond
from .chosen import Attempt
from .deeper import Deeper
from .engine import Found, Trial, is_sound, judge
from .example import Example
from .replay import leaves_delegates, steady
from .score import Judged, Score
from .sites import Mutant, Plugin, digest, draw
from .unreached import Statement, statements

#: Number of the most different examples that must be sound where mutants are tried, before any is.
_CHECKED = 3
#: Seconds to wait for the scheduler, and for the first worker that has the resource.
_PATIENCE = 30.0
#: Folder for maps of the lines that examples reach, beside other caches of the user.
_CACHE = Path("delegatekit") / "mutants"


@dataclass(frozen=True)
class Request:
    """The settings of a run. Raises InputError if a value is out of its range."""

    backend: str
    count: int = 150
    #: Chooses the mutants; the suite's own seed, which chooses the examples, is 0.
    seed: int = 0
    #: Rooms of the plugin; none means all.
    rooms: tuple[str, ...] = ()
    #: "quick", or "default": survivors of the quick profile's examples are tried with the default one's.
    profile: str = "quick"
    #: Number of mutants tried in parallel.
    jobs: int = 1
    shard: tuple[int, int] = (1, 1)
    #: A file that keeps finished mutants.
    resume: Path | None = None
    #: The address of a Dask scheduler; empty for this machine.
    scheduler: str = ""
    #: CPU seconds of examples that a mutant is tried with, for each profile.
    seconds: float = 60.0
    #: Patterns of the cases that may be used; none means all.
    select: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise InputError(f"no profile {self.profile!r}; there are {', '.join(PROFILES)}")
        for name, least in (("count", 1), ("jobs", 1), ("seconds", 1)):
            if not getattr(self, name) >= least:
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be at least {least}")
        if not 1 <= self.shard[0] <= self.shard[1]:
            raise InputError(f"shard is {self.shard!r}; it must be (I, N) with I from 1 to N")

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles in their order, up to the requested one."""
        names = list(PROFILES)
        return tuple(names[: names.index(self.profile) + 1])


class Campaign:
    """A run of mutants against the suite.

    `tell` gets a line for each step and each mutant.
    """

    def __init__(
        self, request: Request, *, source: Source = all_cases, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        """Raises InputError if the backend, a room, a mark of an equivalent mutant or the file to resume is wrong."""
        self.request = request
        self.plugin = Plugin.of(request.backend)
        self._source = source
        self._tell = tell
        options = discovery.get_backend(request.backend).make_options(request.options)
        self._expectations: Expectations = load(request.backend).under(options)
        self.equivalent = 0

    @cached_property
    def mutants(self) -> Sequence[Mutant]:
        """The mutants of this shard. Marked ones are counted and others drawn in their place."""
        marks = equivalent.read(self.plugin)
        chosen: list[Mutant] = []
        aside = 0
        for mutant in draw(self.plugin, self.request.count, self.request.seed, self.request.rooms):
            if equivalent.marked(mutant, marks) is not None:
                aside += 1
                continue
            chosen.append(mutant)
            if len(chosen) == self.request.count:
                break
        self.equivalent = aside
        index, count = self.request.shard
        return chosen[index - 1 :: count]

    def run(self) -> Score:
        """Judge all mutants.

        Raises InputError for a file to resume of other settings, OptionError if the cluster cannot be used, and
        RuntimeError if sound examples are faulty in the workers that try mutants.
        """
        mutants = {mutant.name: mutant for mutant in self.mutants}
        finished = _Finished(self.request.resume, self._facts())
        for profile in self.request.profiles:
            left = [mutant for name, mutant in mutants.items() if not finished.is_done(name, profile)]
            if left:
                self._run_profile(profile, left, finished)
        distribution = discovery.get_backend(self.request.backend).distribution
        known = versions(distribution)
        return Score(
            self.request.backend,
            known.get(distribution, ""),
            known.get("delegatekit-conformance", ""),
            self.request.seed,
            self.request.profiles,
            tuple(_judged(mutant, finished.of(name)) for name, mutant in mutants.items()),
            self.equivalent,
            self.request.select,
            self.request.seconds,
        )

    def unreached(self) -> Iterator[Statement]:
        """The statements of the plugin that no example of the first profile reaches."""
        return statements(self.plugin, self._examples(self._first))

    @property
    def _first(self) -> Context:
        return Context(self.request.backend, PROFILES[self.request.profiles[0]], options=self.request.options)

    def _examples(self, context: Context) -> list[Example]:
        return reach.record(
            self.plugin,
            context,
            self._map(context),
            jobs=self.request.jobs,
            patterns=self.request.select,
            source=self._source,
            expectations=self._expectations,
            tell=self._tell,
        )

    def _run_profile(self, profile: str, mutants: Sequence[Mutant], finished: _Finished) -> None:
        first = self._first
        context = replace(first, profile=PROFILES[profile])
        examples = self._examples(first)
        chooser = Chooser(self.plugin, examples)
        with TemporaryDirectory(prefix="conformance-replays-") as replays:
            if profile == first.profile.name:
                trials = self._trials(mutants, context, chooser, Path(replays))
            else:
                rest = [mutant for mutant in mutants if any(found.gave_up for found in finished.of(mutant.name))]
                started = self._trials(rest, context, chooser, Path(replays), spent=self.request.seconds)
                trials = self._deeper(mutants, context, examples, chooser, started)
            self._tell(f"{profile}: {len(trials)} mutants, {len(examples)} sound examples")
            self._judge(trials, mutants, context, chooser, finished)

    def _judge(
        self,
        trials: Sequence[Trial],
        mutants: Sequence[Mutant],
        context: Context,
        chooser: Chooser,
        finished: _Finished,
    ) -> None:
        """Judge the trials and keep the outcome of each, after checking that the unchanged plugin is sound."""
        if not self.request.scheduler:
            checked = chooser.sample[:_CHECKED]
            wrong = is_sound([Chooser.attempt(example) for example in checked], self._first, self.plugin, self._source)
            if wrong:
                raise RuntimeError(f"the plugin without a change is faulty where mutants are tried: {wrong}")
        texts = {mutant.name: mutant.text for mutant in mutants}
        for number, found in enumerate(self._found(trials, context), 1):
            finished.add(found)
            self._tell(f"{number:4} {line(found, texts[found.name])}")

    def _trials(
        self, mutants: Sequence[Mutant], context: Context, chooser: Chooser, replays: Path, *, spent: float = 0.0
    ) -> list[Trial]:
        """The trials with the first profile's examples, of those affected by the change.

        The folder `replays`, which is useless to other machines, gets the replays. Examples for which the CPU seconds
        `spent` before sufficed are left out.
        """
        reaching = {mutant.name: chooser.attempts(mutant) for mutant in mutants}
        infections = infection.record(
            self.plugin,
            context,
            [(mutant, reaching[mutant.name]) for mutant in mutants],
            jobs=self.request.jobs,
            source=self._source,
            reaches=chooser.reaches,
            replays=None if self.request.scheduler else replays,
            tell=self._tell,
        )
        kept = steady(self.plugin, infections.kept, context)
        trials = []
        for mutant in mutants:
            found = reaching[mutant.name]
            possible = infections.order(mutant, found)
            trial = self._trial(mutant, context, tuple(possible), len(possible), len(found))
            leaves = leaves_delegates(self.plugin, mutant)
            own = {one.name: kept[one.name] for one in possible if leaves and one.name in kept}
            if own:
                trials.append(replace(trial, replays=own, seconds=self.request.seconds, spent=spent))
            else:
                trials.append(replace(trial, attempts=tuple(beyond(possible, spent, self.request.seconds))))
        return trials

    def _deeper(
        self,
        mutants: Sequence[Mutant],
        context: Context,
        examples: Sequence[Example],
        chooser: Chooser,
        started: Iterable[Trial],
    ) -> list[Trial]:
        """The trials with a later profile's examples, after the rest of those that are `started`."""
        deeper = Deeper(context, self._source(context), examples, chooser)
        left = {trial.name: trial for trial in started}
        trials = []
        for mutant in mutants:
            attempts, more = deeper.attempts(mutant, self.request.seconds)
            trial = left.get(mutant.name) or self._trial(mutant, context, (), 0, 0)
            possible, reaching = trial.possible + more, trial.reaching + more
            trials.append(replace(trial, further=tuple(attempts), possible=possible, reaching=reaching))
        return trials

    def _trial(
        self, mutant: Mutant, context: Context, attempts: tuple[Attempt, ...], possible: int, reaching: int
    ) -> Trial:
        backend, profile = self.request.backend, context.profile.name
        return Trial(mutant.name, profile, backend, mutant.file, mutant.content, attempts, possible, reaching)

    def _found(self, trials: Sequence[Trial], context: Context) -> Iterator[Found]:
        if self.request.scheduler:
            yield from _on_cluster(self.request, trials, context, self._expectations, self._source)
            return
        with ThreadPoolExecutor(self.request.jobs, thread_name_prefix="mutant") as threads:
            futures = [threads.submit(judge, trial, context, self._expectations, self._source) for trial in trials]
            try:
                for future in as_completed(futures):
                    yield future.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def _map(self, context: Context) -> Path:
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = base if base.is_absolute() else Path.home() / ".cache"
        name = hashlib.sha256(repr((context, str(self.plugin.folder))).encode()).hexdigest()[:16]
        return base / _CACHE / f"{self.request.backend}-{context.profile.name}-{name}.jsonl"

    def _facts(self) -> Mapping[str, Any]:
        """Facts that must be equal for the results of two runs to be combined."""
        return {
            "mutants": self.request.backend,
            "seed": self.request.seed,
            "seconds": self.request.seconds,
            "select": list(self.request.select),
            "options": {key: str(value) for key, value in self.request.options.items()},
            "plugin": self.plugin.digest,
            "suite": digest(Path(__file__).parents[1]),
        }


def line(found: Found, text: str) -> str:
    """A trial in one line: its outcome, the mutant, and the case that found it."""
    fates = (("killed  ", found.killed), ("told    ", found.told), ("gave up ", found.gave_up), ("SURVIVED", True))
    fate = next(word for word, holds in fates if holds)
    if found.killed:
        how = f"{found.case}: {found.verdict} (example {found.tried} of {found.possible})"
    elif not found.possible:
        how = found.untried
    else:
        told = f"; less is delegated in {len(found.less)} cases" if found.less else ""
        told += f"; delegates are larger in {len(found.larger)} cases" if found.larger else ""
        told += f"; more work in {len(found.work)} cases" if found.work else ""
        told += f"; other reasons in {len(found.reasons)} cases" if found.reasons else ""
        told += f"; reported differently in {len(found.insides)} cases" if found.insides else ""
        told += f"; changed description: {found.said[0]}" if found.said else ""
        how = f"{found.tried} of {found.possible} examples{told}"
    return f"{fate} {found.seconds:5.1f} s  {found.name}  |  {text[:100]}  |  {how}"


def _judged(mutant: Mutant, found: Iterable[Found]) -> Judged:
    return Judged(
        mutant.name,
        mutant.room,
        mutant.file,
        mutant.line,
        mutant.kind,
        mutant.text,
        mutant.before,
        mutant.after,
        tuple(found),
    )


class _Finished:
    """The trials that are finished, and the file that keeps them: a line for the run, a line for each."""

    def __init__(self, path: Path | None, header: Mapping[str, Any]) -> None:
        self._path = path
        self._found: dict[str, list[Found]] = {}
        if path is None:
            return
        check_outputs(path)
        whole = self._read(path, header) if path.exists() else 0
        path.touch()
        with path.open("r+b") as file:
            file.truncate(whole)  # a line that was cut off in the middle
        if not whole:
            self._write(header)

    def of(self, name: str) -> Sequence[Found]:
        """The trials of a mutant."""
        return self._found.get(name, ())

    def is_done(self, name: str, profile: str) -> bool:
        """True if the mutant is dead, or was tried with the examples of the profile."""
        return any(found.killed or found.profile == profile for found in self.of(name))

    def add(self, found: Found) -> None:
        """Keep a trial."""
        self._found.setdefault(found.name, []).append(found)
        self._write(found)

    def _write(self, values: object) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(to_json(values, indent=None) + "\n")

    def _read(self, path: Path, header: Mapping[str, Any]) -> int:
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        try:
            values = [parse_object(text, str(path)) for text in data[:whole].splitlines()]
            if values and {key: values[0].get(key) for key in header} != header:
                other = [key for key in header if values[0].get(key) != header[key]]
                raise InputError(
                    f"holds the mutants of another run: {', '.join(other)} differ",
                    where=str(path),
                    hint="name another file, or remove this one",
                )
            for entry in values[1:]:
                found = Found.from_json(entry)
                self._found.setdefault(found.name, []).append(found)
        except FormatError as error:
            raise InputError(f"is no file of judged mutants: {error.what}", where=str(path)) from error
        return whole


# -- on a cluster -----------------------------------------------------------------------------------------------------


def _on_cluster(
    request: Request, trials: Sequence[Trial], context: Context, expectations: Expectations, source: Source
) -> Iterator[Found]:
    """A task for each mutant, on workers that have a resource named after the backend.

    Raises InputError if a worker has other sources, OptionError if the cluster cannot be used.
    """
    with connected(request.scheduler, extra="delegatekit-conformance[cluster]", patience=_PATIENCE) as client:
        workers = able_workers(client, request.backend, request.scheduler, patience=_PATIENCE)
        here = _sources(request.backend)
        for address, theirs in client.run(_sources, request.backend, workers=list(workers)).items():
            if theirs != here:
                raise InputError("its plugin or suite has other sources than this machine's", where=address)
        run = str(time.time_ns())
        tasks = [
            ClusterTask(
                trial,
                f"{run}-{trial.name}-{trial.profile}",
                (trial, context, expectations, source),
                request.backend,
            )
            for trial in trials
        ]
        for trial, result in run_tasks(client, _judge, tasks):
            if isinstance(result, Lost):
                # It takes whole machines down, which is clearly a fault.
                words = f"the Dask workers that ran it were lost: {result.words}"
                yield Found(trial.name, trial.profile, killed=True, verdict="crash", detail=words)
            else:
                yield result


def _sources(backend: str) -> tuple[str, str]:
    return Plugin.of(backend).digest, digest(Path(__file__).parents[1])


def _judge(trial: Trial, context: Context, expectations: Expectations, source: Source) -> Found:
    """Judge a mutant in this Dask worker, with processes of its own."""
    allow_children()  # each has a guard that ends it with this process
    return judge(trial, context, expectations, source)
