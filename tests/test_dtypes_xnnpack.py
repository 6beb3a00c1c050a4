"""Dtypes with XNNPACK, which takes float32, float16 and bfloat16: taken, left to the runtime, or converted.

The cases are those of the core's sweep (core/tests/dtypes_table.py) that have a float32, or a narrow float, which the
core computes in float32 where the runtime's kernel would sum up in the narrow type.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "core" / "tests"))

pytest.importorskip("delegatekit_xnnpack", reason="the XNNPACK plugin is not installed")
from dtypes_runner import run_in_child
from dtypes_table import OPERATORS

#: XNNPACK computes exponentials and the like by its own polynomials.
ROUNDINGS = 32.0
#: Its maximum ignores NaN, and roots of infinity are NaN: known, see the plugin's KNOWN_DIFFERENCES.
CASES = {
    name: cases
    for name, operator in OPERATORS.items()
    if "odd" not in name
    and name != "sign"  # of NaN: see the plugin's conformance.toml
    and (cases := [case for case in operator.cases if {"f32", "f16", "bf16"} & set(case.split(","))])
}
SAMPLE = [
    *("add", "mul", "div", "where", "x * 3", "x / 0.5", "to f32", "sum", "mean", "softmax", "linear", "matmul", "cat"),
    *("long convolution", "conv2d", "attention", "attention, masked", "layer_norm", "batch_norm", "gelu", "avg_pool1d"),
]


@pytest.mark.sweep
@pytest.mark.parametrize("name", SAMPLE)
def test_mixed_and_narrow_dtypes_with_xnnpack(name: str) -> None:
    assert run_in_child(name, CASES[name][:4], ["xnnpack"], ROUNDINGS) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_all_mixed_and_narrow_dtypes_with_xnnpack(name: str) -> None:
    assert run_in_child(name, CASES[name], ["xnnpack"], ROUNDINGS) == {}
