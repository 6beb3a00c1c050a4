"""Blobs that are crossed with each other: the exchanged words, and a backend's reaction."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from delegatekit_conformance.cases import crossed
from delegatekit_conformance.cases.crossed import Crossing
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Verdict

SOURCE = Path(__file__).with_name("contract_backend.py").read_text()
CASES = {case.name: case for case in crossed.cases()}
CONTEXT = Context("seeded", PROFILES["quick"])

pytestmark = pytest.mark.usefixtures("quick_garbage_collection")


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def test_all_ways_to_exchange_some_of_few_words_are_tried_but_none_and_all() -> None:
    damages = list(Crossing("op", "float32", 0, 64).damages(words(1, 3, 5, 3), words(1, 6, 5, 6)))
    assert [blob for blob, _ in damages] == [words(1, 6, 5, 3), words(1, 3, 5, 6)]
    assert damages[0][1] == "words at bytes 4 of 16 are those of another size"


def test_of_many_ways_some_are_tried_and_the_same_each_time() -> None:
    first, second = words(*range(20)), words(*range(100, 110), *range(10, 20))
    every_other = words(*(number + 100 * (number % 2) for number in range(20)))
    assert not list(Crossing("op", "float32", 0, 9).damages(first, second)), "words in a row are one"
    found = [blob for blob, _ in Crossing("op", "float32", 0, 9).damages(first, every_other)]
    assert len(found) == 9
    assert found == [blob for blob, _ in Crossing("op", "float32", 0, 9).damages(first, every_other)]
    assert found != [blob for blob, _ in Crossing("op", "float32", 1, 9).damages(first, every_other)]
    both = sorted(zip(*(struct.unpack("<20I", blob) for blob in (first, every_other)), strict=True))
    assert all(one in pair for blob in found for one, pair in zip(struct.unpack("<20I", blob), both, strict=True))


@pytest.mark.parametrize("checked", [True, False])
def test_what_a_backend_makes_of_crossed_blobs(install_plugin: Callable[..., Path], checked: bool) -> None:
    check = '        if zlib.crc32(blob[8:]).to_bytes(4, "little") != blob[4:8]:\n'
    assert SOURCE.count(check) == 1
    install_plugin("seeded", SOURCE if checked else SOURCE.replace(check, "        if False:\n"))
    case = CASES["robustness/aten.linear.default/crossed"]
    assert not case.examples(CONTEXT), "not in the quick profile"
    context = replace(CONTEXT, profile=PROFILES["default"])
    (example,) = case.examples(context)
    outcome = case.run(example, context)
    assert outcome.verdict is (Verdict.PASSED if checked else Verdict.VIOLATION)
    assert bool(outcome.damages_refused) == checked
    assert "show_words(CrossedCase('aten.linear.default'), Crossing(" in case.snippet(example, context)
