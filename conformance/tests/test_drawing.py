"""Examples are the same for one seed, and failing ones become small."""

from __future__ import annotations

import subprocess
import sys

import hypothesis.strategies as st

from delegatekit_conformance.drawing import draw, shrink

LISTS = st.lists(st.integers(0, 1000), max_size=8)


def test_the_series_depends_on_the_seed_alone() -> None:
    assert draw(LISTS, 40, 5) == draw(LISTS, 40, 5) != draw(LISTS, 40, 6)
    # Loaded modules, which Hypothesis takes constants from, must not matter.
    loaded = "import runpy, delegatekit_conformance.strategies as s; s.load_operators()"
    code = f"{loaded}; m = runpy.run_path({__file__!r}); print(m['draw'](m['LISTS'], 40, 5))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(draw(LISTS, 40, 5))


def test_no_example_comes_twice_and_the_simplest_is_there() -> None:
    found = draw(LISTS, 60, 1)
    assert len({repr(example) for example in found}) == len(found) >= 40
    assert [] in found


def test_each_example_is_drawn_anew() -> None:
    """A rare value in one is rare in all: no example is a variation of the one before."""
    dice = st.tuples(*[st.integers(0, 11)] * 6)
    for seed in range(4):
        found = draw(dice, 150, seed)
        assert len(found) >= 145
        for place in range(6):
            assert 3 <= sum(example[place] == 11 for example in found) <= 35


def test_a_failing_example_shrinks_to_the_smallest() -> None:
    def fails(example: list[int]) -> bool:
        return any(number >= 100 for number in example)

    example = next(example for example in draw(LISTS, 60, 2) if fails(example))
    assert shrink(LISTS, 60, 2, example, fails) == [100]


def test_the_search_begins_with_the_given_example() -> None:
    tried: list[list[int]] = []

    def fails(example: list[int]) -> bool:
        tried.append(example)
        return len(example) == len(wanted)

    wanted = [example for example in draw(LISTS, 60, 3) if len(example) >= 3][-1]
    assert shrink(LISTS, 60, 3, wanted, fails) == [0] * len(wanted)
    assert wanted not in tried  # it is known to fail


def test_what_ends_the_search_leaves_the_best_so_far() -> None:
    class TimeUp(Exception):
        pass

    calls = 0

    def fails(example: list[int]) -> bool:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise TimeUp
        return sum(example) >= 50

    example = next(example for example in draw(LISTS, 60, 4) if sum(example) >= 50)
    smallest = shrink(LISTS, 60, 4, example, fails)
    assert calls == 4 and sum(smallest) >= 50 and len(str(smallest)) <= len(str(example))
