"""The backends to tune and their measurements; and the measurements of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from torch.export import ExportedProgram

from delegatekit.errors import WrongArgumentError
from delegatekit.partition import keep_operators
from delegatekit.pipeline import LoweredProgram
from delegatekit.plugins import LoadedBackend, address_of, backends, get_backend
from delegatekit_api import DelegateKitError, LoweringError

from ..arguments import Measuring
from ..digest import program_digest
from .clock import measurer_of
from .measurements import Measurements, Tuned, check_fitting, machine_facts, version_of
from .trials import Tuning, example_inputs

#: The clocks: wall time, or CPU time of this process.
CLOCKS: Final = ("wall", "CPU")

#: `pipeline.lower`.
Lower = Callable[..., LoweredProgram]
_Options = Mapping[str, Mapping[str, Any]]


def measure(given: Measuring, lower: Lower) -> Measurements:
    """Measure what is given to `tune`; `lower` lowers it."""
    programs, names, options = given.programs(), given.backends, given.options or {}
    runs, warm_up, clock = given.runs, given.warm_up, given.clock
    if clock not in CLOCKS or runs < 1 or warm_up < 0:
        raise WrongArgumentError(
            f"clock={clock!r}, runs={runs}, warm_up={warm_up}",
            hint=f"the clock is one of {', '.join(CLOCKS)}, runs 1 or more, warm_up 0 or more",
        )
    loaded = {name: get_backend(name) for name in names} if names else _running(options, cpu=clock == "CPU")
    if not names and len(loaded) > 1:
        given.say(f"tuning on all that run here: {', '.join(loaded)}; it is quicker on fewer (-b auto,NAME,NAME)")
    strangers = set(options) - set(loaded)
    if strangers:
        raise WrongArgumentError(f"options for {', '.join(sorted(strangers))}, not among {', '.join(loaded)}")
    chosen = {name: backend.make_options(options.get(name, {})) for name, backend in loaded.items()}
    for name, backend in loaded.items():
        _check_measurable(name, backend, cpu=clock == "CPU")
    mine = {name: options.get(name, {}) for name in loaded}

    def lower_with(backends: Sequence[str], *, partition: Any = None, keep: Any = None) -> LoweredProgram:
        options = {name: mine[name] for name in backends}
        return lower(programs, backends=backends, options=options, partition=partition, keep=keep)

    wishes = keep_operators({name: backend.create_partitioner(chosen[name]) for name, backend in loaded.items()})
    ids = {name: str(backend.description.delegate_id) for name, backend in loaded.items()}
    inputs = example_inputs(programs)
    with measurer_of(inputs, ids, runs=runs, warm_up=warm_up, cpu=clock == "CPU") as (measurer, facts):
        found = Tuning(lower_with, list(loaded), measurer, wishes, given.say).run(
            {name: version_of(backend) for name, backend in loaded.items()},
            {name: item.to_mapping() for name, item in chosen.items()},
        )
    return Measurements(clock, machine_facts(facts), {program_digest(programs, values=False): found})


def best(
    programs: Mapping[str, ExportedProgram],
    measurements: Measurements,
    names: Sequence[str] | None,
    options: _Options,
) -> Tuned:
    """The measurements of programs, among the backends of these names; `chosen` of it was the fastest.

    Raises FormatError for measurements that do not fit the program or the versions, and WrongArgumentError for options
    or backends other than those that were measured.
    """
    tuned = measurements.of(program_digest(programs, values=False))
    missing = sorted({*(names or ()), *options} - set(tuned.versions))
    if missing:
        measured = ", ".join(tuned.versions)
        raise WrongArgumentError(f"{missing[0]} was not measured, only {measured}", where="measurements", hint=_AGAIN)
    loaded = {name: get_backend(name) for name in tuned.versions if not names or name in names}
    for name, backend in loaded.items():
        if name in options and backend.make_options(options[name]).to_mapping() != tuned.options[name]:
            what = f"{name} was measured with other options: {dict(tuned.options[name])}"
            raise WrongArgumentError(what, where="measurements", hint=_AGAIN)
    tuned = tuned.among(loaded)
    check_fitting(measurements, tuned, {name: loaded[name] for name in tuned.chosen.backends})
    return tuned


_AGAIN: Final = "tune again with these backends and options"


def _running(options: _Options, *, cpu: bool) -> dict[str, LoadedBackend]:
    """The backends that compile and run here; with `cpu` those in this process."""
    found = {}
    for name in backends(check=False):
        try:
            backend = get_backend(name)
            able = backend.compiler_availability(backend.make_options(options.get(name, {}))).available
        except DelegateKitError:
            continue
        if cpu and _is_apart(backend):
            continue
        if able and backend.runtime_availability().available:
            found[name] = backend
    if not found:
        raise LoweringError("no installed backend compiles and runs here", hint="`delegatekit backends --check`")
    return found


def _is_apart(backend: LoadedBackend) -> bool:
    return backend.description.isolated_runtime or address_of(backend.name) is not None


def _check_measurable(name: str, backend: LoadedBackend, *, cpu: bool) -> None:
    where = f"backend {name}"
    runtime = backend.runtime_availability()
    if not runtime.available:
        raise LoweringError(f"cannot be timed, since it does not run here: {runtime.reason}", where=where)
    if cpu and _is_apart(backend):
        raise LoweringError(
            "runs in another process, whose CPU time this process does not see",
            where=where,
            hint="measure wall time, or leave it out",
        )
