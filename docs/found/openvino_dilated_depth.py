"""A convolution of one channel with other dilations of depth and height reads numbers that are not in its input."""

from __future__ import annotations

import numpy as np
from tools import needs_less_than_avx512, openvino_library

PRODUCT = "OpenVINO"
PACKAGE = "openvino"
VERSION = "2025.4.1"
AVOIDED = ("plugins/openvino/src/delegatekit_openvino/operators/convolution.py: equal_dilations",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    needs_less_than_avx512()
    library = openvino_library()
    operators = library.opset15
    x = operators.parameter([1, 1, 7, 8, 9], library.Type.f32)
    weight = operators.constant(np.ones((1, 1, 3, 1, 1), np.float32))
    made = operators.convolution(x, weight, [1, 1, 1], [0, 0, 0], [0, 0, 0], [2, 1, 1])
    model = library.Model([made], [x], "one convolution")
    compiled = library.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    given = np.arange(7 * 8 * 9, dtype=np.float32).reshape(1, 1, 7, 8, 9)
    wrong = int((compiled([given])[0] != given[:, :, :3] + given[:, :, 2:5] + given[:, :, 4:]).sum())
    return f"{wrong} of {3 * 8 * 9} sums of three numbers are wrong" if wrong else None
