"""The arguments of `compare`, `repartition`, `sweep` and `tune`, declared as those of `delegatekit.pipeline` are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delegatekit.pipeline import Lowering, Selecting, Source

if TYPE_CHECKING:
    from delegatekit.compiling import Compiling
    from delegatekit.passes import ProgramPassLike


@dataclass(frozen=True, kw_only=True)
class Comparing(Selecting):
    """The arguments of `compare`.

    Args:
        against: Other backends, in priority order: name the first operator that is wrong on either. Within their bounds
            on both, results cannot be further apart than both bounds together.
        passes: Passes that change the program before backends are asked about it, in order. The model without them is
            the reference: one that changes what is computed is named.
        scheme: Quantize first, by this scheme of the first backend ('' is its first), and compare with the
            fake-quantized model. The inputs are the calibration.
        method: The method to compare, of several.
        values: Inputs of the call, flat. Without them the example inputs, or random ones if a program has none.
        seed: Seed of random inputs, for a program without examples.
        tighten: Divide the bounds by this. 1 or more.
        thorough: Also try neighbors together where the outputs are right.
        compiling: How the backends' compilers run.
    """

    against: Sequence[str] = ()
    passes: Sequence[ProgramPassLike] | None = None
    scheme: str | None = None
    method: str | None = None
    values: Sequence[Any] | None = None
    seed: int = 0
    tighten: float = 1.0
    thorough: bool = False
    compiling: Compiling | None = None


@dataclass(frozen=True, kw_only=True)
class Repartitioning(Lowering):
    """The arguments of `repartition`.

    Args:
        limit: Compilations of parts that the search for operators may take, all together.
    """

    limit: int = 64


@dataclass(frozen=True, kw_only=True)
class Sweeping(Source):
    """The arguments of `sweep`.

    Args:
        backends: Backends, in the order of the rows.
        targets: Targets (`delegatekit targets`): "NAME", "BACKEND=NAME", or all. A backend without one
            compiles for its default.
        options: Options of backends, by the backends' names.
        schemes: Schemes (`delegatekit schemes`): "NAME", "BACKEND=NAME", float, or auto (the default): the backend's
            first scheme where it takes nothing in float. A row for each.
        samples: Inputs on which outputs are compared with eager, each a tuple. By default the example inputs.
        calibration: Inputs to calibrate with. By default the samples.
        runs: Calls that are timed. Fewer where they take long.
        results: A file that keeps the rows: an interrupted sweep resumes. Rows that are in it are not made
            again, others are added as they come.
        retry: Make rows of the file again that failed.
        jobs: Rows to make in parallel, each in a process of its own; by default one per CPU.
        scheduler: A Dask cluster whose workers have a resource named as the backend. Its address, for rows that are
            made there.
        time_limit: Time limit of a row in seconds. A row that takes more, or crashes, is a failed row.
    """

    backends: Sequence[str]
    targets: Sequence[str] = ()
    options: Mapping[str, Mapping[str, Any]] | None = None
    schemes: Sequence[str] = ()
    samples: Sequence[Sequence[Any]] | None = None
    calibration: Sequence[Sequence[Any]] | None = None
    runs: int = 10
    results: str | Path | None = None
    retry: bool = False
    jobs: int | None = None
    scheduler: str = ""
    time_limit: float = 600.0


@dataclass(frozen=True, kw_only=True)
class Measuring(Source):
    """The arguments of `tune`.

    Args:
        backends: Candidates, by default all that compile and run here.
        options: Options of backends, by the backends' names.
        runs: Timed calls, of which the median is used.
        warm_up: Warm-up calls.
        clock: wall, or CPU: the CPU time of this process, for machines with other work.
        say: A function that is called with progress.
    """

    backends: Sequence[str] | None = None
    options: Mapping[str, Mapping[str, Any]] | None = None
    runs: int = 20
    warm_up: int = 3
    clock: str = "wall"
    say: Callable[[str], None] = lambda text: None
