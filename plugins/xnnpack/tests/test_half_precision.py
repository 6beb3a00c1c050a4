"""float16 and bfloat16: the type in which each operator computes, its accuracy, and the storage of weights.

The references are eager in double precision. An operator that computes in float32 inside is rounded once; float16's own
operators and sums get a larger tolerance, as in the conformance suite.
"""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit import pte
from delegatekit_api import FormatError, LoweringError, TensorSpec
from delegatekit_toolkit import testing
from delegatekit_xnnpack.blob.reader import validate
from delegatekit_xnnpack.blob.writer import serialize
from delegatekit_xnnpack.ir import operators as ops
from delegatekit_xnnpack.ir.builder import GraphBuilder
from delegatekit_xnnpack.ir.formats import narrowed
from delegatekit_xnnpack.ir.graph import Node, Value
from delegatekit_xnnpack.ir.types import DataType, Format
from delegatekit_xnnpack.operators.precision import TERM_LIMIT, fits_float16

HALVES = [torch.float16, torch.bfloat16]
#: Unit roundoff.
ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


def ids(item):
    return str(item).removeprefix("torch.") if isinstance(item, torch.dtype) else None


@pytest.fixture
def agrees(lower_whole):
    """agrees(model, *inputs, units=1): one delegate whose errors are that many roundoffs of the largest result."""

    def check(model, *inputs, units=1.0, **options):
        lowered = lower_whole(model, *inputs, **options)
        for result, want in zip(lowered.run(), lowered.eager(), strict=True):
            assert result.dtype == inputs[0].dtype
            # Half the smallest number of float16 is the accuracy limit of a subnormal result.
            allowed = max(units * ROUNDOFF[result.dtype] * want.abs().max().item(), 2.0**-25)
            assert (result.double() - want).abs().max().item() <= allowed * (1 + 1e-3)
        return lowered

    return check


def half(*shape, dtype=torch.float16, scale=1.0):
    return (torch.randn(shape) * scale).to(dtype)


# -- operators --------------------------------------------------------------------------------------------------------

#: Operators that are one float16 node, with that node's errors in units of roundoff.
NATIVE = [
    (torch.abs, 0),
    (torch.ceil, 0),
    (torch.neg, 0),
    (torch.square, 1),
    (torch.reciprocal, 1),
    (lambda x: x + x[:1], 1),
    (lambda x: x * 0.5, 1),
    (lambda x: 1.0 - x, 1),
    (lambda x: x / 4.0, 1),
    (lambda x: torch.maximum(x, -x), 0),
    (F.hardswish, 8),
    (F.elu, 8),
    (F.leaky_relu, 8),
    (lambda x: x.reshape(2, 12).t().neg(), 0),
    (lambda x: torch.cat([x[:, 1:], -x], 1), 0),
    (lambda x: F.pad(-x, (1, 2)), 0),
    (lambda x: (-x).expand(3, 4, 6), 0),
    (lambda x: x.amax(1), 0),
]


@pytest.mark.parametrize(("function", "units"), NATIVE)
def test_single_operators_compute_in_float16(function, units, agrees):
    assert agrees(function, half(4, 6), units=units).nodes["Convert"] == 0


#: Operators whose float16 nodes are inexact, or that are several nodes: PyTorch computes them in float32.
WIDE = [
    torch.exp,
    torch.sin,
    torch.cos,
    torch.tanh,
    torch.sigmoid,
    F.silu,
    F.gelu,
    lambda x: F.gelu(x, approximate="tanh"),
    F.hardsigmoid,
    F.glu,
    lambda x: x.abs().log2(),
    lambda x: x.abs().sqrt(),
    lambda x: x.abs().rsqrt(),
    lambda x: x**3,
    lambda x: torch.add(x, x, alpha=3),
    lambda x: x * 0.1,
    lambda x: x / 3.3,
    lambda x: x.clamp(-0.3, 0.7),
    lambda x: F.pad(-x, (1, 2), value=0.5),  # without F16C, the runtime fills in another number
    lambda x: x.softmax(0),
    lambda x: x.mean(1),
    lambda x: x.sum(0),
    lambda x: x.var(1),
    nn.LayerNorm(6),
    nn.GroupNorm(2, 4),
]


@pytest.mark.parametrize("dtype", HALVES, ids=ids)
@pytest.mark.parametrize("model", WIDE)
def test_other_operators_compute_in_float32_and_round_once(model, dtype, agrees):
    model = copy.deepcopy(model).to(dtype) if isinstance(model, nn.Module) else model
    # XNNPACK's float32 gelu is slightly inaccurate where it is almost 0.
    assert agrees(model, half(2, 4, 6, dtype=dtype), units=1.01).nodes["Convert"] >= 2


@pytest.mark.parametrize("dtype", HALVES, ids=ids)
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Linear(32, 5), (3, 32)),
        (nn.Linear(32, 5, bias=False), (2, 3, 32)),
        (nn.Conv2d(4, 6, 3, padding=1), (2, 4, 7, 7)),
        (nn.Conv2d(4, 6, 3, stride=2, groups=2, bias=False), (1, 4, 7, 7)),
        (nn.Conv2d(4, 8, 3, groups=4), (1, 4, 7, 7)),
        (nn.Conv1d(4, 6, 3, dilation=2), (1, 4, 9)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (1, 4, 5, 5)),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), (1, 4, 5, 5)),
        (nn.MaxPool2d(3, 2, 1), (1, 4, 7, 7)),
        (nn.AvgPool2d(3, 2, 1), (1, 4, 7, 7)),
        (nn.AdaptiveAvgPool2d(1), (1, 4, 7, 7)),
        (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 4, 5, 5)),
        (nn.Upsample(scale_factor=2), (1, 4, 5, 5)),
        (nn.Sequential(nn.PixelShuffle(2), nn.PReLU()), (1, 4, 5, 5)),
        (nn.PReLU(4), (2, 4, 5)),
    ],
    ids=str,
)
def test_layers_agree_with_double_precision(model, shape, dtype, agrees):
    agrees(copy.deepcopy(model).to(dtype), half(*shape, dtype=dtype), units=8 * math.sqrt(36))


@pytest.mark.parametrize(("left", "right"), [((5, 16), (16, 4)), ((2, 5, 16), (2, 16, 4)), ((2, 5, 16), (16, 4))])
@pytest.mark.parametrize("dtype", HALVES, ids=ids)
def test_products_of_computed_matrices_agree(left, right, dtype, agrees):
    agrees(torch.matmul, half(*left, dtype=dtype), half(*right, dtype=dtype), units=8 * math.sqrt(16))


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Linear(TERM_LIMIT + 1, 3, bias=False), torch.ones(2, TERM_LIMIT + 1)),
        (nn.Conv2d(TERM_LIMIT // 2 + 1, 3, (1, 2), bias=False), torch.ones(1, TERM_LIMIT // 2 + 1, 2, 3)),
    ],
    ids=["linear", "convolution"],
)
def test_long_sums_are_added_up_in_float32(model, x, lower_whole):
    model = copy.deepcopy(model)
    nn.init.ones_(model.weight)
    long = lower_whole(model.half(), x.half())
    assert long.nodes["Convert"] == 2
    (result,) = long.run()
    assert (result == model.weight[0].numel()).all()


def test_a_product_of_long_rows_and_columns_is_added_up_in_float32(lower_whole):
    rows = torch.ones(1, 2, 4096).half()
    lowered = lower_whole(torch.matmul, rows, torch.ones(1, 4096, 3).half())
    assert lowered.nodes["Convert"] == 3 and (lowered.run()[0] == 4096).all()


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.AvgPool2d(8), torch.full((1, 2, 8, 8), 60000.0)),
        (nn.LayerNorm(4), torch.tensor([[-600.0, 600.0, 300.0, 0.0]])),
        (lambda x: x.mean(-1), torch.full((2, 300), 60000.0)),
        (lambda x: x.var(-1), torch.tensor([[250.0, -250.0, 10.0, 3.0]])),
        (lambda x: x**-2, torch.tensor([300.0, -400.0])),
        (lambda x: F.gelu(x, approximate="tanh"), torch.tensor([60000.0, -60000.0, 100.0])),
        (lambda x: torch.add(x, x, alpha=-1.5), torch.tensor([60000.0, -50000.0])),
        (lambda x: x * 1e5, torch.tensor([0.1, -0.5])),
    ],
)
def test_nothing_overflows_inside_that_does_not_in_pytorch(model, x, agrees):
    agrees(copy.deepcopy(model).half() if isinstance(model, nn.Module) else model, x.half(), units=1.01)


def test_results_beyond_float16_are_infinite(lower_whole):
    x = torch.tensor([60000.0, -60000.0, 65504.0]).half()
    (result,) = lower_whole(lambda x: (x + x).neg(), x).run()
    assert result.tolist() == [-math.inf, math.inf, -math.inf]


def test_subnormal_numbers_are_kept(lower_whole):
    x = torch.tensor([6e-8, -6e-8, 3e-5, 1e-7]).half()
    assert x.all()
    for function in (lambda x: x + x, lambda x: x * 0.5, torch.neg, lambda x: x.float() * 2):
        assert torch.equal(lower_whole(function, x).run()[0], function(x))


# -- clamps and NaN ---------------------------------------------------------------------------------------------------

NAN = torch.tensor([[math.nan, 1.0, -2.0, 3.0]]).half()


def test_a_clamp_by_itself_keeps_nan(lower_whole):
    lowered = lower_whole(F.relu, NAN)
    assert lowered.nodes["Convert"] == 2
    torch.testing.assert_close(lowered.run()[0], F.relu(NAN), equal_nan=True)


def test_a_clamp_moves_into_the_node_before_it_and_loses_nan(lower_whole):
    lowered = lower_whole(lambda x: (x + x).clamp(-1.0, 6.0), NAN)
    assert lowered.nodes == {"Add": 1}
    ((special, *others),) = lowered.run()[0].tolist()
    assert others == [2.0, -1.0, 6.0]
    assert special == -1.0 or math.isnan(special)  # without F16C, the runtime clamps in float32


def test_exact_special_values_keep_the_clamp_apart(lower_whole):
    lowered = lower_whole(lambda x: (x + x).clamp(-1.0, 6.0), NAN, exact_special_values=True)
    assert lowered.nodes == {"Add": 1, "Clamp": 1, "Convert": 2}
    torch.testing.assert_close(lowered.run()[0], (NAN + NAN).clamp(-1.0, 6.0), equal_nan=True)


def test_a_value_with_another_reader_is_clamped_apart(agrees):
    def function(x):
        y = x + 1.0
        return y.relu(), y

    assert agrees(function, half(3, 4), units=1).nodes["Clamp"] == 1


@pytest.mark.parametrize("dtype", HALVES, ids=ids)
def test_clamps_and_pads_fold_into_a_convolution_of_float32(dtype, agrees):
    model = nn.Sequential(nn.ZeroPad2d((1, 0, 2, 0)), nn.Conv2d(3, 4, 3), nn.ReLU6()).to(dtype)
    lowered = agrees(model, half(1, 3, 6, 6, dtype=dtype, scale=4.0), units=1.01, half_precision="float32")
    assert lowered.nodes == {"Convert": 2, "StaticTranspose": 2, "Conv2d": 1}


@pytest.mark.parametrize("dtype", HALVES, ids=ids)
def test_nothing_is_rounded_between_operators_of_float32(dtype, agrees):
    def function(x):
        return (x.softmax(-1).exp() - 1.5).sigmoid()

    lowered = agrees(function, half(3, 8, dtype=dtype), units=1.01, half_precision="float32")
    assert lowered.nodes["Convert"] == 2


def test_a_rounding_that_the_program_asks_for_is_done(lower_whole):
    x = torch.randn(3, 8)
    (result,) = lower_whole(lambda x: x.exp().half().float().neg(), x).run()
    torch.testing.assert_close(result, -x.exp().half().float(), rtol=2.0**-10, atol=0)
    assert torch.equal(result.half().float(), result)
    y, wide = lower_whole(lambda x: (x.exp(), x.exp().float()), x.half()).run()
    assert torch.equal(y.float(), wide)


# -- whole programs ---------------------------------------------------------------------------------------------------


def _network(dtype):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
        nn.Softmax(-1),
    ).to(dtype)


@pytest.mark.parametrize("dtype", HALVES, ids=ids)
def test_a_network_is_one_delegate(dtype, agrees):
    agrees(_network(dtype), half(1, 3, 10, 10, dtype=dtype), units=16)


def test_weights_of_float16_take_half_the_place(agrees):
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1200), nn.ReLU(), nn.Linear(1200, 16))
    weights = 2 * sum(parameter.numel() for parameter in model.parameters())
    for options in ({}, {"half_precision": "float32"}):
        lowered = agrees(copy.deepcopy(model).half(), half(2, 64), units=64, **options)
        assert weights < len(lowered.buffer) < 1.01 * weights


@pytest.mark.parametrize("dtype", HALVES, ids=ids)
def test_one_delegate_holds_both_types(dtype, lower_whole):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(8, 8).to(dtype), nn.Linear(8, 4)

        def forward(self, x):
            y = self.inner(x.to(dtype))
            return self.outer(y.float()) + y.sum(-1, keepdim=True, dtype=torch.float32), y

    module, x = Mixed(), torch.randn(3, 8)
    result, narrow = lower_whole(module, x).run()
    want, _ = module(x)
    assert result.dtype is torch.float32 and narrow.dtype is dtype
    torch.testing.assert_close(result, want, rtol=0, atol=16 * ROUNDOFF[dtype])


def test_float32_inside_is_as_exact_as_pytorch(agrees):
    lowered = agrees(nn.Linear(512, 8).half(), half(3, 512), units=1.01, half_precision="float32")
    assert lowered.nodes == {"Convert": 2, "FullyConnected": 1}


@pytest.mark.parametrize("dtype", HALVES, ids=ids)
def test_an_operator_may_read_both_types(dtype, lower_whole):
    x, y = half(3, 8, dtype=dtype), torch.randn(3, 8)
    joined, normed = lower_whole(lambda x, y: (torch.cat([-x, y]), F.layer_norm(x, (8,), y[0])), x, y).run()
    assert torch.equal(joined, torch.cat([-x, y]))
    torch.testing.assert_close(normed, F.layer_norm(x, (8,), y[0]), rtol=2 * ROUNDOFF[dtype], atol=ROUNDOFF[dtype])


@pytest.mark.parametrize("dtype", HALVES, ids=ids)
def test_sizes_may_change(dtype):
    batch, length = torch.export.Dim("batch", min=1, max=4), torch.export.Dim("length", min=2, max=9)
    module = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).to(dtype).eval()
    x = half(2, 5, 16, dtype=dtype)
    exported = torch.export.export(module, (x,), dynamic_shapes=({0: batch, 1: length},))
    program = delegatekit.lower(exported, backends=["xnnpack"])
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1 and not method.fallback
    run, precise = delegatekit.load(program.buffer)["forward"], copy.deepcopy(module).double()
    for size in ((2, 5), (1, 2), (4, 9)):
        x = half(*size, 16, dtype=dtype)
        with torch.no_grad():
            torch.testing.assert_close(run(x).double(), precise(x.double()), rtol=0, atol=16 * ROUNDOFF[dtype])


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "inputs", "reason"),
    [
        (lambda x: x.double().neg(), (half(3),), "is float64: only float32, float16 and bfloat16 are taken"),
        (lambda x: x.int().half(), (half(3),), "is int32: only float32, float16 and bfloat16 are taken"),
        (lambda x: x.sum(0, dtype=torch.float16), (torch.randn(3, 4),), "PyTorch rounds the input to it"),
        (
            lambda x: torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.5, 0, -128, 127, torch.int8),
            (half(3),),
            "numbers of half precision are quantized: only float32 is",
        ),
    ],
)
def test_a_refusal_says_why(model, inputs, reason, refusals):
    reasons = refusals(model, *inputs)
    assert any(reason in given for given in reasons), reasons


# -- weights of float32 programs --------------------------------------------------------------------------------------


class _Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.regular = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.transposed = nn.ConvTranspose2d(8, 6, 2, stride=2)
        self.linear = nn.Linear(6, 5)
        self.matrix = nn.Parameter(torch.randn(5, 4))

    def forward(self, x):
        y = self.transposed(F.relu(self.depthwise(self.regular(x))))
        return self.linear(y.mean((2, 3))) @ self.matrix

    def rounded(self):
        """The model with its weights rounded to float16."""
        result = copy.deepcopy(self)
        for name, parameter in result.named_parameters():
            if not name.endswith("bias"):
                parameter.data = parameter.data.half().float()
        return result


def test_float16_weights_compute_in_float32(lower_whole, matches_eager):
    model, x = _Layers(), torch.randn(1, 3, 8, 8)
    stored = lower_whole(model, x, weights="float16")
    wanted = model.rounded().double()(x.double())
    torch.testing.assert_close(stored.run()[0].double(), wanted, rtol=0, atol=1e-5)
    assert stored.nodes == lower_whole(model, x).nodes
    types = [value.xvalue_union.datatype for value in stored.graph.xvalues if value.xvalue_union.constant_buffer_idx]
    assert types.count(DataType.FLOAT16) == 5


def test_float16_weights_halve_the_file(lower_whole):
    model, x = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 64)), torch.randn(2, 256)
    wide, narrow = (len(lower_whole(model, x, weights=kind).buffer) for kind in ("float32", "float16"))
    assert narrow < 0.52 * wide


def test_bfloat16_programs_may_store_float16_weights(agrees):
    model, x = nn.Linear(128, 128).bfloat16(), half(2, 128, dtype=torch.bfloat16)
    wide, narrow = (agrees(model, x, units=1.01, weights=kind) for kind in ("float32", "float16"))
    assert len(narrow.buffer) < 0.6 * len(wide.buffer)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (lambda weight: weight, False),
        (lambda weight: weight.mul_(1e-3), False),
        (lambda weight: weight[0].zero_(), False),
        (lambda weight: weight[0, 0].fill_(1e-9), False),
        (lambda weight: weight[0, 0].fill_(7e4), True),
        (lambda weight: weight[0, 0].fill_(math.nan), True),
        (lambda weight: weight[2].mul_(1e-6), True),
        (lambda weight: weight[:, 1].mul_(1e-6), True),
    ],
)
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2, 2)])
def test_weights_that_float16_cannot_hold_stay_float32(change, kept, shape):
    weight = torch.rand(shape) + 0.5
    change(weight)
    result = narrowed(weight)
    assert result.dtype is (torch.float32 if kept else torch.float16)
    torch.testing.assert_close(result.float(), weight, rtol=2.0**-11, atol=2.0**-25, equal_nan=True)


def test_a_weight_that_is_computed_stays_float32(lower_whole):
    x, weight = torch.randn(2, 8), torch.randn(4, 8)
    lowered = lower_whole(F.linear, x, weight, weights="float16")
    torch.testing.assert_close(lowered.run()[0], F.linear(x, weight))


def test_float16_holds_a_number_or_not():
    assert all(map(fits_float16, (0.0, 0.5, -65504.0, 6.103515625e-05, math.inf, math.nan, 2.0**-24)))
    assert not any(map(fits_float16, (0.1, 65536.0, 1e-8, 2049.0)))


# -- the graph and the blob -------------------------------------------------------------------------------------------


def test_a_node_with_two_types_is_an_error():
    builder = GraphBuilder()
    x, y = builder.input((2, 3), Format(DataType.FLOAT16)), builder.input((2, 3))
    builder.output(builder.binary(ops.BinaryKind.ADD, x, y))
    with pytest.raises(LoweringError, match="reads FLOAT16 and FLOAT32: XNNPACK needs one type"):
        builder.graph.verify()


def test_a_computed_weight_of_another_type_is_an_error():
    builder = GraphBuilder()
    x, weight = builder.input((2, 3)).value, Value((4, 3), DataType.FLOAT16)
    builder.graph.inputs.append(weight)
    output = Value((2, 4))
    output.producer = Node(ops.FullyConnected(), (x, weight), output)
    builder.graph.nodes.append(output.producer)
    builder.graph.outputs.append(output)
    with pytest.raises(LoweringError, match="reads FLOAT32 and FLOAT16"):
        builder.graph.verify()


def test_arguments_of_another_type_are_refused():
    builder = GraphBuilder()
    builder.output(builder.unary(ops.UnaryKind.ABS, builder.input((2, 3), Format(DataType.FLOAT16))))
    blob = serialize(builder.graph).blob
    half, single = TensorSpec("float16", (2, 3)), TensorSpec("float32", (2, 3))
    validate(testing.payload_of(blob, [half], [half]))
    with pytest.raises(FormatError, match=r"output 0 is float16 \(2, 3\), in the program float32"):
        validate(testing.payload_of(blob, [half], [single]))


def test_conversions_between_the_two_halves_go_through_float32():
    builder = GraphBuilder()
    x = builder.input((2, 3), Format(DataType.FLOAT16))
    builder.output(builder.converted(x, DataType.BFLOAT16))
    assert [node.output.datatype for node in builder.graph.nodes] == [DataType.FLOAT32, DataType.BFLOAT16]


def test_the_file_has_float16_arguments(lower_whole):
    file = pte.read(lower_whole(torch.neg, half(2, 3)).buffer)
    kinds = {value.val.scalar_type for value in file.program.execution_plan[0].values}
    assert kinds == {pte.schema.ScalarType.HALF}
