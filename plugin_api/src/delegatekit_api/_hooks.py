"""Hook specifications (pluggy). Backend hooks are called on the one chosen plugin, observer hooks on all observers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pluggy

if TYPE_CHECKING:
    from ._backend import BackendDescription
    from ._documentation import BackendDocumentation
    from ._estimate import TargetInfo
    from ._options import BackendOptions
    from ._partition import CompileSpec, PartitionProgram, PreprocessResult
    from ._partitioner import Partitioner
    from ._quantizer import QuantizationScheme
    from ._runtime import Availability, DelegateRuntime, Verification
    from .blobs import BlobOperator
    from .operators import OperatorProgram, OperatorRuntime

#: pluggy's project name; also the prefix of the entry-point groups `delegatekit.backends` and `delegatekit.observers`.
PROJECT: Final = "delegatekit"

#: A pass: called with a program that it may change, it returns its changes. `delegatekit_toolkit.passes.Pass` is
#: the base class; this package defines the signature only, since it imports neither the toolkit nor torch.
ProgramPass: TypeAlias = Callable[..., Any]

_hookspec: Final = pluggy.HookspecMarker(PROJECT)
#: Marks a plugin's implementation of a hook.
hookimpl: Final = pluggy.HookimplMarker(PROJECT)


class BackendSpec:
    """The hooks of a backend. Only `describe_backend` is required; a feature without its hook is not supported."""

    @_hookspec(firstresult=True)
    def describe_backend(self) -> BackendDescription:  # type: ignore[empty-body]
        """The description of the backend. Called first; must not need torch or the vendor's tool."""

    @_hookspec(firstresult=True)
    def compute_precision(self, options: BackendOptions) -> str:  # type: ignore[empty-body]
        """The lowest precision that float32 graphs are computed in with these options, as in
        `BackendDescription.compute_precision`. Only for backends that have an option which changes it; with the default
        options it is the description's.
        """

    @_hookspec(firstresult=True)
    def create_partitioner(self, options: BackendOptions) -> Partitioner:  # type: ignore[empty-body]
        """A partitioner for one lowering."""

    @_hookspec(firstresult=True)
    def passes(self, options: BackendOptions) -> Sequence[ProgramPass]:  # type: ignore[empty-body]
        """The passes that change a program before partitioners are asked about it, in order: passes of
        `delegatekit_toolkit.passes`. They see the whole program, and their results may run on another backend or on
        the runtime's own operators: so they must mean the same there. Since API version 2.1.
        """

    @_hookspec(firstresult=True)
    def compiler_availability(self, options: BackendOptions) -> Availability:  # type: ignore[empty-body]
        """The availability of `preprocess` with these options; if it cannot work, what is missing and what to do.

        Lowering calls it first, and fails with the reason; without the hook nothing is missing. It should
        be cheap, and load nothing into this process: check that the vendor's tool exists; one that may exist
        but not work is tried in another process.
        """

    @_hookspec(firstresult=True)
    def verification(self, options: BackendOptions) -> Verification:  # type: ignore[empty-body]
        """The vendor's tool, if there is one, that checks the compiled partitions on the host, and whether it is used
        with these options: reports list it among the judges. Since API version 2.3.
        """

    @_hookspec(firstresult=True)
    def preprocess(self, partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:  # type: ignore[empty-body]
        """Compile one partition. The same partition and options must give the same bytes."""

    @_hookspec(firstresult=True)
    def preprocess_methods(  # type: ignore[empty-body]
        self, methods: Mapping[str, Sequence[PartitionProgram]], options: BackendOptions
    ) -> Mapping[str, Sequence[PreprocessResult]]:
        """Compile all partitions of all methods in one call, instead of `preprocess` for each: for backends whose
        delegates share data or compiled code over partitions and methods. Results in the order of the partitions.
        """

    @_hookspec(firstresult=True)
    def compiles_together(self, options: BackendOptions) -> bool:  # type: ignore[empty-body]
        """True if a backend that has both forms compiles with `preprocess_methods`, with these options. Otherwise
        partitions go to `preprocess`: several at a time, each cached separately. Without the hook they go together.
        """

    @_hookspec(firstresult=True)
    def runtime_operators(self) -> Sequence[str]:  # type: ignore[empty-body]
        """The operators of a backend that is a library of operators instead of a delegate: schemas of out-variants,
        "acme::add.out(Tensor a, Tensor b, *, Tensor(a!) out) -> Tensor(a!)", all in the namespace that the description
        gives as `delegate_id`. `replace_operators` then stands in place of `preprocess`. Since API version 2.4.
        """

    @_hookspec(firstresult=True)
    def replace_operators(self, partition: PartitionProgram, options: BackendOptions) -> OperatorProgram:  # type: ignore[empty-body]
        """The calls of the backend's operators that compute a partition. Sizes are fixed. Since API version 2.4."""

    @_hookspec(firstresult=True)
    def compiler_version(self, options: BackendOptions) -> str:  # type: ignore[empty-body]
        """Name and version of the vendor's tool that `preprocess` uses with these options: "compiler 5.1.0".

        With it, compiled partitions are cached and reused as long as nothing that they depend on has changed: for
        compilers that take longer than reading the constants once. The bytes must not depend on anything else.
        """

    @_hookspec(firstresult=True)
    def quantization_schemes(self, options: BackendOptions) -> Sequence[QuantizationScheme]:  # type: ignore[empty-body]
        """The schemes that the backend's compiler supports, with these options: devices differ in what they can do.
        The default options should give what all devices support, under the same names. An implementation may
        omit the argument.
        """

    @_hookspec(firstresult=True)
    def create_quantizer(self, scheme: str, options: BackendOptions) -> Any:
        """A torchao PT2E Quantizer of the backend's own, for schemes that a declaration cannot express."""

    @_hookspec(firstresult=True)
    def targets(self) -> Sequence[TargetInfo]:  # type: ignore[empty-body]
        """The devices that the backend compiles for, with the options that choose each."""

    @_hookspec(firstresult=True)
    def documentation(self) -> BackendDocumentation:  # type: ignore[empty-body]
        """Documentation for users beyond the description and the options: the supported operators, and more."""

    @_hookspec(firstresult=True)
    def create_runtime(self) -> DelegateRuntime | OperatorRuntime:  # type: ignore[empty-body]
        """The runtime that executes this backend's blobs in this process, or the kernels of its operators."""

    @_hookspec(firstresult=True)
    def blob_operators(  # type: ignore[empty-body]
        self, blob: memoryview, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, memoryview], method: str
    ) -> Sequence[BlobOperator]:
        """The operators in a blob, in the order in which they run, also in blobs that other tools made for this
        delegate id. Arguments are those of `DelegatePayload`; an implementation may omit some.

        Needs neither the vendor's tool nor a device. Raises FormatError for a damaged blob, and for one whose content
        cannot be determined. Since API version 2.2.
        """


@dataclass(frozen=True)
class StageEvent:
    """An event of lowering: a stage began, moved on, or ended."""

    #: "export", "edge", "partition", "lower", "emit"; "calibrate" and "quantize" of quantization.
    stage: str
    #: "start", "progress" or "finish".
    kind: str
    method: str = "forward"
    done: int = 0
    total: int = 0
    #: CPU seconds of the stage, at "finish".
    cpu_seconds: float = 0.0


class ObserverSpec:
    """Hooks called on every observer plugin. A failing observer is reported and ignored."""

    @_hookspec
    def on_stage(self, event: StageEvent) -> None:
        """A stage of lowering began, moved on or ended."""


class SuiteSpec:
    """Hooks of observer plugins called by the conformance suite."""

    @_hookspec
    def conformance_cases(self, backend: str) -> Sequence[Any]:  # type: ignore[empty-body]
        """Further conformance cases for a backend: instances of `delegatekit_conformance.cases.base.Case`."""
