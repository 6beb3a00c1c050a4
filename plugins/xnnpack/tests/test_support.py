"""Every constraint refuses what it should, with its reason; and every supported call can be lowered."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from processors import needs_avx512
from torch import nn
from torch.nn import functional as F

from delegatekit.edge import build_edge
from delegatekit_api import OptionError, PartitionProgram
from delegatekit_api.nodes import operator_name
from delegatekit_xnnpack import plugin
from delegatekit_xnnpack.options import XnnpackOptions
from delegatekit_xnnpack.support import TABLE


def test_every_operator_of_the_table_exists_in_pytorch():
    import torch.ao.quantization.fx._decomposed

    for name in TABLE:
        namespace, packet, overload = name.split(".")
        if namespace != "torchao":
            assert hasattr(getattr(getattr(torch.ops, namespace), packet), overload), name


def test_every_constraint_documents_itself():
    constraints = {constraint for row in TABLE.values() for constraint in row.constraints} | set(TABLE.common)
    assert all((constraint.__doc__ or "").strip().endswith(".") for constraint in constraints)


class _ComputedFilter(nn.Module):
    def forward(self, x, weight):
        return F.conv2d(x, weight)


X = torch.randn(2, 3, 4)
IMAGE = torch.randn(1, 2, 6, 6)

REFUSED = [
    # common
    (torch.add, (X.to(torch.int32), X.to(torch.int32)), "int32: only float32, float16 and bfloat16 are taken"),
    (torch.add, (X, X.double()), "float64: only float32, float16 and bfloat16 are taken"),
    (lambda x: x.neg(), (torch.randn(1, 1, 1, 1, 1, 1, 2),), "7 axes: XNNPACK allows 6"),
    (lambda x: x.sum(1), (torch.randn(2, 0),), "no elements"),
    (lambda x: x.softmax(-1), (torch.tensor(5.0),), "rank 0: XNNPACK works along an axis"),
    (torch.erf, (X,), "aten.erf.default is not in the backend's operator table"),
    # arithmetic and activations
    (lambda x: x**2.3, (X,), "exponent 2.3: XNNPACK has no power function"),
    (lambda x: x * 1e39, (X,), "other = 1e+39 is not a float32 number"),
    (lambda x: x.clamp(2.0, 1.0), (X,), "bounds 2.0 and 1.0 are not an interval"),
    (lambda x: x.clamp(math.nan, 1.0), (X,), "bounds nan and 1.0 are not an interval"),
    (lambda x: torch.ops.aten.elu(x, 2.0, 1.0, 0.5), (X,), "input_scale = 0.5: XNNPACK's ELU has none"),
    (lambda x: F.elu(x, -1.0), (X,), "alpha = -1.0: XNNPACK's ELU needs a positive number"),
    (lambda x: F.leaky_relu(x, math.inf), (X,), "negative_slope = inf is not a normal float32 number"),
    (lambda x: F.leaky_relu(x, 1e-40), (X,), "negative_slope = 1e-40 is not a normal float32 number"),
    (lambda x: F.pad(x, (1, 1), value=1e39), (X,), "value = 1e+39 is not a float32 number"),
    # shapes
    (lambda x: x[..., ::2], (torch.randn(1, 1, 1, 1, 2, 4),), "step 2 along one of 6 axes"),
    (lambda x, i: x.index_select(1, i), (X, torch.tensor([1, 0])), "int64: only float32"),
    (lambda x: x.index_select(1, torch.arange(30).flip(0)), (torch.randn(2, 40),), "30 separate runs of indices"),
    (lambda x: x.repeat(2, 2, 2, 2), (torch.randn(2, 2, 2, 2),), "4 axes, 4 of them repeated, need 8"),
    (lambda x: F.pixel_shuffle(x, 2), (torch.randn(4, 2, 2),), "rank 3: only (N, C, H, W) is taken"),
    # matrix products
    (lambda b, x, y: torch.addmm(b, x, y, beta=0.5), (torch.randn(2, 2),) * 3, "beta = 0.5: only 1 is taken"),
    # feature maps
    (_ComputedFilter(), (IMAGE, torch.randn(3, 2, 3, 3)), "weight is computed: a constant is taken"),
    (nn.Conv3d(1, 1, 2), (torch.randn(1, 1, 3, 3, 3),), "a convolution over 3 axes: XNNPACK supports one or two"),
    (
        nn.ConvTranspose2d(2, 2, 3, stride=1, dilation=2, output_padding=1),
        (IMAGE,),
        "output_padding [1, 1] is not less than stride [1, 1]",
    ),
    (nn.AvgPool2d(2, divisor_override=3), (IMAGE,), "divisor_override = 3"),
    (nn.AvgPool2d(2, padding=1, divisor_override=4), (IMAGE,), "divisor_override = 4"),
    (nn.AdaptiveAvgPool2d(26), (torch.randn(1, 1, 6, 27),), "to (26, 26) needs more than 25 windows"),
    (
        lambda x: F.interpolate(x, scale_factor=1.4, mode="bilinear"),
        (IMAGE,),
        "scale_factors [1.4, 1.4] are not the ratio",
    ),
    (lambda x: F.interpolate(x, size=(6, 97)), (torch.randn(1, 1, 6, 60),), "to (6, 97) are not whole repetitions"),
    # reductions
    (lambda x: x.mean(-1, dtype=torch.float64), (X,), "float64"),
    (lambda x: torch.ops.aten.var.correction(x, [2], correction=4), (X,), "correction 4 of 4 elements"),
    (lambda x: torch.ops.aten.var.correction(x, [2], correction=-1), (X,), "correction -1 of 4 elements"),
    (nn.LayerNorm(4, eps=0.0), (X,), "eps = 0.0"),
]


@pytest.mark.parametrize(("model", "inputs", "reason"), REFUSED)
def test_a_refusal_says_why(model, inputs, reason, refusals):
    reasons = refusals(model, *inputs, keep=["aten.addmm.default"])
    assert any(reason in given for given in reasons), reasons


def test_sizes_without_a_bound_are_refused(refusals):
    (reason,) = refusals(torch.relu, X, dynamic_shapes={"arguments": ({0: torch.export.Dim("n")},)})
    assert "has a size without an upper bound" in reason


def test_left_out_operators_are_refused(refusals):
    assert refusals(torch.add, X, X, leave_out=frozenset({"add"})) == ["left out by the option leave_out"]


def test_leaving_out_an_unknown_operator_is_an_error():
    with pytest.raises(OptionError, match="leave_out names 'softmaxx'"):
        plugin.create_partitioner(XnnpackOptions(leave_out=frozenset({"softmaxx"})))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (torch.exp, "exp(NaN) is 0, and exp(x) infinite from 88.38 on"),
        (torch.sqrt, "sqrt(inf) is NaN"),
        (torch.log, "without AVX-512, log(inf) is 88.4 and log(NaN) a number"),
        (lambda x: x**0.5, "sqrt(inf) is NaN"),
        (lambda x: x**-0.5, "sqrt(inf) is NaN"),
        (lambda x: torch.maximum(x, x), "the maximum of NaN and a number is the number"),
    ],
)
def test_exact_special_values_refuses_what_deviates(function, reason, refusals):
    assert refusals(function, X, exact_special_values=True) == [f"{reason} (exact_special_values is set)"]
    assert refusals(function, X) == []


@pytest.mark.parametrize(
    ("function", "special"),
    [
        (torch.exp, torch.tensor([math.nan, 1.0])),
        (torch.sqrt, torch.tensor([math.inf, 1.0])),
        pytest.param(torch.sigmoid, torch.tensor([1e30, 1.0]), marks=needs_avx512),
        pytest.param(F.gelu, torch.tensor([math.inf, 1.0]), marks=needs_avx512),
        (lambda x: torch.maximum(x, x.roll(1)), torch.tensor([math.nan, 1.0])),
        (lambda x: torch.minimum(x, x.roll(1)), torch.tensor([math.nan, 1.0])),
        (lambda x: F.max_pool1d(x, 2), torch.tensor([[[math.nan, 1.0]]])),
        (lambda x: x.amax(-1, True), torch.tensor([math.nan, 1.0])),
    ],
)
def test_special_values_still_deviate(function, special, lower_whole):
    # If a new runtime makes one of these exact, the row's special values can be removed.
    lowered = lower_whole(function, special)
    result, expected = lowered.run()[0], function(special)
    assert not torch.allclose(result, expected, equal_nan=True)


def test_facts_have_names_that_something_reads():
    known = {"any_type", "constants_of_any_type", "converts", "float16", "own_type", "takes_sizes"}
    assert {name for row in TABLE.values() for name in row.facts} == known


def test_special_values_that_float16_does_not_have_are_taken_there(refusals):
    assert refusals(torch.sigmoid, X.half(), exact_special_values=True) == []
    assert refusals(torch.exp, X.half(), exact_special_values=True) != []


def test_per_operator_partitions_propose_each_operator_alone():
    exported = torch.export.export(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Flatten()), (torch.randn(1, 2, 3),))
    view = build_edge(exported, keep=()).view
    assert plugin.create_partitioner(XnnpackOptions()).propose(view) is None
    proposal = plugin.create_partitioner(XnnpackOptions(per_operator_partitions=True)).propose(view)
    names = [[operator_name(node) for node in nodes] for nodes in proposal or ()]
    assert names == [["aten.linear.default"], ["aten.relu.default"]]


def test_per_operator_partitions_lower_and_run():
    import delegatekit

    module, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval(), torch.randn(2, 3)
    options = {"xnnpack": {"per_operator_partitions": True}}
    program = delegatekit.lower(module, (x,), backends=["xnnpack"], options=options)
    assert len(delegatekit.report(program).methods[0].delegates) == 3
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](x), module(x))


# -- supported calls can be lowered ----------------------------------------------------------------------------------


def _pairs(low, high):
    return st.tuples(st.integers(low, high), st.integers(low, high))


@st.composite
def _window_calls(draw):
    """A convolution or pooling with random settings, and an input for it."""
    kernel, stride, dilation = draw(_pairs(1, 4)), draw(_pairs(1, 3)), draw(_pairs(1, 2))
    groups, channels = draw(st.sampled_from([(1, 4), (2, 4), (4, 4), (1, 1)]))
    kind = draw(st.sampled_from(["conv", "transposed", "max", "average"]))
    size = draw(_pairs(6, 9))
    x = torch.randn(draw(st.integers(1, 2)), channels, *size)
    if kind == "conv":
        padding = draw(_pairs(0, 3))
        return nn.Conv2d(channels, 4, kernel, stride, padding, dilation, groups, draw(st.booleans())), x
    if kind == "transposed":
        extra = draw(_pairs(0, 2))
        extra = tuple(min(e, max(s, d) - 1) for e, s, d in zip(extra, stride, dilation, strict=True))
        return nn.ConvTranspose2d(channels, 4, kernel, stride, 0, extra, groups, draw(st.booleans()), dilation), x
    padding = tuple(draw(st.integers(0, side // 2)) for side in kernel)
    ceil = draw(st.booleans())
    if kind == "max":
        return nn.MaxPool2d(kernel, stride, padding, dilation, ceil_mode=ceil), x
    return nn.AvgPool2d(kernel, stride, padding, ceil, draw(st.booleans())), x


@given(_window_calls())
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_window_operators_of_any_settings_are_refused_or_agree_with_eager(matches_eager, refusals, call):
    module, x = call
    try:
        module(x)
    except RuntimeError:
        assume(False)  # PyTorch has no such call
    if not refusals(module, x):
        matches_eager(module, x, terms=256)


@st.composite
def _shuffles(draw):
    """A chain of reshapes, permutations and elementwise operators."""
    steps = []
    shape = [2, 3, 4, 1]
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            order = draw(st.permutations(range(len(shape))))
            steps.append(("permute", order))
            shape = [shape[axis] for axis in order]
        else:
            shape = list(
                draw(
                    st.sampled_from(
                        [(24,), (2, 12), (6, 4), (4, 6), (2, 3, 4), (1, 8, 3), (3, 1, 2, 4, 1), (2, 2, 2, 3)]
                    )
                )
            )
            steps.append(("reshape", shape))
        steps.append(("negate", None))
    return steps


@given(_shuffles())
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_chain_of_reshapes_and_permutations_is_equal_to_eager(lower_whole, steps):
    def function(x):
        for kind, detail in steps:
            x = x.permute(*detail) if kind == "permute" else x.reshape(detail) if kind == "reshape" else x.neg()
        return x

    x = torch.arange(24.0).reshape(2, 3, 4, 1)
    assert torch.equal(lower_whole(function, x).run()[0], function(x))


def test_preprocess_refuses_what_the_table_would_not_take():
    from delegatekit_api import LoweringError

    exported = torch.export.export(_Erf(), (X,))
    view = build_edge(exported).view
    with pytest.raises(LoweringError, match=r"aten.erf.default .* the backend has no lowering"):
        plugin.preprocess(PartitionProgram(exported, view, 0), XnnpackOptions())


class _Erf(nn.Module):
    def forward(self, x):
        return torch.erf(x)
