"""The options of ExecuTorch's backends: what their partitioners and compile specs take."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, option

_ETHOS_U = (
    *(f"ethos-u55-{macs}" for macs in (32, 64, 128, 256)),
    *(f"ethos-u65-{macs}" for macs in (256, 512)),
    *(f"ethos-u85-{macs}" for macs in (128, 256, 512, 1024, 2048)),
)


@dataclass(frozen=True)
class StockOptions(BackendOptions):
    """Options that all of ExecuTorch's backends have."""

    merge: bool = option(
        False,
        help="Let DelegateKit form the partitions of what ExecuTorch's partitioner takes, instead of keeping its own.",
    )


@dataclass(frozen=True)
class XnnpackOptions(StockOptions):
    """Options of `XnnpackPartitioner`."""

    precisions: tuple[str, ...] = option(
        (),
        help="The precisions that are taken; all of them if empty.",
        choices=("fp32", "static_quant", "dynamic_quant"),
    )
    per_op_mode: bool = option(False, help="One partition for each operator.")
    force_non_static_weights: bool = option(False, help="Weights of float32 linear layers are inputs of delegates.")
    enable_bf16: bool = option(False, help="Take fully connected layers in bfloat16.")


@dataclass(frozen=True)
class VulkanOptions(StockOptions):
    """Options of `VulkanPartitioner`."""

    require_dynamic_shapes: bool = option(False, help="Take only operators that can be resized.")
    force_fp16: bool = option(False, help="Compute float32 graphs in float16.")
    storage: str = option(
        "",
        help="The storage of tensors; the partitioner's choice if empty.",
        choices=("", "buffer", "texture_3d", "texture_2d"),
    )
    skip_bool_tensors: bool = option(False, help="Leave operators on booleans.")
    small_texture_limits: bool = option(False, help="Textures of at most 2048 texels an axis, for desktop GPUs.")


@dataclass(frozen=True)
class CoreMLOptions(StockOptions):
    """Options of `CoreMLPartitioner` and its compile specs."""

    compute_units: str = option(
        "all", help="The processors that may be used.", choices=("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne")
    )
    precision: str = option("float16", help="The precision of float32 graphs.", choices=("float16", "float32"))
    target: str = option(
        "",
        help="The least system that runs it: iOS17; coremltools' choice if empty.",
        choices=("", "iOS15", "iOS16", "iOS17", "iOS18"),
    )
    lower_full_graph: bool = option(False, help="Refuse programs that are not one delegate.")


@dataclass(frozen=True)
class EthosUOptions(StockOptions):
    """Options of `EthosUCompileSpec`."""

    target: str = option("ethos-u55-128", help="The processor and its multiply-accumulates a cycle.", choices=_ETHOS_U)
    system_config: str = option("", help="Vela's system configuration; ExecuTorch's for the target if empty.")
    memory_mode: str = option("", help="Vela's memory mode; ExecuTorch's for the target if empty.")


@dataclass(frozen=True)
class TosaOptions(StockOptions):
    """Options of Arm's compile specs for TOSA."""

    profile: str = option("TOSA-1.0+FP", help="The TOSA version, profiles and extensions: TOSA-1.0+INT, TOSA-1.0+FP.")


@dataclass(frozen=True)
class OpenVinoOptions(StockOptions):
    """Options of OpenVINO's compile spec."""

    device: str = option("CPU", help="The device: CPU, GPU, NPU.")


@dataclass(frozen=True)
class QnnOptions(StockOptions):
    """Options of `generate_qnn_executorch_compiler_spec`."""

    soc: str = option("SM8650", help="The chip, by its name in QcomChipset.")
    precision: str = option(
        "float16", help="Operators that are not quantized: in float16, or left.", choices=("float16", "quantized")
    )
