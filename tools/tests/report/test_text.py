"""A report and an explanation as text: source lines as people know them, and no line for each number of a border."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_tools.report.rows import ExplainRow


def test_methods_that_return_constants_share_a_line() -> None:
    numbers: dict[str, int | float | bool] = {f"get_{name}": 7 for name in ("a", "b", "c", "d", "e")}
    program = delegatekit.lower(
        nn.Linear(2, 2).eval(), (torch.ones(1, 2),), backends=["reference"], constant_methods=numbers
    )
    told = str(delegatekit.report(program))
    assert told.count("method ") == 1 and "method forward: 1 delegate runs 1 of 1 operators" in told
    assert "methods that return constants: get_a, get_b, get_c and 2 more" in told


def test_an_explanation_names_a_line_from_the_folder_that_one_works_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = f"{tmp_path}/net.py:13: `x = torch.atan(x)`"
    row = ExplainRow("forward", "atan", "aten.atan.default", "", source, None, "aten::atan.out", {"acme": "no"})
    assert list(row.lines()) == [
        "forward: aten.atan.default (atan): runtime (aten::atan.out)   [net.py:13: `x = torch.atan(x)`]",
        "    acme: no",
    ]
