"""Products with constant matrices are quantized as linear layers."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.plugins import LoadedBackend
from delegatekit_api.schemes import (
    PER_CHANNEL,
    PER_TOKEN,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
    per_group,
)

pytest.importorskip("torchao")

INT8 = TensorQuantization("int8")
TOKENS = TensorQuantization("int8", granularity=PER_TOKEN, dynamic=True)
WEIGHT = TensorQuantization("int8", symmetric=True, granularity=PER_CHANNEL)
GROUPS = TensorQuantization("int4", symmetric=True, granularity=per_group(8))
SCHEMES = (
    QuantizationScheme("static", "", rules=(QuantizationRule(("linear",), INT8, WEIGHT, None, INT8),)),
    QuantizationScheme("dynamic", "", "dynamic", (QuantizationRule(("linear",), TOKENS, WEIGHT),)),
    QuantizationScheme("groups", "", "dynamic", (QuantizationRule(("aten.linear",), TOKENS, GROUPS),)),
    QuantizationScheme("weights", "", "weight-only", (QuantizationRule(("linear",), weight=WEIGHT),)),
    QuantizationScheme("addmm", "", "weight-only", (QuantizationRule(("linear", "addmm"), weight=WEIGHT),)),
    QuantizationScheme("conv", "", "weight-only", (QuantizationRule(("conv2d",), weight=WEIGHT),)),
)


@pytest.fixture(autouse=True)
def _schemes(monkeypatch):
    monkeypatch.setattr(LoadedBackend, "quantization_schemes", lambda self, options=None: SCHEMES)


class Product(nn.Module):
    """function(rows, matrix (16, 8), vector (8,)), and a convolution that is irrelevant."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.matrix, self.vector = nn.Parameter(torch.randn(16, 8)), nn.Parameter(torch.randn(8))
        self.layer = nn.Conv2d(1, 2, 2)

    def forward(self, rows):
        return self.function(rows, self.matrix, self.vector), self.layer(rows.unsqueeze(0))


def quantized(function, scheme, **settings):
    torch.manual_seed(0)
    model, rows = Product(function).eval(), torch.randn(5, 16)
    result = delegatekit.quantize(model, [rows], backend="reference", scheme=scheme, **settings)
    wanted, found = model(rows)[0].detach(), result(rows)[0].detach()
    return result, float((found - wanted).norm() / wanted.norm())


def counts(module):
    return Counter(str(node.target).split(".")[1] for node in module.graph.nodes if "aten." in str(node.target))


PRODUCTS = {
    "addmm": lambda x, w, b: torch.addmm(b, x, w),
    "mm": lambda x, w, b: torch.mm(x, w),
    "mm + b": lambda x, w, b: torch.mm(x, w) + b,
    "b + matmul": lambda x, w, b: b + x.view(5, 1, 16) @ w,
    "one row": lambda x, w, b: x[0] @ w,
}


@pytest.mark.parametrize("scheme", ["static", "dynamic", "groups", "weights"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_and_sums_with_a_vector_are_one_layer(name, scheme):
    result, error = quantized(PRODUCTS[name], scheme)
    assert error < (0.2 if scheme == "groups" else 0.03)
    found = counts(result)
    assert found["linear"] == 1 and not found.keys() & {"addmm", "mm", "matmul", "add"}
    linear = next(node for node in result.graph.nodes if str(node.target) == "aten.linear.default")
    assert "dequantize" in str(linear.args[1].target)
    assert "matrix" in str(linear.args[1].args[0].target), "integers have the name of the weight"
    assert [layer.operator for layer in result.quantization.quantized] == ["linear"]


FLIPS = {
    "t": lambda w: w.t(),
    "transpose": lambda w: w.transpose(-1, 0),
    "permute": lambda w: w.permute(1, 0),
    "mT": lambda w: w.mT,
}


@pytest.mark.parametrize("name", FLIPS)
def test_the_transpose_of_a_weight_is_the_weight(name):
    result, error = quantized(lambda x, w, b: torch.mm(x[:, :8], FLIPS[name](w)), "dynamic")
    assert error < 0.03
    assert not counts(result).keys() & {"t", "transpose", "permute", "numpy_T"}


def test_a_transpose_that_changes_nothing_is_not_taken_for_one():
    _, error = quantized(lambda x, w, b: torch.mm(x, w.permute(0, 1).transpose(1, 1)), "dynamic")
    assert error < 0.03


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: torch.addmm(b, x, w, alpha=2),
        lambda x, w, b: torch.addmm(b, x, w, beta=0.5),
        lambda x, w, b: torch.addmm(b[:1], x, w),
        lambda x, w, b: torch.addmm(x[:, :8], x, w),
        lambda x, w, b: torch.mm(x, x.t()),
        lambda x, w, b: torch.matmul(x, w[:, 0]),
    ],
    ids=["alpha", "beta", "one number", "a computed vector", "a computed matrix", "a vector"],
)
def test_other_products_stay_what_they_are(function):
    model = Product(lambda x, w, b: (function(x, w, b), nn.functional.linear(x, w.t()))).eval()
    rows = torch.randn(5, 16)
    found = counts(delegatekit.quantize(model, [rows], backend="reference", scheme="weights"))
    assert found["linear"] == 1 and found["addmm"] + found["mm"] + found["matmul"] == 1


@pytest.mark.parametrize(
    "function",
    [lambda x, w, b: torch.add(torch.mm(x, w), b, alpha=2), lambda x, w, b: torch.mm(x, w) + b[:1]],
    ids=["alpha", "one number"],
)
def test_sums_that_are_no_bias_stay_sums(function):
    result, error = quantized(function, "weights")
    assert counts(result)["add"] == 1 and error < 0.03


def test_a_product_that_is_used_before_its_sum_has_no_bias():
    def function(x, w, b):
        product = torch.mm(x, w)
        return product * (product + b)

    result, error = quantized(function, "weights")
    assert counts(result)["add"] == 1 and counts(result)["linear"] == 1 and error < 0.05


def test_a_rule_for_the_product_itself_comes_first():
    assert counts(quantized(PRODUCTS["addmm"], "addmm")[0])["addmm"] == 1
    assert counts(quantized(PRODUCTS["mm"], "addmm")[0])["linear"] == 1


def test_without_a_rule_for_linear_layers_nothing_changes():
    assert counts(quantized(PRODUCTS["addmm"], "conv")[0])["addmm"] == 1


def test_a_product_that_is_kept_in_float_stays_what_it_is():
    model = Product(lambda x, w, b: (torch.addmm(b, x, w), torch.mm(x, w) + b)).eval()
    rows = torch.randn(5, 16)
    settings = {"backend": "reference", "scheme": "weights"}
    found = counts(delegatekit.quantize(model, [rows], keep_float=["addmm"], **settings))
    assert found["addmm"] == 1 and found["linear"] == 1
    found = counts(delegatekit.quantize(model, [rows], keep_float=["add"], **settings))
    assert found["linear"] == 2 and found["add"] == 1
