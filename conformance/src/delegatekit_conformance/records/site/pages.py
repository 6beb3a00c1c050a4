"""The files of a site: pages of all backends, of each backend and each record; badges; the records themselves."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, FunctionLoader
from markupsafe import Markup

from delegatekit_toolkit.json_text import to_json
from delegatekit_tools.text import content_policy

from ... import report
from ...installed import SIGNATURE
from ...outcome import CaseResult, Verdict
from ...report import views
from ...report.marks import CORE, EXPECTED, Mark, mark, mark_of
from ...report.page import asset, bar_style, environment
from ...report.text import first_line
from ..checks import Record
from ..minisign import PublicKey
from .badge import badge
from .entries import Backend, Entry, backends, entries
from .folder import INDEX, MADE_BY

#: A dtype's name as the narrow columns of the matrix have it.
_SHORT: Final = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float64": "f64",
    "bool": "b",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
}
#: A page shows this many faults of a kind; the record has all of them.
_FAULTS: Final = 200


@dataclass(frozen=True)
class Column:
    """A backend in the matrix of operators, with its dtypes."""

    backend: Backend
    dtypes: tuple[str, ...]

    @property
    def heads(self) -> list[tuple[str, str]]:
        """(dtype, its short name)."""
        return [(dtype, _SHORT.get(dtype, dtype)) for dtype in self.dtypes]


def pages(records: Iterable[Record], keys: Sequence[PublicKey]) -> dict[str, bytes]:
    """The files of a site by path. Raises FormatError if a signature by one of the keys does not fit its record."""
    found = entries(records, keys)
    listed = backends(found)
    signers = {entry.key.number: entry.key for entry in found if entry.key is not None}
    operators = sorted({operator for backend in listed for operator in backend.matrix.operators})
    models = list(dict.fromkeys(case for backend in listed for case in backend.models))
    shared: dict[str, Any] = {
        "backends": listed,
        "keys": [signers[number] for number in sorted(signers)],
        "has_operators": bool(operators),
        "has_models": bool(models),
    }
    columns = [Column(backend, backend.matrix.dtypes) for backend in listed if backend.matrix.cells]
    texts = {"index.html": _page("index", shared | {"entries": found[::-1]}, listed)}
    if operators:
        rows = [(operator, [_cells(column, operator) for column in columns]) for operator in operators]
        legend = _legend(result for backend in listed for result in backend.matrix.cells.values())
        texts["operators.html"] = _page("operators", shared | {"columns": columns, "rows": rows, "legend": legend})
    if models:
        tried = [backend for backend in listed if backend.models]
        legend = _legend(known.result for backend in tried for known in backend.models.values())
        rows_of_models = [(case, [backend.models.get(case) for backend in tried]) for case in models]
        texts["models.html"] = _page("models", shared | {"tried": tried, "rows": rows_of_models, "legend": legend})
    for backend in listed:
        texts[f"backends/{backend.page}.html"] = _page("backend", shared | {"backend": backend, "up": "../"}, [backend])
        texts[f"badges/{backend.page}.svg"] = str(badge_of(backend))
    for entry in found:
        texts[f"records/{entry.name}.html"] = report.html([entry.run])
    files = {name: text.encode() for name, text in texts.items()}
    for entry in found:
        files[f"records/{entry.name}.json"] = entry.record.data
        if entry.record.signature is not None:
            files[f"records/{entry.name}.json{SIGNATURE}"] = entry.record.signature.data
    for number, key in signers.items():
        files[f"keys/{number}.pub"] = key.text.encode()
    return files | {INDEX: _index(found, [*files, INDEX])}


def badge_of(backend: Backend) -> Markup:
    """The badge of a backend: its newest version, and the cases with faults."""
    results = backend.results
    faults = sum(result.is_fault for result in results)
    told = "no faults" if not faults else f"{views.cases(faults)} with faults"
    state = "" if backend.is_verified else ", not verified"
    kind = "fault" if faults else "good" if backend.is_verified else "none"
    label = f"{backend.name} {backend.newest.run.backend.version}"
    return badge(label, f"{told} in {len(results):,}{state}", kind)


def _index(found: Sequence[Entry], names: Sequence[str]) -> bytes:
    """The index for programs, by which a later run knows the folder as one of these."""
    listed = [
        {
            "backend": entry.run.backend.name,
            "distribution": entry.run.backend.distribution,
            "version": entry.run.backend.version,
            "options": entry.run.options,
            "profile": entry.run.profile,
            "started": entry.run.started,
            "cases": len(entry.run.results),
            "faults": len(entry.run.faults),
            "expected_faults": len(views.expected(entry.run.results)),
            "wheel": entry.run.backend.installation.sha256,
            "record": f"records/{entry.name}.json",
            "verified_by": entry.key.number if entry.key else None,
        }
        for entry in found
    ]
    site = {"format": 1, "made_by": MADE_BY, "records": listed, "files": sorted(names)}
    return to_json(site).encode() + b"\n"


def _cells(column: Column, operator: str) -> list[Mark | None]:
    cells = column.backend.matrix.cells
    found = (cells.get((operator, dtype)) for dtype in column.dtypes)
    return [None if result is None else mark_of(result) for result in found]


def _legend(results: Iterable[CaseResult]) -> list[tuple[Mark, str]]:
    """The marks in a matrix with their words."""
    shown = {mark_of(result): result for result in results}
    entries = [(mark(verdict), verdict.value) for verdict in Verdict if mark(verdict) in shown]
    if any(one.kind == EXPECTED for one in shown):
        entries.append((Mark("W", EXPECTED), "expected fault, with the letter of its verdict"))
    if CORE in shown:
        entries.append((CORE, "fault of core"))
    return entries


def _page(name: str, values: Mapping[str, Any], shown: Sequence[Backend] = ()) -> str:
    counts = {count for backend in shown for _, count, _ in backend.sheet.bar}
    counts |= {count for backend in shown for entry in backend.entries for _, count, _ in entry.sheet.bar}
    css = asset("page.css") + _asset("site.css") + bar_style(sorted(counts))
    common = {"css": Markup(css), "policy": content_policy(style=css), "up": "", "limit": _FAULTS, "single": True}
    return _environment().get_template(f"{name}.html.jinja").render({**common, **values})


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


@functools.cache
def _environment() -> Environment:
    def own(name: str) -> str | None:
        file = resources.files(__package__).joinpath(name)
        return file.read_text("utf-8") if file.is_file() else None

    base = environment()
    assert base.loader is not None
    found: Environment = base.overlay(loader=ChoiceLoader([FunctionLoader(own), base.loader]))
    found.globals = {**base.globals, "badge": badge_of, "first_line": first_line}
    return found
