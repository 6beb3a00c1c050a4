"""Joined programs: each part is judged by itself, and faults of the whole only are found."""

from __future__ import annotations

import pickle
from dataclasses import replace

import hypothesis.strategies as st
import pytest
import torch
from hypothesis.strategies import SearchStrategy

from delegatekit_conformance import PROFILES, Outcome, Verdict
from delegatekit_conformance import trial as trial_module
from delegatekit_conformance.cases import special_values
from delegatekit_conformance.cases.operators import RecipeCase
from delegatekit_conformance.context import Context
from delegatekit_conformance.joined import Joined, join
from delegatekit_conformance.recipe import Recipe, Ref, Size, Step, TensorRecipe
from delegatekit_conformance.trial import Subject, try_joined
from delegatekit_toolkit.accuracy import Accuracy

CONTEXT = Context("reference", PROFILES["quick"], stock=False)


def recipe(target: str, *args: object, shape: tuple[int, ...] = (2, 3), **more: object) -> Recipe:
    tensors = (("x0", TensorRecipe(shape)), ("x1", TensorRecipe(shape, constant=True, seed=1)))
    return Recipe(tensors, (Step("y0", target, (Ref("x0"), *args)),), (Ref("y0"),), **more)  # type: ignore[arg-type]


ADD, SPLIT = recipe("aten.add.Tensor", Ref("x1")), recipe("aten.split_with_sizes.default", (1, 2), 1)


def test_a_joined_program_computes_what_its_parts_compute() -> None:
    joined = Joined((ADD, recipe("aten.mul.Tensor", Ref("x1"), shape=(4,)), SPLIT))
    apart = [value for part in joined.parts for value in trial_module.flatten(part.module()(*part.inputs()))]
    together = trial_module.flatten(joined.whole.module()(*joined.whole.inputs()))
    assert len(apart) == len(together) == 4
    for one, other in zip(apart, together, strict=True):
        assert torch.equal(one, other)


def test_each_part_is_judged_by_its_own_accuracy() -> None:
    joined = Joined((replace(ADD, exact=True), replace(SPLIT, reduction_length=1000)))
    subject = Subject.of_joined(joined)
    assert [part.outputs for part in subject.parts] == [1, 2]
    ((expected, native, _),) = subject.references(0.0)

    class Wrong:
        def __init__(self, place: int) -> None:
            self.place = place

        def run(self, inputs: object) -> list[torch.Tensor]:
            return [value * (1 + 1e-6 * (place == self.place)) for place, value in enumerate(native)]

    for place, verdict in ((0, Verdict.MISMATCH), (1, Verdict.DELEGATED), (7, Verdict.DELEGATED)):
        outcome = trial_module.run_calls(subject, [(expected, native, None)], "float32", Wrong(place))
        assert outcome.verdict is verdict, place


def test_recipes_whose_sizes_change_are_not_joined() -> None:
    changing = replace(ADD, sizes=(Size("s", 1, 4, (("x0", 0),)),))
    assert [len(joined.parts) for joined in join([ADD, changing, ADD, SPLIT, ADD], 3)] == [3, 1]


def test_a_joined_program_travels_to_other_processes() -> None:
    joined = Joined((ADD, SPLIT))
    assert pickle.loads(pickle.dumps(joined)).describe() == joined.describe()
    compile(joined.snippet("reference"), "snippet", "exec")


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> dict[str, Outcome]:
    """Outcomes of recipes by their description, in place of trials."""
    outcomes: dict[str, Outcome] = {}
    monkeypatch.setattr(trial_module, "try_recipe", lambda recipe, context: outcomes[recipe.describe()])
    return outcomes


def test_the_part_that_is_wrong_is_the_example(monkeypatch: pytest.MonkeyPatch, trials: dict[str, Outcome]) -> None:
    whole = Outcome(Verdict.MISMATCH, "output 1: relative error 1 is above 0.1")
    monkeypatch.setattr(trial_module, "try_subject", lambda subject, context: whole)
    nan, crash = Outcome(Verdict.MISMATCH, "output 0 has NaN"), Outcome(Verdict.RUN_ERROR, "no")
    third = recipe("aten.relu.default")
    trials[ADD.describe()], trials[SPLIT.describe()] = Outcome(Verdict.DELEGATED), nan
    trials[third.describe()] = crash
    found = try_joined(Joined((ADD, SPLIT, third)), CONTEXT)
    assert found.detail == nan.detail and [other.detail for other in found.others] == [crash.detail]
    assert Outcome.from_json(found.to_json()) == found

    trials[SPLIT.describe()] = trials[third.describe()] = Outcome(Verdict.DELEGATED)
    found = try_joined(Joined((ADD, SPLIT)), CONTEXT)
    assert found.verdict is Verdict.MISMATCH and ADD.describe() in found.example  # only together


def test_a_part_that_nobody_runs_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, trials: dict[str, Outcome]
) -> None:
    monkeypatch.setattr(trial_module, "try_subject", lambda subject, context: Outcome(Verdict.REFUSED))
    trials[ADD.describe()] = Outcome(Verdict.DELEGATED, delegates=1, delegated_nodes=2)
    trials[SPLIT.describe()] = Outcome(Verdict.REFUSED, refusals=("no",))
    found = try_joined(Joined((ADD, SPLIT)), CONTEXT)
    assert (found.verdict, found.delegated_nodes, found.refusals) == (Verdict.DELEGATED, 2, ("no",))


class Case(RecipeCase):
    """Shrinks to given failures; its strategy draws nothing that fails."""

    name = "operators/any/float32"

    def strategy(self) -> SearchStrategy[Recipe]:
        return st.builds(recipe, st.just("aten.relu.default"))

    def count(self, context: Context) -> int:
        return 1

    def joined(self, context: Context) -> int:
        return 1


def test_a_program_shrinks_to_the_part_or_the_parts_that_fail() -> None:
    one, other, third = ADD, SPLIT, recipe("aten.relu.default", shape=(7,))
    program = Joined((one, other, third))
    assert Case().shrink(program, lambda tried: tried == other, CONTEXT) == other
    both = {one, third}
    found = Case().shrink(program, lambda tried: isinstance(tried, Joined) and both <= set(tried.parts), CONTEXT)
    assert found == Joined((one, third))


def test_a_program_stays_whole_where_the_time_does_not_suffice() -> None:
    def fails(tried: object) -> bool:
        if isinstance(tried, Joined):
            raise TimeoutError
        return False

    program = Joined((ADD, SPLIT))
    assert Case().shrink(program, fails, CONTEXT) is program


def test_what_a_backend_declares_of_a_part_excuses_that_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def declared(recipe: Recipe, fault: Outcome, context: Context) -> str:
        return "exp(NaN) is 0" if recipe is ADD and fault.verdict is Verdict.MISMATCH else ""

    monkeypatch.setattr(special_values, "_declared", declared)
    of_part, of_other = (Outcome(Verdict.MISMATCH, example=one.describe(), blame="backend") for one in (ADD, SPLIT))
    joined = Joined((ADD, SPLIT))
    outcome = special_values.explained(joined, replace(of_part, others=(of_other,)), CONTEXT)
    assert (outcome.declared, outcome.others[0].declared) == ("exp(NaN) is 0", "")
    whole = Outcome(Verdict.MISMATCH, example=joined.describe(), blame="backend")
    assert special_values.explained(joined, whole, CONTEXT) == whole


@pytest.mark.parametrize("first_is_faulty", [True, False])
def test_of_parts_that_read_alike_the_faulty_one_is_explained(
    monkeypatch: pytest.MonkeyPatch, first_is_faulty: bool
) -> None:
    first, second = ADD, replace(ADD, depth=ADD.depth + 1)
    faulty = first if first_is_faulty else second
    monkeypatch.setattr(special_values, "_is_faulty", lambda program, context: program is faulty)
    monkeypatch.setattr(special_values, "_declared", lambda program, *_: "exp(NaN) is 0" if program is first else "")
    fault = Outcome(Verdict.MISMATCH, example=ADD.describe(), blame="backend")
    outcome = special_values.explained(Joined((first, second)), fault, CONTEXT)
    assert outcome.declared == ("exp(NaN) is 0" if first_is_faulty else "")


class Quotient(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nan_to_num(x / y, posinf=9.0)


def test_zeros_are_replaced_where_eager_makes_infinities_of_them_on_the_way() -> None:
    inputs = (torch.tensor([4, 0]), torch.tensor([0, 2]))
    subject = Subject(Quotient(), (inputs,), Accuracy())
    assert special_values._made_ordinary(subject, (65504.0, 2.0**-14), 65504.0)
    assert [item.tolist() for item in inputs] == [[4, 1], [1, 2]]
    assert not special_values._made_ordinary(subject, (65504.0, 2.0**-14), 65504.0)
