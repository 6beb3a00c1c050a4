"""JSON output of DelegateKit: always valid, and from one encoder."""

from __future__ import annotations

import ast
import json
import math
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from delegatekit_toolkit.json_text import plain, to_json

#: These write JSON that Python's decoder reads: for another process of this package, one before anything else of the
#: core is imported, one with NaN and infinities as the numbers they are; and programs as PyTorch itself has them.
ELSEWHERE = {
    "plugins/probe.py",
    "etrecord/record.py",
    "cases/hostile.py",
    "mutants/reach.py",
}


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Facts:
    name: str
    sizes: tuple[float, ...]


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")],
)
def test_numbers_that_json_lacks_are_texts_that_float_reads(value: float, text: str) -> None:
    written = json.loads(to_json({"deep": [Facts("x", (value, 1.5))]}), parse_constant=pytest.fail)
    assert written == {"deep": [{"name": "x", "sizes": [text, 1.5]}]}
    assert repr(float(text)) == repr(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({1: True, None: 0}, {"1": True, "None": 0}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
        ({"b", "a"}, ["a", "b"]),
        (Color.RED, "red"),
        (Path("x"), "x"),
        (3 + 4j, "(3+4j)"),
    ],
)
def test_what_json_lacks_becomes_what_it_has(value: Any, expected: Any) -> None:
    assert json.loads(to_json(value)) == expected


def test_plain_values_stay() -> None:
    value = {"text": "x", "whole": 1, "true": True, "none": None, "list": [1.5]}
    assert plain(value) == value


def test_core_tools_and_suite_write_json_with_this_encoder_only() -> None:
    found = set()
    for name in ("delegatekit", "delegatekit_tools", "delegatekit_conformance"):
        spec = find_spec(name)
        root = Path(str(spec and spec.origin)).parent
        for path in root.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                is_call = isinstance(node, ast.Attribute) and node.attr in ("dump", "dumps")
                if is_call and ast.unparse(node.value) == "json":
                    found.add(path.relative_to(root).as_posix())
    assert found == ELSEWHERE
