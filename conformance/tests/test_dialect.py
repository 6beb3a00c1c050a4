"""The edge dialect's closed set, compared with the programs of the suite's examples."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pytest
from torch._ops import OpOverload

from delegatekit.edge import build_edge
from delegatekit_conformance.drawing import draw
from delegatekit_conformance.strategies import load_operators
from delegatekit_conformance.strategies.reached import operators_in_examples
from delegatekit_conformance.trial import Subject
from delegatekit_tools.dialect.closed_set import OCCURRING, dialect_operators

NAMES = tuple(load_operators())
#: Occur only in programs that no strategy draws: where sizes change, or a number comes out of a tensor.
ELSEWHERE = {
    "aten._adaptive_avg_pool3d.default",
    "aten._grouped_mm.default",
    "aten.adaptive_max_pool3d.default",
    "aten.full_like.default",
}


@functools.cache
def operators_of(name: str, count: int) -> frozenset[str]:
    """The operators in the edge programs of `count` examples of each dtype, with nothing kept whole."""
    found: set[str] = set()
    entry = load_operators()[name]
    for dtype in entry.dtypes[:: 1 if count > 2 else len(entry.dtypes)]:
        for recipe in draw(entry.recipes(dtype), count, 7)[1:]:
            edge = build_edge(Subject.of_recipe(recipe).program)
            found |= {str(node.target) for node in edge.graph.nodes if isinstance(node.target, OpOverload)}
    return frozenset(found)


def strangers(found: Iterable[str]) -> list[str]:
    """Operators outside the set, or only in it where a backend keeps them whole."""
    return [name for name in found if name not in dialect_operators() or dialect_operators()[name].group == "whole"]


@pytest.mark.parametrize("name", [*NAMES[::40], "aten.expand.default", "aten.diagonal.default"])
def test_programs_have_operators_of_the_closed_set_only(name: str) -> None:
    assert strangers(operators_of(name, 2)) == []


@pytest.mark.slow
def test_all_programs_have_operators_of_the_closed_set_only_and_all_that_are_listed() -> None:
    found = frozenset().union(*(operators_of(name, 4) for name in NAMES))
    assert strangers(found) == []
    assert {str(target) for target in OCCURRING} - found == ELSEWHERE


def test_the_suite_has_examples_of_what_becomes_of_an_operator() -> None:
    found = operators_in_examples()
    assert {"aten.baddbmm.default", "aten.bmm.default", "aten.expand_copy.default"} <= found
    assert "aten.special_airy_ai.default" not in found
