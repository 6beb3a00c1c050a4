"""JSON from outside: refused texts, and the messages."""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import delegatekit
from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import AnyFloat, decoded, objects, parse, parse_object, read_object

#: These read JSON that this package has just written itself, for itself: answers of its own processes and its caches.
INSIDE = {
    "sweep/worker.py",
    # questions to the tuner's own process, and its answers
    "placement/process.py",
    "placement/stock.py",
    "compiling/isolation.py",
    "compiling/packed.py",
    "compiling/request.py",
    "plugins/remembered.py",
    "plugins/runtimes.py",
    # archives in a blob that the backend under test has just made, in a worker with limits
    "cases/contract/identities.py",
    # a worker's log of one case, and the schema that is in the wheel
    "runner/journal.py",
    "report/document.py",
    # the output of the suite's own workers, the cache of what examples reach, and payloads whose texts are exchanged
    "mutants/infection.py",
    "mutants/search.py",
    "mutants/reach.py",
    "cases/hostile.py",
    # texts within a program that `program_text` has parsed
    "files/trees.py",
}


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Whole:
    part: Part
    color: Color = Color.RED
    factor: float | None = None
    error: AnyFloat = 0.0
    pair: tuple[int, float] = (0, 0.0)
    by_name: Mapping[str, list[Part] | int] = field(default_factory=dict)
    flag: bool = False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b'{"a": 1', "Expecting ',' delimiter"),
        (b"\xff", "can't decode byte 0xff"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' appears twice"),
        (b"[NaN]", "NaN is no number"),
        (b"[-Infinity]", "-Infinity is no number"),
        (b"[1e999]", "'1e999' is too large"),
        (b"[" + b"9" * 5000 + b"]", "has 5000 digits"),
        (b"[" * 100_000, "more than 200 objects and lists"),
        (b"[" * 300 + b"]" * 300, "more than 200 objects and lists"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "more than 200 objects and lists"),
        (b"[" + b"0," * 4_000_000 + b"0]", "may have 4000002 values"),
    ],
    ids=range(13),
)
def test_what_is_no_json_of_ours_is_refused_at_once(text: bytes, words: str) -> None:
    start = time.process_time()
    with pytest.raises(FormatError, match="is not JSON") as refused:
        parse(text, "x.json", hint="write another")
    assert time.process_time() - start < 5
    assert words in refused.value.what
    assert (refused.value.where, refused.value.hint) == ("x.json", "write another")


def test_numbers_of_python_are_taken_where_they_are_meant() -> None:
    first, second = parse(b"[NaN, -Infinity]", "x", constants=True)
    assert math.isnan(first) and second == -math.inf


def test_an_object_is_asked_for() -> None:
    assert parse_object(b'{"a": [1]}', "x") == {"a": [1]}
    with pytest.raises(FormatError, match="x: holds a list, not an object"):
        parse_object(b"[1]", "x")


def test_all_objects_are_found() -> None:
    assert list(objects({"a": [{"b": [[{}]]}]})) == [{"a": [{"b": [[{}]]}]}, {"b": [[{}]]}, {}]


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"a": 1', b'{"a": 1, "a": 2}'])
def test_a_damaged_object_is_an_empty_one(data: bytes) -> None:
    assert read_object(data) == {}


def test_values_become_what_is_asked_for() -> None:
    content = {
        "part": {"name": "x", "sizes": [1, 2]},
        "color": "red",
        "factor": 2,
        "error": "Infinity",
        "pair": [1, 2],
        "by_name": {"a": [{"name": "y"}], "b": 3},
    }
    assert decoded(Whole, content, "x") == Whole(
        Part("x", (1, 2)), Color.RED, 2.0, math.inf, (1, 2.0), {"a": [Part("y")], "b": 3}
    )
    assert decoded(Whole, {"part": {"name": "x"}}, "x") == Whole(Part("x"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"part": None}, "part is null, not an object"),
        ({"part": {}}, "part has no name"),
        ({"part": {"name": 1}}, "part.name is 1, not a text"),
        ({"part": {"name": "x", "sizes": [1, True]}}, "part.sizes[1] is true, not a whole number"),
        ({"part": {"name": "x", "sizes": "12"}}, "part.sizes is '12', not a list"),
        ({"color": "blue"}, "color is 'blue', which is no color"),
        ({"color": []}, "color is a list, which is no color"),
        ({"factor": "NaN"}, "factor is 'NaN', not a number"),
        ({"factor": math.nan}, "factor is nan, not a number"),
        ({"error": "big"}, "error is 'big', not a number"),
        ({"pair": [1]}, "pair has 1 items, not 2"),
        ({"by_name": {"a": [{"name": 1}]}}, "by_name.a[0].name is 1, not a text"),
        ({"by_name": {"a": "x"}}, "by_name.a is 'x', not a"),
        ({"flag": 1}, "flag is 1, not true or false"),
        ({"\x1b[31m": 1}, r"has the key '\x1b[31m', which is not known"),
    ],
)
def test_a_value_of_another_type_is_named_with_its_place(change: dict[str, Any], words: str) -> None:
    with pytest.raises(FormatError) as refused:
        decoded(Whole, {"part": {"name": "x"}} | change, "x.json")
    assert str(refused.value).startswith(f"x.json: is damaged: {words}")


def test_core_and_suite_read_json_from_outside_with_this_reader_only() -> None:
    packages = [Path(delegatekit.__file__).parent]
    packages += [
        Path(str(spec.origin)).parent for name in ("tools", "conformance") if (spec := find_spec(f"delegatekit_{name}"))
    ]
    found = set()
    for root in packages:
        for path in root.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                is_read = isinstance(node, ast.Attribute) and node.attr in ("load", "loads", "JSONDecoder", "ZipFile")
                if is_read and ast.unparse(node.value) in ("json", "zipfile"):
                    found.add(path.relative_to(root).as_posix())
    writes = {"etrecord/record.py"}
    assert found == {"files/archives.py"} | INSIDE | writes
