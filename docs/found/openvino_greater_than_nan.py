"""NaN is greater than every number on processors with AVX-512."""

from __future__ import annotations

import numpy as np
from tools import needs_avx512, openvino_library

PRODUCT = "OpenVINO"
PACKAGE = "openvino"
VERSION = "2025.4.1"
AVOIDED = ("plugins/openvino/src/delegatekit_openvino/operators/common.py: _EXCHANGED",)


def main() -> str | None:
    """The observed fault; None if it is fixed."""
    needs_avx512()
    library = openvino_library()
    operators = library.opset15
    x = operators.parameter([16], library.Type.f32)
    compared = [kind(x, np.float32(1)) for kind in (operators.greater, operators.greater_equal)]
    model = library.Model(compared, [x], "two comparisons")
    compiled = library.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled(np.full(16, np.nan, np.float32))
    wrong = [name for name, place in (("x > 1", 0), ("x >= 1", 1)) if found[place].any()]
    return f"{' and '.join(wrong)} of NaN" if wrong else None
