"""Forms of quantized numbers that a scheme would not have chosen: the rewritten programs, and the faults found."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

import delegatekit
from delegatekit_api.schemes import Quantization
from delegatekit_conformance.cases.requantized import (
    FORMS,
    InTurnCase,
    Layers,
    Numbers,
    PlainCase,
    RequantizedCase,
    Weights,
    plain,
    rewritten,
)
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Verdict
from delegatekit_xnnpack.ir import formats
from delegatekit_xnnpack.ir.graph import Value
from delegatekit_xnnpack.operators import program
from delegatekit_xnnpack.passes import conversions

INPUTS = tuple(torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in ((3, 64), (1, 4, 6, 5)))


@pytest.fixture(scope="module")
def quantized() -> torch.fx.GraphModule:
    torch.manual_seed(0)
    return delegatekit.quantize(Layers().eval(), [INPUTS], backend="vulkan", scheme="int8", progress=False)


#: Forms of so few bits that results are others, and those that no layer of this scheme can have.
GROUPS = tuple(name for name, form in FORMS.items() if form and form.group)
OTHERS = (*GROUPS, "four-bits-in-bytes", "two-bits-in-bytes")


@pytest.mark.parametrize("form", [name for name in FORMS if name not in OTHERS])
def test_a_rewritten_program_has_nearly_the_same_results(form: str, quantized: torch.fx.GraphModule) -> None:
    other = copy.deepcopy(quantized)
    count = rewritten(other, FORMS[form])
    assert count == (14 if FORMS[form] is None else 5)
    before, after = quantized(*INPUTS), other(*INPUTS)
    scale = max(float(item.abs().max()) for item in before)
    for one, two in zip(before, after, strict=True):
        # A tiny channel is another function, which its own numbers in eager are the measure of.
        if form != "a-tiny-channel":
            assert float((one - two).abs().max()) < 0.1 * scale
    assert not all(torch.equal(one, two) for one, two in zip(before, after, strict=True)) or FORMS[form] is None


def test_forms_are_written_as_quantizers_write_them(quantized: torch.fx.GraphModule) -> None:
    other = copy.deepcopy(quantized)
    rewritten(other, Weights(axis=1))
    channels = torch.ops.quantized_decomposed.dequantize_per_channel.default
    assert [node.args[3] for node in other.graph.nodes if node.target is channels] == [1] * 5
    rewritten(other, Weights(axis=None, low=0, high=255, dtype=torch.uint8, shifted=True))
    whole = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    assert sum(node.target is whole and node.args[-1] is torch.uint8 for node in other.graph.nodes) == 5


def test_integers_zero_points_and_scales_stand_for_the_weight() -> None:
    weight = torch.randn(6, 32, generator=torch.Generator().manual_seed(1)) + 0.3
    for form in (Weights(), Weights(axis=1), Weights(axis=None), Weights(low=-128, shifted=True)):
        integers, scale, zero = form.of(weight)
        assert integers.dtype is torch.int8 and scale.dim() == 2
        assert float(((integers - zero) * scale - weight).abs().max()) <= float(scale.max()) * 0.51
    integers, scale, zero = Weights(low=-8, high=7, group=16).of(weight)
    assert scale.shape == zero.shape == (6, 2) and integers.shape == (6, 32)


def test_groups_are_only_where_a_scheme_has_blocks(quantized: torch.fx.GraphModule) -> None:
    assert len(GROUPS) == 4
    assert not any(rewritten(copy.deepcopy(quantized), FORMS[name]) for name in GROUPS)
    outcome = RequantizedCase("smaller-groups").run("int4-weight-only", Context("vulkan", PROFILES["quick"]))
    assert outcome.verdict in (Verdict.DELEGATED, Verdict.PARTLY)


def test_groups_with_zero_points_stand_for_numbers_of_one_sign() -> None:
    weight = torch.rand(6, 32, generator=torch.Generator().manual_seed(1)) + 0.5
    integers, scale, zero = Weights(low=-8, high=7, group=16, shifted=True).of(weight)
    assert scale.shape == zero.shape == (6, 2) and bool((zero == -8).all())
    numbers = (integers.view(6, 2, 16) - zero[..., None]) * scale[..., None]
    assert float((numbers.view(6, 32) - weight).abs().max()) <= float(scale.max()) * 0.51


def test_an_axis_that_is_not_looked_at_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    context, case = Context("xnnpack", PROFILES["quick"]), RequantizedCase("scales-along-the-inputs")
    assert case.examples(context)[0] == "int8"
    assert case.run("int8", context).verdict is Verdict.DELEGATED
    sound = formats.weight_format

    def along_the_outputs(given: Quantization) -> formats.Format | None:
        return sound(given if given.axis is None else replace(given, axis=0))

    monkeypatch.setattr(program, "weight_format", along_the_outputs)
    outcome = case.run("int8", context)
    assert outcome.verdict.is_fault and "show('quantized/given-scales-along-the-inputs'" in outcome.snippet


def test_forms_in_turn_are_for_the_target_that_has_most_schemes() -> None:
    case = InTurnCase()
    context = Context("coreml", PROFILES["quick"])
    assert "int4-weight-only" in case.examples(context)
    outcome = case.run("int8-weight-only", context)
    assert outcome.verdict is Verdict.DELEGATED, outcome.detail
    (none,) = case.examples(Context("xnnpack", PROFILES["quick"]))
    assert case.run(none, context).verdict is Verdict.NOT_APPLICABLE


def test_numbers_are_given_back_and_a_wrong_sign_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    context, case = Context("xnnpack", PROFILES["quick"]), PlainCase()
    torch.manual_seed(0)
    inputs = (torch.randn(2, 3, 4),)
    module = delegatekit.quantize(Numbers().eval(), [inputs], backend="xnnpack", scheme="int8", progress=False)
    before = module(*inputs)
    # XNNPACK's own quantizer leaves the product of a large number in float.
    assert plain(module) == 3 and plain(module) == 0
    for one, two in zip(before, module(*inputs), strict=True):
        assert float((one - two).abs().max()) < 0.1 * float(one.abs().max())
    assert case.run("int8", context).verdict is Verdict.DELEGATED
    assert case.run("int8-dynamic", context).verdict is Verdict.NOT_APPLICABLE
    sound = conversions._operand

    def without_a_sign(value: Value) -> Value | None:
        found = sound(value)
        if found is not None and found.data is not None:
            found.data = found.data.abs()
        return found

    monkeypatch.setattr(conversions, "_operand", without_a_sign)
    assert case.run("int8", context).verdict is Verdict.MISMATCH
