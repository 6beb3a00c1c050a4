"""`quantize`, `prepare_qat`, `convert_qat`: inputs, results, and refused arguments."""

from __future__ import annotations

import copy
import math
import operator
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.plugins import LoadedBackend
from delegatekit_api import LoweringError, OptionError, PluginError, QuantizationError
from delegatekit_api.schemes import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    PER_TOKEN,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
    per_group,
)

pytest.importorskip("torchao")

INT8 = TensorQuantization("int8")
WEIGHT = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL, eps=2.0**-20)
TOKENS = TensorQuantization("int8", granularity=PER_TOKEN, dynamic=True)
EPS = torch.finfo(torch.float32).eps  # torchao's own
FOUR = TensorQuantization("int4", symmetric=True, granularity=per_group(8), eps=EPS)
EIGHT = TensorQuantization("int8", symmetric=True, granularity=PER_CHANNEL, eps=EPS)
STATIC = (
    QuantizationRule(("linear", "conv2d"), INT8, WEIGHT, None, INT8, ("relu",)),
    QuantizationRule(("add",), INT8, output=INT8, follows=True),
)
SCHEMES = (
    QuantizationScheme("static", "the first", rules=STATIC, qat=True),
    QuantizationScheme("dynamic", "", "dynamic", (QuantizationRule(("linear",), TOKENS, EIGHT),)),
    QuantizationScheme("dynamic-int4", "", "dynamic", (QuantizationRule(("linear",), TOKENS, FOUR),)),
    QuantizationScheme(
        "short-scales",
        "",
        "weight-only",
        (QuantizationRule(("linear",), weight=replace(FOUR, scale_dtype="bfloat16")),),
    ),
    QuantizationScheme(
        "weights", "", "weight-only", (QuantizationRule(("linear", "embedding", "conv2d"), weight=EIGHT),)
    ),
    QuantizationScheme(
        "conv-dynamic",
        "",
        "dynamic",
        (QuantizationRule(("conv2d",), TensorQuantization("int8", dynamic=True), WEIGHT, fused=("relu",)),),
    ),
    QuantizationScheme("own", "the plugin's"),
)
BACKEND = "reference"


@pytest.fixture(autouse=True)
def _schemes(monkeypatch):
    monkeypatch.setattr(LoadedBackend, "quantization_schemes", lambda self, options=None: SCHEMES)


class Small(nn.Module):
    """Convolution, batch norm, dropout, a residual sum and two linear layers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.drop = nn.Dropout()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 8))

    def forward(self, x):
        y = self.drop(torch.relu(self.bn(self.conv(x))).mean((2, 3)))
        return y + self.layers(y)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Small().eval()


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, 3, 8, 8, generator=generator) for _ in range(4)]


def quantize(model, calibration, **settings):
    return delegatekit.quantize(model, calibration, backend=BACKEND, **settings)


def sqnr(expected, actual):
    return 10 * torch.log10(expected.square().sum() / (expected - actual).square().sum()).item()


# -- results ---------------------------------------------------------------------------------------------------------


def test_the_result_runs_is_exported_and_tells_what_was_done(model, data):
    before = copy.deepcopy(model.state_dict())
    result = quantize(model, data)
    assert sqnr(model(data[0]), result(data[0])) > 30
    again = torch.export.export(result.eval(), (data[0],), strict=False).module()
    assert torch.equal(again(data[0]), result(data[0]))
    report = result.quantization
    assert (report.backend, report.scheme, report.samples, report.sqnr) == (BACKEND, "static", 4, None)
    assert [(layer.module, layer.operator, layer.quantized) for layer in report.layers] == [
        ("conv", "conv2d + relu", True),
        ("", "mean", False),
        ("layers.0", "linear + relu", True),
        ("layers.2", "linear", True),
        ("", "add", True),
    ]
    assert "scheme static has no rule for mean" in str(report) and "4 of 5 layers quantized" in str(report)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} of the user's model changed"


def test_integers_have_the_names_of_the_weights(model, data):
    result = quantize(model, data)
    types = {name: value.dtype for name, value in result.state_dict().items() if "weight" in name.split(".")[-1]}
    assert types["layers.0.weight"] == types["layers.2.weight"] == types["conv.weight"] == torch.int8
    assert not any(value.dtype == torch.float32 and value.dim() > 1 for value in result.state_dict().values())


@pytest.mark.parametrize("scheme", ["static", "dynamic"])
def test_what_was_put_in_belongs_to_the_module_that_it_serves(scheme, model, data):
    program = torch.export.export(quantize(model, data, scheme=scheme), (data[0],), strict=False)
    paths = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            path = [path for path, _ in node.meta["nn_module_stack"].values()][-1]
            paths.setdefault(path, []).append(str(node.target).split(".")[-2])
    expected = {
        "static": ["dequantize_per_channel", "dequantize_per_tensor", "linear", "quantize_per_tensor"],
        "dynamic": ["choose_qparams_affine", "dequantize_affine", "dequantize_affine", "linear", "quantize_affine"],
    }
    assert sorted(paths["layers.2"]) == expected[scheme]


def test_calibration_may_be_an_iterator_of_tuples_and_is_read_once(model, data):
    expected = quantize(model, data)(data[0])
    seen = []

    def inputs():
        for item in data:
            seen.append(item)
            yield (item,)

    assert torch.equal(quantize(model, inputs())(data[0]), expected)
    assert len(seen) == 4
    assert torch.equal(quantize(model, inputs(), measure=True)(data[0]), expected)


def test_ranges_come_from_all_the_inputs(data):
    model = nn.Sequential(nn.Linear(4, 4)).eval()
    small, large = torch.rand(2, 4), 10 * torch.rand(2, 4) + 1
    result = quantize(model, [small, large])
    (node,) = [n for n in result.graph.nodes if "quantize_per_tensor" in n.name and n.args[0].op == "placeholder"]
    assert node.args[1] == pytest.approx(float(large.max()) / 255)


def test_sizes_may_change_where_it_is_said(model, data):
    shapes = ({0: torch.export.Dim("n", max=16)},)
    result = quantize(model, [*data, torch.randn(5, 3, 8, 8)], dynamic_shapes=shapes)
    x = torch.randn(7, 3, 8, 8)
    assert sqnr(model(x), result(x)) > 30
    exported = torch.export.export(result, (data[0],), dynamic_shapes=shapes, strict=False)
    assert torch.equal(exported.module()(x), result(x))


def test_an_exported_program_is_quantized_as_its_module(model, data):
    program = torch.export.export(model, (data[0],), strict=False)
    assert torch.equal(quantize(program, data)(data[1]), quantize(model, data)(data[1]))


def test_the_plugin_may_bring_a_quantizer_of_its_own(model, data, monkeypatch):
    from delegatekit.quantization.annotator import SchemeQuantizer

    asked = []

    def create(self, scheme, options):
        asked.append(scheme)
        return SchemeQuantizer(SCHEMES[0], lambda node: None)

    monkeypatch.setattr(LoadedBackend, "create_quantizer", create)
    result = quantize(model, data, scheme="own")
    assert asked == ["own"] and torch.equal(result(data[0]), quantize(model, data)(data[0]))
    with pytest.raises(QuantizationError, match="own: keep_float"):
        quantize(model, data, scheme="own", keep_float=["conv"])


# -- weights and dynamic activations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["dynamic", "dynamic-int4", "weights"])
def test_weights_have_the_numbers_of_torchao(scheme):
    from torchao.quantization import (
        Int8DynamicActivationIntxWeightConfig,
        IntxWeightOnlyConfig,
        PerAxis,
        PerGroup,
        quantize_,
    )

    configs = {
        "dynamic": Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8, weight_granularity=PerAxis(0)),
        "dynamic-int4": Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(8)),
        "weights": IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)),
    }
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).eval()
    x = torch.randn(2, 5, 16)
    expected = copy.deepcopy(model)
    quantize_(expected, configs[scheme])
    result = quantize(model, [x], scheme=scheme)
    assert torch.equal(result(x), expected(x))
    exported = torch.export.export(result, (x,), strict=False)
    assert torch.equal(exported.module()(x), result(x))
    sizes = {value.dtype for value in exported.state_dict.values() if value.dim() == 2 and value.numel() > 64}
    assert sizes == {torch.int8}, "float weights were left in the module"


def _quantized_by_torchao(bits: int, group: int | None, *, activations: bool = False, mapping: str = "SYMMETRIC"):
    """A model whose first layer torchao quantized."""
    quantization = pytest.importorskip("torchao.quantization")
    granularity = quantization.PerGroup(group) if group else quantization.PerAxis(0)
    dtype, mapped = getattr(torch, f"int{bits}"), getattr(quantization.MappingType, mapping)
    config = quantization.IntxWeightOnlyConfig(dtype, granularity, mapping_type=mapped)
    if activations:
        config = quantization.Int8DynamicActivationIntxWeightConfig(dtype, granularity, weight_mapping_type=mapped)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 8)).eval()
    quantization.quantize_(model[0], config)
    return model


@pytest.mark.parametrize("activations", [False, True], ids=["weights", "with activations"])
@pytest.mark.parametrize(("bits", "group", "scheme"), [(4, 8, "dynamic-int4"), (8, None, "dynamic")])
@pytest.mark.parametrize("deferred", [False, True])
def test_integers_that_are_there_already_are_kept(bits, group, scheme, activations, deferred):
    model, x = _quantized_by_torchao(bits, group, activations=activations), torch.randn(2, 5, 64)
    wanted = _quantized_by_torchao(bits, group, activations=True)[:2](x)
    result = quantize(model, [x], scheme=scheme, deferred=deferred)
    first, last = (layer for layer in result.quantization.layers if layer.operator == "linear")
    assert first.quantized and first.given and last.quantized and not last.given
    rows, gelu = _operands(result)
    assert torch.equal(_value_of(result, rows.args[0], x), model[0].weight.qdata)
    assert [str(node.target) for node in result.graph.nodes].count("torchao.choose_qparams_affine.default") == 2
    assert torch.equal(_value_of(result, gelu, x), wanted)


def _operands(module):
    """The nodes of the first layer's weight, and of the activation behind it."""
    gelu = next(node for node in module.graph.nodes if "gelu" in str(node.target))
    return gelu.args[0].args[1], gelu


def _value_of(module, node, x):
    """The value of a node of a graph."""
    found = {}

    class Watched(torch.fx.Interpreter):
        def run_node(self, n):
            found[n.name] = super().run_node(n)
            return found[n.name]

    with torch.no_grad():
        Watched(module).run(x)
    return found[node.name]


def test_scales_of_kept_integers_are_rounded_to_the_declared_type():
    model, x = _quantized_by_torchao(4, 8), torch.randn(3, 64)
    result = quantize(model, [x], scheme="short-scales")
    weight = model[0].weight
    scales = weight.scale.bfloat16().float()
    assert not torch.equal(scales, weight.scale)
    numbers = (weight.qdata.float().view(32, 8, 8) * scales.view(32, 8, 1)).view(32, 64)
    linear = _operands(result)[1].args[0]
    assert torch.equal(_value_of(result, linear, x), nn.functional.linear(x, numbers, model[0].bias))


@pytest.mark.parametrize(
    ("bits", "group", "mapping", "scheme", "reason"),
    [
        (4, 16, "SYMMETRIC", "dynamic-int4", "int4 in blocks of 1 x 16 already: the scheme has blocks of 1 x 8"),
        (8, 8, "SYMMETRIC", "dynamic-int4", "int8 in blocks of 1 x 8 already: the scheme has -8 to 7"),
        (4, 8, "ASYMMETRIC", "dynamic-int4", "with zero points: the scheme has none"),
        (4, 8, "SYMMETRIC", "static", "int4 in blocks of 1 x 8 already, which schemes of weights keep"),
    ],
)
def test_integers_of_another_form_stay_as_they_are(bits, group, mapping, scheme, reason):
    model, x = _quantized_by_torchao(bits, group, mapping=mapping), torch.randn(3, 64)
    result = quantize(model, [x], scheme=scheme)
    layers = [layer for layer in result.quantization.layers if layer.operator == "linear"]
    assert reason in layers[0].reason and layers[1].quantized
    assert torch.equal(_value_of(result, _operands(result)[1], x), model[:2](x))


def test_scales_are_rounded_to_the_declared_type_before_the_weights_are():
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 16).eval(), torch.randn(3, 64)
    result = quantize(nn.Sequential(layer).eval(), [x], scheme="short-scales")
    parts = {name.rpartition("_")[2]: value for name, value in result.state_dict().items()}
    integers, scales = parts["quantized"], parts["scale"].reshape(16, -1)
    assert scales.dtype == torch.float32 and torch.equal(scales, scales.bfloat16().float())
    groups = layer.weight.detach().reshape(16, -1, 8)
    expected = groups.abs().amax(2) / 7.5
    assert not torch.equal(scales, expected) and torch.equal(scales, expected.bfloat16().float())
    steps = (groups * (1 / scales).unsqueeze(2)).round().clamp(-8, 7)
    assert torch.equal(integers.reshape(16, -1, 8).float(), steps)
    real = (steps * scales.unsqueeze(2)).reshape(16, 64)
    assert torch.equal(result(x), nn.functional.linear(x, real, layer.bias))


def test_an_input_of_several_layers_is_quantized_once():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 4), nn.Linear(16, 4)

        def forward(self, x):
            return self.a(x) + self.b(x)

    result = quantize(Heads().eval(), [torch.randn(3, 16)], scheme="dynamic")
    names = [str(node.target) for node in result.graph.nodes]
    assert names.count("torchao.quantize_affine.default") == 1
    assert names.count("torchao.dequantize_affine.default") == 3


def test_weights_of_convolutions_and_embeddings():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.conv = nn.Embedding(32, 8), nn.Conv2d(1, 4, 3)

        def forward(self, tokens):
            return self.conv(self.table(tokens)[None, None])

    model, tokens = Net().eval(), torch.arange(16)
    result = quantize(model, [tokens], scheme="weights")
    assert {layer.operator for layer in result.quantization.quantized} == {"embedding", "conv2d"}
    assert sqnr(model(tokens), result(tokens)) > 38


def test_groups_have_another_size_and_must_divide_the_channels():
    model = nn.Sequential(nn.Linear(16, 20), nn.Linear(20, 4)).eval()
    x = torch.randn(3, 16)
    result = quantize(model, [x], scheme="dynamic-int4", group_size=16)
    assert [layer.reason for layer in result.quantization.layers] == [
        "",
        "groups of 16 do not divide its 20 input channels",
    ]
    with pytest.raises(QuantizationError, match="has no groups"):
        quantize(model, [x], group_size=16)
    with pytest.raises(QuantizationError, match="group_size=0"):
        quantize(model, [x], scheme="dynamic-int4", group_size=0)


def test_a_linear_layer_of_one_row_stays_in_float_with_the_reason():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.weight = nn.Linear(16, 16), nn.Parameter(torch.randn(16))

        def forward(self, x):
            return nn.functional.linear(self.first(x), self.weight)

    result = quantize(Model().eval(), [torch.randn(3, 16)], scheme="dynamic-int4", group_size=16)
    assert [layer.reason for layer in result.quantization.layers] == ["", "its weight is a vector"]


def test_inputs_of_convolutions_are_quantized_at_run_time():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(1, 3, 8, 8)
    result = quantize(model, [x], scheme="conv-dynamic")
    names = [str(node.target) for node in result.graph.nodes]
    assert names.count("quantized_decomposed.choose_qparams.tensor") == 1
    assert sqnr(model(50 * x), result(50 * x)) > 35  # far outside of the calibration data


# -- choosing layers -------------------------------------------------------------------------------------------------


def test_layers_stay_in_float_by_path_operator_or_function(model, data):
    result = quantize(model, data, keep_float=["layers.*", "aten.add.Tensor"])
    assert [layer.reason for layer in result.quantization.kept if "kept" in layer.reason] == [
        "kept by keep_float='layers.*'",
        "kept by keep_float='layers.*'",
        "kept by keep_float='layers.*'",
        "kept by keep_float='aten.add.Tensor'",
    ]
    result = quantize(model, data, keep_float=[lambda node: node.name == "conv2d"])
    assert next(layer for layer in result.quantization.layers if layer.module == "conv").reason.startswith("kept")


def test_ratios_are_those_of_the_two_modules(model, data):
    result = quantize(model, data, measure=True)
    with torch.no_grad():
        expected = torch.cat([model(x) for x in data])
        actual = torch.cat([result(x) for x in data])
    report = result.quantization
    assert report.sqnr == pytest.approx(sqnr(expected, actual), abs=1e-3)
    first, mean = report.layers[0], report.layers[1]
    assert first.sqnr == pytest.approx(first.own_sqnr)  # nothing before it
    assert mean.own_sqnr < math.inf and 25 < mean.sqnr < 80  # its input was quantized
    assert "own dB" in str(report)


def test_the_worst_layers_stay_in_float(data):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)).eval()
    with torch.no_grad():
        model[1].weight[:, 0] *= 1000.0  # one column takes the whole range of every channel
    calibration = [torch.randn(8, 16) * torch.tensor([1e-3] + 15 * [1.0]) for _ in range(4)]
    plain = quantize(model, calibration, measure=True).quantization
    result = quantize(model, calibration, keep_worst_float=1).quantization
    worst = min(plain.layers, key=lambda layer: layer.own_sqnr)
    assert [layer.node for layer in result.kept] == [worst.node]
    assert result.kept[0].reason == "one of the 1 worst layers"
    assert result.sqnr > plain.sqnr
    with pytest.raises(QuantizationError, match="leaves nothing of 3"):
        quantize(model, calibration, keep_worst_float=3)


# -- training --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_is_trained_with_quantization_and_converted(data):
    torch.manual_seed(0)
    model = Small().train()
    before = copy.deepcopy(model.state_dict())
    prepared = delegatekit.prepare_qat(model, (data[0],), backend=BACKEND)
    target = torch.randn(2, 8)
    optimizer = torch.optim.Adam(prepared.parameters(), 0.05)
    prepared.train()
    losses = []
    for _ in range(30):
        loss = (prepared(data[0]) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    prepared.eval()
    expected = prepared(data[0])
    result = delegatekit.convert_qat(prepared)
    assert sqnr(expected, result(data[0])) > 30
    names = [str(node.target) for node in result.graph.nodes]
    assert "aten.batch_norm.default" not in names and "aten.dropout.default" not in names
    assert len(result.quantization.quantized) == 4
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} of the user's model changed"


def test_training_is_refused_where_it_makes_no_sense(model, data):
    with pytest.raises(OptionError, match="does not offer training"):
        delegatekit.prepare_qat(model.train(), (data[0],), backend=BACKEND, scheme="dynamic")
    with pytest.raises(QuantizationError, match="eval mode"):
        delegatekit.prepare_qat(model.eval(), (data[0],), backend=BACKEND)
    with pytest.raises(QuantizationError, match="prepare_qat returned"):
        delegatekit.convert_qat(model)


# -- writes into parts of tensors --------------------------------------------------------------------------------------


class Writing(nn.Module):
    """Writes into a row of a buffer, and into columns of an intermediate result, which is read afterwards."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.rows = nn.Buffer(torch.zeros(3, 8))

    def forward(self, x):
        y = self.first(x)
        self.rows[1:2] += y[:1]
        y[:, 0:2].add_(3.0)
        y[:, 5] = 0.0
        return self.last(y), self.rows + 1.0


@pytest.mark.parametrize("scheme", ["static", "dynamic", "weights", "moved"])
def test_writes_into_parts_are_kept(scheme, monkeypatch):
    moved = QuantizationScheme("moved", "", rules=(*STATIC, QuantizationRule(MOVING_OPERATORS, shares=True)))
    monkeypatch.setattr(LoadedBackend, "quantization_schemes", lambda self, options=None: (*SCHEMES, moved))
    torch.manual_seed(0)
    model, data = Writing().eval(), [torch.randn(4, 8) for _ in range(3)]
    result = quantize(model, data, scheme=scheme)
    assert not model.rows.any() and not result.rows.any()
    assert sum(layer.operator == "linear" for layer in result.quantization.quantized) == 2
    for x in data:
        for found, wanted in zip(result(x), model(x), strict=True):
            assert sqnr(wanted, found) > 30
    again = torch.export.export(quantize(Writing().eval(), data, scheme=scheme), (data[0],), strict=False).module()
    assert again(data[0])[1].ne(1).any()


def test_training_refuses_writes_into_parts():
    with pytest.raises(QuantizationError, match="writes into parts of tensors"):
        delegatekit.prepare_qat(Writing(), (torch.randn(4, 8),), backend=BACKEND)


# -- numbers that no integers stand for --------------------------------------------------------------------------------


class Overflow(nn.Module):
    """A sum of a linear layer's result, infinite for large inputs, between layers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.first(x)
        return self.last(y), y.exp() + y


@pytest.mark.parametrize("kind", ["a list", "an iterator"])
def test_a_layer_of_infinities_stays_in_float(kind):
    small, large = torch.randn(4, 8), torch.randn(4, 8) * 1000.0
    for data in ([large, small], [small, large]):
        given = iter(data) if kind == "an iterator" else data
        if kind == "an iterator" and data[0] is small:
            # What was read is gone: the layer cannot be calibrated again.
            with pytest.raises(QuantizationError, match=r"(?s)exp has infinities or NaNs.*keep_float"):
                quantize(Overflow().eval(), given)
            continue
        result = quantize(Overflow().eval(), given)
        reasons = {layer.operator: layer.reason for layer in result.quantization.kept}
        assert reasons["add"] == "it has infinities or NaNs, which no integers stand for"
        assert len(result.quantization.quantized) == 2 and result.quantization.samples == 2


def test_what_one_layer_in_float_makes_of_the_worst_is_kept_as_well():
    torch.manual_seed(0)
    model = Overflow().eval()
    result = quantize(model, [torch.randn(4, 8) * 1000.0], keep_worst_float=1)
    reasons = {layer.module or layer.operator: layer.reason for layer in result.quantization.kept}
    assert "infinities" in reasons["add"] and sum("worst" in reason for reason in reasons.values()) == 1


@pytest.mark.parametrize("scheme", ["static", "dynamic", "weights"])
@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_weights_of_infinities_are_never_integers(model, data, scheme, number):
    model.layers[0].weight.data[1, 2] = number
    if scheme == "static":
        kept = {layer.module: layer.reason for layer in quantize(model, data, scheme=scheme).quantization.kept}
        assert "infinities or NaNs" in kept["layers.0"]
        return
    with pytest.raises(QuantizationError, match=r"(?s)weight layers.0.weight: has infinities or NaNs.*keep_float"):
        quantize(model, data, scheme=scheme)
    assert quantize(model, data, scheme=scheme, keep_float=["layers.0"]).quantization.quantized


def test_trained_infinities_are_refused(model, data):
    prepared = delegatekit.prepare_qat(Small(), (data[0],), backend=BACKEND)
    prepared(data[0] * 1e38)
    with pytest.raises(QuantizationError, match="infinities or NaNs"):
        delegatekit.convert_qat(prepared)


# -- refused arguments -----------------------------------------------------------------------------------------------


def bad(x):
    return [x[0], x[1].clone().index_fill_(0, torch.tensor([0]), float("nan"))]


@pytest.mark.parametrize(
    "change, error, message",
    [
        (lambda m, d: {"backend": "nobody"}, PluginError, "no backend 'nobody'"),
        (lambda m, d: {"scheme": "nothing"}, OptionError, "no scheme 'nothing'"),
        (lambda m, d: {"calibration": []}, QuantizationError, "calibration is empty"),
        (lambda m, d: {"calibration": d[0]}, QuantizationError, "calibration is a tensor"),
        (lambda m, d: {"calibration": 3}, QuantizationError, "calibration is a int"),
        (lambda m, d: {"calibration": [(d[0], d[0])]}, LoweringError, "torch.export refused"),
        (lambda m, d: {"calibration": [d[0], (d[0], d[0])]}, QuantizationError, "input 1: has 2 values"),
        (lambda m, d: {"calibration": [d[0], d[0].double()]}, QuantizationError, "input 1: value 0 is torch.float64"),
        (lambda m, d: {"calibration": [d[0], d[0][:, :2]]}, QuantizationError, "input 1: the model failed"),
        (lambda m, d: {"calibration": bad(d)}, QuantizationError, "input 1: value 0 has infinities"),
        (lambda m, d: {"keep_float": ["nix"]}, QuantizationError, "keep_float='nix' selects no operator"),
        (lambda m, d: {"keep_float": "conv"}, QuantizationError, "is not a list"),
        (lambda m, d: {"keep_worst_float": -1}, QuantizationError, "negative"),
        (lambda m, d: {"model": m.train()}, QuantizationError, "training mode"),
        (lambda m, d: {"model": "m"}, QuantizationError, "cannot quantize a str"),
        (lambda m, d: {"options": {"x": 1}}, OptionError, "unknown option 'x'"),
        (lambda m, d: {"model": nn.Sequential(nn.LayerNorm(8)).eval()}, QuantizationError, "no rule for layer_norm"),
        (lambda m, d: {"keep_float": ["conv", "layers", "add"]}, QuantizationError, "quantizes nothing"),
        (lambda m, d: {"model": nn.ReLU().eval(), "scheme": "dynamic"}, QuantizationError, "quantizes nothing"),
    ],
)  # fmt: skip
def test_wrong_input_gives_one_clear_error(model, data, change, error, message):
    arguments = {"model": model, "calibration": data, "backend": BACKEND} | change(model, data)
    with pytest.raises(error, match=message):
        delegatekit.quantize(arguments.pop("model"), arguments.pop("calibration"), **arguments)


def test_a_condition_of_a_plugin_that_fails_is_named(model, data, monkeypatch):
    rule = QuantizationRule(("conv2d",), INT8, WEIGHT, None, INT8, declines=(lambda node: node.nothing,))
    monkeypatch.setattr(
        LoadedBackend, "quantization_schemes", lambda self, options=None: [QuantizationScheme("a", "", rules=(rule,))]
    )
    with pytest.raises(PluginError, match=r"scheme a, .*conv2d.*AttributeError"):
        quantize(model, data)


def test_a_backend_without_schemes_says_so(model, data, monkeypatch):
    monkeypatch.setattr(LoadedBackend, "quantization_schemes", lambda self, options=None: ())
    with pytest.raises(PluginError, match="declares no quantization schemes"):
        quantize(model, data)


def test_a_missing_torchao_is_one_clear_error(model, data, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchao"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(QuantizationError, match="pip install 'torchao"):
        quantize(model, data)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("h", torch.full((1, 8), 0.25))
        self.register_buffer("seen", torch.zeros(2, 2))

    def forward(self, x):
        h = torch.tanh(self.linear(x) + self.h)
        self.h.copy_(h)
        self.seen[0].add_(1.0)
        return h


@pytest.mark.parametrize("scheme", ["static", "dynamic"])
@pytest.mark.parametrize("settings", [{}, {"measure": True}, {"correct_bias": True}])
@pytest.mark.parametrize("exported", [False, True])
def test_state_is_neither_changed_in_the_model_nor_where_the_result_begins(scheme, settings, exported):
    model, data = Recurrent().eval(), [(torch.randn(1, 8),) for _ in range(4)]
    given = torch.export.export(model, data[0]) if exported else model
    quantized = delegatekit.quantize(given, data, backend=BACKEND, scheme=scheme, **settings)
    for module in (model, quantized):
        assert torch.equal(module.h, torch.full((1, 8), 0.25)) and not module.seen.any()
    if settings.get("measure"):
        assert quantized.quantization.sqnr > 25
    first = quantized(*data[0])
    assert torch.equal(quantized.h, first) and not torch.equal(model.h, first)
    assert quantized.seen[0].tolist() == [1.0, 1.0] and not model.seen.any()
    assert (first - model(*data[0])).abs().max() < 0.1


def test_a_batch_norm_that_stays_costs_no_search_for_what_training_makes(monkeypatch):
    from torchao.quantization.pt2e import qat_utils

    def called(*arguments, **settings):
        raise AssertionError("torchao traces its patterns of training")

    monkeypatch.setattr(qat_utils, "_fold_conv_bn_qat_helper", called)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)).eval()
    data = [(torch.randn(1, 2, 8, 8),) for _ in range(3)]
    quantized = delegatekit.quantize(model, data, backend=BACKEND)
    targets = [str(node.target) for node in quantized.graph.nodes if node.op == "call_function"]
    assert targets.count("aten.batch_norm.default") == 1
    assert [layer.reason for layer in quantized.quantization.kept] == ["scheme static has no rule for batch_norm"]
    assert (quantized(*data[0]) - model(*data[0])).abs().max() < 0.1


# -- deferred ----------------------------------------------------------------------------------------------------------


class Narrow(nn.Module):
    """Layers whose weights are stored in another type, and converted at each use."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.randn(24, 24).bfloat16()) for _ in range(2))

    def forward(self, x):
        return nn.functional.linear(nn.functional.linear(x, self.first.float()), self.second.float())


@pytest.mark.parametrize("scheme", ["dynamic", "dynamic-int4", "short-scales", "weights"])
def test_deferred_integers_are_the_same(scheme):
    torch.manual_seed(0)
    model, x = Narrow().eval(), torch.randn(3, 24)
    now, later = (quantize(model, [(x,)], scheme=scheme, deferred=deferred) for deferred in (False, True))
    assert torch.equal(now(x), later(x))
    assert later.quantization == now.quantization and len(now.quantization.quantized) == 2
    assert {name for name, _ in later.named_parameters()} == {"first", "second"}
    assert [any("quantized" in name for name, _ in found.named_buffers()) for found in (now, later)] == [True, False]
    one, other = (delegatekit.lower(found, (x,), backends=[BACKEND], external=True) for found in (now, later))
    assert one.data_files == other.data_files
    loaded = delegatekit.load(other.buffer, data=list(other.data_files.values()))
    torch.testing.assert_close(loaded["forward"](x), now(x))


def test_deferred_integers_of_scales_that_must_be_found_first_are_refused(model, data):
    with pytest.raises(QuantizationError, match="deferred: scheme static calibrates activations"):
        quantize(model, data, scheme="static", deferred=True)
