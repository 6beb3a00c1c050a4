"""Files that survive a crash: a worker's progress on one case, and the finished cases of a run.

Both are JSON lines that are only appended to, so what was written before a process died can be read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delegatekit.files import check_outputs, open_file
from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import cut_off, parse, parse_object, to_json

from ..context import Context
from ..errors import InputError
from ..outcome import CaseResult, Outcome
from ..run import versions

#: Version of the layout of the file of finished cases.
FORMAT = 1


class Diary:
    """The file that a worker writes while it works on one case."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        if self._file.tell() and not path.read_bytes().endswith(b"\n"):
            self._file.write("\n")  # the process that wrote before died in the middle of a line

    def write(self, event: str, **facts: Any) -> None:
        """Append an event; it is with the operating system when this returns."""
        self._file.write(to_json({"event": event} | facts, indent=None) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass
class Progress:
    """The content of a diary; `read` takes in what was appended since the last time."""

    path: Path
    #: The worker's process id.
    process: int = 0
    #: Number of examples of the case, once known; and whether these are all, or further ones may come.
    count: int | None = None
    complete: bool = False
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    #: Smaller examples by the index of the example that they stand for.
    shrunk: dict[int, Outcome] = field(default_factory=dict)
    #: The example that was begun and has no outcome.
    open: int | None = None
    example: str = ""
    #: True if the worker has the examples.
    prepared: bool = False
    #: The examples that a worker died of.
    deaths: set[int] = field(default_factory=set)
    #: True if the worker looks for smaller examples; all outcomes are there then.
    shrinking: bool = False
    #: CPU seconds that the step which the worker is in may take.
    limit: float = 0.0
    #: Why the case could not be begun.
    failure: str = ""
    #: Number of events read, and time of the last one (time.monotonic()).
    events: int = 0
    when: float = 0.0
    _offset: int = 0

    def read(self) -> Progress:
        """Read what is new, except an unfinished last line."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return self
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError):  # a line that its writer did not finish
                self._take(json.loads(line))
                self.events += 1
                self.when = time.monotonic()
        return self

    def note(self, index: int, outcome: Outcome, *, died: bool = True) -> None:
        """Record the outcome of an example that its worker died of; with `died` false, in another worker."""
        diary = Diary(self.path)
        diary.write("outcome", index=index, outcome=outcome.to_json(), died=died)
        diary.close()
        self.read()

    def elapsed(self) -> float:
        """Seconds since the last event."""
        return time.monotonic() - self.when if self.when else 0.0

    def _take(self, event: Mapping[str, Any]) -> None:
        self.limit = event.get("limit", self.limit)
        match event["event"]:
            case "started":
                self.process, self.open, self.prepared, self.shrinking = event["process"], None, False, False
            case "examples":
                self.count, self.complete, self.prepared = event["count"], event["complete"], True
            case "failure":
                self.failure = event["detail"]
            case "begin":
                self.open, self.example = event["index"], event["example"]
            case "outcome":
                self.outcomes[event["index"]] = Outcome.from_json(event["outcome"])
                self.open = None
                if event.get("died"):
                    self.deaths.add(event["index"])
            case "shrink":
                self.shrinking = True
            case "shrunk":
                self.shrunk[event["index"]] = Outcome.from_json(event["outcome"])


class Finished:
    """The file of finished cases of a run, to continue it after an interrupt: a line for the run, a line per case."""

    def __init__(self, path: Path, context: Context, distribution: str) -> None:
        """Open or create the file. `distribution` is the backend's.

        Raises InputError if the file is not one of these, or belongs to a run with other settings or versions.
        """
        self.path = path
        #: The results that the file holds, by name of the case.
        self.results: dict[str, CaseResult] = {}
        header = _facts(context, distribution)
        check_outputs(path)
        whole = self._read(header) if path.exists() else 0
        self._file = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(whole)  # a line that was cut off in the middle
        self._file.seek(whole)
        if not whole:
            self._write(header)

    def add(self, result: CaseResult) -> None:
        """Append a result."""
        self.results[result.case] = result
        self._write(result.to_json())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, values: Mapping[str, Any]) -> None:
        self._file.write(to_json(values, indent=None).encode() + b"\n")
        self._file.flush()

    def _read(self, header: Mapping[str, Any]) -> int:
        """Read the file; returns the number of bytes in whole lines."""
        with open_file(self.path) as file:
            data = file.read()
        whole = data.rfind(b"\n") + 1
        if data and not whole:
            raise InputError("is not a file of finished conformance cases", where=str(self.path))
        for number, line in enumerate(data[:whole].splitlines(), 1):
            where = f"{self.path}, line {number}"
            try:
                if number == 1:
                    self._check(parse_object(line, where), header)
                else:
                    result = CaseResult.from_json(parse(line, where), where)
                    self.results[result.case] = result
            except FormatError as error:
                raise InputError(
                    f"line {number} is not one of a file of finished conformance cases: {error.what}",
                    where=str(self.path),
                ) from error
        return whole

    def _check(self, found: Mapping[str, Any], header: Mapping[str, Any]) -> None:
        other = [
            f"{key} is {_short(found.get(key), value)} there and {value!r} here"
            for key, value in header.items()
            if found.get(key) != value
        ]
        if other:
            raise InputError(
                f"holds the cases of another run: {'; '.join(other)}",
                where=str(self.path),
                hint="name another file, or remove this one",
            )


def _short(found: Any, wanted: Any) -> str:
    """The found value, in whole if it is about as long as the wanted one."""
    text = repr(found)
    return text if len(text) < 2 * len(repr(wanted)) + 100 else cut_off(text)


def _facts(context: Context, distribution: str) -> dict[str, Any]:
    """Facts that must be equal for the results of two runs to be combined."""
    return {
        "format": FORMAT,
        "backend": context.backend,
        "profile": context.profile.name,
        "seed": context.seed,
        "options": {key: str(value) for key, value in context.options.items()},
        "timeout": context.timeout,
        "versions": versions(distribution),
    }
