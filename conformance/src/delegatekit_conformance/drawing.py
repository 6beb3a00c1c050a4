"""Draws examples from Hypothesis strategies, the same in every process, and shrinks failing ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


class _Found(Exception):  # noqa: N818  it is not an error
    """Signals Hypothesis that an example fails."""


class _Stop(BaseException):
    """Ends Hypothesis' run: it catches exceptions of other kinds."""


@contextmanager
def _steady() -> Iterator[None]:
    """Within the block, Hypothesis draws the same in every process, and each example anew.

    Hypothesis' own way is to draw some constants from the source of the modules that are loaded: the series of one
    seed would be another in a process that has loaded other modules. And it changes some examples a little for the
    next: a quarter of a series repeats others, and rare values (NaN, a size of zero) are in many of them or in none.
    """
    constants, mutations = HypothesisProvider._maybe_draw_constant, ConjectureRunner.generate_mutations_from
    # Not in a subclass: Hypothesis makes providers of this class in several places.
    HypothesisProvider._maybe_draw_constant = _nothing  # type: ignore[method-assign]
    ConjectureRunner.generate_mutations_from = _nothing  # type: ignore[method-assign]
    try:
        yield
    finally:
        HypothesisProvider._maybe_draw_constant = constants  # type: ignore[method-assign]
        ConjectureRunner.generate_mutations_from = mutations  # type: ignore[method-assign]


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Replaces what Hypothesis does by default."""


def draw(strategy: SearchStrategy[T], count: int, seed: int) -> list[T]:
    """Up to `count` different examples. The first is the simplest, and so are those of small seeds."""
    found: dict[Any, T] = {}

    @hypothesis.seed(seed)
    @_settings(count, Phase.generate)
    @hypothesis.given(strategy)
    def collect(example: T) -> None:
        found.setdefault(repr(example), example)

    with _steady():
        collect()
    return list(found.values())


def shrink(strategy: SearchStrategy[T], count: int, seed: int, example: T, fails: Callable[[T], bool]) -> T:
    """The smallest example that Hypothesis finds for which `fails` is true; at worst `example` itself.

    Repeats the series of `draw` with the same arguments up to its first example that fails, and goes on from there.
    Exceptions of `fails` end the search with the best example so far.
    """
    best = example
    known: dict[str, bool] = {}
    reached = False

    @hypothesis.seed(seed)
    @_settings(count, Phase.generate, Phase.shrink)
    @hypothesis.given(strategy)
    def search(candidate: T) -> None:
        nonlocal best, reached
        key = repr(candidate)
        if not reached:
            # The series up to the example is known: only the example itself is of interest.
            reached = key == repr(example)
            known[key] = reached
        if key not in known:
            try:
                known[key] = fails(candidate)
            except Exception as error:
                raise _Stop from error
        if known[key]:
            if _length(candidate) <= _length(best):  # not every candidate of Hypothesis is smaller than its best
                best = candidate
            raise _Found

    with _steady(), suppress(_Found, _Stop):
        search()
    return best


def _length(example: Any) -> int:
    """The length of an example as reports show it: a recipe's `repr` would also count the numbers to choose from."""
    return len(example.describe() if hasattr(example, "describe") else repr(example))


def _settings(count: int, *phases: Phase) -> settings:
    return settings(
        max_examples=count,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
