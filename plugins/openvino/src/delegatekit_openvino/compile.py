"""Compiles partitions into the content of the file, step by step."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from delegatekit_api import CompileSpec, LoweringError, PartitionProgram, PreprocessResult, ProgramView
from delegatekit_toolkit.building import DebugHandles
from delegatekit_toolkit.installed import release_of
from delegatekit_toolkit.signature import Signature
from delegatekit_toolkit.symbols import SizeBounds

from .blob.layout import renamed
from .blob.library import chosen_device, core, has_device, release, told
from .blob.seal import PRECISIONS, Settings, compile_specs
from .ir.builder import ModelBuilder
from .ir.fusion import must_stay_apart
from .options import OpenVINOOptions
from .support import TABLE

#: One model at a time: names are counted in the process.
_LOCK: Final = threading.Lock()
#: The devices that take the precision; NPUs compute in float16.
_PRECISE: Final = ("CPU", "GPU")


def compiler_version(options: OpenVINOOptions) -> str:
    """The version of OpenVINO, and the device for which it compiles."""
    text = release_of("openvino")
    if not text or not has_device(options.device).available:
        return text or "unknown"
    device = chosen_device(options.device)
    return f"openvino {text} {device} {core().get_property(device, 'FULL_DEVICE_NAME')}"


def compile_partition(partition: PartitionProgram, options: OpenVINOOptions) -> PreprocessResult:
    """A partition as a model, compiled and exported by OpenVINO. Raises LoweringError."""
    with _LOCK:
        builder = ModelBuilder(partition.view)
        builder.build(TABLE)
        device = chosen_device(options.device)
        with told("OpenVINO does not compile the model", LoweringError, "OpenVINO"):
            model = builder.finish()
            compiled = _compiled(model, device, options.precision)
            blob = compiled.export_model().getvalue()
    # Only what is exported for the CPU has a layout that is known here.
    blob, names = renamed(blob, builder.names) if device == "CPU" else (blob, {})
    return PreprocessResult(
        blob,
        compile_specs=_specs(blob, device, options, _signature(partition.view)),
        debug_handle_map=_handles(model, compiled, builder, names) if device == "CPU" else {},
    )


def _compiled(model: Any, device: str, precision: str) -> Any:
    properties = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1"}
    if device in _PRECISE:
        properties["INFERENCE_PRECISION_HINT"] = PRECISIONS[precision]
    if device == "CPU":
        properties |= {
            # Its products of bytes saturate on processors without VNNI, and round otherwise than the program says.
            "LP_TRANSFORMS_MODE": "NO",
            # Activations that meet compressed weights would be rounded to bytes.
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
        }
        if must_stay_apart(model):
            properties["SNIPPETS_MODE"] = "DISABLE"
    return core().compile_model(model, device, properties)


def _signature(view: ProgramView) -> Signature:
    bounds = SizeBounds()
    inputs = tuple(bounds.type_of(view.operand(node)) for node in view.inputs)
    return Signature(inputs, tuple(bounds.type_of(view.operand(node)) for node in view.outputs if node is not None))


def _specs(blob: bytes, device: str, options: OpenVINOOptions, signature: Signature) -> tuple[CompileSpec, ...]:
    settings = Settings(
        openvino=release(),
        precision=PRECISIONS[options.precision],
        threads=options.threads,
        signature=signature,
    )
    return compile_specs(blob, device, settings)


def _handles(
    model: Any, compiled: Any, builder: ModelBuilder, made: Mapping[str, str]
) -> dict[int | str, tuple[int, ...]]:
    """The debug handles of the nodes that OpenVINO executes: those of all that were fused into them."""
    places, found = _places(model, compiled), DebugHandles()
    for written, handles in builder.handles.mapping.items():
        name = places.get(str(written), "")
        name = made.get(name, name)
        # What OpenVINO adds for the processor counts the nodes of the process, too: these have no name in the blob.
        if name in builder.names or name in made.values():
            found.add(name, *handles)
    return found.mapping


def _places(model: Any, compiled: Any) -> dict[str, str]:
    """The node that OpenVINO executes for each of the model. One that is told nowhere was joined with what reads it."""
    places: dict[str, str] = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        info, name = node.get_rt_info(), node.get_friendly_name()
        names = str(info["originalLayersNames"].astype(str)).split(",") if "originalLayersNames" in info else []
        places |= dict.fromkeys((*names, name), name)
    for node in reversed(model.get_ordered_ops()):
        if (name := node.get_friendly_name()) not in places:
            ports = [port for output in node.outputs() for port in output.get_target_inputs()]
            readers = [places.get(port.get_node().get_friendly_name(), "") for port in ports]
            places[name] = next(filter(None, readers), "")
    return places
