"""The compiler crashes where eight channels of eight places are converted to bfloat16 after a convolution or a pool."""

from __future__ import annotations

import numpy as np
from tools import needs_less_than_avx512, openvino_library

PRODUCT = "OpenVINO"
PACKAGE = "openvino"
VERSION = "2025.4.1"
AVOIDED = ("plugins/openvino/src/delegatekit_openvino/ir/builder.py: make_output",)
ENDS_BY = "SIGSEGV"


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    needs_less_than_avx512()
    library = openvino_library()
    operators = library.opset15
    x = operators.parameter([1, 2, 4, 2], library.Type.f32)
    weight = operators.constant(np.ones((8, 2, 1, 1), np.float32))
    made = operators.convolution(x, weight, [1, 1], [0, 0], [0, 0], [1, 1])
    model = library.Model([operators.convert(made, library.Type.bf16)], [x], "one convolution")
    library.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return None
