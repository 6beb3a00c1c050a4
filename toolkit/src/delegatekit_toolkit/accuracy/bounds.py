"""The oracle: eager's results in double precision, and the tolerance that separates right from wrong.

Everything follows from dtypes, the length of sums, the number of operators that follow one another, the precision
that the backend declares and the steps of quantization: no example, model or operator has a tolerance of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from delegatekit_api import PluginError

#: Unit roundoff of the floating-point formats: half the distance from 1 to the next number.
ROUNDOFF: Mapping[str, float] = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclass(frozen=True)
class Accuracy:
    """The attainable accuracy of results.

    `reduction_length` is the number of products in the longest sum; `depth` counts consecutive rounding operators.
    Results that are `exact` are copies, integers or choices among the inputs: no rounding in the output's own dtype is
    allowed. `ill_conditioned` results may deviate by the effect of rounding the inputs. Integers that a quantization
    rounds to may deviate by `steps`: one for each consecutive rounding to integers, since a number between two of them
    may be rounded to either. `step` is that step's size relative to the range that it divides: floating-point results
    of quantized numbers cannot be more exact.
    """

    reduction_length: int = 1
    depth: int = 1
    exact: bool = False
    ill_conditioned: bool = False
    steps: int = 0
    step: float = 0.0

    def roundoff(self, precision: str) -> float:
        """Unit roundoff of a precision, at least that of float32."""
        return max(ROUNDOFF["float32"], ROUNDOFF.get(precision, 0.0))


@dataclass(frozen=True)
class Comparison:
    """The error of outputs against their references. `difference` describes what no tolerance allows."""

    error: float | None = None
    tolerance: float | None = None
    difference: str = ""

    @property
    def agrees(self) -> bool:
        """True if the outputs count as right."""
        return not self.difference

    def worse(self, other: Comparison) -> Comparison:
        """The comparison with less margin to its tolerance, or with the larger excess."""
        if self.error is None or self.tolerance is None:
            return other
        if other.error is None or other.tolerance is None:
            return self
        return other if other.error * self.tolerance > self.error * other.tolerance else self


def tolerance(dtype: str, precision: str, reduction_length: int, depth: int = 1) -> float:
    """Largest admissible error of an output, relative to the largest reference value of that output.

    `dtype` is the output's, `precision` what the backend declares to compute in; the coarser of the two counts, with
    unit roundoff u. Integer and bool outputs must be exact: 0. Raises PluginError for an unknown precision.

    Derivation. A sum of n = `reduction_length` products rounds each partial sum s_k by at most u |s_k|. If roundings
    are independent with mean zero (Higham and Mary, A new approach to probabilistic rounding error analysis, 2019),
    their variance is at most u^2/3 times the sum of s_k^2. Terms of one sign give s_k = k m and a standard deviation
    of u m n^1.5 / 3 on a result of n m; terms of random sign with deviation d give s_k ~ sqrt(k) d and 0.4 u d n on a
    result of about sqrt(n) d. Either way the relative error is 0.4 sqrt(n) u or less, whatever the order of
    summation. Each of `depth` consecutive operators adds such an error of its own, and to first order they
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
    references: Sequence[Any],
    native: Sequence[torch.Tensor],
    precision: str,
    accuracy: Accuracy,
    moved: Sequence[torch.Tensor] | None = None,
) -> Comparison:
    """Compare outputs with references in float64 of the same shapes; `native` are eager's results in its own dtype.

    NaN and infinities must occur where the reference or eager's own result has them (eager's kernels disagree about,
    say, gelu(-inf)). The other elements must lie within `tolerance` plus twice the distance of the reference from
    `moved` (the outputs for inputs that are off by one rounding) plus the smallest normal float32 number. The output
    with the least margin, or the largest excess, is reported.
    """
    if len(results) != len(references):
        return Comparison(difference=f"{len(results)} outputs instead of {len(references)}")
    worst = Comparison()
    for index, (result, reference, eager) in enumerate(zip(results, references, native, strict=True)):
        name = str(eager.dtype).removeprefix("torch.")
        difference = _difference(result, reference, eager)
        if difference:
            return Comparison(difference=f"output {index} {difference}")
        if accuracy.steps and name not in ROUNDOFF and name != "bool":
            found = _in_steps(result, reference, precision, accuracy)
            if not found.agrees:
                return replace(found, difference=f"output {index}: {found.difference}")
            worst = worst.worse(found)
            continue
        limit = _limit(name, precision, accuracy)
        error = _error(result, reference, None if moved is None else moved[index])
        if error > limit:
            text = f"output {index}: relative error {error:.3g} is above {limit:.3g}"
            return Comparison(error, limit, text)
        worst = worst.worse(Comparison(error, limit))
    return worst


def slack(
    reference: torch.Tensor, dtype: torch.dtype, precision: str, accuracy: Accuracy, moved: torch.Tensor | None = None
) -> torch.Tensor:
    """The largest admissible error of each element, in double precision: what `compare` allows for such an output.

    `dtype` is that of the output in the program. Special values have none.
    """
    name, exact = str(dtype).removeprefix("torch."), reference.double()
    if accuracy.steps and name not in ROUNDOFF and name != "bool":
        return torch.full_like(exact, _steps(precision, accuracy))
    finite = exact[exact.isfinite()].abs()
    most = _limit(name, precision, accuracy) * (float(finite.max()) if finite.numel() else 0.0)
    if name in ROUNDOFF and name != "float64":
        most += torch.finfo(torch.float32).tiny
    found = torch.full_like(exact, most)
    if moved is not None:
        found += (2 * (moved.double() - exact).abs()).nan_to_num(0.0, 0.0)
    return found.masked_fill(~exact.isfinite(), 0.0)


def widened(value: Any) -> Any:
    """The value in double precision, contiguous: some of eager's kernels are wrong with other strides."""
    if not isinstance(value, torch.Tensor):
        return value
    return (value.double() if value.is_floating_point() else value).contiguous()


def shaken(value: Any, roundoff: float) -> Any:
    """The value changed by one rounding, alternately up and down."""
    if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
        return value
    signs = torch.ones(value.numel(), dtype=value.dtype)
    signs[::2] = -1
    return value * (1 + roundoff * signs.reshape(value.shape))


def rounded(value: Any, roundoff: float) -> Any:
    """The value rounded to a type with this unit roundoff (a power of two), without limits on its magnitude."""
    if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
        return value
    mantissa, exponent = torch.frexp(value)
    return torch.ldexp((mantissa / roundoff).round() * roundoff, exponent)


def _in_steps(result: torch.Tensor, reference: torch.Tensor, precision: str, accuracy: Accuracy) -> Comparison:
    """Compare the integers of quantized numbers by the number of steps between them.

    Sums of integers are exact, but a step finer than the backend's declared precision is lost in that precision.
    """
    far = (result.long() - reference.long()).abs()
    most, limit = int(far.max()) if far.numel() else 0, _steps(precision, accuracy)
    words = f"{most} steps off, {limit} may be" if most > limit else ""
    return Comparison(float(most), float(limit), words)


def _steps(precision: str, accuracy: Accuracy) -> int:
    """The number of steps that integers of quantized numbers may be off."""
    in_precision = tolerance("float32", precision, 1, accuracy.steps) / (2 * accuracy.step) if accuracy.step else 0.0
    return max(accuracy.steps, int(in_precision))


def _limit(name: str, precision: str, accuracy: Accuracy) -> float:
    """The largest admissible error of an output of a dtype, relative to its largest value."""
    limit = tolerance(name, precision, accuracy.reduction_length, accuracy.depth)
    if accuracy.exact and ROUNDOFF.get(name, 0.0) >= ROUNDOFF[precision]:
        return 0.0
    return max(limit, 8.0 * accuracy.step * math.sqrt(accuracy.reduction_length)) if accuracy.step else limit


def _difference(result: Any, reference: torch.Tensor, eager: torch.Tensor) -> str:
    """An output's error other than of its values: type, shape, dtype, special values."""
    shape = getattr(result, "shape", None)
    if shape is None:
        return f"is a {type(result).__name__}, not a tensor"
    if tuple(shape) != tuple(reference.shape):
        return f"has shape {tuple(shape)}, not {tuple(reference.shape)}"
    if result.dtype != eager.dtype:
        return f"has dtype {result.dtype}, not {eager.dtype}"
    if result.dtype == torch.bool and result.numel() and int(result.contiguous().view(torch.uint8).max()) > 1:
        return "has bool elements whose byte is neither 0 nor 1"
    wrong = (result.isnan() != reference.isnan()) & (result.isnan() != eager.isnan())
    if wrong.any():
        return f"has NaN, or none, where the reference differs: {int(wrong.sum())} of {wrong.numel()} elements"
    # A number beyond the output's range must become the infinity of eager's dtype.
    rounded = reference.to(eager.dtype)
    infinite = (result.isinf() | rounded.isinf()) & ~result.isnan()
    wrong = infinite & (result != rounded) & (result != eager)
    if wrong.any():
        return f"has infinities where the reference differs: {int(wrong.sum())} of {wrong.numel()} elements"
    return ""


def _error(result: torch.Tensor, reference: torch.Tensor, moved: torch.Tensor | None) -> float:
    """The largest difference of finite elements, relative to the largest finite reference value."""
    rounded = reference.to(result.dtype)  # rounded to the output's dtype: 65505 and 65504 are one float16
    finite = reference.isfinite() & result.isfinite()
    if not finite.any():
        return 0.0
    expected = reference[finite]
    distance = (result[finite].double() - expected.double()).abs()
    distance[result[finite] == rounded[finite]] = 0.0
    if result.is_floating_point() and result.dtype != torch.float64:
        # Processors may flush subnormal numbers to zero.
        distance = (distance - torch.finfo(torch.float32).tiny).clamp(min=0.0)
    if moved is not None:
        slack = 2 * (moved[finite].double() - expected.double()).abs()
        distance = (distance - slack.nan_to_num(0.0, 0.0)).clamp(min=0.0)
    largest = float(distance.max())
    scale = float(expected.double().abs().max())
    if scale == 0.0:
        return 0.0 if largest == 0.0 else math.inf
    return largest / scale
