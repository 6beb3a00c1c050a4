"""Errors of quantized operators in a blob are found before it reaches a driver. No device is needed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from delegatekit_api import FormatError
from delegatekit_vulkan.ir.graph import Argument, Tensor
from delegatekit_vulkan.ir.types import DataType

from .quantized import constant
from .test_spatial_kernels import tensor, weight, written

INT8, UINT8, INT32, FLOAT = DataType.INT8, DataType.UINT8, DataType.INT32, DataType.FLOAT32


def ones(*shape: int) -> Tensor:
    return constant(torch.ones(shape))


#: Operator -> valid arguments by name, its results, and invalid replacements of some.
CALLS: dict[str, tuple[dict[str, Argument], list[Tensor], list[dict[str, Any]]]] = {
    "quantized_decomposed.quantize_per_tensor.default": (
        {"x": tensor(3, 4), "scale": 0.1, "zero": 3, "low": -128, "high": 127, "dtype": None},
        [tensor(3, 4, datatype=INT8)],
        [
            *({"scale": scale} for scale in (0.0, -1.0, math.nan, math.inf, 1e-300, 1e300, None, "1", True)),
            *({"zero": zero} for zero in (128, -129, 0.5, None, 2**70)),
            *({"low": 5, "high": 4}, {"low": -129}, {"high": 128}, {"high": 1.5}, {"x": tensor(3, 4, datatype=INT8)}),
            *({"result": tensor(3, 4)}, {"result": tensor(4, 3, datatype=INT8)}),
            {"result": tensor(3, 4, datatype=INT32)},
        ],
    ),
    "quantized_decomposed.dequantize_per_tensor.default": (
        {"x": tensor(3, 4, datatype=UINT8), "scale": 0.1, "zero": 255},
        [tensor(3, 4)],
        [{"x": tensor(3, 4)}, {"zero": -1}, {"zero": 256}, {"scale": 0.0}, {"result": tensor(3, 4, datatype=INT8)}],
    ),
    "quantized_decomposed.dequantize_per_channel.default": (
        {"x": weight(3, 4, datatype=INT8), "scales": ones(3), "zeros": weight(3, datatype=INT32), "axis": 0},
        [tensor(3, 4)],
        [
            *({"axis": 2}, {"axis": 1}, {"axis": None}, {"scales": ones(2)}, {"scales": weight(3)}, {"scales": None}),
            *({"scales": weight(3, datatype=INT32)}, {"zeros": ones(3)}, {"zeros": weight(2, datatype=INT32)}),
            *({"zeros": constant(torch.full((3,), 128))}, {"x": tensor(3, 4)}, {"x": tensor(datatype=INT8)}),
        ],
    ),
    "torchao.choose_qparams_affine.default": (
        {"x": tensor(3, 4), "mapping": "ASYMMETRIC", "block": (1, 4), "dtype": None, "low": -128, "high": 127,
         "eps": None, "scale dtype": None, "zero point dtype": None, "keep": False},
        [tensor(3), tensor(3, datatype=INT32)],
        [
            *({"keep": None}, {"keep": 2}),
            *({"mapping": "NONE"}, {"mapping": 1}, {"block": (1, 3)}, {"block": (1,)}, {"block": (0, 4)}),
            {"block": None},
            *({"low": 127}, {"low": -129}, {"high": 256}, {"low": 0.5}, {"eps": -1.0}, {"eps": math.nan}),
            {"eps": math.inf},
            *({"mapping": "SYMMETRIC_NO_CLIPPING_ERR", "low": 0}, {"x": tensor(3, 4, datatype=INT32)}),
            {"x": tensor(3, 0)},
            *({"block": (3, 4)}, {"block": (1, 1)}),
        ],
    ),
    "torchao.quantize_affine.default": (
        {"x": tensor(3, 4), "block": (1, 4), "scale": tensor(3), "zero": tensor(3, datatype=INT32), "dtype": None},
        [tensor(3, 4, datatype=INT8)],
        [
            *({"block": (1, 5)}, {"block": (3, 1)}, {"scale": tensor(1)}, {"scale": tensor(9)}, {"scale": None}),
            *({"scale": tensor(3, datatype=INT8)}, {"zero": tensor(3)}, {"zero": tensor(2, datatype=INT32)}),
            *({"x": tensor(3, 4, datatype=INT8)}, {"result": tensor(3, 4)}),
        ],
    ),
    "aten._weight_int8pack_mm.default": (
        {"x": tensor(2, 6), "weight": weight(5, 6, datatype=INT8), "scales": ones(5)},
        [tensor(2, 5)],
        [
            *({"weight": weight(5, 5, datatype=INT8)}, {"weight": weight(5, 9, datatype=INT8)}),
            {"weight": weight(5, 6)},
            *({"weight": tensor(5, 6, datatype=INT8)}, {"weight": weight(30, datatype=INT8)}, {"x": tensor()}),
            *({"scales": ones(4)}, {"scales": ones(9)}, {"scales": ones(1, 5)}, {"scales": tensor(5)}),
            {"scales": weight(5)},
            *({"scales": constant(torch.tensor([1.0, 1, -1, 1, 1]))}, {"x": tensor(2, 6, datatype=INT8)}),
            *({"scales": constant(torch.full((5,), math.nan))}, {"result": tensor(2, 5, datatype=INT8)}),
        ],
    ),
    "et_vk.linear_qcs4w.default": (
        {"x": tensor(2, 7), "weight": weight(5, 4, datatype=UINT8), "scales": ones(5)},
        [tensor(2, 5)],
        [{"weight": weight(5, 3, datatype=UINT8)}, {"weight": weight(5, 4, datatype=INT8)}, {"scales": ones(3)}],
    ),
    "et_vk.linear_q4gsw.default": (
        {"x": tensor(2, 64), "weight": weight(5, 32, datatype=UINT8), "scales": ones(2, 8), "group": 32,
         "bias": ones(8)},
        [tensor(2, 5)],
        [
            *({"group": group} for group in (0, -32, 64, 16, 33, None, 1.5)),
            *({"scales": ones(2, 4)}, {"scales": ones(5, 2)}, {"scales": ones(1, 8)}, {"scales": ones(2, 9)}),
            *({"bias": ones(4)}, {"bias": ones(9)}, {"bias": weight(8, datatype=INT32)}, {"x": tensor(2, 65)}),
            *({"weight": weight(5, 31, datatype=UINT8)}, {"weight": weight(4, 32, datatype=UINT8)}),
        ],
    ),
    "et_vk.linear_dq8ca_q4gsw.default": (
        {
            "x": tensor(2, 64), "scale": tensor(2), "zero": tensor(2, datatype=INT32),
            "weight": weight(5, 32, datatype=UINT8), "sums": weight(2, 8, datatype=INT32), "scales": ones(2, 8),
            "group": 32, "bias": None,
        },
        [tensor(2, 5)],
        [
            *({"scale": tensor(1)}, {"scale": tensor(2, datatype=INT32)}, {"zero": tensor(3, datatype=INT32)}),
            *({"zero": tensor(2)}, {"sums": ones(2, 8)}, {"sums": weight(1, 8, datatype=INT32)}, {"sums": None}),
            *({"group": 16}, {"x": tensor(2, 64, datatype=INT8)}),
        ],
    ),
    "et_vk.linear_q8ta_q8csw.default": (
        {
            "x": tensor(2, 6), "scale": 0.1, "zero": 0, "weight": weight(5, 6, datatype=INT8),
            "sums": weight(8, datatype=INT32), "scales": ones(8), "bias": ones(5),
        },
        [tensor(2, 5)],
        [{"zero": 200}, {"scale": 0}, {"sums": weight(4, datatype=INT32)}, {"bias": ones(2)},
         {"x": tensor(2, 6, datatype=INT32)}],
    ),
    "et_vk.q8ta_linear.default": (
        {
            "x": tensor(2, 6, datatype=INT8), "scale": 0.1, "zero": 0, "weight": weight(5, 6, datatype=INT8),
            "sums": weight(8, datatype=INT32), "scales": ones(8), "out": 0.1, "out_zero": 0, "bias": ones(5),
            "after": "relu",
        },
        [tensor(2, 5, datatype=INT8)],
        [
            *({"after": "tanh"}, {"after": 1}, {"out": 0.0}, {"out_zero": 128}, {"x": tensor(2, 6)}),
            {"bias": ones(5, 1)},
            *({"result": tensor(2, 5)}, {"scales": weight(8)}, {"scales": None}, {"weight": None}),
        ],
    ),
    "et_vk.q8ta_conv2d.default": (
        {
            "x": tensor(1, 4, 9, 9, datatype=INT8), "scale": 0.1, "zero": 0, "weight": weight(8, 20, datatype=INT8),
            "sums": weight(8, datatype=INT32), "scales": ones(8), "out": 0.1, "out_zero": 0, "bias": ones(8),
            "kernel": (3, 3), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "groups": 2, "after": "none",
        },
        [tensor(1, 8, 4, 4, datatype=INT8)],
        [
            *({"kernel": kernel} for kernel in ((3, 4), (0, 3), (3, -3), (1 << 40, 3), None, (3, 3, 3))),
            *({"groups": groups} for groups in (0, 3, 1, -2, 1 << 40)),
            *({"stride": (0, 2)}, {"padding": (-1, 0)}, {"dilation": (9, 9)}, {"x": tensor(1, 4, 9, 9)}),
            *({"weight": weight(8, 18)}, {"weight": weight(8, 17, datatype=INT8)}),
            {"weight": weight(8, 25, datatype=INT8)},
            *({"weight": weight(datatype=INT8)}, {"weight": weight(9, 20, datatype=INT8)}),
            {"x": tensor(4, 9, 9, datatype=INT8)},
            *({"sums": ones(8)}, {"scales": ones(7)}, {"bias": ones(7)}, {"bias": weight(8, datatype=INT32)}),
        ],
    ),
    "et_vk.q8ta_conv2d_dw.default": (
        {
            "x": tensor(1, 6, 9, 9, datatype=INT8), "scale": 0.1, "zero": 0, "weight": weight(3, 3, 8, datatype=INT8),
            "sums": weight(8, datatype=INT32), "scales": ones(8), "out": 0.1, "out_zero": 0, "bias": None,
            "kernel": (3, 3), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 6, "after": None,
        },
        [tensor(1, 6, 7, 7, datatype=INT8)],
        [
            *({"kernel": (2, 3)}, {"groups": 3}, {"groups": 1}, {"weight": weight(3, 3, 5, datatype=INT8)}),
            *({"weight": weight(9, 8, datatype=INT8)}, {"weight": weight(3, 3, 9, datatype=INT8)}),
            {"x": tensor(1, 0, 9, 9, datatype=INT8)},
        ],
    ),
    "et_vk.q8ta_conv2d_transposed.default": (
        {
            "x": tensor(1, 4, 3, 3, datatype=INT8), "scale": 0.1, "zero": 0, "weight": weight(8, 36, datatype=INT8),
            "sums": weight(8, datatype=INT32), "scales": ones(8), "out": 0.1, "out_zero": 0, "bias": ones(8),
            "kernel": (3, 3), "stride": (2, 2), "padding": (0, 0), "more": (1, 0), "dilation": (1, 1),
            "groups": 1, "after": "none",
        },
        [tensor(1, 8, 8, 7, datatype=INT8)],
        [{"more": (-1, 0)}, {"more": None}, {"padding": (5, 5)}, {"groups": 2}, {"scales": ones(4)}],
    ),
    "et_vk.q8ta_add.default": (
        {
            "a": tensor(3, 4, datatype=INT8), "b": tensor(3, 4, datatype=INT8), "a_scale": 0.1, "a_zero": 0,
            "b_scale": 0.1, "b_zero": 0, "scale": 0.1, "zero": 0, "alpha": 1.0,
        },
        [tensor(3, 4, datatype=INT8)],
        [
            *({"a": tensor(3, 4)}, {"b": tensor(3, 5, datatype=INT8)}, {"b": tensor(4, datatype=INT8)}),
            *({"a_zero": 128}, {"b_scale": 0.0}, {"alpha": "1"}),
        ],
    ),
    "et_vk.q8ta_relu.default": (
        {"x": tensor(3, 4, datatype=INT8), "scale": 0.1, "zero": 0, "out": 0.1, "out_zero": 0},
        [tensor(3, 4, datatype=INT8)],
        [{"x": tensor(3, 4)}, {"out": math.nan}, {"result": tensor(3, 4)}],
    ),
    "et_vk.q8ta_pixel_shuffle.default": (
        {"x": tensor(1, 8, 3, 3, datatype=INT8), "scale": 0.1, "zero": 0, "inverse": 10.0, "out_zero": 0, "factor": 2},
        [tensor(1, 2, 6, 6, datatype=INT8)],
        [
            *({"factor": 3}, {"factor": 0}, {"inverse": 0.0}, {"inverse": math.inf}, {"x": tensor(1, 8, 3, 3)}),
            *({"result": tensor(1, 2, 6, 6)}, {"result": tensor(1, 2, 6, 6, datatype=UINT8)}),
        ],
    ),
    "et_vk.embedding_q4gsw.default": (
        {
            "table": weight(5, 16, datatype=UINT8), "scales": ones(5, 2), "group": 16,
            "indices": tensor(3, datatype=INT32), "linear": True,
        },
        [tensor(3, 32)],
        [
            *({"group": 32}, {"group": 0}, {"group": 5}, {"scales": ones(5)}, {"scales": ones(2, 5)}),
            {"indices": tensor(3)},
            *({"table": weight(5, 16, datatype=INT8)}, {"table": tensor(5, 16, datatype=UINT8)}, {"linear": 2}),
            *({"scales": weight(5, 2)}, {"result": tensor(3, 32, datatype=INT8)}),
        ],
    ),
}  # fmt: skip
WRONG = [(operator, changes) for operator, (_, _, all_changes) in CALLS.items() for changes in all_changes]


@pytest.mark.parametrize("operator", CALLS)
def test_arguments_that_fit_are_taken(operator: str) -> None:
    arguments, results, _ = CALLS[operator]
    assert written(operator, list(arguments.values()), *results).dispatches


@pytest.mark.parametrize(("operator", "changes"), WRONG, ids=str)
def test_what_is_wrong_is_said(operator: str, changes: dict[str, Any]) -> None:
    arguments, results, _ = CALLS[operator]
    assert set(changes) <= {*arguments, "result"}
    results = [changes["result"]] if "result" in changes else results
    with pytest.raises(FormatError, match="call 0"):
        written(operator, [changes.get(name, value) for name, value in arguments.items()], *results)


@pytest.mark.parametrize("operator", CALLS)
def test_missing_arguments_are_said(operator: str) -> None:
    arguments, results, _ = CALLS[operator]
    for count in range(2):
        with pytest.raises(FormatError, match="call 0"):
            written(operator, list(arguments.values())[:count], *results)
