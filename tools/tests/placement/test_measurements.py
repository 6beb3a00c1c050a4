"""The file of measurements: written, read, damaged, and of other programs, versions and machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegatekit_api import DelegateKitError, FormatError
from delegatekit_tools.placement.measurements import Candidate, Measurements, Tuned, UnitTimes

TUNED = Tuned(
    versions={"one": "delegatekit-one 1.2"},
    options={"one": {"depth": 1}},
    candidates=(
        Candidate("one alone", ("one",), 0.5),
        Candidate("runtime alone", (), 0.7),
        Candidate("mixture 1", ("one",), 0.4, {"forward": {"sin": "one", "cos": ""}}, ("aten.sin.default",)),
    ),
    units={"ab": UnitTimes("aten.sin.default(float32[2])", 3, {"": 0.1, "one": 0.2})},
    borders={"one": 0.01},
    left_out={"two": "does not run here"},
)
FOUND = Measurements("CPU", {"machine": "x"}, {"digest": TUNED})


def timed(*seconds: float) -> Tuned:
    return replace(
        TUNED, candidates=tuple(replace(item, seconds=s) for item, s in zip(TUNED.candidates, seconds, strict=True))
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    FOUND.save(tmp_path / "m.json")
    assert Measurements.load(tmp_path / "m.json") == FOUND


def test_a_mixture_must_be_faster_by_more_than_noise() -> None:
    assert timed(1.0, 2.0, 0.9).chosen.name == "mixture 1"
    assert timed(1.0, 2.0, 0.99).chosen.name == "one alone"
    assert timed(1.0, 0.8, 0.9).chosen.name == "runtime alone"
    assert timed(1.0, 1.0, 1.0).chosen.name == "one alone"


def test_the_text_shows_all_beside_the_chosen_one() -> None:
    assert str(FOUND).splitlines() == [
        "*  400.00 ms CPU    1.00x  mixture 1",
        "   500.00 ms CPU    1.25x  one alone",
        "   700.00 ms CPU    1.75x  runtime alone",
        "  two was left out: does not run here",
    ]
    assert "3 x aten.sin.default(float32[2])\n    runtime 100.00 ms, one 200.00 ms" in FOUND.units_text()


def test_measurements_of_other_programs_are_joined_and_told_apart() -> None:
    other = Measurements("CPU", {"machine": "x"}, {"other": TUNED})
    assert set(FOUND.joined(other).programs) == {"digest", "other"}
    assert FOUND.of("digest") is TUNED
    with pytest.raises(FormatError, match="of other programs"):
        FOUND.of("other")
    with pytest.raises(FormatError, match="another machine or clock"):
        FOUND.joined(Measurements("wall", {"machine": "x"}, {}))


def damage(key: str, value: Any) -> Any:
    def change(content: Any) -> None:
        content["programs"]["digest"][key] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.clear(), "holds no measurements"),
        (lambda content: content.update(delegatekit_measurements=9), "has format 9, this version reads 1"),
        (lambda content: content.update(clock="sun"), "is damaged.*clock 'sun'"),
        (damage("candidates", []), "no candidate is of a single backend"),
        (damage("candidates", [{"name": "x"}]), "candidates.0. has no backends"),
        (damage("borders", {"one": -1}), "one is -1, not a time"),
        (damage("borders", {"one": "fast"}), "programs.digest.borders.one is 'fast', not a number"),
        (damage("versions", {"one": 1}), "versions.one is 1, not a text"),
        (damage("units", []), "units is a list, not an object"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "m.json"
    FOUND.save(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=message) as refused:
        Measurements.load(path)
    assert refused.value.where == str(path)


def test_what_is_no_json_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text("[")
    with pytest.raises(FormatError, match="is not JSON"):
        Measurements.load(tmp_path / "m.json")
    with pytest.raises(DelegateKitError):
        Measurements.load(tmp_path / "absent.json")
