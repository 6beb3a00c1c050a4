"""The rows of a sweep: kept in a file, shown as text and as a page."""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import to_json
from delegatekit_tools.sweep import LeftOut, OutputErrors, Row, Sweep
from delegatekit_tools.sweep.results import Results

GOOD = Row(
    "k1",
    "one",
    "chip-x",
    "compiles",
    made_by="delegatekit-one 1.2",
    options={"depth": 1},
    scheme="int8",
    delegates=2,
    delegated=5,
    operators=7,
    left_out=(LeftOut("aten.sin.default", 2, "no <kernel>"),),
    estimated_seconds=0.0025,
    estimated_memory={"sram": 2048},
    estimated_by="tool 3",
    file_size=4096,
    wall_seconds=0.001,
    cpu_seconds=0.0009,
    runs=10,
    outputs=(
        OutputErrors("[0]", "float32", 10, 0, math.inf, 0.0, 1.0),
        OutputErrors("[1]", "float32", 10, 4, 62.5, 0.003, 0.9999),
        OutputErrors("[2]", "int64", 100, 3),
    ),
)
BAD = Row("k2", "two", "", "failed", "its process crashed (SIGSEGV): <b>boom</b>")


def test_rows_that_were_written_are_known_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    first = Results(path)
    first.add(GOOD)
    first.add(BAD)
    assert Results(path).rows == {"k1": GOOD, "k2": BAD}
    newer = replace(BAD, outcome="compiles", reason="")
    Results(path).add(newer)
    assert Results(path).rows["k2"] == newer


def test_a_row_that_was_being_written_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    results = Results(path)
    results.add(GOOD)
    results.add(BAD)
    path.write_text(path.read_text()[:-20])
    assert Results(path).rows == {"k1": GOOD}
    Results(path).add(BAD)
    assert Results(path).rows == {"k1": GOOD, "k2": BAD}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]\n", "holds no results of a sweep"),
        ("# notes\n", "holds no results of a sweep"),
        ('{"delegatekit_sweep": 7}\n', "has format 7, this version reads 2"),
        ('{"delegatekit_sweep": 2}\n{"key": 1}\n{}\n', "line 2: is no row: has no backend"),
        (
            '{"delegatekit_sweep": 2}\n' + to_json(GOOD, compact=True).replace("compiles", "sings") + "\n{}\n",
            "line 2: is no row: outcome is 'sings'",
        ),
    ],
)
def test_other_files_are_refused_and_kept(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        Results(path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"left_out": [{"operator": "x", "count": "<script>1</script>", "reason": ""}]}, r"left_out.0..count is"),
        ({"delegates": "<b>"}, "delegates is '<b>', not a whole number"),
        ({"estimated_memory": {"sram": "<b>"}}, "estimated_memory.sram is '<b>'"),
        (
            {"outputs": [{"name": "a", "dtype": "f", "elements": 1, "different": 0, "sqnr": "<b>"}]},
            r"outputs.0..sqnr is .<b>., not a number",
        ),
        ({"outputs": [{"name": "a"}]}, r"outputs.0. has no dtype"),
        ({"wall_seconds": "NaN"}, "wall_seconds is 'NaN', not a number"),
        ({"backend": 1}, "backend is 1, not a text"),
        ({"extra": 1}, "has the key 'extra'"),
    ],
)
def test_fields_of_another_type_are_refused(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"delegatekit_sweep": 2}\n' + json.dumps(json.loads(to_json(GOOD)) | fields) + "\n")
    with pytest.raises(FormatError, match=rf"line 2: is no row: {words}"):
        Results(path)


def test_what_a_full_disk_leaves_is_the_file_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "r.jsonl"
    results = Results(path)
    results.add(GOOD)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FormatError, match="No space left"):
        results.add(BAD)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_results_take_the_place_of_regular_files_only(tmp_path: Path) -> None:
    # A link with the former name of unfinished files belongs to somebody else.
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".r.jsonl.part").symlink_to(victim)
    Results(tmp_path / "r.jsonl").add(GOOD)
    assert victim.read_text() == "precious"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="absent"):
        Results(tmp_path / "absent" / "r.jsonl")


def test_a_row_is_valid_json() -> None:
    assert Row.from_json(json.loads(to_json(GOOD))) == GOOD


def test_the_text_has_a_line_for_each_row_and_the_reasons() -> None:
    head, _, good, bad, *told = str(Sweep((GOOD, BAD))).splitlines()
    assert head.split()[:4] == ["backend", "target", "scheme", "result"]
    for word in (
        "one",
        "chip-x",
        "int8",
        "5/7",
        "2.50 ms",
        "sram 2.0 KiB",
        "900.00 us",
        "4.0 KiB",
        "62.5",
        "0.003",
        "0.999900",
        "3 of 100",
    ):
        assert word in good
    assert bad.split() == ["two", "float", "failed"]
    assert told == [
        "one chip-x int8: left to the runtime: aten.sin.default x2 (no <kernel>)",
        "one chip-x int8: outputs: [0] exact, largest error 0; [1] 62.5 dB, largest error 0.003; "
        "[2] (int64) 3 of 100 differ",
        "two: failed: its process crashed (SIGSEGV): <b>boom</b>",
    ]


def test_the_page_needs_no_network_and_escapes_what_it_shows() -> None:
    page = Sweep((GOOD, BAD)).html("one & two")
    assert "default-src 'none'" in page and "http" not in page.replace("http-equiv", "")
    assert "<b>boom" not in page and "&lt;b&gt;boom" in page and "no &lt;kernel&gt;" in page
    assert "<h1>one &amp; two</h1>" in page and '<p class="figure">1 of 2</p><p>1 failed</p>' in page
    assert 'data-value="0.0025" data-label="estimate">2.50 ms</td>' in page
    assert '<td class="number">exact</td>' in page and '<td class="number">3 of 100</td>' in page


def test_columns_without_any_value_are_left_out() -> None:
    page = Sweep((BAD,)).html()
    heads = [text.partition("</button>")[0] for text in page.split("<button>")[1:]]
    assert heads == ["backend", "target", "scheme", "result"]
    assert "quickest" not in page  # nothing to compare


def test_numbers_that_are_no_measures_do_not_count_as_errors() -> None:
    assert (GOOD.sqnr, GOOD.largest_error, GOOD.cosine, GOOD.different) == (62.5, 0.003, 0.9999, (3, 100))
    assert (BAD.sqnr, BAD.largest_error, BAD.cosine, BAD.different) == (None, None, None, None)
    wrong = replace(GOOD, outputs=(*GOOD.outputs, OutputErrors("[3]", "float32", 1, 1, 1.0, math.nan, math.nan)))
    assert wrong.largest_error is not None and math.isnan(wrong.largest_error)
