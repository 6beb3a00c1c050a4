"""The command `operators` over the real backends, and their support tables compared with the edge dialect."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from delegatekit.cli import application
from delegatekit.plugins import backends, get_backend
from delegatekit_tools.dialect import operators as list_operators

#: Of the reference backend the table has every operator that it can run, whatever the core rewrites.
COMPILED = sorted(name for name in backends(check=False) if name != "reference")


@pytest.mark.parametrize("name", COMPILED)
def test_no_row_of_a_backend_names_what_cannot_occur(name: str) -> None:
    assert dict(list_operators(get_backend(name)).impossible) == {}


def test_the_command_lists_the_set_with_schemas() -> None:
    result = CliRunner().invoke(application(), ["operators", "--schemas"])
    assert result.exit_code == 0, result.output
    assert "core ATen, after rewriting (" in result.output
    assert "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" in result.output
    assert "without an example in the conformance suite (" in result.output


def test_the_command_marks_the_rows_of_a_backend() -> None:
    result = CliRunner().invoke(application(), ["operators", "--backend", "reference"])
    assert result.exit_code == 0, result.output
    assert "  + aten.add.Tensor\n" in result.output
    assert "names of reference that cannot occur (" in result.output
    assert "aten.clone.default: the edge rules (identities)" in result.output


def test_the_command_gives_json() -> None:
    result = CliRunner().invoke(application(), ["operators", "--backend", "reference", "--json"])
    found = json.loads(result.stdout)
    names = {item["name"]: item["group"] for item in found["operators"]}
    assert (names["aten.relu.default"], names["aten.hardswish.default"]) == ("core", "whole")
    assert "aten.relu.default" in found["rows"]
    assert "aten.clone.default" in found["impossible"]
    assert "aten.special_airy_ai.default" in found["without_example"]


def test_an_unknown_backend_is_an_error() -> None:
    result = CliRunner().invoke(application(), ["operators", "--backend", "absent"])
    assert result.exit_code
