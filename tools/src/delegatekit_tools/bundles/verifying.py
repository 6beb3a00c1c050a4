"""Runs the cases of a bundle on the engine, and compares the results with the expected outputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from delegatekit.engine import LoadedProgram, load
from delegatekit.errors import UnknownMethodError
from delegatekit.files import Source
from delegatekit.pte import naming
from delegatekit_api import DelegateKitError, ExecutionError

from . import schema as tables
from .file import read_bundle
from .values import from_value


@dataclass(frozen=True)
class Difference:
    """An output that differs from the expected one."""

    output: int
    #: "0.5 instead of 0.7 at [0, 3]; 2 of 8 values differ, by 0.2 at most"
    what: str


@dataclass(frozen=True)
class CaseResult:
    """The result of one case."""

    method: str
    case: int
    #: The largest absolute difference of a number from the expected one; None if there is no number to compare.
    largest: float | None = None
    differences: tuple[Difference, ...] = ()
    #: The reason why it could not be run; empty if it could.
    error: str | None = None
    #: True if outputs are expected of it.
    expects: bool = True

    @property
    def passes(self) -> bool:
        """True if it ran and nothing differs."""
        return self.error is None and not self.differences

    def __str__(self) -> str:
        head = f"{self.method}, case {self.case}: "
        if self.error is not None:
            return f"{head}fails: {self.error}"
        if self.differences:
            return "\n".join([f"{head}differs", *(f"  output {item.output}: {item.what}" for item in self.differences)])
        if not self.expects:
            return f"{head}ran, nothing is expected"
        return f"{head}passes" + (f", largest difference {self.largest:.3g}" if self.largest is not None else "")


@dataclass(frozen=True)
class Verification:
    """The results of all cases."""

    results: tuple[CaseResult, ...]
    rtol: float
    atol: float

    @property
    def passes(self) -> bool:
        """True if every case passes."""
        return all(item.passes for item in self.results)

    def __str__(self) -> str:
        failed = sum(not item.passes for item in self.results)
        total = f"{len(self.results)} cases" if len(self.results) != 1 else "1 case"
        bounds = f"(atol {self.atol:g}, rtol {self.rtol:g})"
        last = f"{total}: {f'{failed} not as expected' if failed else 'all as expected'} {bounds}"
        return "\n".join([*map(str, self.results), last])


def verify(
    source: Source,
    *,
    methods: Sequence[str] = (),
    rtol: float = 1e-3,
    atol: float = 1e-5,
    data: Source | Sequence[Source] = (),
    backends: Sequence[str] = (),
    isolate: bool | Collection[str] = False,
    time_limit: float | None = None,
) -> Verification:
    """Run each case of a bundle (.bpte) on the Python engine, from the buffers' initial values, and compare.

    A float may differ by `atol + rtol * |expected|`, an integer by `atol`; NaN equals NaN. `methods` are those whose
    cases are run, by default all; the rest is as for `load`. Raises FormatError for a damaged file,
    UnknownMethodError, and what `load` raises; a case that the method refuses, or that fails while it runs, is a
    result.
    """
    if not (rtol >= 0 and atol >= 0 and math.isfinite(rtol) and math.isfinite(atol)):
        raise DelegateKitError(f"rtol {rtol} and atol {atol} must be finite numbers that are not negative")
    with naming(source):
        cases = read_bundle(source).cases
    wrong = next((name for name in methods if name not in cases), None)
    if wrong is not None:
        raise UnknownMethodError(f"there are no cases of a method {wrong!r} (there are some of: {', '.join(cases)})")
    with load(source, data=data, backends=backends, isolate=isolate, time_limit=time_limit) as loaded:
        results = [
            _tried(loaded, name, index, case, rtol, atol)
            for name in methods or cases
            for index, case in enumerate(cases[name])
        ]
    if not results:
        raise DelegateKitError("has no cases", where="bundle", hint="`delegatekit bundle` adds some")
    return Verification(tuple(results), rtol, atol)


def _tried(loaded: LoadedProgram, name: str, index: int, case: tables.TestCase, rtol: float, atol: float) -> CaseResult:
    where = f"method {name}, case {index}"
    inputs = _values(case.inputs, f"{where}, input")
    wanted = _values(case.expected_outputs, f"{where}, expected output")
    method = loaded[name]
    loaded.reset()
    try:
        results = method.run(inputs)
    except ExecutionError as error:
        return CaseResult(name, index, error=str(error))
    if not wanted:
        return CaseResult(name, index, expects=False)
    if len(wanted) != len(results):
        count = Difference(0, f"{len(results)} outputs instead of {len(wanted)}")
        return CaseResult(name, index, differences=(count,))
    found = [_compared(got, want, rtol, atol) for got, want in zip(results, wanted, strict=True)]
    numbers = [largest for largest, _ in found if largest is not None]
    differences = tuple(Difference(place, what) for place, (_, what) in enumerate(found) if what)
    return CaseResult(name, index, max(numbers, default=None), differences)


def _values(values: Iterable[tables.Value] | None, where: str) -> list[Any]:
    return [from_value(value, f"{where} {index}") for index, value in enumerate(values or ())]


def _compared(got: Any, want: Any, rtol: float, atol: float) -> tuple[float | None, str]:
    """The largest difference of two outputs, and a description of the fault, "" if there is none."""
    if isinstance(got, torch.Tensor) and isinstance(want, torch.Tensor):
        if got.dtype != want.dtype or got.shape != want.shape:
            return None, f"{_kind(got)} instead of {_kind(want)}"
        return _compared_tensors(got, want, rtol, atol)
    if type(got) is float and type(want) is float:
        return _compared_tensors(torch.tensor(got).double(), torch.tensor(want).double(), rtol, atol)
    same = type(got) is type(want) and got == want
    return None, "" if same else f"{_kind(got)} instead of {_kind(want)}"


def _compared_tensors(got: torch.Tensor, want: torch.Tensor, rtol: float, atol: float) -> tuple[float | None, str]:
    if not want.numel():
        return None, ""
    is_float = want.dtype.is_floating_point
    mine, yours = got.double(), want.double()
    # Infinities are equal or not; NaN equals NaN.
    same = (got == want) | (mine.isnan() & yours.isnan())
    off = torch.where(same, 0.0, (mine - yours).abs())
    allowed = atol + (rtol * yours.abs() if is_float else 0.0)
    wrong = ~(same | (off <= allowed)) | ~same & ~(mine.isfinite() & yours.isfinite())
    finite = off[off.isfinite()]
    largest = float(finite.max()) if finite.numel() else None
    if not wrong.any():
        return largest, ""
    worst = int(torch.where(wrong, torch.nan_to_num(off, nan=math.inf), -1.0).argmax())
    place = [int(item) for item in torch.unravel_index(torch.tensor(worst), want.shape)]
    where = f" at {place}" if place else ""
    values = f"{got.reshape(-1)[worst].item():.9g} instead of {want.reshape(-1)[worst].item():.9g}"
    count = f"; {int(wrong.sum()):,} of {want.numel():,} values differ" if want.numel() > 1 else ""
    by = f", by {largest:.3g} at most" if largest and want.numel() > 1 else ""
    return largest, values + where + count + by


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)
