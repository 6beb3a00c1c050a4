"""Limits: a backend's largest size is found by queries, reported, and tried."""

from __future__ import annotations

import math

import pytest

from delegatekit_api.schemes import QuantizationScheme
from delegatekit_conformance.cases import limits
from delegatekit_conformance.cases.limits import Lever, LimitCase
from delegatekit_conformance.cases.quantized_operators import Quantized
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Outcome, Verdict
from delegatekit_conformance.recipe import Recipe

CONTEXT = Context("reference", PROFILES["default"], stock=False)
LINEAR = LimitCase("aten.linear.default")


def _largest(recipe: Recipe) -> int:
    return max(size for _, tensor in recipe.tensors for size in (*tensor.shape, 1))


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The examples that are tried, of a backend that takes no size above 1000."""
    found: list[Recipe] = []

    def asked(example: Lever, recipe: Recipe | None, context: Context) -> limits._Answer | None:
        if recipe is None:
            return None
        far = _largest(recipe) > 1000
        return limits._Answer(int(not far), (f"{_largest(recipe)}: 1000 is the most",) if far else ())

    def try_recipe(recipe: Recipe, context: Context) -> Outcome:
        found.append(recipe)
        return Outcome(Verdict.DELEGATED)

    monkeypatch.setattr(limits, "_asked", asked)
    monkeypatch.setattr(limits, "try_recipe", try_recipe)
    return found


def test_the_last_size_that_is_taken_is_tried_and_told(tried: list[Recipe]) -> None:
    examples = LINEAR.examples(CONTEXT)
    outcomes = [LINEAR.run(example, CONTEXT) for example in examples]
    assert len(examples) == 2 and [outcome.verdict for outcome in outcomes] == [Verdict.DELEGATED] * 2
    assert [_largest(recipe) for recipe in tried] == [1000, 1000]
    assert outcomes[0].refusals == ("not above 1000: 1001: 1000 is the most",)
    assert outcomes[0].example == "aten.linear.default of float32: size 0 as large as the backend takes it"
    assert not LINEAR.is_settled(outcomes, CONTEXT) and len(LINEAR.further(examples, CONTEXT)) == 2


def test_a_fault_is_shown_by_the_example_that_has_it(tried: list[Recipe], monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(recipe: Recipe, context: Context) -> Outcome:
        return Outcome(Verdict.MISMATCH, "wrong", example=recipe.describe())

    monkeypatch.setattr(limits, "try_recipe", wrong)
    outcome = LINEAR.run(LINEAR.examples(CONTEXT)[0], CONTEXT)
    assert outcome.verdict is Verdict.MISMATCH and "1000" in outcome.example and "1000" in outcome.snippet


def test_what_is_left_however_small_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        limits, "_asked", lambda example, recipe, context: limits._Answer(0, ("only float16 is taken",))
    )
    outcomes = [LINEAR.run(example, CONTEXT) for example in LINEAR.examples(CONTEXT)]
    assert [(one.verdict, one.detail) for one in outcomes] == [(Verdict.NOT_APPLICABLE, "only float16 is taken")] * 2
    assert LINEAR.is_settled(outcomes, CONTEXT)


def test_a_backend_without_a_line_is_asked_about_the_largest_size_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    sound = limits._asked

    def asked(example: Lever, recipe: Recipe | None, context: Context) -> limits._Answer | None:
        if recipe is not None:
            sizes.append(_largest(recipe))
        return sound(example, recipe, context)

    monkeypatch.setattr(limits, "_asked", asked)
    outcome = LINEAR.run(LINEAR.examples(CONTEXT)[0], CONTEXT)
    assert (outcome.verdict, outcome.detail) == (Verdict.PASSED, "262144 is taken")
    assert len(sizes) == 2 and sizes[1] == 1 << 18


def test_operators_that_a_scheme_names_are_quantized_too(tried: list[Recipe], monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = QuantizationScheme("narrow", "8 bits", "static")
    monkeypatch.setattr(limits, "schemes_for", lambda context, operator: [(scheme, False), (scheme, True)])
    levers = [*(first := LINEAR.examples(CONTEXT)), *LINEAR.further(first, CONTEXT)]
    assert [lever.scheme for lever in levers] == ["", "narrow"] * 2 + ["", ""]
    programs: list[Quantized] = []

    def try_program(example: Quantized, case: str, context: Context) -> Outcome:
        programs.append(example)
        return Outcome(Verdict.PARTLY)

    monkeypatch.setattr(limits, "try_program", try_program)
    assert LINEAR.run(levers[1], CONTEXT).verdict is Verdict.PARTLY and not tried
    assert [(one.scheme, _largest(one.recipes.parts[0])) for one in programs] == [("narrow", 1000)]


def test_an_example_that_cannot_be_asked_about_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: object, **more: object) -> None:
        raise ValueError("a fault of the partitioner")

    monkeypatch.setattr(limits.delegatekit, "explain", failing)
    outcome = LINEAR.run(LINEAR.examples(CONTEXT)[0], CONTEXT)
    assert outcome.verdict is Verdict.DELEGATED and "float32" in outcome.example, "the trial says what becomes of it"


def test_sizes_are_those_of_tensors_and_windows_and_no_example_is_too_large() -> None:
    for name in ("aten.conv2d.default", "aten.diag_embed.default", "aten.div.Tensor"):
        for example in (*LimitCase(name).examples(CONTEXT), *LimitCase(name).further((), CONTEXT)):
            assert example.recipe(2) is not None
            for size in (1 << 10, 1 << 14, 1 << 18):
                recipe = example.recipe(size)
                assert recipe is None or all(math.prod(one.shape) <= 1 << 20 for _, one in recipe.tensors), name


def test_the_quick_profile_has_none() -> None:
    assert LINEAR.examples(Context("reference", PROFILES["quick"])) == []
