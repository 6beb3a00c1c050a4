"""Stock ExecuTorch's lowering for QNN, with the library of the wheel `onnxruntime-qnn` instead of an SDK."""

from __future__ import annotations

import ctypes
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch  # before the vendor's libraries, which bring an unwinder of their own


def _prepare() -> None:
    """A folder that looks like the SDK, which stock's code asks for, and the libraries by their paths."""
    found = find_spec("onnxruntime_qnn")
    assert found is not None and found.submodule_search_locations
    folder = Path(found.submodule_search_locations[0])
    root = Path(tempfile.mkdtemp(prefix="qnn-sdk-")) / "sdk"
    (root / "lib").mkdir(parents=True)
    (root / "lib" / "x86_64-linux-clang").symlink_to(folder)
    os.environ["QNN_SDK_ROOT"] = str(root)
    for name in ("libQnnHtp.so", "libQnnSystem.so"):
        ctypes.CDLL(str(folder / name))


_prepare()

from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer, QuantDtype  # noqa: E402
from executorch.backends.qualcomm.serialization.qc_schema import (  # noqa: E402
    QcomChipset,
    QnnExecuTorchBackendType,
)
from executorch.backends.qualcomm.utils.utils import (  # noqa: E402
    generate_htp_compiler_spec,
    generate_qnn_executorch_compiler_spec,
    to_edge_transform_and_lower_to_qnn,
)


def quantized(module: Any, samples: list[tuple[Any, ...]], kind: str) -> Any:
    """The module, quantized by stock's own quantizer: a kind such as "8a8w", a scale for each output channel."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = QnnQuantizer(backend=QnnExecuTorchBackendType.kHtpBackend, soc_model=QcomChipset.SM8650)
    quantizer.set_default_quant_config(
        getattr(QuantDtype, f"use_{kind}"), is_conv_per_channel=True, is_linear_per_channel=True
    )
    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(module, samples[0], strict=True).module(), quantizer)
        for sample in samples:
            prepared(*sample)
        return convert_pt2e(prepared)


def lower(program: Any, path: Path) -> None:
    """Lower a quantized program for the SM8650, and write it."""
    spec = generate_qnn_executorch_compiler_spec(
        soc_model=QcomChipset.SM8650, backend_options=generate_htp_compiler_spec(use_fp16=False)
    )
    edge = to_edge_transform_and_lower_to_qnn(program.module(), program.example_inputs[0], spec)
    with path.open("wb") as file:
        edge.to_executorch().write_to_file(file)
