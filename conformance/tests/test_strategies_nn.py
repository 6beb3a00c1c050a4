"""Strategies of layers: every example is valid, and they cover the declared forms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from strategy_checks import check_eager

from delegatekit_conformance.drawing import draw, shrink
from delegatekit_conformance.recipe import Recipe, TensorRecipe
from delegatekit_conformance.strategies import load_operators
from delegatekit_conformance.trial import flatten

_MODULES = ("convolutions", "linear", "pooling", "normalization", "attention", "resampling", "recurrent")


def _module(name: str) -> str:
    cells = load_operators()[name].draw.__closure__ or ()
    functions = [cell.cell_contents for cell in cells if callable(cell.cell_contents)]
    return str(functions[0].__module__).rpartition(".")[2]


_NAMES = [name for name in load_operators() if _module(name) in _MODULES]


@functools.cache
def _examples(name: str, count: int, dtype: str | None = None) -> list[Recipe]:
    entry = load_operators()[name]
    return draw(entry.recipes(dtype or entry.dtypes[0]), count, 0)


def _arguments(recipe: Recipe) -> dict[str, Any]:
    """The arguments of the last step by the operator's own names, with defaults."""
    step = recipe.steps[-1]
    schema = getattr(getattr(torch.ops.aten, step.target.split(".")[1]), step.target.split(".")[2])._schema
    given = {argument.name: argument.default_value for argument in schema.arguments}
    given.update(zip(given, step.args, strict=False))
    return {**given, **dict(step.kwargs)}


def _seen(name: str, look: Callable[[Recipe], Any], count: int = 150) -> set[Any]:
    return {look(recipe) for recipe in _examples(name, count)}


def _first(recipe: Recipe) -> TensorRecipe:
    return recipe.tensors[0][1]


# -- all of them ------------------------------------------------------------------------------------------------------


def _check(name: str, *, first: int, others: int, exported: int) -> None:
    """Examples are small, run in eager with every dtype and can be exported; float32 agrees with float64."""
    kept, *dtypes = load_operators()[name].dtypes
    examples = _examples(name, first, kept)
    for recipe in examples:
        assert all(math.prod(tensor.shape) <= 4096 for _, tensor in recipe.tensors), recipe.describe()
        check_eager(recipe)
    for recipe in examples[len(examples) - exported :]:
        recipe.export()
    for dtype in dtypes:
        for recipe in _examples(name, others, dtype):
            results = flatten(recipe.module()(*recipe.inputs()))
            assert all(isinstance(result, torch.Tensor) for result in results)


@pytest.mark.sweep
@pytest.mark.parametrize("name", _NAMES)
def test_examples_are_valid(name: str) -> None:
    _check(name, first=6, others=2, exported=_NAMES.index(name) % 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMES)
def test_many_examples_are_valid(name: str) -> None:
    _check(name, first=40, others=12, exported=3)


@pytest.mark.parametrize("name", ["aten.conv2d.default", "aten.max_pool2d.default", "aten.linear.default"])
def test_an_example_that_fails_shrinks_to_a_small_one(name: str) -> None:
    strategy = load_operators()[name].recipes("float32")
    large = next(recipe for recipe in draw(strategy, 40, 0) if math.prod(_first(recipe).shape) > 20)
    small = shrink(strategy, 40, 0, large, lambda recipe: math.prod(_first(recipe).shape) > 3)
    assert 3 < math.prod(_first(small).shape) <= 12, small.describe()


# -- what they promise -------------------------------------------------------------------------------------------------


def test_convolutions_reach_all_settings() -> None:
    seen = [_arguments(recipe) | {"x": dict(recipe.tensors)["x0"]} for recipe in _examples("aten.conv2d.default", 150)]
    assert {len(item["x"].shape) for item in seen} == {3, 4}
    assert any(item["x"].layout == "channels_last" for item in seen)
    assert any(item["bias"] is None for item in seen) and any(item["bias"] is not None for item in seen)
    assert {item["groups"] for item in seen} == {1, 2, 3}
    assert {number for item in seen for number in item["stride"]} == {1, 2, 3}
    assert {number for item in seen for number in item["dilation"]} == {1, 2}
    assert any(len(set(item[key])) > 1 for key in ("stride", "padding", "dilation") for item in seen)
    assert any(len(item["stride"]) == 1 for item in seen)
    shapes = [recipe.tensors[1][1] for recipe in _examples("aten.conv2d.default", 150)]
    assert {tensor.constant for tensor in shapes} == {True, False}


def test_some_convolutions_are_depthwise_with_a_multiplier() -> None:
    def depthwise(recipe: Recipe) -> bool:
        weight, groups = recipe.tensors[1][1].shape, _arguments(recipe)["groups"]
        return bool(groups > 1 and weight[1] == 1 and weight[0] > groups)

    assert _seen("aten.conv2d.default", depthwise) == {True, False}


def test_convolutions_stay_small() -> None:
    for name in ("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default"):
        for recipe in _examples(name, 80):
            result = recipe.module()(*recipe.inputs())
            assert result.numel() * recipe.reduction_length <= 40_000, recipe.describe()


def test_transposed_convolutions_pad_their_outputs() -> None:
    seen = _seen("aten.conv_transpose2d.input", lambda recipe: max(_arguments(recipe)["output_padding"] or (0,)))
    assert seen >= {0, 1}
    assert _seen("aten.convolution.default", lambda recipe: _arguments(recipe)["transposed"]) == {True, False}
    assert _seen("aten.convolution.default", lambda recipe: len(_first(recipe).shape)) == {3, 4, 5}
    assert _seen("aten.conv2d.padding", lambda recipe: _arguments(recipe)["padding"]) == {"same", "valid"}


def test_products_have_all_ranks_and_nothing_to_sum_up() -> None:
    ranks = _seen("aten.matmul.default", lambda recipe: tuple(len(tensor.shape) for _, tensor in recipe.tensors), 400)
    assert len(ranks) >= 20
    assert {left for left, _ in ranks} == {right for _, right in ranks} == {1, 2, 3, 4, 5}
    assert _seen("aten.mm.default", lambda recipe: _first(recipe).shape[1] == 0) == {True, False}


def test_beta_zero_ignores_nan() -> None:
    def ignored(recipe: Recipe) -> bool:
        added = dict(recipe.tensors)[recipe.steps[0].args[0].name]
        return bool(added.values[0] == "special" and dict(recipe.steps[0].kwargs)["beta"] == 0)

    assert _seen("aten.addmm.default", ignored, 300) == {True, False}


@pytest.mark.parametrize("name", ["aten.avg_pool2d.default", "aten.max_pool2d_with_indices.default"])
def test_pools_reach_all_settings(name: str) -> None:
    seen = [_arguments(recipe) for recipe in _examples(name, 150)]
    assert {item["ceil_mode"] for item in seen} == {True, False}
    assert any(max(item["padding"] or (0,)) for item in seen)
    assert any(not item["stride"] for item in seen)
    divisors = {item.get("divisor_override") for item in seen}
    # Those of windows are among them.
    assert divisors > {None, 1, 2, 5} if "avg" in name else divisors == {None}
    assert {item.get("count_include_pad") for item in seen} >= ({True, False} if "avg" in name else set())
    assert {len(recipe.outputs) for recipe in _examples(name, 150)} == ({1} if "avg" in name else {1, 2})


def test_pools_leave_out_windows_that_see_nothing() -> None:
    for recipe in _examples("aten.max_pool2d.default", 150):
        if _first(recipe).values != ("special",):
            assert recipe.module()(*recipe.inputs()).isfinite().all(), recipe.describe()


def test_softmax_has_scalars_empty_tensors_masks_and_large_numbers() -> None:
    seen = [_first(recipe) for recipe in _examples("aten.softmax.int", 200)]
    assert {len(tensor.shape) for tensor in seen} == {0, 1, 2, 3, 4, 5}
    assert any(0 in tensor.shape for tensor in seen)
    assert {tensor.values[0] for tensor in seen} == {"normal", "uniform", "integers", "literal", "special"}
    rows = [recipe.module()(*recipe.inputs()) for recipe in _examples("aten._safe_softmax.default", 200)]
    assert any(bool((row == 0).any()) for row in rows)


def test_attention_reaches_all_settings() -> None:
    seen = [_arguments(recipe) for recipe in _examples("aten.scaled_dot_product_attention.default", 200)]
    assert {item["is_causal"] for item in seen} == {True, False} == {item["enable_gqa"] for item in seen}
    assert {item["scale"] is None for item in seen} == {True, False} == {item["attn_mask"] is None for item in seen}
    ranks = _seen("aten.scaled_dot_product_attention.default", lambda recipe: len(_first(recipe).shape), 200)
    assert ranks == {2, 3, 4, 5}


def test_grid_sampling_reaches_all_modes() -> None:
    keys = ("interpolation_mode", "padding_mode", "align_corners")
    seen = _seen("aten.grid_sampler_2d.default", lambda recipe: tuple(_arguments(recipe)[key] for key in keys), 300)
    assert len(seen) >= 15
    assert [set(values) for values in zip(*seen, strict=True)] == [{0, 1, 2}, {0, 1, 2}, {False, True}]


def test_resampling_grows_and_shrinks_by_sizes_and_by_factors() -> None:
    for name in ("aten.upsample_nearest2d.vec", "aten.upsample_bilinear2d.vec"):
        seen = [_arguments(recipe) for recipe in _examples(name, 150)]
        factors = {factor for item in seen for factor in item["scale_factors"] or ()}
        assert any(item["scale_factors"] is None for item in seen)
        assert min(factors) < 1 < max(factors)


def test_recurrent_layers_reach_all_settings() -> None:
    seen = [_arguments(recipe) for recipe in _examples("aten.lstm.input", 100)]
    for key in ("bidirectional", "batch_first", "has_biases"):
        assert {item[key] for item in seen} == {True, False}
    assert {item["num_layers"] for item in seen} == {1, 2}


def test_some_images_are_long_along_one_axis() -> None:
    sizes = _seen("aten.upsample_bilinear2d.vec", lambda recipe: _first(recipe).shape[2:])
    assert any(max(size) >= 7 and min(size) <= 6 for size in sizes)
    antialiased = _seen("aten._upsample_bilinear2d_aa.vec", lambda recipe: max(_first(recipe).shape[2:]))
    assert max(antialiased) <= 6, "its sums would be longer than it says"
