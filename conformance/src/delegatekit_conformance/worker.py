"""Runs one case in this process and writes its outcome to a file: `python -m delegatekit_conformance.worker ...`.

The backend under test may crash or hang this process; the runner that started it draws the conclusion.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch

import delegatekit
from delegatekit import discovery
from delegatekit_api import DelegateKitError, UnsupportedError

from .cases import CASES, Case
from .verdicts import Outcome, Verdict, compare


def main(arguments: list[str]) -> None:
    """Arguments: backend, case name, path of the outcome file."""
    backend, name, path = arguments
    torch.set_num_threads(1)
    outcome = run_case(next(case for case in CASES if case.name == name), backend)
    # The file appears whole or not at all: half of one would be read as a result.
    draft = Path(path + ".part")
    draft.write_text(json.dumps(outcome.to_json()), "utf-8")
    draft.replace(path)


def run_case(case: Case, backend: str) -> Outcome:
    """Lower, load and run the case, and compare with eager in double precision."""
    module, inputs = case.make()
    try:
        program = delegatekit.lower(module, inputs, backends=[backend])
        data = program.buffer
    except Exception as error:
        return _not_lowered(case, backend, error)
    report = program.report().methods[0]
    counts: dict[str, Any] = {
        "delegates": len(report.delegates),
        "delegated_nodes": report.delegated_nodes,
        "fallback_calls": report.fallback_calls,
        "refusals": _refusals(case, backend) if report.fallback_calls else (),
    }
    chosen = discovery.get_backend(backend)
    available = chosen.runtime_availability()
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
    references, dtypes = reference(case)
    compared = compare(
        results,
        references,
        dtypes,
        precision=chosen.description.compute_precision,
        reduction_length=case.reduction_length,
        depth=case.depth,
    )
    verdict = Verdict.FALLBACK
    if not compared.agrees:
        verdict = Verdict.MISMATCH
    elif report.delegates:
        verdict = Verdict.PARTLY if report.fallback_calls else Verdict.DELEGATED
    return Outcome(
        case.name, verdict, compared.difference, error=compared.error, tolerance=compared.tolerance, **counts
    )


def reference(case: Case) -> tuple[list[torch.Tensor], list[torch.dtype]]:
    """What eager computes in float64 from the same numbers, and the dtypes that it returns without that."""
    module, inputs = case.make()
    wide = copy.deepcopy(module).double()
    wide_inputs = [tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs]
    with torch.no_grad():
        return _outputs(wide(*wide_inputs)), [output.dtype for output in _outputs(module(*inputs))]


def _outputs(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _not_lowered(case: Case, backend: str, error: Exception) -> Outcome:
    """A refusal, if the program holds what nobody runs; else the backend failed on what it had said it takes."""
    refusals: tuple[str, ...] = ()
    if isinstance(error, UnsupportedError):
        refusals = _refusals(case, backend, nobody=True)
    verdict = Verdict.REFUSED if refusals else Verdict.LOWERING_ERROR
    return Outcome(case.name, verdict, _words(error), refusals=refusals)


def _refusals(case: Case, backend: str, *, nobody: bool = False) -> tuple[str, ...]:
    """The operators that the backend leaves, or only those that `nobody` runs, with the reasons."""
    module, inputs = case.make()
    explanation = delegatekit.explain(module, inputs, backends=[backend])
    rows = explanation.unsupported if nobody else [row for row in explanation.rows if row.backend is None]
    return tuple(f"{row.operator}: {reason}" for row in rows for reason in row.reasons.values())


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, DelegateKitError) else f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1:])
