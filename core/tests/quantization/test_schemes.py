"""Declarations check themselves, and have a readable text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import delegatekit_api
from delegatekit_api.schemes import (
    PER_CHANNEL,
    PER_TOKEN,
    Granularity,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
    per_group,
)

INT8 = TensorQuantization("int8")
WEIGHT = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL)
GROUPS = TensorQuantization("int4", symmetric=True, granularity=per_group(32))
DYNAMIC = TensorQuantization(granularity=PER_TOKEN, dynamic=True)


def test_a_scheme_without_rules_is_valid():
    scheme = QuantizationScheme("own", "the plugin's own quantizer")
    assert scheme.kind == "static" and scheme.rules == () and scheme.operators == ()


def test_what_five_backends_need_can_be_said():
    bias = TensorQuantization("int32", symmetric=True)
    softmax = TensorQuantization("int8", scale=1 / 256, zero_point=-128)
    wide = TensorQuantization("int16", symmetric=True)
    QuantizationScheme("xnnpack", "", rules=(QuantizationRule(("conv2d",), INT8, WEIGHT, None, INT8, ("relu",)),))
    QuantizationScheme("ethos-u-16x8", "", rules=(QuantizationRule(("linear",), wide, WEIGHT, bias, wide),))
    QuantizationScheme("ethos-u", "", rules=(QuantizationRule(("softmax",), INT8, output=softmax),))
    QuantizationScheme("core-ml", "", "weight-only", (QuantizationRule(("linear",), weight=GROUPS),))
    QuantizationScheme("qnn", "", rules=(QuantizationRule(("add",), TensorQuantization("uint16"), output=INT8),))
    QuantizationScheme("vulkan", "", "dynamic", (QuantizationRule(("linear",), DYNAMIC, GROUPS),))


def test_a_declaration_reads_as_text():
    assert str(WEIGHT) == "int8 symmetric per channel"
    assert str(TensorQuantization("int4", granularity=per_group(32))) == "int4 affine per group of 32"
    assert str(DYNAMIC) == "int8 affine per token dynamic"
    assert str(replace(GROUPS, scale_dtype="bfloat16")) == "int4 symmetric per group of 32 with bfloat16 scales"
    assert TensorQuantization("int8", -127).range == (-127, 127)


def test_the_type_of_scales_is_that_of_weights_outside_static_schemes():
    weights = QuantizationScheme("w", "", "dynamic", (QuantizationRule(("linear",), DYNAMIC, GROUPS),))
    (rule,) = weights.with_scales("float16").rules
    assert rule == QuantizationRule(("linear",), DYNAMIC, replace(GROUPS, scale_dtype="float16"))
    static = QuantizationScheme("s", "", rules=(QuantizationRule(("linear",), INT8, WEIGHT),))
    assert static.with_scales("float16") == static


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: TensorQuantization("int7"), "dtype 'int7'"),
        (lambda: TensorQuantization("int8", -129), "range -129 to 127"),
        (lambda: TensorQuantization("int8", 5, 5), "range 5 to 5"),
        (lambda: TensorQuantization(observer="best"), "observer 'best'"),
        (lambda: TensorQuantization(eps=0.0), "eps"),
        (lambda: TensorQuantization(eps=float("nan")), "eps"),
        (lambda: TensorQuantization(granularity=PER_TOKEN), "per token are dynamic"),
        (lambda: TensorQuantization(granularity=PER_CHANNEL, dynamic=True), "per tensor, token or sample"),
        (lambda: TensorQuantization(granularity=PER_CHANNEL, observer="histogram"), "one scale for the whole tensor"),
        (lambda: TensorQuantization("int16", dynamic=True), "int8 or uint8"),
        (lambda: TensorQuantization(scale=0.5), "scale and zero_point must be given together"),
        (lambda: TensorQuantization(scale=0.5, zero_point=200), "zero point 200"),
        (lambda: TensorQuantization(scale=-1.0, zero_point=0), "scale -1.0"),
        (lambda: TensorQuantization(scale=1.0, zero_point=0, dynamic=True), "static and per tensor"),
        (lambda: TensorQuantization(scale_dtype="float8"), "scale_dtype 'float8' is not one of"),
        (lambda: TensorQuantization(scale_dtype="float16", eps=2.0**-25), "eps .* is 0 in float16"),
        (lambda: Granularity("row"), "'row'"),
        (lambda: Granularity("tensor", axis=0), "axis"),
        (lambda: Granularity("channel", axis=-1), "axis"),
        (lambda: Granularity("group"), "`group` is required for, and only valid with"),
        (lambda: per_group(0), "group of 0"),
        (lambda: QuantizationRule("linear", INT8), "tuple of names"),
        (lambda: QuantizationRule((), INT8), "without operators"),
        (lambda: QuantizationRule(("aten::add",), INT8), "operator's name"),
        (lambda: QuantizationRule(("add",)), "nothing is quantized"),
        (lambda: QuantizationRule(("cat",), INT8, shares=True), "must not declare parameters of its own"),
        (lambda: QuantizationRule(("linear",), weight=WEIGHT, fused=("relu",)), "output that is quantized"),
        (lambda: QuantizationRule(("linear",), INT8, DYNAMIC), "weights are constants"),
        (lambda: QuantizationRule(("linear",), WEIGHT, WEIGHT), "per tensor, token or sample"),
        (lambda: QuantizationRule(("linear",), INT8, output=DYNAMIC), "outputs are static"),
        (lambda: QuantizationRule(("linear",), INT8, WEIGHT, INT8), "int32"),
        (lambda: QuantizationRule(("linear",), DYNAMIC, WEIGHT, TensorQuantization("int32", symmetric=True)), "static"),
        (lambda: QuantizationRule(("linear",), replace(INT8, scale_dtype="float16"), WEIGHT), "scales are for weights"),
        (lambda: QuantizationScheme("a b", ""), "'a b'"),
        (lambda: QuantizationScheme("a", "", "odd"), "'odd'"),
        (lambda: QuantizationScheme("a", "", "dynamic", qat=True), "training"),
        (lambda: QuantizationScheme("a", "", relative_error=-0.1), "relative_error -0.1"),
        (lambda: QuantizationScheme("a", "", rules=(QuantizationRule(("linear",), DYNAMIC, WEIGHT),)), "dynamic input"),
        (lambda: QuantizationScheme("a", "", rules=(QuantizationRule(("linear",), INT8, GROUPS),)), "groups are for"),
        (
            lambda: QuantizationScheme(
                "a", "", rules=(QuantizationRule(("linear",), INT8, replace(WEIGHT, scale_dtype="bfloat16")),)
            ),
            "bfloat16 scales are for dynamic and weight-only",
        ),
        (lambda: QuantizationScheme("a", "", "dynamic", (QuantizationRule(("mul",), INT8),)), "static input"),
        (lambda: QuantizationScheme("a", "", "weight-only", (QuantizationRule(("mul",), INT8),)), "only weights"),
        (lambda: QuantizationScheme("a", "", "dynamic", (QuantizationRule(("cat",), shares=True),)), "between"),
    ],
)
def test_what_does_not_go_together_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_scheme_of_the_docs_is_valid():
    page = (Path(__file__).parents[3] / "docs" / "quantization.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "SCHEME = " in block]
    names = vars(delegatekit_api) | {}
    exec(code, names)
    assert names["SCHEME"].operators[:4] == ("linear", "conv2d", "add", "mul")
