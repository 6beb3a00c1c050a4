"""The corpus: its file, the cases of its recipes, and which of many recipes are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from delegatekit_conformance import corpus
from delegatekit_conformance.cases import corpus as cases
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.drawing import draw
from delegatekit_conformance.errors import InputError
from delegatekit_conformance.mutants.search import Tried, candidates, choose
from delegatekit_conformance.outcome import Verdict
from delegatekit_conformance.recipe import Recipe, Ref, Step, TensorRecipe
from delegatekit_conformance.strategies import load_operators
from delegatekit_conformance.strategies.varying import varying

CONTEXT = Context("xnnpack", PROFILES["quick"])
OPERATORS = (
    "aten.add.Tensor",
    "aten.to.dtype",
    "aten.convolution.default",
    "aten.clamp.default",
    "aten.sum.dim_IntList",
)


def recipe(name: str = "aten.relu.default", size: int = 3) -> Recipe:
    tensors = (("x", TensorRecipe((2, size))),)
    return Recipe(tensors, (Step("y", name, (Ref("x"),)),), (Ref("y"),))


@pytest.mark.sweep
@pytest.mark.parametrize("operator", OPERATORS)
def test_recipes_are_the_same_after_the_file(operator: str) -> None:
    entry = load_operators()[operator]
    drawn = [one for dtype in entry.dtypes for one in draw(entry.recipes(dtype), 8, 0)]
    drawn += filter(None, map(varying, drawn))
    text = corpus.written({f"{operator}/float32": drawn})
    (found,) = corpus.parse(text).values()
    assert list(found) == drawn
    assert len(text.splitlines()) == len(drawn) + 4, "a recipe a line"


@pytest.mark.parametrize(
    "text, words",
    [
        ("[]", "is no corpus"),
        ('{"format": 2, "recipes": {}}', "its format is 2"),
        ('{"format": 1, "recipes": {"a/float32": [{"recipe": {"steps": []}}]}}', "is no corpus: TypeError"),
        (
            '{"format": 1, "recipes": {"a/float32": [{"step": {"name": "a", "target": "b", "args": []}}]}}',
            "is no recipe",
        ),
        ('{"format": 1, "recipes": {"a/float32": [{"torch": "load"}]}}', "torch.load is no dtype"),
        ('{"format": 1, "recipes": {"a/float32": [{"tensor": {"shape": [1]}, "x": 1}]}}', "is no corpus"),
    ],
)
def test_what_is_no_corpus_is_an_error_with_its_place(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        corpus.parse(text, "acme/corpus.json")
    assert "acme/corpus.json" in str(error.value)


def test_numbers_and_constants_that_json_does_not_have() -> None:
    values = (float("inf"), float("-inf"), torch.int8, torch.channels_last, torch.strided, (1, (2.5, None, True)))
    assert corpus.decoded(json.loads(json.dumps(corpus.encoded(values)))) == values
    with pytest.raises(TypeError, match="cannot have"):
        corpus.encoded(object())


def test_a_backend_without_a_corpus_has_an_empty_one(install_plugin: Callable[..., Path]) -> None:
    install_plugin("sound")
    assert corpus.load("sound") == {}


def test_cases_are_of_the_file_several_recipes_in_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "aten.relu.default/float32": [recipe(size=size) for size in range(1, 11)],
        "graphs": [recipe(), recipe(size=4)],
        "quantized/aten.relu.default/int8": [recipe(size=8), recipe(size=9)],
        "quantized/aten.relu.default/of-yesterday": [recipe(size=8)],
    }
    monkeypatch.setattr(cases, "load", lambda backend: found)
    plain, graphs, quantized, gone = cases.cases_for(CONTEXT)
    assert plain.name == "corpus/aten.relu.default/float32"
    assert [len(example.parts) for example in plain.examples(CONTEXT)] == [8, 2]
    assert [len(example.parts) for example in graphs.examples(CONTEXT)] == [1, 1]
    assert gone.examples(CONTEXT) == ()
    for case in (plain, graphs, quantized):
        (example, *_) = case.examples(CONTEXT)
        assert case.run(example, CONTEXT).verdict is Verdict.DELEGATED


def test_recipes_are_kept_until_each_form_differs_in_two_examples() -> None:
    tried = [
        Tried("a", recipe(size=size), 0.1, forms)
        for size, forms in ((1, 0b0001), (2, 0b0110), (3, 0b0110), (4, 0b0110))
    ]
    chosen = choose([0b0001, 0b0001, 0b0100], tried)
    assert [one.recipe and one.recipe.tensors[0][1].shape[1] for one in chosen] == [2, 3]
    assert choose([0b0111, 0b0111], tried) == []


def test_the_search_knows_the_suite_the_operators_and_the_schemes() -> None:
    names = candidates(CONTEXT)
    assert {"base/operators/aten.add.Tensor/float32", "aten.add.Tensor/float16", "graphs"} <= set(names)
    assert "quantized/aten.add.Tensor/int8" in names
    assert not any(name.startswith(("base/corpus/", "base/growth/")) for name in names)
