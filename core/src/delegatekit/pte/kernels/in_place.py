"""Kernels that may write their result over an operand."""

from __future__ import annotations

from typing import Final

_UNARY: Final = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos", "cosh", "elu", "erf"),
    *("exp", "expm1", "floor", "gelu", "hardtanh", "leaky_relu", "log", "log10", "log1p", "log2", "logical_not"),
    *("logit", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh"),
    *("trunc", "clamp"),
)
_BINARY: Final = (
    *("add", "atan2", "div", "floor_divide", "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "mul"),
    "sub",
)

#: Kernels that compute each element of the result from the operands' elements at the same place, and read these
#: before they write it, in the runtime and in PyTorch: an operand of the result's dtype and sizes may be in the
#: result's memory, exactly. Softmax is among them: it sums a row first, then processes it in this way.
#: core/tests/pte/test_in_place.py tests each kernel.
IN_PLACE: Final = frozenset(
    {
        *(f"aten::{name}.out" for name in (*_UNARY, *_BINARY)),
        *(f"aten::{name}.Scalar_out" for name in ("add", "sub", "mul", "div", "rsub", "fmod", "remainder")),
        *(f"aten::{name}.Tensor_out" for name in ("fmod", "remainder", "clamp")),
        *(f"aten::bitwise_{name}.{kind}_out" for name in ("and", "or", "xor") for kind in ("Scalar", "Tensor")),
        *(f"aten::pow.{kind}_out" for kind in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")),
        "aten::_softmax.out",
        "aten::div.out_mode",
        "aten::div.Scalar_mode_out",
        "aten::masked_fill.Scalar_out",
        "aten::where.self_out",
    }
)
