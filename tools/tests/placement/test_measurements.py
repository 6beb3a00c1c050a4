"""The file of measurements: written, read, damaged, and of other programs, versions and machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegatekit_api import DelegateKitError, FormatError
from delegatekit_tools.placement.measurements import (
    Candidate,
    Measurements,
    Tuned,
    UnitTimes,
    Verification,
    best_single,
)

MIXTURE = Candidate("mixture 1", ("one",), 0.4, {"forward": {"sin": "one", "cos": ""}}, ("aten.sin.default",), 1)
HOLDS = Verification("mixture 1", "one alone", 0.8, 0.85, 20)
TUNED = Tuned(
    versions={"one": "delegatekit-one 1.2"},
    options={"one": {"depth": 1}},
    candidates=(Candidate("one alone", ("one",), 0.5, delegates=1), Candidate("runtime alone", (), 0.7), MIXTURE),
    units={"ab": UnitTimes("aten.sin.default(float32[2])", 3, {"": 0.1, "one": 0.2}, ("one",))},
    borders={"one": 0.01},
    left_out={"two": "does not run here"},
    verification=HOLDS,
)
FOUND = Measurements("CPU", {"machine": "x", "runtime": "executorch 1.5.1", "threads": "1"}, {"digest": TUNED})


def timed(*seconds: float, verification: Verification | None = None) -> Tuned:
    candidates = (replace(item, seconds=s) for item, s in zip(TUNED.candidates, seconds, strict=True))
    return replace(TUNED, candidates=tuple(candidates), verification=verification)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    FOUND.save(tmp_path / "m.json")
    assert Measurements.load(tmp_path / "m.json") == FOUND


def test_a_mixture_is_chosen_only_if_that_was_verified() -> None:
    assert timed(1.0, 2.0, 0.8, verification=HOLDS).chosen.name == "mixture 1"
    assert timed(1.0, 2.0, 0.8).chosen.name == "one alone"
    for ratio, bound in ((0.99, 0.99), (0.8, 1.1), (1.2, 1.3)):
        luck = replace(HOLDS, ratio=ratio, bound=bound)
        assert not luck.holds and timed(1.0, 2.0, 0.8, verification=luck).chosen.name == "one alone"


def test_the_runtime_alone_is_chosen_only_if_it_was_measured_to_be_faster() -> None:
    assert timed(1.0, 0.8, 0.9).chosen.name == "runtime alone"
    assert timed(1.0, 0.99, 0.9).chosen.name == timed(1.0, 1.0, 1.0).chosen.name == "one alone"
    one, alone, _ = timed(1.0, 0.1, 0.9).candidates
    assert best_single([replace(one, estimate="not here"), alone]).name == "one alone"
    assert best_single([one, replace(alone, estimate="no kernel")]).name == "one alone"
    assert best_single([alone]).name == "runtime alone"


def test_an_estimate_must_be_much_faster_than_what_was_measured() -> None:
    one = Candidate("one alone", ("one",), 1.0, delegates=1)
    two = Candidate("two alone", ("two",), 0.9, delegates=1, estimate="not here")
    assert best_single([one, two]) is one
    assert best_single([one, faster := replace(two, seconds=0.7)]) is faster
    assert best_single([replace(one, estimate="not here"), two]) is two


def test_the_text_shows_all_beside_the_chosen_one() -> None:
    assert str(FOUND).splitlines() == [
        "in executorch 1.5.1, 1 thread:",
        "  *  400.00 ms CPU    1.00x  mixture 1",
        "     500.00 ms CPU    1.25x  one alone",
        "     700.00 ms CPU    1.75x  runtime alone",
        "    mixture 1 takes 0.800 times as long as one alone (median of 20 rounds, surely below 0.850): chosen",
        "    two was left out: does not run here",
    ]
    assert "3 x aten.sin.default(float32[2])\n    runtime 100.00 ms, one about 200.00 ms" in FOUND.units_text()
    guessed = timed(0.5, 0.7, 0.6, verification=replace(HOLDS, ratio=0.99)).candidates[0]
    text = replace(TUNED, candidates=(replace(guessed, estimate="no delegate"),), verification=None).text("wall")
    assert text.startswith("  *  500.00 ms wall    1.00x  one alone  (estimate: no delegate)")
    assert "less than 2% faster, not chosen" in str(replace(HOLDS, ratio=0.99))


def test_nothing_is_delegated_where_the_runtime_is_chosen() -> None:
    assert not FOUND.nothing_delegated
    assert replace(FOUND, programs={"digest": timed(1.0, 0.5, 0.9)}).nothing_delegated


def test_measurements_of_other_programs_are_joined_and_told_apart() -> None:
    other = replace(FOUND, programs={"other": TUNED})
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
        (lambda content: content.update(delegatekit_measurements=9), "has format 9, this version reads 2"),
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
