"""ExecuTorch's own quantizers as the schemes of their backends.

A scheme here has no rules: ExecuTorch's quantizer annotates, and its partitioner decides which patterns it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from delegatekit_api import BackendOptions, OptionError
from delegatekit_api.schemes import QuantizationScheme

from .options import EthosUOptions, TosaOptions
from .targets import System


@dataclass(frozen=True)
class StockScheme:
    """A scheme, and the function that makes ExecuTorch's quantizer for the options of its backend."""

    scheme: QuantizationScheme
    make: Callable[[Any], Any]
    #: True if the compiler takes its operators with these options.
    offered: Callable[[Any], bool] = lambda options: True


def schemes(system: System, options: BackendOptions) -> Sequence[QuantizationScheme]:
    """The schemes of a backend with these options; none where ExecuTorch's quantizer was not tried."""
    return tuple(stock.scheme for stock in _STOCK.get(system.name, ()) if stock.offered(options))


def quantizer(system: System, name: str, options: BackendOptions) -> Any:
    """ExecuTorch's quantizer for a scheme. Raises OptionError for another, LoweringError where something is missing."""
    from .compiler.loading import importing, quietly

    found = next((stock for stock in _STOCK.get(system.name, ()) if stock.scheme.name == name), None)
    if found is None or not found.offered(options):
        raise OptionError(f"there is no scheme {name} with these options", where=f"backend {system.name}")
    with importing(system, "its quantizer"), quietly():
        return found.make(options)


def _symmetric(module: str, kind: str, **chosen: Any) -> Callable[[Any], Any]:
    """The quantizer of a module with its symmetric configuration for all operators."""

    def make(options: BackendOptions) -> Any:
        found = import_module(module)
        return getattr(found, kind)().set_global(found.get_symmetric_quantization_config(**chosen))

    return make


def _coreml(options: BackendOptions) -> Any:
    configuration = import_module("coremltools.optimize.torch.quantization.quantization_config")
    found = import_module("executorch.backends.apple.coreml.quantizer").CoreMLQuantizer
    chosen = {"quantization_scheme": "symmetric", "activation_dtype": "quint8", "weight_dtype": "qint8"}
    return found(
        configuration.LinearQuantizerConfig.from_dict({"global_config": {**chosen, "weight_per_channel": True}})
    )


def _arm(kind: str, configuration: str, **chosen: Any) -> Callable[[Any], Any]:
    """One of Arm's quantizers with one of its configurations, which calibrates unless it is told to train."""

    def make(options: Any) -> Any:
        found = import_module("executorch.backends.arm.quantizer.arm_quantizer")
        quantizer = getattr(found, kind)(_arm_spec(options))
        return quantizer.set_global(getattr(found, configuration)(is_qat=False, **chosen))

    return make


def _arm_spec(options: EthosUOptions | TosaOptions) -> Any:
    from .compiler.partitioners import ethosu_spec, tosa_spec

    return ethosu_spec(options) if isinstance(options, EthosUOptions) else tosa_spec(options)


_XNNPACK: Final = ("executorch.backends.xnnpack.quantizer.xnnpack_quantizer", "XNNPACKQuantizer")
_VULKAN: Final = ("executorch.backends.vulkan.quantizer.vulkan_quantizer", "VulkanQuantizer")
_INT8: Final = "int8 activations and weights"

_VULKAN_SCHEMES: Final = (
    StockScheme(
        QuantizationScheme("int8-weights", "int8 weights of linear layers", "weight-only"), _symmetric(*_VULKAN)
    ),
    StockScheme(
        QuantizationScheme("int8-dynamic", "int8 weights and dynamic inputs of linear layers", "dynamic"),
        _symmetric(*_VULKAN, is_dynamic=True),
    ),
    StockScheme(
        QuantizationScheme("int4-weights", "int4 weights of linear layers", "weight-only"),
        _symmetric(*_VULKAN, weight_bits=4),
    ),
)
_STOCK: Final[Mapping[str, tuple[StockScheme, ...]]] = {
    "executorch.xnnpack": (
        StockScheme(
            QuantizationScheme("int8", f"{_INT8}, these per channel"), _symmetric(*_XNNPACK, is_per_channel=True)
        ),
        StockScheme(QuantizationScheme("int8-per-tensor", f"{_INT8}, per tensor"), _symmetric(*_XNNPACK)),
        StockScheme(
            QuantizationScheme("int8-dynamic", "int8 weights per channel, dynamic inputs", "dynamic"),
            _symmetric(*_XNNPACK, is_per_channel=True, is_dynamic=True),
        ),
    ),
    "executorch.vulkan": _VULKAN_SCHEMES,
    "executorch.webgpu": _VULKAN_SCHEMES,
    "executorch.coreml": (
        StockScheme(
            QuantizationScheme("int8", "uint8 activations, int8 weights per channel (from iOS 17 on)"),
            _coreml,
            lambda options: options.target >= "iOS17",
        ),
    ),
    "executorch.ethosu": (
        StockScheme(
            QuantizationScheme("int8", f"{_INT8}, these per channel"),
            _arm("EthosUQuantizer", "get_symmetric_quantization_config"),
        ),
        StockScheme(
            QuantizationScheme("int16", "int16 activations, int8 weights per channel"),
            _arm("EthosUQuantizer", "get_symmetric_a16w8_quantization_config"),
        ),
    ),
    "executorch.tosa": (
        StockScheme(
            QuantizationScheme("int8", f"{_INT8}, these per channel"),
            _arm("TOSAQuantizer", "get_symmetric_quantization_config"),
            lambda options: "+INT" in options.profile,
        ),
    ),
}
