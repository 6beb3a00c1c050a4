"""The annotator: the quantized tensors of a graph, their parameters, and the sharing of these."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from delegatekit_api.schemes import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
)

pytest.importorskip("torchao")

from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from delegatekit.quantization.annotator import SchemeQuantizer
from delegatekit.quantization.choices import KeptInFloat

INT8 = TensorQuantization("int8")
WEIGHT = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL, eps=2.0**-20)
CLAMPS = ("relu", "relu6", "hardtanh", "clamp")
LAYERS = ("linear", "addmm", "matmul", "mm", "bmm", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
RULES = (
    QuantizationRule(LAYERS, INT8, WEIGHT, None, INT8, CLAMPS),
    QuantizationRule(("add", "sub", "mul"), INT8, output=INT8, fused=CLAMPS, follows=True),
    QuantizationRule(("tanh", "gelu", "silu", "hardswish", "elu", "leaky_relu", "exp", "mean"), INT8, output=INT8),
    QuantizationRule(
        ("sigmoid", "softmax"), INT8, output=TensorQuantization("int8", scale=1 / 256, zero_point=-128), follows=True
    ),
    QuantizationRule((*CLAMPS, "max_pool2d", "avg_pool2d", "cat", *MOVING_OPERATORS), shares=True),
    QuantizationRule(("embedding",), weight=TensorQuantization("int8", symmetric=True), output=INT8),
)
SCHEME = QuantizationScheme("test", "", rules=RULES)


class Fn(nn.Module):
    """A module around a function, and the modules that it calls."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def quantized(model, *inputs, scheme=SCHEME, keep=()):
    torch.manual_seed(0)
    captured = torch.export.export(model.eval(), inputs, strict=False).module(check_guards=False)
    quantizer = SchemeQuantizer(scheme, KeptInFloat(keep))
    prepared = prepare_pt2e(captured, quantizer)
    with torch.no_grad():
        prepared(*inputs)
    return convert_pt2e(prepared), quantizer


def calls(module):
    return [node for node in module.graph.nodes if node.op == "call_function" and "getitem" not in str(node.target)]


def find(module, name):
    return next(node for node in calls(module) if str(node.target).startswith(f"aten.{name}."))


def counts(module):
    return Counter(str(node.target).split(".")[1] for node in calls(module))


def source(node, index=0):
    """The (scale, zero point, ...) of the dequantize that produces an operand."""
    operand = node.args[index]
    assert "dequantize" in str(operand.target), f"{operand} is not quantized"
    return operand.args[1:]


def result(node):
    """The parameters of the only quantize of a result."""
    (user,) = node.users
    assert str(user.target).startswith("quantized_decomposed.quantize"), f"{node} goes to {user}"
    return user.args[1:]


def reasons(quantizer):
    return {node.name: reason for node, reason in quantizer.reasons.items()}


def sqnr(expected, actual):
    return 10 * torch.log10(expected.square().sum() / (expected - actual).square().sum()).item()


def residual_network():
    def forward(self, x):
        y = self.act(self.bn(self.conv(x)))
        z = self.point(F.relu(self.depth(y)))
        z += y
        return self.head(F.max_pool2d(z, 2).mean((2, 3)))

    return Fn(
        forward,
        conv=nn.Conv2d(3, 8, 3, padding=1, bias=False),
        bn=nn.BatchNorm2d(8),
        act=nn.ReLU6(inplace=True),
        depth=nn.Conv2d(8, 8, 3, padding=1, groups=8),
        point=nn.Conv2d(8, 8, 1),
        head=nn.Linear(8, 4),
    )


def test_a_residual_network_has_exactly_the_nodes_it_needs():
    torch.manual_seed(1)
    model, x = residual_network(), torch.randn(2, 3, 16, 16)
    module, quantizer = quantized(model, x)
    # Quantized: the input and the seven results; the clamped value has two users.
    assert counts(module) == {
        "quantize_per_tensor": 8,
        "dequantize_per_tensor": 9,
        "dequantize_per_channel": 4,
        "conv2d": 3,
        "hardtanh": 1,
        "relu": 1,
        "add": 1,
        "max_pool2d": 1,
        "mean": 1,
        "linear": 1,
    }
    assert not quantizer.reasons
    assert sqnr(model(x), module(x)) > 35


@pytest.mark.parametrize(
    "activation",
    [nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.ReLU6(inplace=True), F.relu6, nn.Hardtanh(-1.0, 2.0),
     lambda x: x.clamp(0.0, 1.0), lambda x: F.relu6(x, inplace=True), lambda x: x.clamp_(0.0, 1.0)],
)  # fmt: skip
@pytest.mark.parametrize(
    "layer, shape",
    [
        (nn.Linear(6, 5), (3, 6)),
        (nn.Conv1d(3, 4, 3), (1, 3, 8)),
        (nn.Conv2d(3, 4, 3, padding="same"), (1, 3, 8, 8)),
        (nn.ConvTranspose2d(3, 4, 3), (1, 3, 8, 8)),
    ],
)
def test_nothing_is_quantized_between_a_layer_and_its_activation(layer, shape, activation):
    model = Fn(lambda self, x: activation(self.layer(x)), layer=layer)
    module, _ = quantized(model, torch.randn(shape))
    assert counts(module)["quantize_per_tensor"] == 2
    (follower,) = next(node for node in calls(module) if node.args[1:] and "per_channel" in str(node.args[1])).users
    result(follower)


@pytest.mark.parametrize(
    "layer, shape, axis",
    [
        (nn.Linear(6, 5), (3, 6), 0),
        (nn.Conv1d(4, 6, 3, groups=2), (1, 4, 8), 0),
        (nn.ConvTranspose1d(4, 6, 3), (1, 4, 8), 1),
        (nn.ConvTranspose2d(4, 6, 3), (1, 4, 8, 8), 1),
    ],
)
def test_scales_of_weights_are_of_the_output_channels(layer, shape, axis):
    module, _ = quantized(nn.Sequential(layer), torch.randn(shape))
    (weight,) = [node for node in calls(module) if "dequantize_per_channel" in str(node.target)]
    assert weight.args[3:6] == (axis, -127, 127)
    scales = getattr(module, weight.args[1].target)
    dims = [dim for dim in range(layer.weight.dim()) if dim != axis]
    torch.testing.assert_close(scales, layer.weight.detach().abs().amax(dims) / 127, check_dtype=False)


def test_a_grouped_transposed_convolution_has_one_scale():
    module, _ = quantized(nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2)), torch.randn(1, 4, 8, 8))
    assert counts(module)["dequantize_per_channel"] == 0
    assert source(find(module, "conv_transpose2d"), 1)[2:4] == (-127, 127)


def test_a_batch_norm_that_was_folded_takes_part_in_the_weight():
    model = nn.Sequential(nn.ConvTranspose1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU())
    with torch.no_grad():
        model[1].running_var.uniform_(0.5, 2.0)
    x = torch.randn(2, 3, 8)
    module, _ = quantized(model, x)
    assert counts(module)["batch_norm"] == 0 and sqnr(model(x), module(x)) > 35


def test_products_quantize_both_operands_and_constants_as_weights():
    constant = torch.randn(6, 5)
    model = Fn(lambda self, x, y: (x @ y, x[0] @ constant))
    x, y = torch.randn(2, 4, 6), torch.randn(2, 6, 3)
    module, _ = quantized(model, x, y)
    both, weight = [node for node in calls(module) if "matmul" in str(node.target)]
    assert source(both, 0) != source(both, 1)
    assert weight.args[1].args[3] == 1
    for expected, actual in zip(model(x, y), module(x, y), strict=True):
        assert sqnr(expected, actual) > 35


def test_all_inputs_and_the_output_of_a_concatenation_have_the_same_scale():
    model = Fn(lambda self, x: torch.cat([self.a(x), self.b(x) * 3.0, x], 1), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    module, _ = quantized(model, torch.randn(2, 4))
    cat = find(module, "cat")
    inputs = {operand.args[1:] for operand in cat.args[0]}
    assert inputs == {result(cat)}


def test_a_constant_operand_of_a_concatenation_is_quantized_with_the_others():
    model = Fn(lambda self, x: torch.cat([self.first.weight[:1], self.a(x)]), a=nn.Linear(4, 4), first=nn.Linear(4, 4))
    module, _ = quantized(model, torch.randn(2, 4))
    cat = find(module, "cat")
    assert {operand.args[1:] for operand in cat.args[0]} == {result(cat)}


def test_what_nobody_uses_is_dropped():
    model = Fn(lambda self, x: (self.b(x), self.a(x))[1], a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    module, quantizer = quantized(model, torch.randn(2, 4))
    assert counts(module)["linear"] == 1 and len(quantizer.layers) == 1


def test_a_concatenation_with_a_fixed_scale_quantizes_that_operand_once_more():
    model = Fn(lambda self, x: torch.cat([torch.sigmoid(self.a(x)), self.a(x)], 1), a=nn.Linear(4, 4))
    module, _ = quantized(model, torch.randn(8, 4))
    assert result(find(module, "sigmoid"))[:2] == (1 / 256, -128)
    cat = find(module, "cat")
    assert {operand.args[1:] for operand in cat.args[0]} == {result(cat)}
    assert result(cat)[0] != 1 / 256


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.view(4, 2, 2).permute(1, 0, 2).contiguous(),
        lambda x: x.unsqueeze(0).squeeze(0).flatten(),
        lambda x: x[:, 1:3].expand(2, 4, 2),
        lambda x: F.pad(x, (1, 1)),
        lambda x: F.pad(x, (1, 1), mode="reflect"),
        lambda x: x.t().narrow(0, 1, 2).select(0, 1),
        lambda x: x.T.mT,
        lambda x: x.H.adjoint(),
        lambda x: x.swapaxes(0, 1).swapdims(0, 1),
        lambda x: x.movedim(0, 1).moveaxis(0, 1),
    ],
)
def test_what_moves_values_keeps_their_scale(move):
    model = Fn(lambda self, x: move(self.a(x)), a=nn.Linear(4, 4))
    module, quantizer = quantized(model, torch.randn(4, 4))
    scales = {node.args[1:] for node in calls(module) if str(node.target).startswith("quantized_decomposed.quantize")}
    assert len(scales) == 2 and not quantizer.reasons


def test_pieces_have_the_scale_of_the_whole():
    model = Fn(lambda self, x: [piece * 2.0 for piece in self.a(x).chunk(2, 1)], a=nn.Linear(4, 4))
    module, _ = quantized(model, torch.randn(4, 4))
    pieces = [node for node in module.graph.nodes if "getitem" in str(node.target)]
    chunk = find(module, "chunk")
    assert len(pieces) == 2 and {result(piece) for piece in pieces} == {source(chunk)}


def test_lone_views_get_no_islands():
    model = Fn(lambda self, x: F.layer_norm(torch.cat([x, x * 2.0]).flatten().relu(), (24,)))
    scheme = QuantizationScheme("test", "", rules=RULES[:1] + RULES[4:5])
    module, quantizer = quantized(model, torch.randn(3, 4), scheme=scheme)
    assert not any("quantize" in name for name in counts(module))
    assert reasons(quantizer)["flatten"] == "none of its inputs is quantized"


def test_a_float_value_goes_quantized_only_to_those_who_want_it_so():
    model = Fn(lambda self, x: (self.a(x), F.layer_norm(x, (4,)), x.view(-1)), a=nn.Linear(4, 4))
    module, _ = quantized(model, torch.randn(2, 4))
    assert find(module, "layer_norm").args[0].op == find(module, "view").args[0].op == "placeholder"


def test_users_of_one_float_value_share_its_quantized_form():
    model = Fn(lambda self, x: self.a(x) + self.b(x), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    module, _ = quantized(model, torch.randn(2, 4))
    assert counts(module)["quantize_per_tensor"] == 4


def test_a_layer_with_two_users_is_quantized_itself():
    model = Fn(lambda self, x: torch.relu(y := self.a(x)) * y, a=nn.Linear(4, 4))
    module, _ = quantized(model, torch.randn(2, 4))
    result(find(module, "linear"))
    assert result(find(module, "relu")) == source(find(module, "relu"))


def test_a_weight_that_two_layers_share_is_stored_once():
    linear = nn.Linear(4, 4)
    model = Fn(lambda self, x: self.a(torch.relu(self.a(x))), a=linear)
    module, _ = quantized(model, torch.randn(2, 4))
    integers = [value for _, value in module.named_buffers() if value.dtype == torch.int8]
    assert len(integers) == 1


def test_a_bias_has_the_scale_of_input_times_weight():
    rule = QuantizationRule(("conv2d",), INT8, WEIGHT, TensorQuantization("int32", symmetric=True), INT8)
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    x = torch.randn(1, 3, 8, 8)
    module, _ = quantized(model, x, scheme=QuantizationScheme("test", "", rules=(rule,)))
    conv = find(module, "conv2d")
    weight, bias = conv.args[1], conv.args[2]
    assert bias.args[6] == torch.int32
    scales = getattr(module, weight.args[1].target) * source(conv)[0]
    torch.testing.assert_close(getattr(module, bias.args[1].target), scales, check_dtype=False)
    assert sqnr(model(x), module(x)) > 35


@pytest.mark.parametrize(
    "activation, weight, storage",
    [
        (TensorQuantization("uint8"), WEIGHT, torch.uint8),
        (TensorQuantization("int16", symmetric=True, eps=2.0**-20), WEIGHT, torch.int16),
        (TensorQuantization("uint16", eps=2.0**-20), WEIGHT, torch.uint16),
        (INT8, TensorQuantization("int4", symmetric=True, granularity=PER_CHANNEL), torch.int8),
    ],
)
def test_other_integer_types(activation, weight, storage):
    rule = QuantizationRule(("linear",), activation, weight, None, activation)
    model = nn.Sequential(nn.Linear(16, 8))
    x = torch.randn(4, 16)
    module, _ = quantized(model, x, scheme=QuantizationScheme("test", "", rules=(rule,)))
    assert source(find(module, "linear"))[4] == storage
    if weight.dtype == "int4":
        (integers,) = [value for _, value in module.named_buffers() if value.dtype == torch.int8 and value.dim() == 2]
        assert int(integers.min()) >= -8 and int(integers.max()) <= 7
    assert sqnr(model(x), module(x)) > (18 if weight.dtype == "int4" else 38)


@pytest.mark.parametrize("observer", ["minmax", "moving-average", "histogram"])
def test_each_kind_of_observer_calibrates(observer):
    activation = TensorQuantization("int8", observer=observer)
    model, x = nn.Sequential(nn.Linear(16, 8)), torch.randn(64, 16)
    rule = QuantizationRule(("linear",), activation, WEIGHT, None, activation)
    module, _ = quantized(model, x, scheme=QuantizationScheme("test", "", rules=(rule,)))
    assert sqnr(model(x), module(x)) > 35


def test_numbers_become_quantized_constants_where_the_rule_says_so():
    model = Fn(lambda self, x: self.a(x) * 0.125 + 1, a=nn.Linear(4, 4))
    x = torch.randn(8, 4)
    module, quantizer = quantized(model, x)
    assert reasons(quantizer) == {"mul": "an operand is a number", "add": "an operand is a number"}
    rules = (RULES[0], QuantizationRule(("add", "mul"), INT8, output=INT8, follows=True, numbers=True))
    module, quantizer = quantized(model, x, scheme=QuantizationScheme("test", "", rules=rules))
    assert not quantizer.reasons and counts(module)["quantize_per_tensor"] == 4
    assert source(find(module, "mul"), 1)[0] == pytest.approx(0.125 / 255)
    assert sqnr(model(x), module(x)) > 35


def test_tables_of_unary_functions():
    def forward(self, x):
        y = self.a(x)
        for function in (F.gelu, F.silu, F.hardswish, F.elu, F.leaky_relu, torch.tanh, torch.exp):
            y = function(y)
        return torch.softmax(y, -1)

    model, x = Fn(forward, a=nn.Linear(8, 8)), torch.randn(16, 8)
    module, quantizer = quantized(model, x)
    assert not quantizer.reasons and counts(module)["quantize_per_tensor"] == 10
    assert sqnr(model(x), module(x)) > 30


def test_an_embedding_has_a_quantized_table():
    model = Fn(lambda self, tokens: self.b(self.a(tokens)), a=nn.Embedding(20, 8), b=nn.Linear(8, 4))
    tokens = torch.arange(20)
    module, _ = quantized(model, tokens)
    source(find(module, "embedding"), 0)
    result(find(module, "embedding"))
    assert sqnr(model(tokens), module(tokens)) > 35


@pytest.mark.parametrize("views", [False, True])
def test_a_state_that_the_program_writes_is_no_weight(views):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.ones(4, 4))
            self.register_buffer("rows", torch.ones(4, 4))

        def forward(self, x):
            self.state.add_(1.0)
            if views:
                self.rows[0] = 2.0
            return F.linear(x, self.state) + F.linear(x, self.rows)

    module, quantizer = quantized(Counter(), torch.randn(2, 4))
    assert reasons(quantizer)["linear"] == "its weight is computed"
    assert ("linear_1" in reasons(quantizer)) == views
    before = module.state.clone()
    module(torch.randn(2, 4))
    assert torch.equal(module.state, before + 1)


def test_each_reason_is_told():
    def forward(self, x, weight):
        y = F.pad(self.a(x), (1, 1), value=1.0)
        return y.double().tanh(), F.linear(x, weight), F.layer_norm(x, (4,)), self.b(x)

    model = Fn(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    _, quantizer = quantized(model, torch.randn(2, 4), torch.randn(3, 4), keep=["b"])
    assert reasons(quantizer) == {
        "pad": "it pads with another value than 0",
        "linear_1": "its weight is computed",
        "layer_norm": "scheme test has no rule for layer_norm",
        "linear_2": "kept by keep_float='b'",
    }


def test_of_several_rules_the_reason_of_the_nearest_is_told():
    def no(reason):
        return lambda node: reason

    def yes(node):
        return None

    def rule(*when, **more):
        return QuantizationRule(("tanh",), INT8, output=INT8, declines=when, **more)

    far, near, last = no("it is computed"), no("it is too large"), no("it is odd")
    model, x = Fn(lambda self, x: torch.tanh(self.a(x)), a=nn.Linear(4, 4)), torch.randn(2, 4)
    for rules, told in (
        ((rule(yes, far, near), rule(yes, near)), "it is too large"),
        ((rule(yes, near), rule(far, yes, yes)), "it is too large"),
        ((rule(yes, near), rule(yes, last)), "it is odd"),
    ):
        scheme = QuantizationScheme("test", "", rules=(RULES[0], *rules))
        _, quantizer = quantized(model, x, scheme=scheme)
        assert reasons(quantizer) == {"tanh": told}


def test_what_moves_values_is_in_the_report_where_it_parts_what_is_quantized():
    def forward(self, x):
        y = F.pad(x.flatten(1), (1, 1), value=1.0).unflatten(1, (3, 2)).flatten(1)  # in float before and after
        return F.pad(self.a(y).unsqueeze(1), (1, 1), value=1.0)

    moving = QuantizationRule(("flatten", "unflatten", "unsqueeze", "pad"), shares=True)
    scheme = QuantizationScheme("test", "", rules=(RULES[0], moving))
    _, quantizer = quantized(Fn(forward, a=nn.Linear(6, 4)), torch.randn(2, 2, 2), scheme=scheme)
    told = [(layer.operator, layer.reason) for layer in quantizer.describe()]
    assert told == [("linear", ""), ("pad", "it pads with another value than 0")]


def test_an_activation_that_is_kept_is_not_fused():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    module, _ = quantized(model, torch.randn(2, 4), keep=["relu"])
    result(find(module, "linear"))
    assert counts(module)["quantize_per_tensor"] == 2


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(8), nn.RMSNorm(8), nn.GroupNorm(2, 8), nn.InstanceNorm1d(8, affine=True)]
)
def test_constant_parameters_of_norms_stay_float(norm):
    rule = QuantizationRule(("layer_norm", "rms_norm", "group_norm", "instance_norm"), INT8, output=INT8)
    module, _ = quantized(norm, torch.randn(2, 8, 8), scheme=QuantizationScheme("norms", "", rules=(rule,)))
    (node,) = (node for node in calls(module) if "_norm" in str(node.target))
    first, *others = node.all_input_nodes
    assert source(node) and result(node)
    assert "dequantize" in str(first.target)
    assert others
    assert all(operand.op == "get_attr" for operand in others)


def test_computed_parameters_of_norms_are_inputs():
    rule = QuantizationRule(("layer_norm",), INT8, output=INT8)
    module, _ = quantized(
        Fn(lambda self, x, weight: F.layer_norm(x, (8,), weight)),
        *(torch.randn(2, 8), torch.randn(8)),
        scheme=QuantizationScheme("norms", "", rules=(rule,)),
    )
    assert source(find(module, "layer_norm"), 2)
