"""Products with weights of 8 and 4 bits, compared with PyTorch in double precision, and ExecuTorch's definitions."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torchao.quantization import quant_primitives as torchao

from .quantized import check_steps, constant, definitions, filled, integers, one, packed_by_groups

pytestmark = pytest.mark.needs_device

decomposed = torch.ops.quantized_decomposed
INT8, UINT8 = torch.int8, torch.uint8


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


# -- products with numbers ---------------------------------------------------------------------------------------------

SIZES = [(1, 8, 1), (3, 13, 5), (2, 7, 7), (9, 64, 24), (1, 260, 17), (17, 33, 130)]


def check_product(got: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """Compared with double precision; float32 sums have errors of the size of their terms."""
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


GROUPS = [
    ((3, 64), 5, 32, False),
    ((1, 96), 1, 8, True),
    ((2, 5, 20), 7, 4, True),
    ((70, 44), 12, 44, True),
    ((6, 12), 130, 12, False),
]


@pytest.mark.parametrize(("shape", "columns", "group", "with_bias"), GROUPS, ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_products_with_groups(shape, columns, group, with_bias, dynamic):
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
        theirs = definitions().linear_q4gsw(x, stored[0].data, scales.t(), group, bias)
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


@pytest.mark.parametrize("size", [64, 600])
def test_large_packed_weights_are_multiplied_in_parts(monkeypatch, size):
    from delegatekit_vulkan.runtime.kernels import products

    monkeypatch.setattr(products, "_MOST_PACKED", size)
    x, weight, scales = torch.randn(2, 24), integers(50, 24), torch.rand(50) + 0.01
    like = torch.empty(2, 50)
    got = one("aten._weight_int8pack_mm.default", lambda x: [x, constant(weight), constant(scales)], x, like=like)
    check_product(got, x, weight * scales[:, None])


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize(("rows", "columns", "group"), [(7, 32, 32), (5, 64, 16), (3, 6, 2)], ids=str)
def test_embeddings(rows, columns, group, linear):
    table = torch.randint(0, 256, (rows, columns // 2), dtype=UINT8)
    scales = torch.rand(rows, columns // group) + 0.01
    indices = torch.randint(0, rows, (2, 3))
    wanted = definitions().embedding_q4gsw(table, scales, group, indices, linear)
    got = one(
        "et_vk.embedding_q4gsw.default",
        lambda i: [constant(table), constant(scales), group, i, linear],
        *(indices.int(),),
        like=wanted,
    )
    assert torch.equal(got, wanted)


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
