"""The page of a comparison: the graph has each operator's error, and what is wrong is marked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crooked import PLUGIN, deep

import delegatekit as dk
from delegatekit.errors import WrongArgumentError


@pytest.fixture
def found(install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> dk.Comparison:
    """A comparison with a wrong tanh."""
    install_plugin("crooked", PLUGIN)
    monkeypatch.setenv("CROOKED", "scaled aten.tanh.default")
    model, inputs = deep(20, 9)
    return dk.compare(model, inputs, backends=["crooked"])


def test_the_wrong_operator_is_beyond_the_limit_and_no_other(found: dk.Comparison) -> None:
    page = found.html("deep on crooked")
    match = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data = json.loads(match[1])
    (method,) = data["methods"]
    errors = method["measures"][0]
    assert errors["limit"] and errors["measured"] and not errors["sums"]
    beyond = [number for number, value in enumerate(errors["values"]) if value is not None and value > 1]
    assert [data["texts"][method["operators"][number][2]] for number in beyond] == ["aten.tanh.default"]
    measured = [value for value in errors["values"] if value is not None]
    assert len(measured) == len(found.operators)
    assert "First that diverges" in page and "aten.tanh.default" in page


def test_a_comparison_without_its_graph_has_no_page() -> None:
    empty = dk.Comparison("forward", ("crooked",), (), (), None, 0, 0.0)
    with pytest.raises(WrongArgumentError, match="no graph"):
        empty.html()


MODELS = """
import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval(), (torch.ones(1, 4),)
"""


def test_the_command_writes_the_page(command_with: Callable[..., Any], tmp_path: Path) -> None:
    call = command_with(MODELS)
    shown = call("compare", "models:make", "-b", "reference", "--html", "made.html").out
    assert "wrote made.html" in shown and "models:make on reference" in (tmp_path / "made.html").read_text("utf-8")
    told: Any = json.loads(call("compare", "models:make", "-b", "reference", "--json").out)
    assert "lowered" not in told and told["operators"][0]["nodes"]
