"""`sweep`: lowers a model for every target of several backends, and compares the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from delegatekit.edge import Model, exported_programs
from delegatekit.errors import UNEXPECTED, WrongArgumentError, as_ours
from delegatekit_api import LoweringError

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


@as_ours(lambda fault: LoweringError(fault, where="sweep", hint=UNEXPECTED))
def sweep(
    model: Model | Mapping[str, Model],
    inputs: Sequence[Any] | None = None,
    *,
    backends: Sequence[str],
    targets: Sequence[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    schemes: Sequence[str] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    samples: Sequence[Sequence[Any]] | None = None,
    calibration: Sequence[Sequence[Any]] | None = None,
    runs: int = 10,
    results: str | Path | None = None,
    retry: bool = False,
    jobs: int | None = None,
    scheduler: str = "",
    time_limit: float = 600.0,
    each: Callable[[Row], None] = lambda row: None,
) -> Sweep:
    """Lower a model for the targets of several backends, run what runs here, and compare it with eager.

    `model`, `inputs`, `options`, `kwargs` and `dynamic_shapes` are as for `lower`. `targets` are names of targets,
    "BACKEND=NAME", or "all"; a backend without one compiles for its default. `schemes` are "NAME" or
    "BACKEND=NAME", each a row: a scheme of the backend, "float", or "auto" (the default): the backend's first scheme
    if it takes nothing of the model in float.

    `samples` are inputs on which outputs are compared with eager, each a tuple; by default the example inputs.
    `calibration` are the inputs of calibration, by default the samples. `runs` calls are timed, fewer
    if they take long.

    Each row is made in a process of its own, `jobs` at a time (None: one for each CPU), or on the Dask cluster at
    `scheduler`, on workers with a resource named after the backend; one that takes more than `time_limit` seconds, or
    crashes, is a failed row. Rows that are in the file `results` are not made again, unless they failed and `retry`
    is given; others are added to it as they come, so that an interrupted sweep resumes. `each` is called
    with each row as it comes.

    Raises PluginError for an unknown backend, OptionError for unknown options and schemes, LoweringError for unknown
    targets and where torch.export refuses the model, and FormatError for a file that does not hold results.
    """
    if runs < 1 or time_limit <= 0 or (jobs is not None and jobs < 1):
        raise WrongArgumentError(f"runs={runs}, jobs={jobs}, time_limit={time_limit}", hint="each is at least 1")
    programs = exported_programs(model, inputs, kwargs, dynamic_shapes, nullcontext())
    material = _material(programs, samples, calibration)
    content = f"{program_digest(programs)} {values_digest([material.samples, list(material.calibration)])}"
    wanted, broken = planned(backends, targets, options or {}, schemes, content, runs)
    known = Results(None if results is None else Path(results))
    missing = [job for job in wanted if job.key not in known.rows or (retry and known.rows[job.key].is_fault)]
    if missing:
        files = material.files()
        if scheduler:
            made = run_on_cluster(missing, files, time_limit, scheduler)
        else:
            made = run_here(missing, files, time_limit, jobs)
        for row in made:
            known.add(row)
            each(row)
    rows = {row.backend: [row] for row in broken}
    for job in wanted:
        rows.setdefault(job.backend, []).append(known.rows[job.key])
    return Sweep(tuple(row for name in dict.fromkeys(backends) for row in rows.get(name, ())))


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
