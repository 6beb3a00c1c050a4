"""`tune` measures a model; `placement` gives the arguments of `lower` that place it accordingly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from delegatekit.edge import Model, exported_programs
from delegatekit.errors import UNEXPECTED, as_ours
from delegatekit.pipeline import lower
from delegatekit_api import LoweringError

from .measurements import Measurements
from .measuring import best, measure


@as_ours(lambda fault: LoweringError(fault, where="tune", hint=UNEXPECTED))
def tune(
    model: Model | Mapping[str, Model],
    inputs: Sequence[Any] | None = None,
    *,
    backends: Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    runs: int = 20,
    warm_up: int = 3,
    clock: str = "wall",
    say: Callable[[str], None] = lambda text: None,
) -> Measurements:
    """Measure a model on backends that run here, to lower it in the fastest way: `lower(..., **placement(...))`.

    Each operator is timed in a delegate of its own on each backend that takes it, and on the runtime's kernels; the
    cost of a border is what joining operators saves. The cheapest mixtures by these figures, each backend alone, all in
    the given order, and the runtime alone are then timed as a whole, in turn, on the example inputs. A mixture is
    chosen only if it is faster than all others by 2 %.

    `backends` are the candidates, by default all that compile and run here; the other arguments up to `dynamic_shapes`
    are those of `lower`. `runs` calls are timed, of which the median is used, after `warm_up` others. `clock` is "wall"
    or "CPU": the CPU seconds of this process, for machines with other work. `say` is called with progress. Raises as
    `lower` does, and LoweringError for a backend that does not run here.
    """
    programs = exported_programs(model, inputs, kwargs, dynamic_shapes, nullcontext())
    return measure(programs, lower, backends, options or {}, runs=runs, warm_up=warm_up, clock=clock, say=say)


@as_ours(lambda fault: LoweringError(fault, where="placement", hint=UNEXPECTED))
def placement(
    model: Model | Mapping[str, Model],
    inputs: Sequence[Any] | None = None,
    *,
    measurements: Measurements | str | Path,
    backends: Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> dict[str, Any]:
    """The arguments of `lower` that place a model as measured: `backends`, `options`, `partition` and `keep`.

    `measurements` are those of `tune`, or the file of them. `backends` are those that may be used, by default all that
    were measured; `options`, if given, must be those that were measured. Lowering with `passes` lowers another
    program than the one that was measured. Raises FormatError for measurements of another program or of other versions,
    WrongArgumentError for other backends or options.
    """
    if not isinstance(measurements, Measurements):
        measurements = Measurements.load(measurements)
    programs = exported_programs(model, inputs, kwargs, dynamic_shapes, nullcontext())
    tuned = best(programs, measurements, backends, options or {})
    chosen = tuned.chosen
    return {
        "backends": chosen.backends,
        "options": {name: tuned.options[name] for name in chosen.backends},
        "partition": chosen.placement,
        "keep": chosen.keep,
    }
