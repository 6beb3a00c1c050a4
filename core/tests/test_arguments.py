"""Arguments that are declared once: signatures, help, errors and options follow from the fields of a dataclass."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit.cli.lower import lower as command
from delegatekit.pipeline import Lowering, Partitioning, Quantizing, Source, Training, paragraphs
from delegatekit.pipeline.arguments import Delegating, Planning
from delegatekit_api import LoweringError


@pytest.mark.parametrize("kind", [Source, Partitioning, Planning, Lowering, Delegating, Quantizing, Training])
def test_each_field_has_a_paragraph_and_each_paragraph_a_field(kind: Any) -> None:
    assert set(paragraphs(kind)) == {item.name for item in fields(kind)}


def test_a_function_has_the_fields_as_parameters_and_their_paragraphs_as_help() -> None:
    found = inspect.signature(delegatekit.lower).parameters
    assert list(found)[:2] == ["model", "inputs"] and found["backends"].kind == inspect.Parameter.KEYWORD_ONLY
    assert found["stack_traces"].default is False and found["budget"].annotation == "Budget | None"
    text = inspect.getdoc(delegatekit.lower) or ""
    assert text.startswith("Lower a model") and "\n    stack_traces: Put the source lines of" in text
    assert max(map(len, text.splitlines())) <= 116


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"backends": [], "frobnicate": 1}, r"lower\(\): got an unexpected keyword argument 'frobnicate'"),
        ({}, r"lower\(\): missing a required .*'backends'"),
    ],
)
def test_wrong_arguments_are_named(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(LoweringError, match=reason) as caught:
        delegatekit.lower(torch.nn.Linear(2, 2), (torch.ones(1, 2),), **given)
    assert caught.value.hint == "help(delegatekit.lower) tells what each argument is"


def test_options_of_a_command_are_fields_with_the_first_sentence_of_their_paragraphs() -> None:
    found = inspect.signature(command).parameters
    (option,) = found["stack_traces"].annotation.__metadata__
    assert option.help == paragraphs(Lowering)["stack_traces"] == "Put the source lines of instructions into the file."
    (option,) = found["backends"].annotation.__metadata__
    assert option.help == "Backends in priority order: -b first,second or -b first -b second."
    assert found["backends"].default is inspect.Parameter.empty and "partition" not in found


def test_the_help_of_a_command_imports_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['delegatekit', 'lower', '--help']\n"
        "from delegatekit.cli import main\ntry:\n    main()\nfinally:\n    assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
