"""What a backend plugin and the DelegateKit core say to each other.

A plugin is a module (or object) named by a `delegatekit.backends` entry point whose functions are marked
with `hookimpl`; the hooks are listed in `BackendSpec`. Importing this package never imports torch.
"""

from __future__ import annotations

from ._backend import BackendDescription
from ._documentation import BackendDocumentation, OperatorEntry, OperatorTable
from ._errors import (
    DelegateKitError,
    ExecutionError,
    FormatError,
    LoweringError,
    OptionError,
    PluginError,
    QuantizationError,
    RuntimeUnavailableError,
    UnsupportedError,
)
from ._estimate import Estimate, LayerEstimate, TargetInfo
from ._hooks import PROJECT, BackendSpec, ObserverSpec, StageEvent, hookimpl
from ._nodes import (
    SourceFrame,
    argument,
    axes_of,
    describe_node,
    dynamic_operand,
    is_dynamic,
    operator_name,
    per_axis,
    source_frames,
    source_line,
)
from ._options import BackendOptions, option
from ._partition import CompileSpec, NamedData, PartitionProgram, PreprocessResult
from ._program import Call, MutableState, Operand, ProgramView
from ._quantization import DEQUANTIZE, DYNAMIC, QUANTIZE, Quantization
from ._quantizer import (
    INTEGER_RANGES,
    MOVING_OPERATORS,
    PER_CHANNEL,
    PER_SAMPLE,
    PER_TENSOR,
    PER_TOKEN,
    Decline,
    Granularity,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
    per_group,
)
from ._runtime import Availability, DelegatePayload, DelegateRuntime, TensorSpec
from ._support import (
    Constraint,
    IntegerPartitioner,
    OperatorSupport,
    Partitioner,
    SupportTable,
    TablePartitioner,
    Verdict,
    check_left_out,
    leavable_names,
)
from ._version import API_VERSION, ApiVersion, incompatibility

__all__ = [
    "API_VERSION",
    "DEQUANTIZE",
    "DYNAMIC",
    "INTEGER_RANGES",
    "MOVING_OPERATORS",
    "PER_CHANNEL",
    "PER_SAMPLE",
    "PER_TENSOR",
    "PER_TOKEN",
    "PROJECT",
    "QUANTIZE",
    "ApiVersion",
    "Availability",
    "BackendDescription",
    "BackendDocumentation",
    "BackendOptions",
    "BackendSpec",
    "Call",
    "CompileSpec",
    "Constraint",
    "Decline",
    "DelegateKitError",
    "DelegatePayload",
    "DelegateRuntime",
    "Estimate",
    "ExecutionError",
    "FormatError",
    "Granularity",
    "IntegerPartitioner",
    "LayerEstimate",
    "LoweringError",
    "MutableState",
    "NamedData",
    "ObserverSpec",
    "Operand",
    "OperatorEntry",
    "OperatorSupport",
    "OperatorTable",
    "OptionError",
    "PartitionProgram",
    "Partitioner",
    "PluginError",
    "PreprocessResult",
    "ProgramView",
    "Quantization",
    "QuantizationError",
    "QuantizationRule",
    "QuantizationScheme",
    "RuntimeUnavailableError",
    "SourceFrame",
    "StageEvent",
    "SupportTable",
    "TablePartitioner",
    "TargetInfo",
    "TensorQuantization",
    "TensorSpec",
    "UnsupportedError",
    "Verdict",
    "argument",
    "axes_of",
    "check_left_out",
    "describe_node",
    "dynamic_operand",
    "hookimpl",
    "incompatibility",
    "is_dynamic",
    "leavable_names",
    "operator_name",
    "option",
    "per_axis",
    "per_group",
    "source_frames",
    "source_line",
]
