"""Runs one case in this process and writes its outcome to a file: `python -m delegatekit_conformance.worker ...`.

The backend under test may crash or hang this process; the runner that started it draws the conclusion.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

import delegatekit
from delegatekit import discovery
from delegatekit_api import DelegateKitError

from .cases import CASES, Case
from .verdicts import Outcome, Verdict, tolerance


def main(arguments: list[str]) -> None:
    """Arguments: backend, case name, path of the outcome file."""
    backend, name, path = arguments
    torch.set_num_threads(1)
    start = time.perf_counter()
    outcome = run_case(next(case for case in CASES if case.name == name), backend)
    values = outcome.to_json() | {"seconds": time.perf_counter() - start}
    Path(path).write_text(json.dumps(values), "utf-8")


def run_case(case: Case, backend: str) -> Outcome:
    """Lower, load and run the case, and compare with eager in double precision."""
    module, inputs = case.make()
    try:
        program = delegatekit.lower(module, inputs, backends=[backend])
        data = program.buffer
    except Exception as error:
        return Outcome(case.name, Verdict.LOWERING_ERROR, _words(error))
    report = program.report().methods[0]
    counts: dict[str, Any] = {
        "delegates": len(report.delegates),
        "delegated_nodes": report.delegated_nodes,
        "fallback_calls": report.fallback_calls,
        "refusals": _refusals(module, inputs, backend) if report.fallback_calls else (),
    }
    available = discovery.get_backend(backend).runtime_availability()
    if report.delegates and not available.available:
        return Outcome(case.name, Verdict.UNAVAILABLE, available.reason, **counts)
    try:
        method = delegatekit.load(data)["forward"]
    except Exception as error:
        return Outcome(case.name, Verdict.LOAD_ERROR, _words(error), **counts)
    try:
        results = method.run(inputs)
    except Exception as error:
        return Outcome(case.name, Verdict.RUN_ERROR, _words(error), **counts)
    precision = discovery.get_backend(backend).description.compute_precision
    limit = tolerance(precision, case.depth, case.terms)
    error_size = _error(results, reference(module, inputs))
    if not error_size <= limit:
        detail = f"relative error {error_size:.3g} is above {limit:.3g}"
        return Outcome(case.name, Verdict.MISMATCH, detail, error=error_size, tolerance=limit, **counts)
    verdict = Verdict.FALLBACK
    if report.delegates:
        verdict = Verdict.PARTLY if report.fallback_calls else Verdict.DELEGATED
    return Outcome(case.name, verdict, error=error_size, tolerance=limit, **counts)


def reference(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """What eager computes in double precision from the same float32 numbers."""
    with torch.no_grad():
        result = module.double()(*(tensor.double() for tensor in inputs))
    return list(result) if isinstance(result, tuple | list) else [result]


def _error(results: list[Any], references: list[torch.Tensor]) -> float:
    """The largest difference relative to the largest reference value; infinite for another shape or a NaN."""
    if len(results) != len(references):
        return float("inf")
    worst = 0.0
    for result, expected in zip(results, references, strict=True):
        if tuple(result.shape) != tuple(expected.shape) or not torch.equal(result.isnan(), expected.isnan()):
            return float("inf")
        scale = max(float(expected.nan_to_num().abs().max()), 1e-30)
        worst = max(worst, float((result.double() - expected).nan_to_num().abs().max()) / scale)
    return worst


def _refusals(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], backend: str) -> tuple[str, ...]:
    rows = delegatekit.explain(module, inputs, backends=[backend]).rows
    return tuple(f"{row.operator}: {reason}" for row in rows if not row.backend for reason in row.reasons.values())


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, DelegateKitError) else f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1:])
