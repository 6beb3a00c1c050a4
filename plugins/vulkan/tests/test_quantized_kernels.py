"""The quantized operators of ExecuTorch's blobs, each alone, against PyTorch, torchao and ExecuTorch's definitions."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F
from torchao.quantization import quant_primitives as torchao

from delegatekit_vulkan.ir.graph import Tensor

from .test_stock_calls import declared, run

pytestmark = pytest.mark.needs_device

decomposed = torch.ops.quantized_decomposed
INT8, UINT8 = torch.int8, torch.uint8


@pytest.fixture(scope="module")
def et_vk():
    """ExecuTorch's own definitions of its operators."""
    pytest.importorskip("executorch.backends.vulkan.custom_ops_lib", reason="executorch is not installed")
    return torch.ops.et_vk


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def constant(value: torch.Tensor) -> Tensor:
    found = declared(value)
    found.data = value
    return found


def integers(*shape: int, low: int = -128, high: int = 127) -> torch.Tensor:
    return torch.randint(low, high + 1, shape, dtype=INT8)


def filled(value: torch.Tensor, multiple: int) -> torch.Tensor:
    """With zeros at the end of the last axis, as ExecuTorch's lowering stores constants."""
    return F.pad(value, (0, -value.shape[-1] % multiple)).contiguous()


def one(operator: str, make, *inputs: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return run(operator, make, *inputs, like=(like,))[0]


def check_steps(got: torch.Tensor, wanted: torch.Tensor, scale: float, zero_point: int) -> None:
    """Each integer is the nearest to a number that was computed in double precision, but for float32's own errors."""
    steps = (wanted / scale + zero_point).clamp(-128, 127)
    assert (got.double() - steps).abs().max() <= 0.5 + 1e-4


# -- one scale ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "zero_point", "bounds"),
    [
        (INT8, 0, (-128, 127)),
        (INT8, -128, (-127, 127)),
        (INT8, 127, (-128, 127)),
        (UINT8, 255, (0, 255)),
        (UINT8, 3, (0, 200)),
    ],
)
@pytest.mark.parametrize("shape", [(3, 5, 7), (1,), (2, 4)])
def test_numbers_become_integers_and_back(dtype, zero_point, bounds, shape):
    scale = 0.037
    x = torch.randn(shape) * 4
    x.view(-1)[0] = math.inf
    x.view(-1)[-1] = 2.5 * scale
    settings = (scale, zero_point, *bounds)
    wanted = decomposed.quantize_per_tensor(x, *settings, dtype)
    got = one("quantized_decomposed.quantize_per_tensor.default", lambda x: [x, *settings, None], x, like=wanted)
    assert torch.equal(got, wanted)
    back = decomposed.dequantize_per_tensor(wanted, *settings, dtype)
    got = one(
        "quantized_decomposed.dequantize_per_tensor.default", lambda x: [x, *settings, None, None], wanted, like=back
    )
    assert torch.equal(got, back)


def test_numbers_between_two_integers_become_the_even_one():
    x = torch.arange(-20, 20) / 2
    wanted = decomposed.quantize_per_tensor(x, 1.0, 1, -128, 127, INT8)
    arguments = [1.0, 1, -128, 127, None]
    got = one("quantized_decomposed.quantize_per_tensor.default", lambda x: [x, *arguments], x, like=wanted)
    assert torch.equal(got, wanted)


# -- scales of blocks --------------------------------------------------------------------------------------------------

BLOCKS = [
    ((4, 6), (1, 6)),
    ((4, 6), (4, 6)),
    ((4, 6), (4, 1)),
    ((2, 3, 8), (1, 1, 8)),
    ((2, 3, 8), (1, 3, 8)),
    ((2, 3, 8), (2, 1, 8)),
    ((5, 12), (1, 4)),
    ((6, 5), (3, 5)),
    ((1, 7), (1, 7)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize(("shape", "block"), BLOCKS, ids=str)
@pytest.mark.parametrize("mapping", ["ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"])
def test_scales_are_chosen_and_used_as_torchao_does(shape, block, mapping):
    x = torch.randn(shape) * 3 + 1
    settings = (mapping, block, INT8, -128, 127, 1e-5, torch.float32, torch.int32)
    wanted = torchao._choose_qparams_affine(x, *settings)
    arguments = [mapping, block, None, -128, 127, 1e-5, None, None, False]
    scale, zero_point = run("torchao.choose_qparams_affine.default", lambda x: [x, *arguments], x, like=wanted)
    torch.testing.assert_close(scale, wanted[0], rtol=2e-7, atol=0)
    assert torch.equal(zero_point, wanted[1])

    wanted = torchao._quantize_affine(x, block, scale, zero_point, INT8, -128, 127)
    got = one(
        "torchao.quantize_affine.default",
        lambda x, s, z: [x, block, s, z, None, -128, 127],
        *(x, scale, zero_point),
        like=wanted,
    )
    assert torch.equal(got, wanted)

    back = torchao._dequantize_affine(wanted, block, scale, zero_point, INT8, -128, 127)
    got = one(
        "torchao.dequantize_affine.default",
        lambda x, s, z: [x, block, s, z, None, -128, 127, None],
        *(wanted, scale, zero_point),
        like=back,
    )
    assert torch.equal(got, back)


def test_scales_may_keep_all_axes_and_have_a_least_one():
    x = torch.zeros(3, 8)
    x[1] = torch.linspace(0, 5, 8)
    wanted = torchao._choose_qparams_affine(x, "ASYMMETRIC", (1, 4), INT8, -128, 127, 0.01, keepdim=True)
    arguments = ["ASYMMETRIC", (1, 4), None, -128, 127, 0.01, None, None, True]
    scale, zero_point = run("torchao.choose_qparams_affine.default", lambda x: [x, *arguments], x, like=wanted)
    torch.testing.assert_close(scale, wanted[0], rtol=2e-7, atol=0)
    assert torch.equal(zero_point, wanted[1])


@pytest.mark.parametrize(("shape", "axis"), [((5, 7), 0), ((5, 8), 1), ((2, 3, 4, 4), 1), ((6,), 0)], ids=str)
@pytest.mark.parametrize("zeros", [True, False])
def test_channels_become_numbers(shape, axis, zeros):
    x = integers(*shape)
    scales, zero_points = torch.rand(shape[axis]) + 0.01, torch.randint(-9, 9, (shape[axis],))
    settings = (axis, -128, 127, INT8)
    wanted = decomposed.dequantize_per_channel(x, scales, zero_points if zeros else None, *settings)
    stored = constant(zero_points.int()) if zeros else None
    got = one(
        "quantized_decomposed.dequantize_per_channel.default",
        lambda s: [constant(x), s, stored, axis, -128, 127, None, None],
        *(scales,),
        like=wanted,
    )
    assert torch.equal(got, wanted)


# -- products with numbers ---------------------------------------------------------------------------------------------

SIZES = [(1, 8, 1), (3, 13, 5), (2, 7, 7), (9, 64, 24), (1, 260, 17), (17, 33, 130)]


def check_product(got: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """Against double precision; float32 sums err by the size of their terms."""
    x, weight = x.double(), weight.double()
    wanted = F.linear(x, weight, None if bias is None else bias.double())
    size = F.linear(x.abs(), weight.abs(), None if bias is None else bias.double().abs())
    assert ((got.double() - wanted).abs() <= 1e-6 * size + 1e-30).all()


@pytest.mark.parametrize(("rows", "inner", "columns"), SIZES, ids=str)
def test_products_with_bytes(rows, inner, columns):
    x, weight, scales = torch.randn(rows, inner), integers(columns, inner), torch.rand(columns) + 0.01
    like = torch.empty(rows, columns)
    got = one("aten._weight_int8pack_mm.default", lambda x: [x, constant(weight), constant(scales)], x, like=like)
    check_product(got, x, weight * scales[:, None])


@pytest.mark.parametrize(("rows", "inner", "columns"), SIZES, ids=str)
def test_products_with_halves_of_bytes(rows, inner, columns):
    x, weight, scales = torch.randn(rows, inner), integers(columns, inner, low=-8, high=7), torch.rand(columns) + 0.01
    even = filled(weight, 2).to(UINT8) + 8
    packed = even[:, ::2] << 4 | even[:, 1::2]
    like = torch.empty(rows, columns)
    got = one("et_vk.linear_qcs4w.default", lambda x: [x, constant(packed), constant(scales)], x, like=like)
    check_product(got, x, weight * scales[:, None])


def packed_by_groups(weight: torch.Tensor) -> torch.Tensor:
    """As ExecuTorch's lowering stores 4-bit weights."""
    shifted = (filled(weight, 8).int() + 8).to(UINT8)
    return shifted[:, 1::2] << 4 | shifted[:, ::2]


GROUPS = [
    ((3, 64), 5, 32, False),
    ((1, 96), 1, 8, True),
    ((2, 5, 20), 7, 4, True),
    ((70, 44), 12, 44, True),
    ((6, 12), 130, 12, False),
]


@pytest.mark.parametrize(("shape", "columns", "group", "with_bias"), GROUPS, ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_products_with_groups(et_vk, shape, columns, group, with_bias, dynamic):
    x, inner = torch.randn(shape), shape[-1]
    weight, scales = integers(columns, inner, low=-8, high=7), torch.rand(columns, inner // group) + 0.01
    bias = torch.randn(columns) if with_bias else None
    stored = (constant(packed_by_groups(weight)), constant(filled(scales.t(), 4)))
    stored_bias = None if bias is None else constant(filled(bias, 4))
    like = torch.empty(*shape[:-1], columns)
    numbers = (weight.reshape(columns, -1, group) * scales[..., None]).reshape(columns, inner)
    if not dynamic:
        got = one("et_vk.linear_q4gsw.default", lambda x: [x, *stored, group, stored_bias], x, like=like)
        # ExecuTorch's definition of the operator reads the same packed weight.
        theirs = et_vk.linear_q4gsw(x, stored[0].data, scales.t(), group, bias)
        torch.testing.assert_close(got, theirs, rtol=1e-4, atol=1e-4)
        check_product(got, x, numbers, bias)
        return
    block = (1,) * (x.ndim - 1) + (inner,)
    chosen = torchao._choose_qparams_affine(x, "ASYMMETRIC", block, INT8, -128, 127, 1e-5, torch.float32, torch.int32)
    sums = filled(weight.reshape(columns, -1, group).sum(-1).t().int(), 8)
    got = one(
        "et_vk.linear_dq8ca_q4gsw.default",
        lambda x, s, z: [x, s, z, stored[0], constant(sums), stored[1], group, stored_bias],
        *(x, *chosen),
        like=like,
    )
    quantized = torchao._quantize_affine(x, block, *chosen, INT8, -128, 127)
    check_product(got, torchao._dequantize_affine(quantized, block, *chosen, INT8, -128, 127), numbers, bias)


@pytest.mark.parametrize("of_integers", [False, True])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(3, 12, 5), (1, 64, 16)], ids=str)
def test_products_of_static_integers(rows, inner, columns, of_integers):
    weight, scales, bias = integers(columns, inner), torch.rand(columns) + 0.01, torch.randn(columns)
    settings = (0.05, -7, -128, 127, INT8)
    x = torch.randn(rows, inner) * 4
    quantized = decomposed.quantize_per_tensor(x, *settings)
    stored = [weight, filled(weight.sum(1).int(), 4), filled(scales, 4), filled(bias, 4)]
    got = one(
        "et_vk.linear_q8ta_q8csw.default",
        lambda x: [x, 0.05, -7, *map(constant, stored)],
        *(quantized if of_integers else x,),
        like=torch.empty(rows, columns),
    )
    check_product(got, decomposed.dequantize_per_tensor(quantized, *settings), weight * scales[:, None], bias)


@pytest.mark.parametrize("monkey", [64, 4096])
def test_large_packed_weights_are_multiplied_in_parts(monkeypatch, monkey):
    from delegatekit_vulkan.runtime.kernels import products

    monkeypatch.setattr(products, "_MOST_PACKED", monkey)
    x, weight, scales = torch.randn(2, 24), integers(50, 24), torch.rand(50) + 0.01
    like = torch.empty(2, 50)
    got = one("aten._weight_int8pack_mm.default", lambda x: [x, constant(weight), constant(scales)], x, like=like)
    check_product(got, x, weight * scales[:, None])


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize(("rows", "columns", "group"), [(7, 32, 32), (5, 64, 16), (3, 6, 2)], ids=str)
def test_embeddings(et_vk, rows, columns, group, linear):
    table = torch.randint(0, 256, (rows, columns // 2), dtype=UINT8)
    scales = torch.rand(rows, columns // group) + 0.01
    indices = torch.randint(0, rows, (2, 3))
    wanted = et_vk.embedding_q4gsw(table, scales, group, indices, linear)
    got = one(
        "et_vk.embedding_q4gsw.default",
        lambda i: [constant(table), constant(scales), group, i, linear],
        *(indices.int(),),
        like=wanted,
    )
    assert torch.equal(got, wanted)


# -- integers alone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("operator", ["q8ta_linear", "q8ta_linear_gemv"])
@pytest.mark.parametrize(
    ("shape", "columns", "zero_points"),
    [((3, 12), 5, (-128, 127)), ((1, 64), 16, (127, -128)), ((2, 3, 20), 1, (3, -5)), ((1, 2048), 9, (0, 0))],
    ids=str,
)
def test_products_of_integers_are_integers(operator, shape, columns, zero_points, relu):
    x, inner = integers(*shape), shape[-1]
    weight, scales, bias = integers(columns, inner, low=-127), torch.rand(columns) * 0.01 + 0.001, torch.randn(columns)
    scale, out = 0.02, 0.3
    stored = [constant(item) for item in (weight, filled(weight.sum(1).int(), 4), filled(scales, 4))]
    got = one(
        f"et_vk.{operator}.default",
        lambda x: [
            x,
            scale,
            zero_points[0],
            *stored,
            out,
            zero_points[1],
            constant(filled(bias, 4)),
            "relu" if relu else "none",
        ],
        *(x,),
        like=torch.empty(*shape[:-1], columns, dtype=INT8),
    )
    numbers = F.linear((x.double() - zero_points[0]) * scale, weight.double() * scales[:, None].double(), bias.double())
    check_steps(got, numbers.relu() if relu else numbers, out, zero_points[1])


CONVOLUTIONS = {
    "3x3": ("q8ta_conv2d", (2, 3, 9, 8), 5, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    "strided": ("q8ta_conv2d", (1, 6, 9, 10), 8, (3, 2), (2, 3), (0, 1), (1, 2), 1),
    "groups": ("q8ta_conv2d", (1, 6, 7, 7), 8, (3, 3), (1, 1), (1, 1), (1, 1), 2),
    "pointwise": ("q8ta_conv2d_pw", (2, 5, 4, 6), 7, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    "pointwise, odd": ("q8ta_conv2d_pw", (1, 8, 3, 3), 4, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    "depthwise": ("q8ta_conv2d_dw", (1, 8, 9, 9), 8, (3, 3), (1, 1), (1, 1), (1, 1), 8),
    "depthwise, strided": ("q8ta_conv2d_dw", (2, 4, 9, 7), 4, (5, 3), (2, 2), (2, 1), (1, 1), 4),
    "depthwise, dilated": ("q8ta_conv2d_dw", (1, 4, 9, 9), 4, (3, 3), (1, 1), (2, 2), (2, 2), 4),
    "transposed": ("q8ta_conv2d_transposed", (1, 6, 5, 4), 5, (3, 2), (2, 2), (1, 0), (1, 1), 1),
    "transposed, groups": ("q8ta_conv2d_transposed", (1, 6, 5, 4), 8, (3, 3), (2, 1), (1, 1), (1, 1), 2),
}


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_of_integers(case, with_bias, relu):
    operator, shape, channels, kernel, stride, padding, dilation, groups = CONVOLUTIONS[case]
    transposed, depthwise = operator.endswith("transposed"), operator.endswith("dw")
    x, inputs = integers(*shape), shape[1] // groups
    scales = torch.rand(channels) * 0.02 + 0.001
    bias = torch.randn(channels) if with_bias else None
    # (groups, outputs, inputs, height, width)
    weight = integers(groups, channels // groups, inputs, *kernel, low=-127)
    rows = weight.permute(0, 1, 3, 4, 2).reshape(channels, -1)
    stored = filled(weight.reshape(channels, *kernel).permute(1, 2, 0) if depthwise else rows, 4)
    scale, zero_point, out, out_zero_point = 0.03, -128 if relu else 9, 0.2, -128 if relu else 4
    settings = ((x.double() - zero_point) * scale, stride, padding, dilation, groups)
    numbers = weight.double() * scales.double().reshape(groups, -1, 1, 1, 1)
    double_bias = None if bias is None else bias.double()
    if transposed:
        numbers = numbers.transpose(1, 2).reshape(shape[1], channels // groups, *kernel)
        wanted = F.conv_transpose2d(settings[0], numbers, double_bias, stride, padding, (1, 0), groups, dilation)
    else:
        wanted = F.conv2d(settings[0], numbers.reshape(channels, inputs, *kernel), double_bias, *settings[1:])
    after = [kernel, stride, padding, *([(1, 0)] if transposed else []), dilation, groups, "relu" if relu else "none"]
    got = one(
        f"et_vk.{operator}.default",
        lambda x: [
            *(
                x,
                scale,
                zero_point,
                constant(stored),
                constant(filled(rows.sum(1).int(), 4)),
                constant(filled(scales, 4)),
            ),
            *(out, out_zero_point, None if bias is None else constant(filled(bias, 4)), *after),
        ],
        *(x,),
        like=torch.empty(wanted.shape, dtype=INT8),
    )
    check_steps(got, wanted.relu() if relu else wanted, out, out_zero_point)


@pytest.mark.parametrize(("left", "right"), [((2, 3, 5), (2, 3, 5)), ((1, 4, 2, 2), (4, 1, 1))], ids=str)
@pytest.mark.parametrize("alpha", [1.0, -0.5])
def test_sums_of_integers(et_vk, left, right, alpha):
    a, b, settings = integers(*left), integers(*right), (0.03, -128, 0.07, 5, 0.05, 127, alpha)
    wanted = et_vk.q8ta_add(a, b, *settings)
    got = one("et_vk.q8ta_add.default", lambda a, b: [a, b, *settings], a, b, like=wanted)
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("settings", [(0.03, 5, 0.05, -128), (0.1, -128, 0.02, 127)], ids=str)
def test_integers_below_zero_become_zero(et_vk, settings):
    x = integers(3, 7, 5)
    wanted = et_vk.q8ta_relu(x, *settings)
    assert torch.equal(one("et_vk.q8ta_relu.default", lambda x: [x, *settings], x, like=wanted), wanted)


@pytest.mark.parametrize("settings", [(0.03, 5, 1 / 0.05, -128, 2), (0.1, 0, 1 / 0.1, 0, 3)], ids=str)
def test_pixels_of_integers_are_shuffled(et_vk, settings):
    x = integers(1, 36, 3, 5)
    wanted = et_vk.q8ta_pixel_shuffle(x, *settings)
    assert torch.equal(one("et_vk.q8ta_pixel_shuffle.default", lambda x: [x, *settings], x, like=wanted), wanted)


def test_integers_move_as_numbers_do():
    x = integers(2, 3, 4)
    assert torch.equal(one("aten.clone.default", lambda x: [x, None], x, like=x), x)
    wanted = x.permute(2, 0, 1).contiguous()
    assert torch.equal(one("aten.permute_copy.default", lambda x: [x, (2, 0, 1)], x, like=wanted), wanted)
    wanted = torch.cat([x, x], 1)
    assert torch.equal(one("aten.cat.default", lambda x: [(x, x), 1], x, like=wanted), wanted)
