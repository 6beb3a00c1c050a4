"""Declarations: their limits, their measurements, and layers beside a textbook's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from delegatekit.plugins import discovery
from delegatekit_api import BackendOptions, option
from delegatekit_api.schemes import (
    PER_CHANNEL,
    PER_TENSOR,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
)
from delegatekit_conformance.cases import options
from delegatekit_conformance.cases.declared.arguments import OPERATORS, RANGES, recipes
from delegatekit_conformance.cases.declared.collect import declarations, error_limit
from delegatekit_conformance.cases.declared.quality import (
    LARGE_BIASES,
    SITUATIONS,
    bias,
    by_channels,
    linear_layers,
    textbook,
    transposed_convolutions,
)
from delegatekit_conformance.cases.declared.told import large_at
from delegatekit_conformance.cases.options import values
from delegatekit_conformance.cases.quantized import inexactness
from delegatekit_conformance.cases.specimens import LARGE
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.declaration import Declaration, Measured
from delegatekit_conformance.looseness import ENOUGH, too_loose, with_measured
from delegatekit_conformance.outcome import CaseResult, Outcome, Verdict

BYTES = TensorQuantization("int8")
WEIGHT = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL)


def scheme(activation: TensorQuantization = BYTES, weight: TensorQuantization = WEIGHT) -> QuantizationScheme:
    rule = QuantizationRule(("linear",), input=activation, weight=weight, output=activation)
    return QuantizationScheme("int8", "int8, a scale for each output channel", rules=(rule,))


def declared(value: float) -> Declaration:
    return Declaration("relative_error:int8", f"relative_error = {value}", "scheme int8", "", value=value)


def measuring(value: float, examples: int = ENOUGH) -> CaseResult:
    measured = (Measured("relative_error:int8", value, examples),)
    return CaseResult("quality/x", {"room": "quality"}, {Verdict.DELEGATED: 1}, measured=measured)


def test_results_of_eight_bits_may_be_off_by_one_step_and_wider_ones_must_be_better_than_those() -> None:
    assert error_limit(scheme())[0] == 1 / 255
    assert error_limit(scheme(TensorQuantization("int16", symmetric=True)))[0] == 1 / 255
    assert error_limit(scheme(TensorQuantization("uint4")))[0] == 1 / 15


def test_a_declaration_ten_times_too_loose_is_a_fault_after_enough_examples() -> None:
    loose = too_loose([declared(0.004)], [measuring(0.0001)])
    assert loose is not None and loose.is_fault
    assert "scheme int8 declares relative_error = 0.004" in loose.faults[0].detail
    assert too_loose([declared(0.004)], [measuring(0.001)]) is None
    assert too_loose([declared(0.004)], [measuring(0.0, ENOUGH - 1)]) is None


def test_what_was_measured_stands_beside_what_is_declared() -> None:
    (item,) = with_measured([declared(0.004)], [measuring(0.001), measuring(0.002)])
    assert item.measured == f"0.002 at most, in {2 * ENOUGH} examples"
    special = Declaration("special_values:exp(NaN) is 0", "exp(NaN) is 0", "rows of aten.exp.default", "")
    fault = Outcome(Verdict.MISMATCH, declared="exp(NaN) is 0", blame="backend")
    result = CaseResult("operators/x", {"room": "operators"}, {Verdict.MISMATCH: 1}, (fault,))
    assert with_measured([special], [result])[0].measured == "explains a wrong result in 1 case"


def test_declarations_of_an_installed_backend_name_where_they_stand() -> None:
    pytest.importorskip("delegatekit_xnnpack")
    found = {item.key: item for item in declarations(Context("xnnpack"))}
    assert found["special_values:sqrt(inf) is NaN"].where == "rows of aten.rsqrt.default, aten.sqrt.default"
    assert found["compute_precision:weights"].value == 2.0**-11
    assert "int8-per-tensor" in found["granularity:int8-per-tensor"].where
    assert not any(item.breaks for item in found.values())


def test_a_mean_error_of_half_a_step_is_a_bias_and_rounding_is_none() -> None:
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(8, 256, generator=generator) * 20
    rounding = exact.round() - exact
    assert bias(rounding, torch.tensor(1.0)) == ""
    assert "steps in the mean of 256 elements" in bias(exact.floor() - exact, torch.tensor(1.0))


@pytest.mark.parametrize("seed", range(20))
def test_rounding_the_other_way_now_and_then_is_no_bias(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    flips = (torch.rand(8, 256, generator=generator) < 0.2) * torch.where(
        torch.rand(8, 256, generator=generator) < 0.5, 1.0, -1.0
    )
    assert bias(flips, torch.tensor(1.0)) == ""


def test_a_zeroed_bias_of_half_a_step_shows_in_no_size_but_in_the_mean() -> None:
    module, inputs = linear_layers()
    layer: nn.Linear = module.layers[0]  # type: ignore[union-attr, index, assignment]
    rule = scheme().rules[0]
    right = textbook(layer, inputs[0], rule)
    step = float((right.max() - right.min()) / 255)
    layer.bias.zero_()
    difference = by_channels(textbook(layer, inputs[0], rule)) - by_channels(right)
    assert float(difference.abs().max()) < 1.5 * step
    assert bias(difference, torch.tensor(step))


@pytest.mark.parametrize("build", [linear_layers, transposed_convolutions])
def test_large_biases_are_as_many_steps_as_they_say(build: Any) -> None:
    module, inputs = build(LARGE_BIASES)
    for situation, layer, value in zip(LARGE_BIASES, module.layers, inputs, strict=True):
        steps = 5.0 / (float(value.max() - value.min()) / 255) / (2 * float(layer.weight.abs().max()) / 255)
        assert steps == pytest.approx(2.0**situation.power, rel=1e-3)
        result = textbook(layer, value, None)
        assert float((result - layer(value).double()).abs().max()) < 5.0 / 100
        # One that is cut off at 2**31 steps is another number.
        assert float(result.abs().max()) > 4.9


def test_the_textbook_has_a_scale_for_each_channel_unless_the_rule_says_one() -> None:
    module, inputs = linear_layers()
    index = [situation.name for situation in SITUATIONS].index("a wide range of weights")
    layer: nn.Linear = module.layers[index]  # type: ignore[union-attr, index, assignment]
    exact = layer(inputs[index]).double()

    def error(weight: TensorQuantization) -> float:
        rule = QuantizationRule(("linear",), weight=weight)
        return float((textbook(layer, inputs[index], rule) - exact)[:, 0].square().mean().sqrt())

    assert error(dataclasses.replace(WEIGHT, granularity=PER_TENSOR)) > 8 * error(WEIGHT)


def test_inexact_sums_show_in_the_share_of_elements_that_fall_to_the_next_step() -> None:
    reference = torch.arange(-100.0, 101.0)
    assert inexactness(reference, reference, 1.0) == 0.0
    other = reference.clone()
    other[::10] += 1
    assert inexactness(other, reference, 1.0) == pytest.approx(4 * 21 / 201 / 100)


@pytest.mark.parametrize("name", RANGES)
def test_results_of_programs_with_narrow_ranges_reach_both_ends_and_are_whole_steps(name: str) -> None:
    low, high, _ = RANGES[name]
    for operator, recipe in recipes(name).items():
        result = recipe.module()(*recipe.inputs())
        step = 1 / 16 if operator == "aten.mul.Tensor" else 1 / 4
        zero = (low + high + 1) // 2
        steps = result / step + zero
        assert torch.equal(steps, steps.round())
        assert steps.max() == high, operator
        assert steps.min() == low or operator != "aten.add.Tensor"
    assert len(recipes(name)) == len(OPERATORS)


@pytest.mark.parametrize("place", range(3))
def test_one_of_three_products_has_nearly_all_of_the_work(place: int) -> None:
    weights = [tensor.make() for name, tensor in large_at(place).tensors if name != "x"]
    sizes = [weight.numel() for weight in weights]
    assert sizes[place] == max(sizes)
    assert all(sizes[place] >= 50 * size for index, size in enumerate(sizes) if index != place)


@dataclasses.dataclass(frozen=True)
class Options(BackendOptions):
    """Of a test."""

    mode: str = option("a", help="Which one it is.", choices=("a", "b"))
    deep: bool = option(False, help="Whether it is deep.")
    limit: int = option(3, help="At most so many.", check=lambda value: None if value > 0 else "is not above 0")


def test_all_choices_are_values_and_numbers_are_tried_at_bounds_that_the_option_takes() -> None:
    found = list(values(Options))
    assert {("mode", "a"), ("mode", "b"), ("deep", True), ("deep", False)} <= set(found)
    limits = {value for name, value in found if name == "limit"}
    assert {1, 1 << 20} <= limits and 0 not in limits


def test_options_are_tried_together_with_values_that_go_together() -> None:
    context = Context("coreml", PROFILES["quick"])
    together = next(case for case in options.cases_for(context) if case.name == "options/together")
    examples = together.examples(context)
    assert len(examples) == context.profile.sequences
    assert examples == together.examples(context)
    backend = discovery.get_backend("coreml")
    for example in examples:
        assert 2 <= len(dict(example.options)) <= 3
        backend.make_options(dict(example.options))


def test_large_weights_are_what_packing_keeps() -> None:
    for name, tensor in LARGE.tensors:
        if name in ("w", "filters"):
            assert tensor.make().numel() > 2048
            assert tensor.make().unique().tolist() == [0.0, 0.5]
            assert float((tensor.make() == 0).float().mean()) > 0.6
