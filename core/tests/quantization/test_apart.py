"""Operators that a scheme takes apart: attention becomes products and a softmax, which are layers of their own."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit.plugins import LoadedBackend
from delegatekit_api import PluginError
from delegatekit_api.schemes import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
)

pytest.importorskip("torchao")

ATTENTION = "scaled_dot_product_attention"
INT8 = TensorQuantization("int8")
WEIGHT = TensorQuantization("int8", symmetric=True, granularity=PER_CHANNEL)
LINEAR = QuantizationRule(("linear",), INT8, WEIGHT, None, INT8)
RULES = (
    LINEAR,
    QuantizationRule(("matmul", "bmm", "mul"), INT8, output=INT8, numbers=True),
    QuantizationRule(("softmax",), INT8, output=INT8),
    QuantizationRule(MOVING_OPERATORS, shares=True),
)
MASKS = (
    QuantizationRule(("masked_fill",), INT8, output=INT8, fused=("softmax",)),
    QuantizationRule(("add",), INT8, output=INT8),
)
SCHEMES = (
    QuantizationScheme("apart", "", rules=RULES, qat=True, takes_apart=(ATTENTION,)),
    QuantizationScheme("whole", "", rules=RULES),
    QuantizationScheme("linear", "", rules=(LINEAR,), takes_apart=(f"aten.{ATTENTION}.default",)),
    QuantizationScheme("masks", "", rules=(*RULES, *MASKS), takes_apart=(ATTENTION,)),
    QuantizationScheme("unknown", "", rules=RULES, takes_apart=("conv2d",)),
)


@pytest.fixture(autouse=True)
def _schemes(monkeypatch):
    monkeypatch.setattr(LoadedBackend, "quantization_schemes", lambda self, options=None: SCHEMES)
    torch.manual_seed(0)


class Attention(nn.Module):
    """Attention of function(query, key, value), of 4 heads, and a linear layer after it."""

    def __init__(self, function=F.scaled_dot_product_attention, groups=4, **settings):
        super().__init__()
        self.function, self.groups, self.settings = function, groups, settings
        self.query, self.out = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x, other=None):
        x = x if other is None else x + other
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, 4, 4).transpose(1, 2)
        key = x.view(batch, length, 4, 4).transpose(1, 2)[:, : self.groups]
        found = self.function(query, key, key, **self.settings)
        return self.out(found.transpose(1, 2).reshape(batch, length, 16))


def quantized(model, *inputs, scheme="apart", **settings):
    inputs = inputs or (torch.randn(2, 7, 16),)
    result = delegatekit.quantize(model.eval(), [inputs] * 2, backend="reference", scheme=scheme, **settings)
    wanted, found = model(*inputs).detach(), result(*inputs).detach()
    return result, float((found - wanted).norm() / wanted.norm())


def counts(module):
    return Counter(str(node.target).split(".")[1] for node in module.graph.nodes if "aten." in str(node.target))


def test_attention_in_parts_is_quantized_and_reported_with_its_module():
    model = nn.Sequential(Attention())
    result, error = quantized(model)
    assert error < 0.05
    assert not counts(result)[ATTENTION]
    rows = [(layer.module, layer.operator) for layer in result.quantization.layers]
    assert rows == [
        ("0.query", "linear"),
        *(("0", name) for name in ("mul", "matmul", "softmax", "matmul")),
        ("0.out", "linear"),
    ]
    assert not result.quantization.kept, result.quantization


SETTINGS = {
    "plain": {},
    "scale": {"scale": 0.7},
    "groups": {"groups": 2, "enable_gqa": True},
    "dropout in eval mode": {"dropout_p": 0.0},
    "a mask that hides nothing": {"attn_mask": torch.ones(7, 7, dtype=torch.bool)},
    "a bias of zeros": {"attn_mask": torch.zeros(1, 4, 7, 7)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_parts_compute_what_the_whole_does(name):
    x = torch.randn(2, 7, 16)
    model = Attention(**SETTINGS[name])
    result, _ = quantized(model, x, scheme="linear")
    found = counts(result)
    assert found["matmul"] == 2 and found["softmax"] == 1 and not found[ATTENTION]
    whole, _ = quantized(model, x, scheme="linear", keep_float=[ATTENTION])
    assert counts(whole)[ATTENTION] == 1
    # The linear layers are quantized alike.
    torch.testing.assert_close(result(x), whole(x), rtol=1e-4, atol=2e-2)
    assert float((result(x) - whole(x)).abs().mean()) < 1e-4


HIDDEN = torch.rand(7, 7, generator=torch.Generator().manual_seed(0)).fill_diagonal_(1) < 0.4
BIAS = torch.randn(4, 7, 7, generator=torch.Generator().manual_seed(0))
#: Settings, and the operators between the product and the softmax.
HIDING = {
    "causal": ({"is_causal": True}, ["masked_fill + softmax"]),
    "bool": ({"attn_mask": ~HIDDEN}, ["masked_fill + softmax"]),
    "float": ({"attn_mask": BIAS.masked_fill(HIDDEN, -math.inf)}, ["add", "masked_fill + softmax"]),
    "large": ({"attn_mask": torch.zeros(7, 7).masked_fill(HIDDEN, -100.0)}, ["masked_fill + softmax"]),
    "bias": ({"attn_mask": BIAS}, ["add", "softmax"]),
}


@pytest.mark.parametrize("name", HIDING)
def test_constant_masks_are_a_bias_and_a_fill(name):
    settings, between = HIDING[name]
    result, error = quantized(nn.Sequential(Attention(**settings), Attention(**settings)), scheme="masks")
    assert error < 0.1
    assert not result.quantization.kept, result.quantization
    rows = [layer.operator for layer in result.quantization.layers]
    assert rows == ["linear", "mul", "matmul", *between, "matmul", "linear"] * 2
    # Both layers read the same buffers, which are the module's.
    assert sum(name.startswith("_constant") for name, _ in result.named_buffers()) <= len(between)
    exported = torch.export.export(result, (torch.randn(2, 7, 16),), strict=False)
    x = torch.randn(2, 7, 16)
    torch.testing.assert_close(exported.module()(x), result(x))


WHOLE = {
    "hides": (
        Attention(is_causal=True),
        "apart",
        "its mask hides scores, which do not fit the range of the others",
    ),
    "rows": (Attention(attn_mask=torch.zeros(7, 7) > 0), "masks", "its mask hides whole rows"),
    "computed": (
        Attention(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=q @ k.mT)),
        "masks",
        "its mask is computed: only constant masks are quantized",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_other_masks_keep_attention_whole(name):
    model, scheme, reason = WHOLE[name]
    result, error = quantized(model, scheme=scheme)
    reasons = {layer.operator: layer.reason for layer in result.quantization.kept}
    assert reasons[ATTENTION] == reason
    assert error < 0.1


def test_what_a_mask_hides_is_in_no_range():
    """A fill that the scheme does not quantize with the softmax after it: both stay in float."""

    class Filled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(7, 7), nn.Linear(7, 7)
            self.register_buffer("hidden", HIDDEN)

        def forward(self, x):
            return self.last(self.first(x).masked_fill(self.hidden, -math.inf).softmax(-1))

    x = torch.randn(7, 7)
    result, error = quantized(Filled(), x)
    assert [layer.operator for layer in result.quantization.kept] == ["masked_fill", "softmax"]
    assert error < 0.05
    result, error = quantized(Filled(), x, scheme="masks")
    assert not result.quantization.kept and error < 0.05
    result, error = quantized(Filled(), x, scheme="masks", keep_float=["softmax"])
    assert [layer.operator for layer in result.quantization.kept] == ["masked_fill", "softmax"]
    assert error < 0.05


class Added(nn.Module):
    """A softmax of scores to which a mask is added."""

    def __init__(self, mask, first=False):
        super().__init__()
        self.first, self.last = nn.Linear(7, 7), nn.Linear(7, 7)
        self.mask, self.is_first = nn.Buffer(mask), first

    def forward(self, x):
        scores = self.first(x)
        return self.last((self.mask + scores if self.is_first else scores + self.mask).softmax(-1))


ADDED = {
    "infinite": (HIDDEN * -1e38 * 10, ["masked_fill + softmax"]),
    "far": (HIDDEN * -1e4, ["masked_fill + softmax"]),
    "on the left, with a bias": (BIAS.masked_fill(HIDDEN, -math.inf), ["add", "masked_fill + softmax"]),
    "near": (BIAS[0], ["add", "softmax"]),
    "of rows": (BIAS[0].masked_fill(HIDDEN.any(-1, keepdim=True), 9.0), ["add", "softmax"]),
}


@pytest.mark.parametrize("name", ADDED)
def test_an_added_mask_is_a_bias_and_a_fill(name):
    mask, between = ADDED[name]
    mask = torch.where(HIDDEN, -math.inf, 0.0) if name == "infinite" else mask
    result, error = quantized(Added(mask, "left" in name), torch.randn(4, 7, 7), scheme="masks")
    assert [layer.operator for layer in result.quantization.layers] == ["linear", *between, "linear"]
    assert not result.quantization.kept and error < 0.05


@pytest.mark.parametrize("hidden", [-math.inf, -1e9, -1e4])
@pytest.mark.parametrize("kind", ["no fill", "whole rows", "kept", "computed"])
def test_scores_among_hidden_ones_stay_in_float(hidden, kind):
    class Computed(Added):
        def forward(self, x):
            scores = self.first(x)
            return self.last((scores + torch.where(scores > 1.0, hidden, 0.0).view(-1, 7, 7)).softmax(-1))

    mask = torch.where(HIDDEN | (torch.arange(7)[:, None] == 3 if kind == "whole rows" else False), hidden, 0.0)
    if kind == "whole rows" and hidden == -math.inf:
        pytest.skip("a softmax of infinities alone is NaN")
    model = (Computed if kind == "computed" else Added)(mask)
    scheme = QuantizationScheme("plain", "", rules=(*RULES, MASKS[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoadedBackend, "quantization_schemes", lambda self, options=None: (*SCHEMES, scheme))
        settings = {"keep_float": ["softmax"]} if kind == "kept" else {}
        result, error = quantized(
            model, torch.randn(4, 7, 7), scheme="plain" if kind == "no fill" else "masks", **settings
        )
    assert error < 0.05
    kept = {layer.operator: layer.reason for layer in result.quantization.kept}
    assert "softmax" in kept and not {"add", "masked_fill"}.isdisjoint(kept), result.quantization
    assert [layer.operator for layer in result.quantization.quantized if layer.operator == "linear"] == ["linear"] * 2


def test_a_mask_that_is_made_of_numbers_and_hides_nothing_is_none():
    def function(query, key, value):
        mask = torch.arange(7)[:, None] >= torch.zeros(7).long()
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    result, _ = quantized(Attention(function))
    assert not {ATTENTION, "arange", "ge"} & counts(result).keys()


@pytest.mark.parametrize("axes", [2, 3])
def test_attention_of_fewer_axes_is_taken_apart(axes):
    class Plain(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    result, error = quantized(Plain(), torch.randn(2, 7, 16)[3 - axes :][0] if axes == 2 else torch.randn(2, 7, 16))
    assert error < 0.05 and counts(result)["matmul"] == 2


def test_sizes_that_change_stay_so():
    batch = torch.export.Dim("batch", min=1, max=8)
    length = torch.export.Dim("length", min=2, max=32)
    model = Attention().eval()
    data, shapes = [torch.randn(2, 7, 16)], ({0: batch, 1: length},)
    result = delegatekit.quantize(model, data, backend="reference", scheme="apart", dynamic_shapes=shapes)
    x = torch.randn(5, 12, 16)
    assert counts(result)["softmax"] == 1
    wanted = model(x).detach()
    assert float((result(x).detach() - wanted).norm() / wanted.norm()) < 0.2


@pytest.mark.parametrize(
    "keep", [ATTENTION, "1", "operator:aten.scaled_dot_product_attention.default"], ids=["operator", "module", "full"]
)
def test_what_the_user_keeps_in_float_stays_whole(keep):
    model = nn.Sequential(Attention(), Attention())
    result, _ = quantized(model, keep_float=[keep])
    assert counts(result)[ATTENTION] == (1 if keep == "1" else 2)


def test_a_part_can_be_kept_in_float():
    result, _ = quantized(Attention(), keep_float=["softmax"])
    assert [layer.operator for layer in result.quantization.kept] == ["softmax"]


def test_the_worst_layer_may_be_a_part():
    result, _ = quantized(Attention(), keep_worst_float=5)
    assert len(result.quantization.quantized) == 1
    assert not counts(result)[ATTENTION]


def test_a_scheme_that_does_not_ask_keeps_attention_whole():
    result, _ = quantized(Attention(), scheme="whole")
    assert counts(result)[ATTENTION] == 1
    (kept,) = result.quantization.kept
    assert kept.reason == f"scheme whole has no rule for {ATTENTION}"


def test_training_has_the_parts_and_their_dropout():
    model, x = Attention(dropout_p=0.3).train(), torch.randn(2, 7, 16)
    prepared = delegatekit.prepare_qat(model, (x,), backend="reference", scheme="apart")
    assert counts(prepared)["dropout"] == 1 and not counts(prepared)[ATTENTION]
    first, second = prepared(x), prepared(x)
    assert not torch.equal(first, second)
    first.sum().backward()
    assert prepared.get_parameter("query.weight").grad is not None
    result = delegatekit.convert_qat(prepared)
    assert not counts(result)["dropout"]
    assert torch.equal(result(x), result(x))


def test_what_nobody_can_take_apart_is_the_plugins_mistake():
    with pytest.raises(PluginError, match=r"scheme unknown: cannot take conv2d apart") as error:
        quantized(Attention(), scheme="unknown")
    assert ATTENTION in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"takes_apart": ATTENTION, "rules": RULES},
        {"takes_apart": (ATTENTION,)},
        {"takes_apart": (ATTENTION,), "kind": "weight-only", "rules": (QuantizationRule(("linear",), weight=WEIGHT),)},
    ],
    ids=["a text", "no rules", "not static"],
)
def test_declarations_that_contradict_themselves_are_refused(settings):
    with pytest.raises(ValueError, match="apart"):
        QuantizationScheme("wrong", "", **settings)
