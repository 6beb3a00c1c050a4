"""`tune`: measures a model for `lower(..., backends="auto")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from delegatekit_api import LoweringError

from ..edge.export import Model, exported_programs
from ..foreign import UNEXPECTED, as_ours
from ..pipeline import lower
from ..tuning import AUTO, Measurements, measure


@as_ours(lambda fault: LoweringError(fault, where="tune", hint=UNEXPECTED))
def tune(
    model: Model | Mapping[str, Model],
    inputs: Sequence[Any] | None = None,
    *,
    backends: Sequence[str] = AUTO,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    runs: int = 20,
    warm_up: int = 3,
    clock: str = "wall",
    say: Callable[[str], None] = lambda text: None,
) -> Measurements:
    """Measure a model on backends that run here, to lower it in the fastest way: `lower(..., backends="auto")`.

    Each operator is timed in a delegate of its own on each backend that takes it, and on the runtime's kernels; what a
    border costs is what joining operators saves. The cheapest mixtures by these figures, each backend alone, all in the
    given order, and the runtime alone are then timed as a whole, in turns, on the example inputs. A mixture is chosen
    only if it is faster than all others by 2 %.

    `backends` are the candidates, "auto" all that compile and run here; the other arguments up to `dynamic_shapes` are
    those of `lower`. `runs` calls are timed, of which the median counts, after `warm_up` others. `clock` is "wall" or
    "CPU": the CPU seconds of this process, for machines with other work. `say` is told what is done next. Raises as
    `lower` does, and LoweringError for a backend that does not run here.
    """
    programs = exported_programs(model, inputs, kwargs, dynamic_shapes, nullcontext())
    return measure(programs, lower, backends, options or {}, runs=runs, warm_up=warm_up, clock=clock, say=say)
