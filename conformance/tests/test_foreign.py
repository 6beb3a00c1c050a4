"""The room `foreign`: files of stock's compilers in the backend's runtime, and reasons for missing ones."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from delegatekit_conformance import PROFILES, Verdict, stock
from delegatekit_conformance.cases.foreign import cases_for, compilers, trial
from delegatekit_conformance.cases.foreign.modules import MODULES
from delegatekit_conformance.cases.foreign.programs import ModuleCase, groups, tried_groups
from delegatekit_conformance.cases.foreign.subjects import Module, Program
from delegatekit_conformance.cases.subjects import Built
from delegatekit_conformance.context import Context
from delegatekit_conformance.errors import InputError

CONTEXT = Context("coreml", PROFILES["quick"])
WAY = compilers.ways_of("coreml")["ios18-float32"]


@pytest.fixture
def compiler() -> Iterator[None]:
    """Stock's compiler for Core ML, in its process."""
    pytest.importorskip("executorch", reason="executorch is not installed")
    pytest.importorskip("coremltools", reason="coremltools is not installed")
    stock.start()
    yield


def module(group: str, name: str) -> Module:
    return next(one for one in MODULES[group] if one.build.__name__ == f"_{group}_{name}")


def program(*pieces: Module) -> Program:
    return Program(WAY, pieces)


def _sines() -> Built:
    """Sines."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.sin()

    return Model(), [(torch.randn(3),)]


def _dilated() -> Built:
    """A module that stock's compiler refuses."""
    return nn.MaxPool2d(3, 2, 1, 2), [(torch.randn(2, 3, 9, 8),)]


def test_it_has_nothing_to_do_without_a_compiler() -> None:
    context = replace(CONTEXT, backend="reference")
    (case,) = cases_for(context)
    (example,) = case.examples(context)
    outcome = case.tried(example, context)
    assert outcome.verdict is Verdict.NOT_APPLICABLE and "no stock.toml" in outcome.detail


@pytest.mark.parametrize(
    "text",
    [
        "",
        "way = 1",
        "[[way]]\nname = 'a'",
        "[[way]]\nname = 'a'\nprecision = 'float32'\npartitioner = {}\nmore = 1",
        "other = 1\n[[way]]\nname = 'a'\nprecision = 'float32'\npartitioner = {}",
        "[[way]]\nname = 'a'\nprecision = 'float32'\npartitioner = {}\nquick = { operators = 0 }",
        "[[way]]\nname = 'a'\nprecision = 'float32'\npartitioner = {}\n[[own]]\ntitle = 'b'",
    ],
)
def test_a_file_that_says_no_ways_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(InputError, match="has no valid ways") as error:
        compilers.parse(text, "acme/stock.toml")
    assert "acme/stock.toml" in str(error.value)


def test_what_stands_above_the_ways_holds_for_those_that_do_not_say_otherwise() -> None:
    head = "package = 'acme'\nstates = 'float16'\n"
    ways = [f"[[way]]\nname = '{name}'\nprecision = 'float32'\npartitioner = {{}}\n" for name in "ab"]
    found = compilers.parse(head + ways[0] + "states = 'float32'\n" + ways[1])
    assert [(way.package, way.states) for way in found.values()] == [("acme", "float32"), ("acme", "float16")]


def test_operators_that_only_stocks_tools_have_are_called_by_their_names() -> None:
    own = "[[own]]\ntitle = 'a product'\nlibrary = 'json'\noperator = 'aten.add.Tensor'\nshapes = [[2, 3], [3]]\n"
    (way,) = compilers.parse(f"[[way]]\nname = 'a'\nprecision = 'float32'\npartitioner = {{}}\n{own}").values()
    assert "own" in tried_groups(CONTEXT, way) and "own" not in tried_groups(CONTEXT, WAY)
    (example,) = ModuleCase(way, "own").examples(CONTEXT)
    assert example.describe() == "a product"
    subject = pickle.loads(pickle.dumps(example)).subject()
    (call,) = subject.calls
    assert torch.equal(subject.module(*call), call[0] + call[1])
    assert ModuleCase(way, "own").snippet(example, CONTEXT) == ""


def test_results_that_follow_from_states_are_as_exact_as_states() -> None:
    assert program(Module(_sines)).precision == "float32"
    assert program(groups()["state"][0]).precision == "float16"
    way = replace(WAY, states="")
    assert Program(way, (groups()["state"][0],)).precision == "float32"


def test_calls_of_sizes_that_a_way_does_not_write_are_left_out() -> None:
    changes = next(one for one in groups()["state"] if one.title == "length-changes")
    sizes = [[x.shape[0] for (x,) in changes.subject(way).calls] for way in (WAY, replace(WAY, least_size=0))]
    assert sizes == [[3, 7, 2], [3, 1, 7, 2, 1]]


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for module_, name in ((stock, "executorch"), (compilers, "coremltools")):
        with monkeypatch.context() as patch:
            patch.setattr(module_, "find_spec", lambda asked, name=name: None if asked == name else object())
            outcome = trial.try_program(program(Module(_sines)), CONTEXT)
            assert outcome.verdict is Verdict.NOT_APPLICABLE and name in outcome.detail


def test_it_is_left_out_with_the_stock_runtime() -> None:
    outcome = trial.try_program(program(Module(_sines)), replace(CONTEXT, stock=False))
    assert outcome.verdict is Verdict.NOT_APPLICABLE and outcome.detail == stock.OFF


def test_each_profile_has_cases_of_unique_names() -> None:
    for profile in PROFILES.values():
        context = replace(CONTEXT, profile=profile)
        names = [case.name for case in cases_for(context)]
        assert len(names) == len(set(names))
    assert len(list(cases_for(CONTEXT))) < len(names)


def test_modules_of_a_group_share_programs() -> None:
    found = ModuleCase(WAY, "images").examples(CONTEXT)
    assert [piece for one in found for piece in one.pieces] == list(groups()["images"])
    assert len(found) < len(groups()["images"])


def test_what_stock_refuses_is_told_in_its_words_and_the_rest_is_tried(compiler: None) -> None:
    outcome = trial.try_program(program(Module(_dilated), Module(_sines)), CONTEXT)
    assert outcome.verdict is Verdict.DELEGATED and outcome.delegates == 1
    assert any("max_pool does not support dilation" in reason for reason in outcome.refusals)


@pytest.mark.parametrize(
    ("group", "name", "kernel"),
    [
        pytest.param("recurrent", "lstm_both_ways", "reverse", marks=pytest.mark.slow),
        pytest.param("normalization", "instance_norm", "instance_norm", marks=pytest.mark.slow),
        ("images", "nearest", "upsample_nearest_neighbor"),
        ("attention", "plain", "scaled_dot_product_attention"),
    ],
)
def test_a_broken_kernel_is_found(
    group: str, name: str, kernel: str, compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = pytest.importorskip("delegatekit_coreml.runtime.kernels").KERNELS
    sound = kernels[kernel]
    tried = program(module(group, name))
    assert trial.try_program(tried, CONTEXT).verdict is Verdict.DELEGATED

    def broken(*args: Any, **kwargs: Any) -> Any:
        return sound.function(*args, **kwargs) * 1.001

    monkeypatch.setitem(kernels, kernel, replace(sound, function=broken))
    both = trial.try_program(program(Module(_sines), *tried.pieces), CONTEXT)
    assert both.verdict is Verdict.MISMATCH and both.blame == "backend"
    assert both.example == tried.describe()
    # Stock's file travels with the program, so that trying a mutant calls no compiler.
    kept = pickle.loads(pickle.dumps(tried))
    monkeypatch.setattr(stock, "elsewhere", lambda *args: pytest.fail("is lowered again"))
    assert trial.try_program(kept, CONTEXT).verdict is Verdict.MISMATCH
