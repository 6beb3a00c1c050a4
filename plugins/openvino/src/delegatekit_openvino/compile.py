"""Compiles partitions into the content of the file, step by step."""

from __future__ import annotations

import json
import threading
from typing import Any, Final

from delegatekit_api import CompileSpec, LoweringError, PartitionProgram, PreprocessResult, RuntimeUnavailableError

from .blob.layout import renamed
from .blob.seal import compile_specs
from .ir.builder import ModelBuilder
from .library import availability, core, installed_version
from .options import OpenVINOOptions
from .support import TABLE

#: One model at a time: names are counted in the process.
_LOCK: Final = threading.Lock()
_PRECISIONS: Final = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def compiler_version() -> str:
    """The version of OpenVINO, and what of the processor decides the bytes."""
    text = installed_version()
    if not text or not availability().available:
        return text or "unknown"
    return f"openvino {text} {core().get_property('CPU', 'FULL_DEVICE_NAME')}"


def compile_partition(partition: PartitionProgram, options: OpenVINOOptions) -> PreprocessResult:
    """A partition as a model, compiled and exported by OpenVINO. Raises LoweringError."""
    known = availability()
    if not known.available:
        raise RuntimeUnavailableError(known.reason, where="OpenVINO")
    with _LOCK:
        builder = ModelBuilder(partition.view)
        builder.build(TABLE)
        compiled = _compiled(builder.finish(), options)
        blob = compiled.export_model().getvalue()
    blob = renamed(blob, builder.names)
    return PreprocessResult(
        blob,
        compile_specs=_specs(blob, options),
        debug_handle_map=_handles(compiled, builder),
    )


def _compiled(model: Any, options: OpenVINOOptions) -> Any:
    devices = core().available_devices
    if options.device != "AUTO" and not any(name.split(".")[0] == options.device for name in devices):
        raise LoweringError(
            f"OpenVINO finds no {options.device} on this computer, and compiles only for devices that it has",
            where="option device of backend openvino",
            hint=f"it has {', '.join(devices)}",
        )
    properties = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1"}
    if options.device == "CPU":
        properties |= {
            "INFERENCE_PRECISION_HINT": _PRECISIONS[options.precision],
            # Its products of bytes saturate on processors without VNNI, and round otherwise than the program says.
            "LP_TRANSFORMS_MODE": "NO",
            # Activations that meet compressed weights would be rounded to bytes.
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
        }
    try:
        return core().compile_model(model, options.device, properties)
    except RuntimeError as error:
        text = str(error).strip().splitlines()[-1]
        raise LoweringError(f"OpenVINO does not compile the model: {text}", where="OpenVINO") from error


def _specs(blob: bytes, options: OpenVINOOptions) -> tuple[CompileSpec, ...]:
    settings = {
        "openvino": ".".join(installed_version().split(".")[:2]),
        "precision": _PRECISIONS[options.precision],
        "threads": options.threads,
    }
    return compile_specs(blob, options.device, json.dumps(settings, sort_keys=True).encode())


def _handles(compiled: Any, builder: ModelBuilder) -> dict[int | str, tuple[int, ...]]:
    """The debug handles of the nodes that OpenVINO executes: those of all that were fused into them."""
    known = builder.handles.mapping
    found: dict[int | str, tuple[int, ...]] = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = node.get_rt_info()
        names = [node.get_friendly_name()]
        if "originalLayersNames" in info:
            names += str(info["originalLayersNames"].astype(str)).split(",")
        handles = dict.fromkeys(handle for name in names for handle in known.get(name, ()))
        if handles:
            found[node.get_friendly_name()] = tuple(handles)
    return found
