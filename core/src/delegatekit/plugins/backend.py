"""A discovered backend: its facts, and its hooks as methods that check the plugin's answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pluggy

from delegatekit_api import Availability, BackendDescription, BackendOptions, DelegateKitError, PluginError
from delegatekit_api.blobs import BlobOperator
from delegatekit_api.devices import TargetInfo, Verification
from delegatekit_api.documentation import BackendDocumentation
from delegatekit_api.schemes import QuantizationScheme

from .answers import check_answer, check_flow
from .blame import blaming, fault, shown
from .elsewhere import address_of, runtime_at

if TYPE_CHECKING:
    from delegatekit_api import (
        CompileSpec,
        DelegateRuntime,
        Partitioner,
        PartitionProgram,
        PreprocessResult,
    )
    from delegatekit_api.operators import OperatorProgram


@dataclass(frozen=True)
class BackendInfo:
    """The facts about an installed backend.

    `status` is "ready", "not imported" (only its metadata was read), "broken", "incompatible", "duplicate" or
    "not allowed"; `reason` is the cause, if it is not ready.
    """

    name: str
    distribution: str
    version: str
    status: str
    reason: str = ""
    api_version: str | None = None
    delegate_id: str | None = None
    summary: str = ""

    @property
    def usable(self) -> bool:
        """True if its hooks can be called."""
        return self.status == "ready"


class LoadedBackend:
    """An imported plugin: each method calls one hook of it and checks the type of the answer."""

    def __init__(
        self,
        info: BackendInfo,
        description: BackendDescription,
        manager: pluggy.PluginManager,
        lender: Callable[[LoadedBackend], LoadedBackend],
    ) -> None:
        """`lender` finds the backend whose runtime executes the blobs of one that has none. It raises PluginError."""
        self.info = info
        self._lender = lender
        self.description = description
        self._manager = manager

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.info.name

    @property
    def distribution(self) -> str:
        """The distribution that ships the plugin."""
        return self.info.distribution

    @property
    def version(self) -> str:
        """The distribution's version."""
        return self.info.version

    def has(self, hook: str) -> bool:
        """True if the plugin implements a hook."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    def watch(self, before: Callable[[str], None], after: Callable[[str, Any], None]) -> None:
        """Call `before(hook)` and `after(hook, answer)` around each call of a hook; the answer is None if it fails."""
        self._manager.add_hookcall_monitoring(
            lambda hook, implementations, arguments: before(hook),
            lambda result, hook, implementations, arguments: after(
                hook, None if result.exception else result.get_result()
            ),
        )

    def describe(self) -> BackendDescription:
        """Ask the plugin again for its description; `description` is that of loading."""
        return self._call("describe_backend")  # type: ignore[no-any-return]

    def make_options(self, values: Mapping[str, Any]) -> BackendOptions:
        """The backend's options from Python values or strings. Raises OptionError."""
        return self.description.options.from_mapping(values, backend=self.name)

    def compute_precision(self, values: Mapping[str, Any] | None = None) -> str:
        """The lowest precision of float32 graphs with options of these values, by default the default ones."""
        told = self.description.compute_precision
        if self.has("compute_precision"):
            told = self._call("compute_precision", options=self.make_options(values or {}))
        if not isinstance(told, str):
            raise PluginError(f"compute_precision did not return a dtype's name but {shown(told)}", where=self.where)
        return told

    def verification(self, options: BackendOptions | None = None) -> Verification | None:
        """The tool that verifies compiled partitions with these options (None: the default ones).

        None if the plugin names none.
        """
        if not self.has("verification"):
            return None
        chosen = self.make_options({}) if options is None else options
        return self._checked("verification", Verification, options=chosen)  # type: ignore[no-any-return]

    def compiler_version(self, options: BackendOptions) -> str | None:
        """The version of the tool that compiles with these options; None if the plugin does not declare one."""
        if not self.has("compiler_version"):
            return None
        told = self._call("compiler_version", options=options)
        if not isinstance(told, str):
            raise PluginError(f"compiler_version did not return a text but {shown(told)}", where=self.where)
        return told

    def compiler_availability(self, options: BackendOptions | None = None) -> Availability:
        """The availability of the compiler here with these options (None: the default ones). Never raises."""
        if not self.has("compiler_availability"):
            return Availability(True)
        try:
            chosen = self.make_options({}) if options is None else options
            return self._checked("compiler_availability", Availability, options=chosen)  # type: ignore[no-any-return]
        except DelegateKitError as error:
            return Availability(False, error.what if error.hint is None else f"{error.what}: {error.hint}")

    def compiles_together(self, options: BackendOptions) -> bool:
        """True if all partitions of all methods are compiled in one call, with these options."""
        if not self.has("preprocess_methods") or not self.has("compiles_together"):
            return self.has("preprocess_methods")
        return self._checked("compiles_together", bool, options=options)  # type: ignore[no-any-return]

    def create_partitioner(self, options: BackendOptions) -> Partitioner:
        """A partitioner for one lowering."""
        return self._create("create_partitioner", ("keep_operators", "check", "propose"), options=options)  # type: ignore[no-any-return]

    def passes(self, options: BackendOptions) -> Sequence[Callable[..., Any]]:
        """The backend's passes over programs before partitioning; none without the hook."""
        if not self.has("passes"):
            return ()
        return tuple(self._checked("passes", Sequence[Callable[..., Any]], options=options))

    def preprocess(self, partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
        """Compile one partition. Raises what the plugin raises: the caller knows the nodes."""
        return self._ask("preprocess", partition=partition, options=options)  # type: ignore[no-any-return]

    def preprocess_methods(
        self, methods: Mapping[str, Sequence[PartitionProgram]], options: BackendOptions
    ) -> Mapping[str, Sequence[PreprocessResult]]:
        """Compile the partitions of all methods in one call. Raises what the plugin raises."""
        return self._ask("preprocess_methods", methods=methods, options=options)  # type: ignore[no-any-return]

    @property
    def is_library(self) -> bool:
        """True if it replaces operators by runtime operators of its own, and makes no delegates."""
        return self.has("replace_operators")

    def runtime_operators(self) -> Sequence[str]:
        """The schemas of its runtime operators."""
        return tuple(self._checked("runtime_operators", Sequence[str]))

    def replace_operators(self, partition: PartitionProgram, options: BackendOptions) -> OperatorProgram:
        """The calls that compute one partition. Raises what the plugin raises."""
        return self._ask("replace_operators", partition=partition, options=options)  # type: ignore[no-any-return]

    def quantization_schemes(self, options: BackendOptions | None = None) -> Sequence[QuantizationScheme]:
        """The schemes that the backend's compiler supports, with these options (None: the default ones).

        None if the plugin does not quantize.
        """
        if not self.has("quantization_schemes"):
            return ()
        chosen = self.make_options({}) if options is None else options
        return tuple(self._checked("quantization_schemes", Sequence[QuantizationScheme], options=chosen))

    def targets(self) -> tuple[TargetInfo, ...]:
        """The devices that the backend compiles for; none without the hook."""
        if not self.has("targets"):
            return ()
        return tuple(self._checked("targets", Sequence[TargetInfo]))

    def documentation(self) -> BackendDocumentation:
        """The plugin's part of its documentation page; nothing without the hook."""
        if not self.has("documentation"):
            return BackendDocumentation()
        return self._checked("documentation", BackendDocumentation)  # type: ignore[no-any-return]

    def blob_operators(
        self, blob: memoryview, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, memoryview], method: str
    ) -> tuple[BlobOperator, ...] | None:
        """The operators in a blob, in the order of execution; None without the hook.

        Raises FormatError for a damaged blob.
        """
        hook = "blob_operators"
        if not self.has(hook):
            return None
        given = {"blob": blob, "compile_specs": compile_specs, "named_data": named_data, "method": method}
        found: Sequence[BlobOperator] = self._checked(hook, Sequence[BlobOperator], **given)
        check_flow(found, hook, self.where)
        return tuple(found)

    def create_quantizer(self, scheme: str, options: BackendOptions) -> Any:
        """A torchao Quantizer of the plugin's own, for a scheme without rules."""
        return self._create("create_quantizer", ("annotate", "validate"), scheme=scheme, options=options)

    def create_runtime(self, *, apart: bool | str | None = None) -> DelegateRuntime:
        """The runtime that executes this backend's blobs: in this process, or `apart`: in its own, or at an address.

        By default as the user (`DEVICES`) or the plugin's description says. The kernels of runtime operators are always
        in this process. A plugin without a runtime leaves its blobs to that of another installed backend with the same
        delegate id.
        """
        address = address_of(self.name) if apart is None else apart
        if isinstance(address, str) and not self.is_library:
            return runtime_at(self, address)  # type: ignore[no-any-return]
        if not self.has("create_runtime"):
            return self._lender(self).create_runtime(apart=apart)
        if self.is_library:
            return self._create("create_runtime", ("is_available", "kernel"))  # type: ignore[no-any-return]
        if self.description.isolated_runtime if apart is None else apart:
            from .apart import RuntimeApart  # with torch

            return RuntimeApart(self, self.description)
        return self._create("create_runtime", ("is_available", "init", "execute", "destroy"))  # type: ignore[no-any-return]

    def runtime_availability(self, *, apart: bool | str | None = None) -> Availability:
        """The availability of the runtime of `create_runtime` here. Never raises."""
        try:
            with redirect_stdout(sys.stderr):
                answer: Any = self.create_runtime(apart=apart).is_available()
            check_answer(answer, Availability, "the answer of is_available")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Availability(False, error.what if isinstance(error, PluginError) else fault(error))
        return answer  # type: ignore[no-any-return]

    def _create(self, hook: str, methods: Sequence[str], **arguments: Any) -> Any:
        """The object made by a hook, which must have these methods."""
        result = self._call(hook, **arguments)
        with blaming(lambda fault: PluginError(f"what {hook} returned has faults: {fault}", where=self.where)):
            for method in methods:
                if not callable(getattr(result, method, None)):
                    raise PluginError(f"{hook} returned an object without {method}()", where=self.where)
        return result

    def _checked(self, hook: str, kind: Any, **arguments: Any) -> Any:
        """The answer of a hook, which must be of this type, also inside."""
        answer = self._call(hook, **arguments)
        check_answer(answer, kind, hook, self.where)
        return answer

    def _call(self, hook: str, **arguments: Any) -> Any:
        """The answer of a hook; its exceptions become PluginErrors."""
        with blaming(lambda fault: PluginError(f"{hook} failed: {fault}", where=self.where)):
            return self._ask(hook, **arguments)

    def _ask(self, hook: str, **arguments: Any) -> Any:
        if not self.has(hook):
            raise PluginError(f"does not implement {hook}", where=self.where)
        with redirect_stdout(sys.stderr):
            result = getattr(self._manager.hook, hook)(**arguments)
        if result is None:
            raise PluginError(f"{hook} returned None", where=self.where)
        return result

    @property
    def where(self) -> str:
        """Its name in errors."""
        return f"backend {self.name} ({self.distribution} {self.version})"
