"""The cheapest owners of units, against all possible owners."""

from __future__ import annotations

import itertools
import random

import pytest

from delegatekit_tools.placement.labeling import Problem, choose


def drawn(seed: int, runners: tuple[str, ...], units: int) -> Problem:
    """A problem with random costs, edges and runners; some units have not all of them."""
    chance = random.Random(seed)
    seconds = [
        {name: chance.uniform(1e-6, 1e-3) for name in chance.sample(runners, chance.randint(1, len(runners)))}
        for _ in range(units)
    ]
    edges = [pair for pair in itertools.combinations(range(units), 2) if chance.random() < 0.4]
    border = {name: chance.uniform(0, 4e-4) for name in runners if name}
    return Problem(seconds, edges, border)


def least(problem: Problem) -> float:
    return min(map(problem.cost, itertools.product(*problem.seconds)))


def borders_of(problem: Problem, unit: int) -> int:
    return sum(unit in edge for edge in problem.edges)


@pytest.mark.parametrize("seed", range(60))
def test_of_two_runners_the_cheapest_owners_are_found(seed: int) -> None:
    problem = drawn(seed, ("", "one"), 9)
    owners = choose(problem)
    assert all(owner in costs for owner, costs in zip(owners, problem.seconds, strict=True))
    assert problem.cost(owners) == pytest.approx(least(problem), abs=1e-11)


@pytest.mark.parametrize("seed", range(40))
def test_of_three_runners_none_alone_is_cheaper_and_few_mixtures_are(seed: int) -> None:
    problem = drawn(seed, ("", "one", "two"), 7)
    owners = choose(problem)
    assert all(owner in costs for owner, costs in zip(owners, problem.seconds, strict=True))
    for runner in ("", "one", "two"):
        alone = [runner if runner in costs else min(costs, key=costs.__getitem__) for costs in problem.seconds]
        assert problem.cost(owners) <= problem.cost(alone) + 1e-11
    # The bound of alpha expansion, for costs that begin at zero.
    floor = sum(
        min(taken - borders_of(problem, unit) * problem.border.get(name, 0.0) / 2 for name, taken in costs.items())
        for unit, costs in enumerate(problem.seconds)
    )
    assert problem.cost(owners) - floor <= 2 * (least(problem) - floor) + 1e-11


def test_the_same_problem_has_the_same_answer() -> None:
    problem = drawn(3, ("", "one", "two"), 12)
    turned = Problem([dict(reversed(item.items())) for item in problem.seconds], problem.edges, problem.border)
    assert choose(problem) == choose(turned) == choose(problem)


def test_a_border_that_costs_more_than_it_gains_is_not_crossed() -> None:
    seconds = [{"one": 1.0, "two": 3.0}, {"one": 1.0, "two": 0.5}, {"one": 1.0, "two": 3.0}]
    edges = [(0, 1), (1, 2)]
    assert choose(Problem(seconds, edges, {"one": 0.1, "two": 0.1})) == ("one", "two", "one")
    assert choose(Problem(seconds, edges, {"one": 0.4, "two": 0.1})) == ("one", "one", "one")


def test_nothing_has_no_owners() -> None:
    assert choose(Problem([], [], {})) == ()
