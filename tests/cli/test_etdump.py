"""`delegatekit profile --etdump`: what it needs, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dumps
import pytest


@pytest.fixture
def sums(cli: Callable[..., Any]) -> Callable[..., Any]:
    """The command, in a folder with a program of two operators, its debug map and a dump of two calls."""
    cli("lower", "models:keywords", "-b", "nothing", "-o", "sum.pte", "--debug-map", "sum.json")
    events = [*dumps.operator(0, "atan.out", 1000, 3000), *dumps.operator(1, "add.out", 3000, 9000)]
    Path("sum.etdump").write_bytes(dumps.dump(*[dumps.call(events, 0, 10_000)] * 2))
    return cli


def test_a_dump_is_shown_as_a_table_and_written_as_files(sums: Callable[..., Any]) -> None:
    found = sums("profile", "sum.pte", "--etdump", "sum.etdump", "--debug-map", "sum.json", "--csv", "x.csv").stdout
    assert "recorded in sum.etdump" in found and "method forward  runtime" in found
    given = "profile", "sum.pte", "--etdump", "sum.etdump", "--debug-map", "sum.json"
    found = sums(*given, "--by", "instruction").stdout
    assert "1: aten::add.out" in found and "models.py" in found
    assert Path("x.csv").read_text().count("aten::") == 2
    shown = json.loads(sums("profile", "--etdump", "sum.etdump", "--json", "--ticks", "1000", "--warm-up", "0").stdout)
    assert shown["total"]["wall"] == [10.0, 10.0] and shown["instructions"][1]["calls"] == "add.out"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "Missing argument 'FILE'"),
        (("sum.pte", "x.npy", "--etdump", "sum.etdump"), 2, "--etdump runs nothing"),
        (("sum.pte", "--etdump", "sum.pte"), 1, "not 'ED00'"),
        (("sum.pte", "--etdump", "none.etdump"), 2, "none.etdump: does not exist"),
        (("sum.pte", "--etdump", "sum.etdump", "--method", "x"), 2, "no method 'x' (methods: forward)"),
        (("other.pte", "--etdump", "sum.etdump"), 1, "sum.etdump: is no dump of method forward of this program"),
        (("sum.pte", "--etdump", "sum.etdump", "--debug-map", "models.py"), 1, "is not JSON"),
        (("sum.pte", "--etdump", "sum.etdump", "--csv", "sum.etdump"), 2, "is an input of this command"),
    ],
)
def test_what_does_not_go_together_is_told(
    sums: Callable[..., Any], arguments: tuple[str, ...], code: int, words: str
) -> None:
    sums("lower", "models:linear", "-b", "nothing", "-o", "other.pte")
    assert words in sums("profile", *arguments, code=code).stderr
