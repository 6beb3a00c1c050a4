"""`tune` measures a model; `placement` gives the arguments of `lower` that place it accordingly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegatekit.errors import UNEXPECTED, as_ours
from delegatekit.pipeline import Source, lower, takes
from delegatekit_api import LoweringError

from ..arguments import Measuring
from .measurements import Measurements
from .measuring import best, measure


@as_ours(lambda fault: LoweringError(fault, where="tune", hint=UNEXPECTED))
@takes(Measuring)
def tune(given: Measuring) -> Measurements:
    """Measure a model on backends that run here, to lower it in the fastest way: `lower(..., **placement(...))`.

    Times are those of ExecuTorch's own runtime, in a process of its own, where it has the delegates (or
    `delegatekit-executorch` adds them); otherwise they are estimates, and say so. Each operator is timed in a delegate
    of its own on each backend that takes it, and on the runtime's kernels; the cost of a border is what joining
    operators saves. The cheapest mixtures by these figures, each backend alone, all in the given order, and the runtime
    alone are then timed as a whole on the example inputs, in rounds. A mixture is chosen only if it is faster than the
    best single backend by 2 % once more, in a new process; the runtime alone only if it was measured to be faster.

    Raises as `lower` does, and LoweringError for a backend that does not run here.
    """
    return measure(given, lower)


@dataclass(frozen=True, kw_only=True)
class Placing(Source):
    """The arguments of `placement`.

    Args:
        measurements: Measurements of `tune`, or the file of them.
        backends: Backends that may be used, by default all that were measured.
        options: Options of backends, by the backends' names. Where given, they must be those that were measured.
    """

    measurements: Measurements | str | Path
    backends: Sequence[str] | None = None
    options: Mapping[str, Mapping[str, Any]] | None = None


@as_ours(lambda fault: LoweringError(fault, where="placement", hint=UNEXPECTED))
@takes(Placing)
def placement(given: Placing) -> dict[str, Any]:
    """The arguments of `lower` that place a model as measured: `backends`, `options`, `partition` and `keep`.

    Lowering with `passes` lowers another program than the one that was measured. Raises FormatError for measurements of
    another program or of other versions, WrongArgumentError for other backends or options.
    """
    known = given.measurements
    measurements = known if isinstance(known, Measurements) else Measurements.load(known)
    tuned = best(given.programs(), measurements, given.backends, given.options or {})
    chosen = tuned.chosen
    return {
        "backends": chosen.backends,
        "options": {name: tuned.options[name] for name in chosen.backends},
        "partition": chosen.placement,
        "keep": chosen.keep,
    }
