"""The interface between backend plugins and the DelegateKit core.

A plugin is a module (or object) named by a `delegatekit.backends` entry point whose functions are marked
with `hookimpl`; the hooks are listed in `BackendSpec`. Importing this package never imports torch.

Here is what every backend needs. The rest is in modules: `schemes` (of quantization), `devices` (targets and
estimates), `blobs` (their operators), `operators` (of the runtime), `profiling`, `documentation`, `observers`,
`versions`, and `nodes` for code that works on graphs.
"""

from __future__ import annotations

from ._backend import BackendDescription
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
from ._hooks import BackendSpec, hookimpl
from ._options import BackendOptions, option
from ._partition import CompileSpec, NamedData, PartitionProgram, PreprocessResult
from ._partitioner import ConstantPartitioner, Partitioner, StatePartitioner, Verdict
from ._plan import MethodPlan, PlanPartitioner
from ._program import Call, MutableState, Operand, ProgramView
from ._runtime import Availability, DelegatePayload, DelegateRuntime, TensorSpec
from ._version import ApiVersion

__all__ = [
    "ApiVersion",
    "Availability",
    "BackendDescription",
    "BackendOptions",
    "BackendSpec",
    "Call",
    "CompileSpec",
    "ConstantPartitioner",
    "DelegateKitError",
    "DelegatePayload",
    "DelegateRuntime",
    "ExecutionError",
    "FormatError",
    "LoweringError",
    "MethodPlan",
    "MutableState",
    "NamedData",
    "Operand",
    "OptionError",
    "PartitionProgram",
    "Partitioner",
    "PlanPartitioner",
    "PluginError",
    "PreprocessResult",
    "ProgramView",
    "QuantizationError",
    "RuntimeUnavailableError",
    "StatePartitioner",
    "TensorSpec",
    "UnsupportedError",
    "Verdict",
    "hookimpl",
    "option",
]
