"""Quantization in each call, in the stock runtime, compared with the program's own arithmetic in eager PyTorch.

Both sum the same products in float32, in another order: results agree to the last places, not in steps of a scale.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit_api import Call, ProgramView
from delegatekit_toolkit.quantized import dynamic_quantization_of
from delegatekit_xnnpack.ir.types import DataType

quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")

#: The rounding error allowed for a sum of float32 products.
CLOSE = 2.0**-19


def x(*shape: int, seed: int = 0) -> torch.Tensor:
    """Samples of very different magnitude."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
    return values * 10.0 ** torch.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1)) + 0.3


def dynamic(model: nn.Module, *inputs: torch.Tensor, scheme: str = "int8-dynamic", **settings: Any) -> nn.Module:
    return delegatekit.quantize(model.eval(), [inputs], backend="xnnpack", scheme=scheme, **settings)


def assert_close(result: torch.Tensor, wanted: torch.Tensor, allowed: float = CLOSE) -> None:
    """Compare sample by sample: the error of a small one is not hidden by a large one."""
    assert result.shape == wanted.shape
    for got, want in zip(result, wanted, strict=True):
        assert (got - want).abs().max() <= allowed * want.abs().max()


def tensors(lowered: Any) -> dict[int, Any]:
    """The values of a blob by their ids."""
    unions = [value.xvalue_union for value in lowered.graph.xvalues]
    found = [getattr(union, "tensor_value", union) for union in unions]
    return {tensor.id_out: tensor for tensor in found}


@pytest.fixture
def multiplies_integers(lower_whole: Callable[..., Any]) -> Callable[..., Any]:
    """multiplies_integers(module, *inputs): every product reads integers with scales computed in each call."""

    def check(module: nn.Module, *inputs: torch.Tensor) -> Any:
        lowered = lower_whole(module, *inputs)
        (result,) = lowered.run()
        assert_close(result, module(*inputs).detach())
        assert torch.equal(delegatekit.load(lowered.buffer)["forward"](*inputs), result)
        values = tensors(lowered)
        for node in lowered.graph.xnodes:
            table = node.xnode_union
            if hasattr(table, "filter_id"):
                assert values[table.input1_id].datatype == DataType.QDINT8
                assert values[table.filter_id].datatype == DataType.QCINT8
        return lowered

    return check


# -- convolutions ----------------------------------------------------------------------------------------------------

CONVOLUTIONS = {
    "3 x 3": (nn.Conv2d(4, 8, 3), (3, 4, 9, 8)),
    "padded, strided, dilated": (nn.Conv2d(4, 8, 3, 2, 2, dilation=2), (3, 4, 9, 8)),
    "another padding for each axis": (nn.Conv2d(4, 8, (3, 5), padding=(1, 0)), (3, 4, 9, 8)),
    "without bias": (nn.Conv2d(4, 8, 3, bias=False), (3, 4, 9, 8)),
    "groups": (nn.Conv2d(4, 8, 3, groups=2, padding=1), (3, 4, 9, 8)),
    "one channel": (nn.Conv2d(1, 8, 3), (2, 1, 9, 8)),
    "to one channel": (nn.Conv2d(4, 1, 3), (2, 4, 9, 8)),
    "pointwise, strided": (nn.Conv2d(4, 8, 1, 2), (3, 4, 9, 8)),
    "pointwise, padded": (nn.Conv2d(4, 8, 1, padding=1), (3, 4, 9, 8)),
    "pointwise, groups": (nn.Conv2d(4, 8, 1, groups=2), (3, 4, 9, 8)),
    "same padding": (nn.Conv2d(4, 8, 3, padding="same"), (3, 4, 9, 8)),
    "1 x 1 maps": (nn.Conv2d(4, 8, 3, padding=1), (2, 4, 1, 1)),
    "1-d": (nn.Conv1d(4, 8, 3, 2, 1), (3, 4, 9)),
    "transposed": (nn.ConvTranspose2d(4, 8, 3, 2, 1, 1), (3, 4, 5, 6)),
    "transposed, groups": (nn.ConvTranspose2d(4, 8, 3, 2, groups=2), (3, 4, 5, 6)),
    "transposed, dilated": (nn.ConvTranspose2d(4, 8, 3, padding=1, dilation=2), (3, 4, 5, 6)),
    "transposed, pointwise": (nn.ConvTranspose2d(4, 8, 1), (3, 4, 5, 6)),
    "transposed, 1-d": (nn.ConvTranspose1d(4, 8, 4, 2), (3, 4, 5)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_find_a_scale_for_each_sample(name, multiplies_integers):
    layer, shape = CONVOLUTIONS[name]
    lowered = multiplies_integers(dynamic(nn.Sequential(layer, nn.ReLU()), x(*shape)), x(*shape))
    assert lowered.nodes["Convert"] == 1 and not lowered.nodes["Clamp"]
    assert lowered.nodes["FullyConnected"] == 0


@pytest.mark.parametrize(
    "layer, shape", [(nn.Conv2d(4, 8, 1), (3, 4, 9, 8)), (nn.Conv1d(4, 8, 1), (3, 4, 9))], ids=["2-d", "1-d"]
)
def test_pointwise_convolutions_find_a_scale_for_each_pixel(layer, shape, multiplies_integers):
    inputs = x(*shape)
    inputs[:, :, 1] *= 1000.0  # large pixels do not reduce the precision of the others
    model = nn.Sequential(layer, nn.ReLU())
    quantized = dynamic(model, inputs)
    lowered = multiplies_integers(quantized, inputs)
    assert lowered.nodes["FullyConnected"] == 1 and lowered.nodes["Convert"] == 1
    quiet, wanted = quantized(inputs)[:, :, 2:].detach(), model(inputs)[:, :, 2:].detach()
    assert (quiet - wanted).norm() < 0.02 * wanted.norm()


def test_rows_along_an_axis_that_is_not_stored_last(multiplies_integers):
    inputs = x(3, 4, 9, 8)
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Linear(6, 6))  # 6 channels, stored last, and 6 columns
    multiplies_integers(dynamic(model, inputs), inputs)


def test_what_is_in_a_batch_with_a_sample_changes_nothing_of_its_result(lower_whole):
    inputs = x(3, 4, 9, 8)
    model = dynamic(nn.Conv2d(4, 8, 3), inputs)
    (together,) = lower_whole(model, inputs).run()
    for index in range(3):
        (alone,) = lower_whole(model, inputs[index : index + 1].expand(3, -1, -1, -1).contiguous()).run()
        assert torch.equal(alone[1], together[index])


class Branches(nn.Module):
    """A value that is read sample by sample, pixel by pixel, and directly."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.wide, self.point = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 5)
        nn.init.normal_(self.stem[1].running_mean)
        nn.init.uniform_(self.stem[1].running_var, 0.5, 2.0)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = self.stem(image)
        features = features + F.relu(self.wide(features)) + self.point(features)
        return self.head(features.mean((2, 3)))


def test_branches_agree_and_batch_norms_are_folded(multiplies_integers):
    inputs = x(3, 4, 20, 24)
    quantized = dynamic(Branches(), inputs)
    assert [layer.operator for layer in quantized.quantization.layers] == ["conv2d"] * 3 + ["linear"]
    assert not any("batch_norm" in str(node.target) for node in quantized.graph.nodes)
    lowered = multiplies_integers(quantized, inputs)
    assert lowered.nodes["Convert"] == 4


@pytest.mark.parametrize("changing", [(0,), (2,), (0, 2, 3)], ids=["batch", "height", "batch, height, width"])
def test_sizes_may_change(changing, agrees_eagerly_at_sizes):
    shapes = {axis: torch.export.Dim(f"size{axis}", min=1 if axis == 0 else 4, max=40) for axis in changing}
    example = x(3, 4, 20, 24)
    calls = [example]
    for sizes in ((1, 4, 33, 17), (5, 4, 9, 31)):
        calls.append(x(*(sizes[axis] if axis in changing else example.shape[axis] for axis in range(4))))
    module = dynamic(Branches(), example, dynamic_shapes=(shapes,))
    agrees_eagerly_at_sizes(module, calls, (shapes,))


@pytest.fixture
def agrees_eagerly_at_sizes() -> Callable[..., None]:
    """agrees_eagerly_at_sizes(module, inputs, dynamic_shapes): one delegate, and each call is right."""

    def check(module: nn.Module, calls: list[torch.Tensor], dynamic_shapes: Any) -> None:
        from executorch.extension.pybindings import _C

        exported = torch.export.export(module, (calls[0],), dynamic_shapes=dynamic_shapes, strict=False)
        program = delegatekit.lower(exported, backends=["xnnpack"])
        (method,) = delegatekit.report(program).methods
        assert len(method.delegates) == 1 and not method.fallback, str(delegatekit.report(program))
        buffer = program.buffer
        loaded = _C._load_program_from_buffer(buffer)
        stock, engine = loaded.load_method("forward"), delegatekit.load(buffer)["forward"]
        for inputs in calls:
            result = stock((inputs,))[0]
            assert_close(result, module(inputs).detach())
            assert torch.equal(engine(inputs), result)

    return check


@pytest.mark.parametrize(
    "layer, shape, reason",
    [
        (nn.Conv2d(4, 8, 3, groups=4), (2, 4, 8, 8), "no depthwise convolution"),
        (nn.Conv2d(4, 8, 3), (4, 8, 8), "unsqueeze_copy_default reads the rows"),
        (nn.Conv1d(4, 8, 3), (4, 8), "unsqueeze_copy_default reads the rows"),
        (nn.Conv2d(4, 8, 2, padding="same"), (2, 4, 8, 8), "constant_pad_nd_default reads the rows"),
        (nn.Conv3d(4, 8, 3), (2, 4, 8, 8, 8), "no rule for conv3d"),
    ],
    ids=["depthwise", "2-d without a batch", "1-d without a batch", "uneven padding", "3-d"],
)
def test_what_xnnpack_has_no_kernel_for_stays_in_float(layer, shape, reason):
    model = nn.ModuleList([layer, nn.Linear(shape[-1], 4)])
    model.forward = lambda image: (layer(image), model[1](image))
    (kept,) = dynamic(model, x(*shape)).quantization.kept
    assert reason in kept.reason


def with_blocks(module: torch.fx.GraphModule, size: list[int]) -> torch.fx.GraphModule:
    """The quantized module with other blocks of activations."""
    view = ProgramView(module.graph, {}, (), ())
    for node in module.graph.nodes:
        chain = dynamic_quantization_of(Call(node, view))
        for part in chain.nodes if chain is not None else ():
            place = {"choose": 2, "quanti": 1, "dequan": 1}.get(part.name[:6])
            if place is not None:
                part.args = (*part.args[:place], size, *part.args[place + 1 :])
    module.recompile()
    return module


@pytest.mark.parametrize(
    "layer, shape, size, what",
    [
        (nn.Conv2d(4, 8, 3), (2, 4, 8, 8), [2, 4, 8, 8], "each sample"),
        (nn.Conv2d(4, 8, 3), (2, 4, 8, 8), [1, 4, 1, 1], "each sample"),
        (nn.Conv2d(4, 8, 3), (2, 4, 8, 8), [1, 1, 8, 8], "each sample"),
        (nn.Conv2d(4, 8, 1), (2, 4, 8, 8), [1, 4, 8, 8], "each pixel"),
        (nn.Linear(8, 4), (2, 3, 8), [1, 3, 8], "each row"),
        (nn.Linear(8, 4), (2, 3, 8), [1, 1, 4], "not as XNNPACK finds them"),
    ],
)
def test_scales_of_other_blocks_are_left(layer, shape, size, what, refusals):
    inputs = x(*shape)
    found = refusals(with_blocks(dynamic(nn.Sequential(layer), inputs), size), inputs)
    reasons = [reason for reason in found if "getitem" not in reason]  # its reason is that of its source
    assert reasons and all(what in reason for reason in reasons), reasons


@pytest.mark.parametrize("name", ["linear", "convolution"])
def test_products_that_the_user_leaves_out_leave_what_they_read(name, refusals):
    inputs = x(3, 4, 9, 8)
    module = dynamic(nn.Conv2d(4, 8, 3) if name == "convolution" else nn.Linear(8, 4), inputs)
    reasons = refusals(module, inputs, leave_out=frozenset({name}))
    assert (
        sum("multiplies what is quantized in each call, is not taken" in reason for reason in reasons) == 3
    )  # choose, quantize, dequantize


# -- products --------------------------------------------------------------------------------------------------------

PRODUCTS = {
    "addmm": lambda x, w, b: torch.addmm(b, x, w),
    "mm": lambda x, w, b: torch.mm(x, w),
    "mm and a sum": lambda x, w, b: torch.mm(x, w) + b,
    "matmul and a sum": lambda x, w, b: b + x.reshape(3, 1, 64) @ w,
    "a transpose": lambda x, w, b: torch.mm(x, w.t().contiguous().t()),
}


class Product(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight, self.bias = nn.Parameter(torch.randn(64, 16)), nn.Parameter(torch.randn(16))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.function(rows, self.weight, self.bias)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_a_constant_matrix_are_linear_layers(name, multiplies_integers):
    inputs = x(3, 64)
    lowered = multiplies_integers(dynamic(Product(PRODUCTS[name]), inputs), inputs)
    assert lowered.nodes["FullyConnected"] == 1 and lowered.nodes["Add"] == 0


@pytest.mark.parametrize("scheme", ["int8-dynamic-int4", "int8-dynamic-int4-per-channel"])
def test_products_with_a_constant_matrix_have_weights_of_four_bits(scheme, lower_whole):
    inputs = x(3, 64)
    module = dynamic(Product(PRODUCTS["addmm"]), inputs, scheme=scheme)
    (result,) = lower_whole(module, inputs).run()
    assert_close(result, module(inputs).detach())


@pytest.mark.parametrize("size", [1e-6, 1e-12, 1e-30])
def test_tiny_numbers_keep_their_precision(size, multiplies_integers):
    model, inputs = (
        nn.Sequential(nn.Conv2d(4, 8, 3, bias=False), nn.ReLU(), nn.Conv2d(8, 8, 1, bias=False)),
        x(2, 4, 8, 8),
    )
    module = dynamic(model, size * inputs)
    multiplies_integers(module, size * inputs)
    wanted = model(size * inputs).double()
    assert (module(size * inputs).double() - wanted).norm() < 0.02 * wanted.norm()


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8-dynamic-int4"])
def test_a_weight_that_two_layers_share_is_one_constant(scheme, lower_whole):
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.layer(F.relu(self.layer(rows)))

    inputs = x(3, 64)
    lowered = lower_whole(dynamic(Twice(), inputs, scheme=scheme), inputs)
    weights = {node.xnode_union.filter_id for node in lowered.graph.xnodes if hasattr(node.xnode_union, "filter_id")}
    assert lowered.nodes["FullyConnected"] == 2 and len(weights) == 1


def test_a_convolution_used_twice_has_one_constant(multiplies_integers):
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return self.layer(F.relu(self.layer(image)))

    inputs = x(2, 4, 8, 8)
    lowered = multiplies_integers(dynamic(Twice(), inputs), inputs)
    assert (
        len({node.xnode_union.filter_id for node in lowered.graph.xnodes if hasattr(node.xnode_union, "filter_id")})
        == 1
    )


@pytest.mark.parametrize(
    ("group", "features", "scales", "datatype"),
    [
        (32, 64, torch.float32, DataType.QBINT4),
        (32, 64, torch.bfloat16, DataType.QBINT4),
        (0, 64, torch.float32, DataType.QCINT4),
        (0, 7, torch.float32, DataType.QCINT8),
    ],
    ids=["groups", "groups with short scales", "channels", "an odd number of channels"],
)
def test_dynamic_rows_with_weights_of_four_bits(group, features, scales, datatype, lower_whole):
    granularity = quantization.granularity.PerGroup(group) if group else quantization.granularity.PerAxis(0)
    config = quantization.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=granularity, weight_scale_dtype=scales
    )
    module = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, 5)).eval()
    quantization.quantize_(module[0], config)
    inputs = x(3, features)
    rounds = group > 0 and scales == torch.float32
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        lowered = lower_whole(module, inputs)
    texts = [str(warning.message) for warning in told if "XNNPACK" in str(warning.message)]
    assert [("(16, 64) in groups of 32 become bfloat16" in text) for text in texts] == [True] * rounds
    (result,) = lowered.run()
    wanted = module(inputs)
    # XNNPACK has scales of groups in bfloat16, 8 bits, where eager computes with float32 ones.
    allowed = 2.0**-8 if rounds else 2.0**-18
    assert (result - wanted).abs().max() <= allowed * wanted.abs().max()
    assert lowered.nodes["Convert"] == 1 and lowered.nodes["FullyConnected"] == 2
    assert datatype in {value.datatype for value in tensors(lowered).values()}


def test_a_view_between_rows_and_their_product_keeps_the_rows(lower_whole):
    class Heads(nn.Module):
        """Splits rows, and joins others."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layer(inputs.view(2, 5, 4, 16).transpose(1, 2)).reshape(2, 4, 80)

    inputs = x(2, 5, 64)
    module = delegatekit.quantize(Heads().eval(), [inputs], backend="xnnpack", scheme="int8-dynamic")
    (result,) = lower_whole(module, inputs).run()
    wanted = module(inputs)
    assert (result - wanted).abs().max() <= 2.0**-20 * wanted.abs().max()
