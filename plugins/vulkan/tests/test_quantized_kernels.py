"""The quantized operators of ExecuTorch's blobs, one at a time, compared with PyTorch, torchao and ExecuTorch."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F
from torchao.quantization import quant_primitives as torchao

from .quantized import check_steps, constant, definitions, filled, integers, one
from .test_stock_calls import run

pytestmark = pytest.mark.needs_device

decomposed = torch.ops.quantized_decomposed
INT8, UINT8 = torch.int8, torch.uint8


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


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


# -- integers alone ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 4, 2, 2)], ids=str)
@pytest.mark.parametrize("alpha", [1.0, -0.5])
def test_sums_of_integers(shape, alpha):
    a, b, settings = integers(*shape), integers(*shape), (0.03, -128, 0.07, 5, 0.05, 127, alpha)
    wanted = definitions().q8ta_add(a, b, *settings)
    got = one("et_vk.q8ta_add.default", lambda a, b: [a, b, *settings], a, b, like=wanted)
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("settings", [(0.03, 5, 0.05, -128), (0.1, -128, 0.02, 127)], ids=str)
def test_integers_below_zero_become_zero(settings):
    x = integers(3, 7, 5)
    wanted = definitions().q8ta_relu(x, *settings)
    assert torch.equal(one("et_vk.q8ta_relu.default", lambda x: [x, *settings], x, like=wanted), wanted)


@pytest.mark.parametrize("settings", [(0.03, 5, 1 / 0.05, -128, 2), (0.1, 0, 1 / 0.1, 0, 3)], ids=str)
def test_pixels_of_integers_are_shuffled(settings):
    x = integers(1, 36, 3, 5)
    wanted = definitions().q8ta_pixel_shuffle(x, *settings)
    assert torch.equal(one("et_vk.q8ta_pixel_shuffle.default", lambda x: [x, *settings], x, like=wanted), wanted)


def test_integers_move_as_numbers_do():
    x = integers(2, 3, 4)
    assert torch.equal(one("aten.clone.default", lambda x: [x, None], x, like=x), x)
    wanted = x.permute(2, 0, 1).contiguous()
    assert torch.equal(one("aten.permute_copy.default", lambda x: [x, (2, 0, 1)], x, like=wanted), wanted)
    wanted = torch.cat([x, x], 1)
    assert torch.equal(one("aten.cat.default", lambda x: [(x, x), 1], x, like=wanted), wanted)
