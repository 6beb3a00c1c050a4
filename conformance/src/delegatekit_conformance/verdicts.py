"""What can come of a case, the comparison with the reference, and the tolerance that separates right from wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from delegatekit_api import PluginError

if TYPE_CHECKING:
    import torch

#: Unit roundoff of the floating-point formats: half the distance from 1 to the next number.
ROUNDOFF: Mapping[str, float] = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


class Verdict(Enum):
    """The outcome of one case."""

    DELEGATED = "correct, delegated"
    PARTLY = "correct, partly delegated"
    FALLBACK = "correct, nothing delegated"
    REFUSED = "refused with reason"
    UNAVAILABLE = "compiled, runtime not available"
    LOWERING_ERROR = "lowering error"
    LOAD_ERROR = "load error"
    RUN_ERROR = "run error"
    MISMATCH = "wrong result"
    CRASH = "crash"
    TIMEOUT = "timeout"

    @property
    def is_fault(self) -> bool:
        """Whether the backend did something that a user must not meet."""
        return self in _FAULTS


_FAULTS = frozenset(
    {
        Verdict.LOWERING_ERROR,
        Verdict.LOAD_ERROR,
        Verdict.RUN_ERROR,
        Verdict.MISMATCH,
        Verdict.CRASH,
        Verdict.TIMEOUT,
    }
)


@dataclass(frozen=True)
class Outcome:
    """A case with its verdict. `seconds` are wall time, the start of the worker process included."""

    case: str
    verdict: Verdict
    detail: str = ""
    delegates: int = 0
    delegated_nodes: int = 0
    fallback_calls: int = 0
    #: Operators that the backend left, with its reasons.
    refusals: tuple[str, ...] = ()
    #: The largest error, relative to the largest finite reference value; None where nothing could be compared.
    error: float | None = None
    tolerance: float | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return asdict(self) | {"verdict": self.verdict.value, "fault": self.verdict.is_fault}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """The inverse of `to_json`."""
        fields = {key: value for key, value in values.items() if key != "fault"}
        fields["verdict"] = Verdict(fields["verdict"])
        fields["refusals"] = tuple(fields["refusals"])
        return cls(**fields)


@dataclass(frozen=True)
class Comparison:
    """How far outputs are from their references. `difference` is what no tolerance excuses, in words."""

    error: float | None = None
    tolerance: float | None = None
    difference: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the outputs count as right."""
        return not self.difference


def tolerance(dtype: str, precision: str, reduction_length: int, depth: int = 1) -> float:
    """Largest admissible error of an output, relative to the largest reference value of that output.

    `dtype` is the output's, `precision` what the backend declares to compute in; the coarser of the two counts, with
    unit roundoff u. Integer and bool outputs must be exact: 0. Raises PluginError for an unknown precision.

    Derivation. A sum of n = `reduction_length` products rounds each partial sum s_k by at most u |s_k|. If roundings
    are independent with mean zero (Higham and Mary, A new approach to probabilistic rounding error analysis, 2019),
    their variance is at most u^2/3 times the sum of s_k^2. Terms of one sign give s_k = k m and a standard deviation
    of u m n^1.5 / 3 on a result of n m; terms of random sign with deviation d give s_k ~ sqrt(k) d and 0.4 u d n on a
    result of about sqrt(n) d. Either way the relative error is 0.4 sqrt(n) u or less, whatever the order of
    summation. Each of `depth` operators one behind the other adds such an error of its own, and to first order they
    add up where the operators are well conditioned, as those of the suite are. The factor 8 is 20 standard deviations
    for long sums; for n = 1 it leaves room for approximated functions (exp, tanh: a few units in the last place).
    """
    if precision not in ROUNDOFF:
        known = ", ".join(ROUNDOFF)
        raise PluginError(f"compute_precision {precision!r} is unknown", hint=f"a backend may declare: {known}")
    if dtype not in ROUNDOFF:
        return 0.0
    roundoff = max(ROUNDOFF[dtype], ROUNDOFF[precision])
    return 8.0 * roundoff * depth * math.sqrt(max(1, reduction_length))


def compare(
    results: Sequence[Any],
    references: Sequence[torch.Tensor],
    dtypes: Sequence[torch.dtype],
    *,
    precision: str,
    reduction_length: int,
    depth: int = 1,
) -> Comparison:
    """Compare outputs with references in float64 of the same shapes; `dtypes` are those that eager returns.

    NaN and infinities must stand where the reference has them; the other elements must lie within `tolerance`. With
    several outputs, the one that comes closest to its tolerance, or exceeds it most, is reported.
    """
    if len(results) != len(references):
        return Comparison(difference=f"{len(results)} outputs instead of {len(references)}")
    worst = Comparison(0.0, 0.0)
    for index, (result, reference, dtype) in enumerate(zip(results, references, dtypes, strict=True)):
        name = str(dtype).removeprefix("torch.")
        difference = _difference(result, reference, dtype)
        if difference:
            return Comparison(difference=f"output {index} {difference}")
        limit = tolerance(name, precision, reduction_length, depth)
        error = _error(result, reference)
        if error > limit:
            text = f"output {index}: relative error {error:.3g} is above {limit:.3g}"
            return Comparison(error, limit, text)
        if index == 0 or error * (worst.tolerance or 0.0) > (worst.error or 0.0) * limit:
            worst = Comparison(error, limit)
    return worst


def _difference(result: Any, reference: torch.Tensor, dtype: torch.dtype) -> str:
    """What is wrong with an output apart from the size of its errors."""
    shape = getattr(result, "shape", None)
    if shape is None:
        return f"is a {type(result).__name__}, not a tensor"
    if tuple(shape) != tuple(reference.shape):
        return f"has shape {tuple(shape)}, not {tuple(reference.shape)}"
    if result.dtype != dtype:
        return f"has dtype {result.dtype}, not {dtype}"
    wrong = result.isnan() != reference.isnan()
    if wrong.any():
        return f"has NaN, or none, where the reference differs: {int(wrong.sum())} of {wrong.numel()} elements"
    # A number beyond the output's range must become the infinity that eager's dtype has in its place.
    rounded = reference.to(dtype)
    infinite = result.isinf() | rounded.isinf()
    wrong = infinite & (result != rounded)
    if wrong.any():
        return f"has infinities where the reference differs: {int(wrong.sum())} of {wrong.numel()} elements"
    return ""


def _error(result: torch.Tensor, reference: torch.Tensor) -> float:
    """The largest difference of finite elements, relative to the largest finite reference value."""
    finite = reference.isfinite() & result.isfinite()
    if not finite.any():
        return 0.0
    expected = reference[finite]
    largest = float((result[finite].double() - expected).abs().max())
    scale = float(expected.abs().max())
    if scale == 0.0:
        return 0.0 if largest == 0.0 else math.inf
    return largest / scale
