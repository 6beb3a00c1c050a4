"""Passes run in order, and an error in a graph names the pass that caused it."""

from __future__ import annotations

from functools import partial

import pytest

from delegatekit_api import FormatError, LoweringError
from delegatekit_toolkit.passes import VERIFY, run_passes


def append(graph: list[int], number: int = 1) -> None:
    graph.append(number)


def doubled(graph: list[int]) -> list[int]:
    return [2 * number for number in graph]


def small(graph: list[int]) -> None:
    if max(graph) > 9:
        raise FormatError(f"{max(graph)} is too much", where="entry 0", hint="use less")


def test_passes_change_the_graph_or_return_another() -> None:
    given = [3]
    assert run_passes(given, [append, doubled, partial(append, number=5)]).graph == [6, 2, 5]
    assert given == [3, 1]


def test_a_broken_graph_names_its_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VERIFY, "1")
    message = r"after the pass append: entry 0: 10 is too much\n  -> use less"
    with pytest.raises(LoweringError, match=message):
        run_passes([3], [doubled, partial(append, number=10), doubled], small)
    with pytest.raises(LoweringError, match="before the passes: entry 0: 11 is too much"):
        run_passes([11], [], small)
    assert run_passes([3], [doubled], small).graph == [6]


def test_graphs_are_verified_only_if_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VERIFY, raising=False)
    assert run_passes([11], [doubled], small).graph == [22]
