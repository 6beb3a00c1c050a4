"""The coverage map of examples: a run of the suite in which each example's lines of the plugin are recorded.

The examples are kept with their lines, so that a mutant is tried without drawing them again. Only examples that are
sound with the plugin as it is can kill a mutant. After a change of the sources, cases whose examples and code of the
plugin are the same keep their records (`carried`).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from delegatekit_toolkit.json_text import to_json

from ..cases import Case, all_cases
from ..context import Context
from ..errors import InputError
from ..expectations import Expectations
from ..outcome import CaseResult, Outcome, kept_lines
from ..runner import Pool, Source, select
from .around import Around
from .carried import Moved, files_of
from .chosen import off_first_imports, pack
from .dispatches import Dispatches
from .example import Example, numbers_of, short
from .sites import Plugin, digest

#: Recording makes Python slower by up to this factor.
_SLOWER = 3.0
#: And an example, most of which is not the plugin's code, by this one.
_SLOWER_EXAMPLE = 1.5
#: The hook by which `coverage` records processes that a rule starts: the name of a file of settings.
_PROCESSES = "COVERAGE_PROCESS_START"


def record(
    plugin: Plugin,
    context: Context,
    path: Path,
    *,
    jobs: int = 1,
    patterns: Sequence[str] = (),
    source: Source = all_cases,
    expectations: Expectations | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Example]:
    """The sound examples of the context's profile with the lines that they reach; runs those not in the file `path`.

    Reports unexpected faults that the backend has without a change. Raises InputError if `coverage`
    is not installed or the file is another one.
    """
    try:
        import coverage  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"finding out what cases reach needs coverage: {error}",
            hint="pip install 'delegatekit-conformance[mutants]'",
        ) from error
    cases = source(context)
    names = select(cases, patterns)
    journal = _Journal(path, key(plugin, context), files_of(plugin))
    if journal.older:
        kept = journal.begin(_carried(journal, cases, context))
        tell(f"{kept} of {len(names)} cases keep what was recorded with other sources")
    missing = [name for name in names if name not in journal.cases]
    if missing:
        tell(f"recording what {len(missing)} of {len(names)} cases reach")
        with TemporaryDirectory(prefix="conformance-reach-") as folder:
            _record(plugin, context, missing, Path(folder), journal, jobs, source, expectations or Expectations(), tell)
    return [example for name in names for example in journal.cases.get(name, ())]


def key(plugin: Plugin, context: Context) -> str:
    """The key of the map: the sources of the plugin and of everything of ours, and the drawn examples."""
    import delegatekit
    import delegatekit_api
    import delegatekit_toolkit

    ours = [Path(module.__path__[0]) for module in (delegatekit, delegatekit_api, delegatekit_toolkit)]
    digests = [plugin.digest, *map(digest, [*ours, Path(__file__).parents[1]])]
    return hashlib.sha256(repr((digests, context, sys.version)).encode()).hexdigest()


#: A digest of the examples of a case (`_told`), and its sound examples.
_Case: TypeAlias = tuple[tuple[str, ...], Sequence[Example]]


class _Journal:
    """The file of the map: a line for its key, and one for each case. Lines that were cut off are lost.

    A file of other sources is read, and stays as it is up to `begin`.
    """

    def __init__(self, path: Path, header: str, files: Mapping[str, str]) -> None:
        self._path = path
        self._header = {"map": header, "files": files}
        self.files = files
        #: Records made with the present sources, and with other ones.
        self.cases: dict[str, tuple[Example, ...]] = {}
        self.older: dict[str, _Case] = {}
        #: The files of the plugin with which the older ones were recorded.
        self.older_files: Mapping[str, str] = {}
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole = self._read(header) if path.exists() else 0
        if whole:
            with path.open("r+b") as file:
                file.truncate(whole)
        elif not self.older:
            self.begin({})

    def begin(self, carried: Mapping[str, _Case]) -> int:
        """Begin the file of these sources with the kept cases of others; returns their number."""
        self._path.touch(mode=0o600)
        with self._path.open("r+b") as file:
            file.truncate(0)
        self._write(self._header)
        for name, (drawn, examples) in carried.items():
            self.add(name, drawn, examples)
        return len(carried)

    def add(self, name: str, drawn: Sequence[str], examples: Sequence[Example]) -> None:
        self.cases[name] = tuple(examples)
        self._write({"case": name, "drawn": drawn, "examples": examples})

    def _write(self, values: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(to_json(values, indent=None, compact=True) + "\n")

    def _read(self, header: str) -> int:
        """The bytes of whole lines, if the file is one of these sources."""
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].splitlines()
        try:
            first: dict[str, Any] = json.loads(lines[0]) if lines else {"map": ""}
            is_own, self.older_files = first["map"] == header, first.get("files", {})
            for line in lines[1:] if self.older_files else ():
                values = json.loads(line)
                examples = tuple(Example(**example) for example in values["examples"])
                if is_own:
                    self.cases[values["case"]] = examples
                else:
                    self.older[values["case"]] = tuple(values["drawn"]), examples
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"is no map of what examples reach: {error!r}", where=str(self._path)) from error
        return whole if is_own else 0


def _carried(journal: _Journal, cases: Mapping[str, Case], context: Context) -> dict[str, _Case]:
    """The cases of other sources that draw the same examples, all of which run code that is still there."""
    moved = Moved(journal.older_files, journal.files)
    found: dict[str, _Case] = {}
    for name, (drawn, examples) in journal.older.items():
        now = [example for example in map(moved.example, examples) if example is not None]
        if name in cases and len(now) == _count(drawn) and _draws(cases[name], context, drawn):
            found[name] = drawn, now
    return found


def _draws(case: Case, context: Context, drawn: Sequence[str]) -> bool:
    """True if a case draws the examples that it drew."""
    first = tuple(case.examples(context))
    if not drawn or _told(first) != drawn[0]:
        return False
    return len(drawn) == 1 or _told(case.further(first, context)) == drawn[1]


def _told(examples: Sequence[Any]) -> str:
    """The number of these examples, and a digest of them."""
    return f"{len(examples)}-{hashlib.sha256(repr([pack(one) for one in examples]).encode()).hexdigest()[:16]}"


def _count(drawn: Sequence[str]) -> int:
    return sum(int(told.partition("-")[0]) for told in drawn)


def _record(
    plugin: Plugin,
    context: Context,
    names: Sequence[str],
    folder: Path,
    journal: _Journal,
    jobs: int,
    source: Source,
    expectations: Expectations,
    tell: Callable[[str], None],
) -> None:
    watched = partial(recording_cases, folder=str(folder), plugin=str(plugin.folder), package=plugin.package, of=source)
    patient = replace(context, timeout=context.timeout * _SLOWER)
    with Pool(patient, jobs=jobs, source=watched) as pool:
        for number, result in enumerate(pool.run(names), 1):
            drawn, examples = _read_case(folder, result.case, result.tags)
            journal.add(result.case, drawn, examples)
            for fault in _unexpected(expectations.mark(result)):
                tell(f"faulty without a change: {result.case}: {fault.verdict.value}: {fault.detail}")
            if number % 200 == 0 or number == len(names):
                tell(f"{number} of {len(names)} cases recorded")


def _unexpected(result: CaseResult) -> Sequence[Outcome]:
    return result.faults if result.is_fault else ()


def _read_case(folder: Path, name: str, tags: Mapping[str, str]) -> _Case:
    """A digest of the examples of a case, and its sound examples."""
    drawn: dict[int, str] = {}
    found: dict[int, Example | None] = {}
    path = folder / _file_of(name)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    for line in lines:
        with suppress(ValueError):  # its writer died
            values = json.loads(line)
            if "drawn" in values:
                drawn[values["part"]] = values["drawn"]
                continue
            is_sound = values.pop("sound")
            found[values["index"]] = Example(name, tags=dict(tags), **values) if is_sound else None
    path.unlink(missing_ok=True)
    examples = [example for _, example in sorted(found.items()) if example is not None]
    return tuple(text for _, text in sorted(drawn.items())), examples


def _file_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:24]


# -- in a worker ------------------------------------------------------------------------------------------------------


def recording_cases(
    context: Context, *, folder: str, plugin: str, package: str, of: Source = all_cases
) -> Mapping[str, Case]:
    """The cases of a source, each of whose examples is recorded in `folder`."""
    recorder = _Recorder(Path(folder), Path(plugin), package)
    own = replace(context, timeout=context.timeout / _SLOWER)
    return {name: Recorded(case, own, recorder) for name, case in of(context).items()}


class _Recorder:
    """Records lines of one folder's files, in this process and in those that it starts."""

    def __init__(self, folder: Path, plugin: Path, package: str) -> None:
        self.folder = folder
        self._plugin = plugin
        self._package = package
        self._coverage: Any = None
        self._dispatches: Dispatches | None = None
        self._others = folder / f"processes-{os.getpid()}"

    def begin(self, *, threads: bool = True) -> None:
        """Record from here on, with or without new threads."""
        if self._coverage is None:
            self._start()
        if self._dispatches is not None:
            self._dispatches.begin()
        self._coverage.start()
        if not threads:
            threading.settrace(None)

    def end(self) -> Mapping[str, int]:
        """The lines that were run since `begin`, and the shaders that were dispatched."""
        import coverage

        self._coverage.stop()
        found: dict[str, int] = dict(self._dispatches.end()) if self._dispatches is not None else {}
        self._add(self._coverage.get_data(), found)
        self._coverage.erase()
        for path in self._others.parent.glob(f"{self._others.name}.*"):
            with suppress(coverage.CoverageException, OSError):
                data = coverage.CoverageData(str(path))
                data.read()
                self._add(data, found)
            path.unlink(missing_ok=True)
        return found

    def _start(self) -> None:
        import coverage

        off_first_imports()
        settings = self.folder / f"settings-{os.getpid()}"
        settings.write_text(
            f"[run]\ndata_file = {self._others}\nparallel = true\ninclude = {self._plugin}/*\n"
            "sigterm = true\npatch = _exit\n"  # for any end of a process
            "disable_warnings = no-data-collected, module-not-imported, no-ctracer\n"
        )
        os.environ[_PROCESSES] = str(settings)
        self._coverage = coverage.Coverage(data_file=None, include=[f"{self._plugin}/*"], config_file=False)
        self._coverage._warn = _nothing  # earlier imports are no mistake here
        _import_all(self._package)
        self._dispatches = Dispatches(Plugin("", self._package, self._plugin))

    def _add(self, data: Any, found: dict[str, int]) -> None:
        for name in data.measured_files():
            with suppress(ValueError):
                file = Path(name).resolve().relative_to(self._plugin).as_posix()
                lines = 0
                for line in data.lines(name) or ():
                    lines |= 1 << line
                found[file] = found.get(file, 0) | lines


def _nothing(*args: Any, **kwargs: Any) -> None:
    """In place of coverage's warnings."""


def _import_all(package: str) -> None:
    """Import a plugin's modules, so that code that runs at import belongs to no example."""
    import importlib
    import pkgutil

    with suppress(Exception):
        top = importlib.import_module(package)
        for module in pkgutil.walk_packages(top.__path__, f"{package}.", onerror=_nothing):
            with suppress(Exception, SystemExit):
                if not module.name.endswith("__main__"):
                    importlib.import_module(module.name)


class Recorded(Around):
    """A case whose examples record the lines that they reach."""

    slower = _SLOWER

    def __init__(self, case: Case, context: Context, recorder: _Recorder) -> None:
        super().__init__(case, context=context)
        self._recorder = recorder
        self._examples: Sequence[Any] = ()

    def examples(self, context: Context) -> Sequence[Any]:
        """The case's."""
        self._examples = tuple(super().examples(context))
        self._write({"part": 0, "drawn": _told(self._examples)})
        return self._examples

    def further(self, first: Sequence[Any], context: Context) -> Sequence[Any]:
        """The case's."""
        more = super().further(first, context)
        self._examples = (*self._examples, *more)
        self._write({"part": 1, "drawn": _told(more)})
        return more

    def tried(self, example: Any, context: Context) -> Outcome:
        """The case's outcome; a line in the case's file has the lines reached."""
        before = _cpu()
        # Recording keeps something for each thread, which the growth cases would report.
        self._recorder.begin(threads=self.tags["room"] != "growth")
        try:
            outcome = super().tried(example, context)
        finally:
            lines = self._recorder.end()
        index = next(number for number, other in enumerate(self._examples) if other is example)
        values = {
            "index": index,
            "packed": pack(example),
            "seconds": round((_cpu() - before) / _SLOWER_EXAMPLE, 3),
            "verdict": outcome.verdict.value,
            "delegated_nodes": outcome.delegated_nodes,
            "fallback_calls": outcome.fallback_calls,
            "delegate_bytes": outcome.delegate_bytes,
            "delegate_operators": outcome.delegate_operators,
            "named_nodes": outcome.named_nodes,
            "damages_refused": outcome.damages_refused,
            "taken": outcome.taken,
            "reasons": numbers_of(kept_lines(outcome.refusals)),
            "insides": short(kept_lines(outcome.insides)),
            "lines": lines,
            "sound": not (outcome.verdict.is_fault or outcome.core or outcome.blame),
        }
        self._write(values)
        return outcome

    def _write(self, values: Mapping[str, Any]) -> None:
        with (self._recorder.folder / _file_of(self.name)).open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def _cpu() -> float:
    return sum(os.times()[:4])
