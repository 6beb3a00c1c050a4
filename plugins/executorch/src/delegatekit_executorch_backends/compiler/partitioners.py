"""Makes ExecuTorch's partitioners from the options of their backends."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from torch._ops import OpOverload

from delegatekit_api import BackendOptions

from ..options import (
    CoreMLOptions,
    EthosUOptions,
    OpenVinoOptions,
    QnnOptions,
    TosaOptions,
    VulkanOptions,
    XnnpackOptions,
)
from ..targets import System
from .loading import stock_class


@dataclass(frozen=True)
class StockCompiler:
    """A partitioner, and the compile specs that its partitions are compiled with."""

    partitioner: Any
    specs: tuple[Any, ...]
    #: What it would keep whole, where its own answer depends on the arguments of each call; None if it does not.
    handled: frozenset[str] | None = None


def stock_compiler(system: System, options: BackendOptions) -> StockCompiler:
    """The partitioner of a backend with these options. Raises LoweringError where something is missing."""
    kind = stock_class(system, system.partitioner)
    partitioner = _MAKERS.get(system.name, _plain)(kind, options)
    inner = getattr(partitioner, "_vulkan_partitioner", partitioner)
    handled = _HANDLED.get(system.name)
    specs = tuple(inner.delegation_spec.compile_specs)
    return StockCompiler(partitioner, specs, None if handled is None else handled())


def _plain(kind: Any, options: Any) -> Any:
    return kind()


def _xnnpack(kind: Any, options: XnnpackOptions) -> Any:
    precision = import_module("executorch.backends.xnnpack.partition.config.xnnpack_config").ConfigPrecisionType
    return kind(
        config_precisions=[precision[name.upper()] for name in options.precisions] or None,
        per_op_mode=options.per_op_mode,
        force_non_static_weights_for_f32_linear=options.force_non_static_weights,
        enable_bf16=options.enable_bf16,
    )


def _vulkan(kind: Any, options: VulkanOptions) -> Any:
    flags = ("require_dynamic_shapes", "force_fp16", "skip_bool_tensors", "small_texture_limits")
    chosen: dict[str, Any] = {name: True for name in flags if getattr(options, name)}
    if options.storage:
        schema = import_module("executorch.backends.vulkan.serialization.vulkan_graph_schema")
        chosen["storage_type_override"] = schema.VkStorageType[options.storage.upper()]
    _keep_vulkan_patterns()
    return kind(chosen)


def _keep_vulkan_patterns() -> None:
    """Let the graphs of Vulkan's patterns be made once.

    ExecuTorch gives their makers a cache, but registers them without it: each partition would export them anew.
    """
    registry = import_module("executorch.backends.vulkan.patterns.pattern_registry")
    for entry in registry.fusable_patterns.values():
        if entry.get_graphs_fn is not None and not hasattr(entry.get_graphs_fn, "cache_info"):
            entry.get_graphs_fn = cache(entry.get_graphs_fn)


def _coreml(kind: Any, options: CoreMLOptions) -> Any:
    tools = import_module("coremltools")
    backend = import_module("executorch.backends.apple.coreml.compiler").CoreMLBackend
    specs = backend.generate_compile_specs(
        compute_unit=tools.ComputeUnit[options.compute_units.upper()],
        minimum_deployment_target=getattr(tools.target, options.target) if options.target else None,
        compute_precision=tools.precision[options.precision.upper()],
    )
    return kind(compile_specs=specs, lower_full_graph=options.lower_full_graph)


def ethosu_spec(options: EthosUOptions) -> Any:
    """Arm's compile spec for an Ethos-U."""
    spec = import_module("executorch.backends.arm.ethosu").EthosUCompileSpec
    return spec(options.target, options.system_config or None, options.memory_mode or None)


def tosa_spec(options: TosaOptions) -> Any:
    """Arm's compile spec for TOSA."""
    return import_module("executorch.backends.arm.tosa.compile_spec").TosaCompileSpec(options.profile)


def _ethosu(kind: Any, options: EthosUOptions) -> Any:
    return kind(ethosu_spec(options))


def _tosa(kind: Any, options: TosaOptions) -> Any:
    return kind(tosa_spec(options))


def _vgf(kind: Any, options: TosaOptions) -> Any:
    return kind(import_module("executorch.backends.arm.vgf").VgfCompileSpec(options.profile))


def _openvino(kind: Any, options: OpenVinoOptions) -> Any:
    spec = import_module("executorch.exir.backend.backend_details").CompileSpec
    return kind([spec("device", options.device.encode())])


def _mlx(kind: Any, options: Any) -> Any:
    """MLX's partitioner, which tells its reasons, and works in our pipeline, too.

    Otherwise it works in ExecuTorch's own function alone, which keeps operators whole as ours does, and has its reasons
    only in its log, by operator.
    """
    reporter = import_module("executorch.exir.backend.utils").WhyNoPartitionReporter

    def generate_partitions(self: Any, edge_program: Any) -> Any:
        found = kind.generate_partitions(self, edge_program)
        for node, reason in self.supported_ops._unsupported_reason.items():
            # (Of an exception in a handler it has the trace, too, and where the handler is in memory.)
            reporter().report_reject(node, re.sub(r" at 0x[0-9a-f]+|\nTraceback.*", "", reason, flags=re.DOTALL))
        return found

    changed = {
        "generate_partitions": generate_partitions,
        "_is_to_edge_transform_and_lower": staticmethod(lambda: True),
    }
    return type(kind.__name__, (kind,), changed)()


def _handled_by_mlx() -> frozenset[str]:
    """The operators that MLX's compiler has a handler for, and those that its patterns of several end with."""
    registry = import_module("executorch.backends.mlx.builder.op_registry").REGISTRY
    handled = (target for target in registry.registered_ops() if isinstance(target, OpOverload))
    patterns = ("aten.scaled_dot_product_attention.default", "aten.index_copy.default")
    return frozenset((*map(str, filter(_is_functional, handled)), *patterns))


def _is_functional(operator: OpOverload[..., Any]) -> bool:
    """True for an operator whose results are new tensors, as in all edge programs."""
    schema = operator._schema
    return not schema.is_mutable and not any(result.alias_info for result in schema.returns)


def _qnn(kind: Any, options: QnnOptions) -> Any:
    utils = import_module("executorch.backends.qualcomm.utils.utils")
    schema = import_module("executorch.backends.qualcomm.serialization.qc_schema")
    backend = utils.generate_htp_compiler_spec(use_fp16=options.precision == "float16")
    return kind(utils.generate_qnn_executorch_compiler_spec(schema.QcomChipset[options.soc], backend))


_MAKERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "executorch.coreml": _coreml,
    "executorch.ethosu": _ethosu,
    "executorch.mlx": _mlx,
    "executorch.openvino": _openvino,
    "executorch.qnn": _qnn,
    "executorch.tosa": _tosa,
    "executorch.vgf": _vgf,
    "executorch.vulkan": _vulkan,
    "executorch.webgpu": _vulkan,
    "executorch.xnnpack": _xnnpack,
}
_HANDLED: Final[Mapping[str, Callable[[], frozenset[str]]]] = {"executorch.mlx": _handled_by_mlx}
