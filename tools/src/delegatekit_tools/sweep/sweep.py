"""`sweep`: lowers a model for every target of several backends, and compares the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from delegatekit.errors import UNEXPECTED, WrongArgumentError, as_ours
from delegatekit.pipeline import takes
from delegatekit_api import LoweringError

from ..arguments import Sweeping
from ..digest import program_digest, values_digest
from .jobs import planned
from .material import Material
from .page import page
from .results import Results
from .row import Row
from .runners import run_here, run_on_cluster
from .table import text_table
from .trial import Arguments


@dataclass(frozen=True)
class Sweep:
    """The results of a model on every target: a row for each, in the order of backends, targets and schemes."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        return text_table(self.rows)

    def html(self, title: str = "sweep") -> str:
        """A self-contained page with the table, whose columns sort: no network, light and dark, phone and desktop."""
        return page(self.rows, title)


@dataclass(frozen=True, kw_only=True)
class _Watched(Sweeping):
    """The arguments of `sweep` in Python.

    Args:
        each: Called with each row as it comes.
    """

    each: Callable[[Row], None] = lambda row: None


@as_ours(lambda fault: LoweringError(fault, where="sweep", hint=UNEXPECTED))
@takes(_Watched)
def sweep(given: _Watched) -> Sweep:
    """Lower a model for the targets of several backends, run what runs here, and compare it with eager.

    Raises PluginError for an unknown backend, OptionError for unknown options and schemes, LoweringError for unknown
    targets and where torch.export refuses the model, and FormatError for a file that does not hold results.
    """
    runs, jobs, time_limit = given.runs, given.jobs, given.time_limit
    if runs < 1 or time_limit <= 0 or (jobs is not None and jobs < 1):
        raise WrongArgumentError(f"runs={runs}, jobs={jobs}, time_limit={time_limit}", hint="each is at least 1")
    programs = given.programs()
    material = _material(programs, given.samples, given.calibration)
    content = f"{program_digest(programs)} {values_digest([material.samples, list(material.calibration)])}"
    wanted, broken = planned(given.backends, given.targets, given.options or {}, given.schemes, content, runs)
    known = Results(None if given.results is None else Path(given.results))
    missing = [job for job in wanted if job.key not in known.rows or (given.retry and known.rows[job.key].is_fault)]
    if missing:
        files = material.files()
        if given.scheduler:
            made = run_on_cluster(missing, files, time_limit, given.scheduler)
        else:
            made = run_here(missing, files, time_limit, jobs)
        for row in made:
            known.add(row)
            given.each(row)
    rows = {row.backend: [row] for row in broken}
    for job in wanted:
        rows.setdefault(job.backend, []).append(known.rows[job.key])
    return Sweep(tuple(row for name in dict.fromkeys(given.backends) for row in rows.get(name, ())))


def _material(
    programs: Mapping[str, ExportedProgram],
    samples: Sequence[Sequence[Any]] | None,
    calibration: Sequence[Sequence[Any]] | None,
) -> Material:
    found: dict[str, Sequence[Arguments]] = {}
    for name, program in programs.items():
        if program.example_inputs is not None:
            args, kwargs = program.example_inputs
            found[name] = [(tuple(args), dict(kwargs))]
    if samples is not None:
        if len(programs) > 1:
            raise WrongArgumentError("samples are for models of one method", hint="each runs on its example inputs")
        found = {next(iter(programs)): [(_tuple(sample), {}) for sample in samples]}
    if calibration is not None:
        given = [_tuple(sample) for sample in calibration]
    else:
        by_position = [args for items in found.values() for args, kwargs in items if not kwargs]
        given = by_position if len(programs) == 1 else []
    return Material(programs, found, given)


def _tuple(sample: Any) -> tuple[Any, ...]:
    return (sample,) if isinstance(sample, torch.Tensor) else tuple(sample)
