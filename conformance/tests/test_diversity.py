"""The most diverse recipes are those that call their operators in forms that no other has."""

from __future__ import annotations

from delegatekit_conformance.diversity import most_diverse
from delegatekit_conformance.recipe import Recipe, Ref, Step, TensorRecipe


def recipe(*args: object, shape: tuple[int, ...] = (2, 3), layout: str = "contiguous", seed: int = 0) -> Recipe:
    tensors = (("x0", TensorRecipe(shape, layout=layout, seed=seed)),)
    return Recipe(tensors, (Step("y0", "aten.sum.dim_IntList", (Ref("x0"), *args)),), (Ref("y0"),))


def test_what_differs_in_its_numbers_only_comes_last() -> None:
    many = [recipe((0,), False, seed=number) for number in range(10)]
    others = [recipe((0,), True), recipe((-1,), False), recipe((0,), False, layout="strided"), recipe(None, False)]
    chosen = most_diverse([*many, *others], 5)
    assert {id(one) for one in others} <= {id(one) for one in chosen}


def test_two_forms_that_were_seen_apart_are_new_together() -> None:
    known = [recipe((0,), False), recipe((-1,), False), recipe((0,), True)]
    both = recipe((-1,), True)
    assert most_diverse([recipe((0,), True, seed=4), both], 1, known=known) == [both]


def test_what_has_no_elements_is_the_last_choice() -> None:
    empty = recipe(None, True, shape=(0, 3), layout="strided")
    assert most_diverse([empty, recipe((0,), False)], 2)[1] == empty
