"""Runs the cases of `dtypes_table.py`: eager, our engine and the stock runtime on the same file, in a child process."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from dtypes_table import OPERATORS, REFUSED
from torch import nn
from torch.utils._pytree import tree_leaves

import delegatekit
from delegatekit_api import UnsupportedError

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def run_case(name: str, dtypes: str, backends: Sequence[str] = (), roundings: float = 0.0) -> str:
    """The fault of a case; "" if there is none. `roundings` is allowed for float32 at least."""
    entry = OPERATORS[name]
    inputs = entry.inputs(dtypes)
    expected = entry.expected(inputs)
    exported = torch.export.export(Call(entry.call).eval(), inputs, strict=False)
    reason = REFUSED.get(name, {}).get(dtypes)
    try:
        data = delegatekit.lower(exported, backends=list(backends)).buffer
    except UnsupportedError as error:
        return "" if reason is not None and reason in str(error) else f"refused: {error}"
    if reason is not None:
        return f"was not refused for the reason {reason!r}"
    with torch.no_grad():
        ours = tree_leaves(delegatekit.load(data)["forward"](*inputs))
        stock = _C._load_program_from_buffer(data).load_method("forward")(inputs)
    return "; ".join(
        f"{engine}, output {number}: {fault}"
        for engine, results in (("engine", ours), ("stock runtime", stock))
        for number, (found, wanted) in enumerate(zip(results, expected, strict=True))
        if (fault := difference(found, wanted, max(entry.roundings, roundings)))
    )


def difference(found: torch.Tensor, wanted: torch.Tensor, roundings: float) -> str:
    """The fault of a result that may differ by some roundings of its dtype."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype} of {tuple(found.shape)}, not {wanted.dtype} of {tuple(wanted.shape)}"
    try:
        tolerance = roundings * torch.finfo(wanted.dtype).eps if wanted.dtype.is_floating_point else 0.0
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


@cache
def _import_all(backends: tuple[str, ...]) -> None:
    """Import the modules that cases need, so that child processes need not."""
    assert run_case("abs", "f32", backends) == ""


def run_in_child(
    name: str, cases: Sequence[str], backends: Sequence[str] = (), roundings: float = 0.0
) -> dict[str, str]:
    """The faults of an operator's cases; a case that stops the child process is one, too."""
    _import_all(tuple(backends))
    faults: dict[str, str] = {}
    waiting = list(cases)
    while waiting:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with os.fdopen(writer, "w", buffering=1) as pipe:
                for case in waiting:
                    try:
                        fault = run_case(name, case, backends, roundings)
                    except BaseException:
                        fault = traceback.format_exc(limit=-3)
                    pipe.write(json.dumps(fault) + "\n")
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            for line in pipe:
                fault = json.loads(line)
                case = waiting.pop(0)
                if fault:
                    faults[case] = fault
        _, status = os.waitpid(child, 0)
        if waiting:
            faults[waiting.pop(0)] = f"stops the process: {os.waitstatus_to_exitcode(status)}"
    return faults
