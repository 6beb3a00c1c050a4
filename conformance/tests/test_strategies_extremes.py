"""Extremes: every operator has examples with extreme sizes and numbers, and eager itself passes them."""

from __future__ import annotations

import math

import pytest
import torch
from strategy_checks import check_eager

from delegatekit_conformance import PROFILES
from delegatekit_conformance.cases.extremes import ExtremeCase, cases
from delegatekit_conformance.context import Context
from delegatekit_conformance.joined import Joined
from delegatekit_conformance.outcome import Outcome, Verdict
from delegatekit_conformance.recipe import Recipe, Ref, Step, TensorRecipe
from delegatekit_conformance.strategies import load_operators
from delegatekit_conformance.strategies.extremes import load_extremes
from delegatekit_conformance.strategies.extremes.determined import is_determined, is_determined_in, takes_long
from delegatekit_conformance.strategies.extremes.sketch import FAR, LARGEST, LONG, HurtfulSketch, Unsuitable

CONTEXT = Context("reference", PROFILES["quick"], stock=False)
#: Operators with at least one example in all of these, which stand for the families.
_NAMES = (
    "aten.add.Tensor",
    "aten.linear.default",
    "aten.layer_norm.default",
    "aten.conv2d.default",
    "aten.gather.default",
)


def _examples(name: str, dtype: str = "float32", count: int = 10) -> list[Recipe]:
    found = (load_extremes()[name].recipe(dtype, number) for number in range(count))
    return [recipe for recipe in found if recipe is not None]


def _sizes(name: str, dtype: str = "float32") -> set[int]:
    return {size for recipe in _examples(name, dtype, 20) for _, one in recipe.tensors for size in one.shape}


def _recipe(target: str, values: tuple[object, ...], *args: object, **more: object) -> Recipe:
    tensors = (("x0", TensorRecipe((4, 8), values=values)),)
    return Recipe(tensors, (Step("y0", target, (Ref("x0"), *args)),), (Ref("y0"),), **more)  # type: ignore[arg-type]


def test_every_operator_has_a_case_with_its_main_dtypes() -> None:
    names = {case.name for case in cases()}
    for name, entry in load_operators().items():
        for dtype in ("float32", "float16"):
            assert (f"extremes/{name}/{dtype}" in names) == (dtype in entry.dtypes)
        whole = {"int32", "int64"} & set(entry.dtypes)
        assert not whole or any(f"extremes/{name}/{dtype}" in names for dtype in whole)
        assert any(case.startswith(f"extremes/{name}/") for case in names)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_operator_has_examples_that_eager_passes(part: int) -> None:
    for name in list(load_extremes())[part::8]:
        dtype = load_extremes()[name].dtypes[0]
        examples = _examples(name, dtype, 8)
        assert examples, f"{name} has no extremes"
        for recipe in examples:
            assert recipe.has_elements
            if dtype == "float32":
                check_eager(recipe)


@pytest.mark.parametrize("name", _NAMES)
def test_examples_are_valid_and_the_same_again(name: str) -> None:
    examples = _examples(name)
    assert len(examples) >= 5 and examples == _examples(name)
    written = load_extremes()[name].written("float32")
    for number, recipe in enumerate(examples):
        check_eager(recipe)
        elements = sum(math.prod(tensor.shape) for _, tensor in recipe.tensors)
        assert elements < (1 << 20 if number < written else 1 << 18)
    examples[-1].export()


def test_another_seed_draws_other_examples() -> None:
    entry = load_extremes()["aten.relu.default"]
    assert [entry.recipe("float32", number, 1) for number in range(5)] != _examples("aten.relu.default", count=5)


def test_rows_are_long_and_tables_longer() -> None:
    assert {129, 197, 1025} & _sizes("aten.softmax.int") and {16385, 16391} & _sizes("aten.softmax.int")
    for name in ("aten.embedding.default", "aten.index_select.default", "aten.gather.default", "aten.index.Tensor"):
        tables = [recipe for recipe in _examples(name) if max(recipe.tensors[0][1].shape, default=0) > 16384]
        assert any(int(value.max()) >= 16384 for recipe in tables for value in _indices(recipe)), name


def _indices(recipe: Recipe) -> list[torch.Tensor]:
    return [tensor.make() for _, tensor in recipe.tensors if tensor.dtype == "int64"]


def test_numbers_beyond_all_tables_stay_what_they_are() -> None:
    """A list of all numbers up to the largest of 32 bits would be larger than the memory."""
    for dtype in ("int32", "int64"):
        found = _examples("aten.sum.dim_IntList", dtype, 40)
        values = [tensor.values for recipe in found for _, tensor in recipe.tensors]
        assert ("integers", 2**30, 2**31 - 1) in values
        assert all(len(some[1]) <= LARGEST for some in values if some[0] == "among")


def test_functions_are_called_with_numbers_of_all_magnitudes() -> None:
    """Each has a result of its own, since a result is judged by its largest number."""

    def powers(name: str) -> set[int]:
        recipe = max(_examples(name), key=lambda one: len(one.outputs))
        assert len(recipe.outputs) == len(recipe.tensors)
        return {round(math.log2(top)) - 1 for _, one in recipe.tensors if (top := float(one.make().max())) > 0}

    assert {-120, -6, 15, 120} <= powers("aten.rsqrt.default") and {-120, 15, 20} <= powers("aten.sin.default")
    assert max(powers("aten.exp.default")) == 6, "what is infinite is not compared"


def test_results_come_up_to_the_largest_number() -> None:
    """Of exponentials, of sums, and of layers whose weights are infinite beside a factor after them."""

    def results(name: str, dtype: str = "float32") -> list[torch.Tensor]:
        found = (recipe.module()(*recipe.inputs()) for recipe in _examples(name, dtype))
        return [result for results in found for result in torch.utils._pytree.tree_leaves(results)]

    for name in ("aten.exp.default", "aten.expm1.default", "aten.exp2.default", "aten.sinh.default"):
        for dtype in ("float32", "float16"):
            end = torch.finfo(getattr(torch, dtype)).max
            assert any(end / 1.2 < float(one.max()) <= end for one in results(name, dtype)), name
    sums = [one for one in results("aten.sum.dim_IntList", "int32") if one.dtype is torch.int32 and one.numel()]
    assert any(int(one.max()) > 2**31 - 2**20 for one in sums)
    for name in ("aten.linear.default", "aten.conv2d.default"):
        scaled = [recipe for recipe in _examples(name, count=14) if any("mul" in step.target for step in recipe.steps)]
        assert len(scaled) == 2
        found = (result for recipe in scaled for result in recipe.module()(*recipe.inputs()))
        assert any(result.isinf().any() for result in found)


def test_numbers_that_are_none_come_with_other_bits_than_those_of_arithmetic() -> None:
    found = [tensor for recipe in _examples("aten.argmax.default") for _, tensor in recipe.tensors]
    assert any(0x7F800001 in tensor.values[1] for tensor in found if tensor.values[0] == "bits")


def test_channels_fill_no_vector() -> None:
    weights = [recipe.tensors[1][1].shape for recipe in _examples("aten.conv2d.default", count=20)]
    assert any(shape[0] > 16 and shape[0] % 4 for shape in weights)
    assert any(shape[1] == 1 and shape[0] > 16 for shape in weights)


def test_some_windows_read_nothing_but_padding() -> None:
    for name in ("aten.conv1d.default", "aten.conv2d.default", "aten.convolution.default"):
        entry = load_extremes()[name]
        written = (entry.recipe("float32", number) for number in range(entry.written("float32")))
        beside = next(one for one in written if one is not None and len(one.tensors) in (18, 36))
        results = beside.module()(*(torch.full_like(value, math.nan) for value in beside.inputs()))
        # Of some no window reads an element, of others not each one does.
        assert any(bool(one.isfinite().all()) for one in results)
        assert any(bool(one.isfinite().any()) and not bool(one.isfinite().all()) for one in results)


def test_weights_are_huge_and_tiny() -> None:
    for number in (1e5, 1e-6):
        assert any(
            0.2 * number < float(tensor.make().abs().mean()) < 2 * number
            for recipe in (load_extremes()["aten.linear.default"].recipe("float32", 0, seed) for seed in range(8))
            if recipe is not None
            for name, tensor in recipe.tensors
            if tensor.constant
        )


def test_sizes_change_up_to_thousands_below_a_far_bound() -> None:
    for name in ("aten.relu.default", "aten.add.Tensor", "aten.linear.default", "aten.softmax.int"):
        changing = [recipe for recipe in _examples(name) if recipe.sizes]
        assert changing, name
        for recipe in changing:
            largest = max(size for call in recipe.calls for size in call)
            assert 1024 < largest < recipe.sizes[0].high / 8


def test_a_mean_in_float16_is_small_where_its_sum_is_beyond() -> None:
    recipe = next(one for one in _examples("aten.mean.dim", "float16") if one.tensors[0][1].shape[-1] > 16384)
    (x,) = recipe.inputs()
    assert float(x.double().sum(-1).min()) > 65504 and float(recipe.module()(x).max()) < 10


def test_what_a_rounding_changes_is_not_determined() -> None:
    assert is_determined(_recipe("aten.cos.default", ("uniform", -1.0, 1.0)))
    assert not is_determined(_recipe("aten.cos.default", ("uniform", 1e5, 2e5)))
    assert not is_determined(_recipe("aten.log.default", ("uniform", -2.0, -1.0)))  # nothing but NaN
    assert not is_determined(_recipe("aten.select.int", ("normal",), 5, 0))  # eager refuses it


def test_a_large_window_at_many_places_takes_too_long() -> None:
    def example(size: int) -> Recipe:
        tensors = (("x", TensorRecipe((1, 2, size, size))), ("w", TensorRecipe((2, 2, 129, 129), constant=True)))
        step = Step("y", "aten.conv2d.default", (Ref("x"), Ref("w")))
        return Recipe(tensors, (step,), (Ref("y"),), reduction_length=2 * 129 * 129)

    assert takes_long(example(400)) and not takes_long(example(140))


@pytest.mark.parametrize("operator", ["_softmax.default", "layer_norm.default", "cumsum.default"])
def test_rows_that_are_read_a_few_times_may_be_as_long_as_tables(operator: str) -> None:
    extremes = load_extremes()[f"aten.{operator}"]
    found = (extremes.recipe("float32", number) for number in range(extremes.written("float32"), 20))
    assert any(recipe.accuracy.reduction_length > 1 << 14 for recipe in found if recipe)


def test_one_size_is_pulled_and_the_strategy_follows() -> None:
    draw = load_operators()["aten.mean.dim"].draw
    seen = set()
    for seed in range(20):
        try:
            recipe = draw(HurtfulSketch(str(seed), "float32", LONG, lever=0))
        except Unsuitable:
            continue
        seen.add(recipe.reduction_length)
    assert any(length >= 129 for length in seen)
    assert HurtfulSketch("0", "float32", FAR, lever=0, largest=99).shape(1, 1) == (99,)


def test_a_backend_that_takes_nothing_is_asked_once() -> None:
    case = next(case for case in cases() if case.name == "extremes/aten.linear.default/float32")
    assert isinstance(case, ExtremeCase)
    (first,) = case.examples(CONTEXT)
    assert isinstance(first, Joined) and len(first.parts) == 2
    assert case.is_settled([Outcome(Verdict.FALLBACK)], CONTEXT)
    assert not case.is_settled([Outcome(Verdict.DELEGATED, delegates=1)], CONTEXT)
    more = case.further([first], CONTEXT)
    assert any(isinstance(one, Recipe) and one.sizes for one in more)
    assert any(isinstance(one, Joined) and len(one.parts) >= 3 for one in more)


def test_a_program_that_fails_shrinks_to_its_smallest_part() -> None:
    case = next(case for case in cases() if case.name == "extremes/aten.relu.default/float32")

    def fails(example: object) -> bool:
        parts = example.parts if isinstance(example, Joined) else [example]
        return any(max(part.tensors[0][1].shape, default=0) > 16384 for part in parts)  # type: ignore[attr-defined]

    (first,) = case.examples(CONTEXT)
    small = case.shrink(first, fails, CONTEXT)
    assert isinstance(small, Recipe) and fails(small)


def test_numbers_beyond_float16_blame_no_backend_that_computes_in_it() -> None:
    def example(low: float, high: float) -> Recipe:
        tensors = (("x0", TensorRecipe((8,), values=("uniform", low, high))),)
        return Recipe(tensors, (Step("y0", "aten.mul.Scalar", (Ref("x0"), 2.0)),), (Ref("y0"),))

    assert is_determined_in("float16", example(1.0, 2.0)) and is_determined_in("bfloat16", example(1e5, 2e5))
    assert not is_determined_in("float16", example(1e5, 2e5))


def test_axes_of_middle_size_lie_between_others() -> None:
    for name in ("sum.dim_IntList", "amax.default", "cumsum.default", "sort.default", "topk.default", "argmin.default"):
        shapes = [recipe.tensors[0][1].shape for recipe in _examples(f"aten.{name}", count=4)]
        assert any(len(shape) == 3 and 16 <= shape[1] <= 64 and math.prod(shape) > 3000 for shape in shapes), name


def test_kernels_are_long_in_one_row_and_by_their_area() -> None:
    weights = [one.shape for recipe in _examples("aten.conv2d.default", count=12) for _, one in recipe.tensors]
    assert any(shape[2:] == (1, 4097) for shape in weights) and any(shape[2:] == (64, 65) for shape in weights)


def test_numbers_beyond_float16_are_moved_and_chosen_by_integers_and_truth_values() -> None:
    for name in ("where.self", "gather.default", "embedding.default", "masked_fill.Scalar", "index_put.default"):
        recipe = load_extremes()[f"aten.{name}"].beyond()
        assert recipe is not None and any(tensor.dtype in ("bool", "int64", "int32") for _, tensor in recipe.tensors)
        check_eager(recipe)
        assert float(recipe.module()(*recipe.inputs()).abs().max()) > 65504.0
    assert load_extremes()["aten.relu.default"].beyond() is None
    assert load_extremes()["aten.bitwise_not.default"].beyond() is None


def test_numbers_beyond_float16_are_for_backends_that_compute_in_it_and_stand_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = next(case for case in cases() if case.name == "extremes/aten.where.self/float32")
    assert isinstance(case, ExtremeCase)
    beyond = load_extremes()["aten.where.self"].beyond(CONTEXT.seed)
    first = case.examples(CONTEXT)
    assert beyond not in case.further(first, CONTEXT)
    monkeypatch.setattr("delegatekit_conformance.cases.extremes._precision", lambda context: "float16")
    assert case.further(first, CONTEXT)[-1] == beyond


def test_every_written_example_is_drawn() -> None:
    for name, extremes in load_extremes().items():
        for dtype in extremes.dtypes:
            missing = [number for number in range(extremes.written(dtype)) if extremes.recipe(dtype, number) is None]
            assert not missing, f"{name} of {dtype}"


def test_numbers_stand_at_the_borders_of_mantissas_and_beside_their_neighbours() -> None:
    for name in (
        "eq.Scalar",
        "clamp.default",
        "add.Scalar",
        "maximum.default",
        "remainder.Scalar",
        "full_like.default",
    ):
        extremes = load_extremes()[f"aten.{name}"]
        found = [extremes.recipe("int32", number) for number in range(extremes.written("int32"))]
        dtypes = {recipe.tensors[0][1].dtype for recipe in found if recipe is not None}
        assert dtypes == {"int32", "int64"}, name
        for recipe in filter(None, found):
            assert recipe.exact
            check_eager(recipe)
            held = {int(number) for _, tensor in recipe.tensors for number in tensor.make().reshape(-1)}
            assert {2**24 - 1, 2**24, 2**24 + 1, -(2**24) - 1} <= held, name


def test_sums_and_products_beside_a_border_stay_within_32_bits() -> None:
    for name in ("add.Scalar", "sub.Scalar", "rsub.Scalar", "mul.Scalar", "add.Tensor", "mul.Tensor", "sub.Tensor"):
        extremes = load_extremes()[f"aten.{name}"]
        for number in range(extremes.written("int32")):
            recipe = extremes.recipe("int32", number)
            assert recipe is not None
            if recipe.tensors[0][1].dtype == "int64" and len(recipe.outputs) > 1:
                for result in recipe.module()(*recipe.inputs()):
                    assert int(result.min()) >= -(2**31) and int(result.max()) < 2**31, name


def test_settings_differ_along_the_first_axis_alone_and_along_the_last() -> None:
    def differing(name: str) -> set[int]:
        """The axes whose number differs from that of all others, in any list of the written examples' calls."""
        extremes = load_extremes()[f"aten.{name}"]
        found = [extremes.recipe("float32", number) for number in range(extremes.written("float32"))]
        lists = [item for recipe in filter(None, found) for step in recipe.steps for item in step.args]
        return {
            at
            for item in lists
            if isinstance(item, tuple) and len(item) == 3
            for at in range(3)
            if item[at] != item[at - 1] and item[at - 1] == item[at - 2]
        }

    for name in ("conv3d.default", "conv_transpose3d.input", "max_pool3d.default", "upsample_trilinear3d.vec"):
        assert {0, 2} <= differing(name), name


def test_factors_are_the_ratio_of_the_sizes_along_all_axes_but_one() -> None:
    for name, rank in (("bilinear2d", 2), ("nearest2d", 2), ("trilinear3d", 3)):
        extremes = load_extremes()[f"aten.upsample_{name}.vec"]
        recipes = filter(None, (extremes.recipe("float32", number) for number in range(extremes.written("float32"))))
        odd = set()
        for recipe in recipes:
            tensors = dict(recipe.tensors)
            for step in recipe.steps:
                factors = step.args[-1]
                if factors is not None:
                    sizes = tensors[step.args[0].name].shape[2:]
                    odd.add(tuple(at for at in range(rank) if sizes[at] * factors[at] % 1))
        assert {(0,), (rank - 1,)} <= odd, name
