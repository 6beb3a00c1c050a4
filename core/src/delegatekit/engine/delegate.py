"""A delegate of a loaded method: finds the plugin that owns it and drives the plugin's runtime."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Final, TypeAlias

import torch

from delegatekit_api import (
    CompileSpec,
    DelegateKitError,
    DelegatePayload,
    DelegateRuntime,
    ExecutionError,
    FormatError,
    NamedData,
    PluginError,
    RuntimeUnavailableError,
)
from delegatekit_api.operators import OperatorRuntime
from delegatekit_api.profiling import OperatorTime

from ..plugins import LoadedBackend, OwnerError, blaming, fault, operator_times, warn
from ..pte import PteFile, PteImage, schema, to_bytes
from ..pte.arguments import tensor_spec
from ..pte.manifest import Owner
from ..pte.reader import GIVE_DATA

#: Finds the backend for delegates of an id made by an owner; raises PluginError if there is none.
BackendFinder: TypeAlias = Callable[[str, Owner], LoadedBackend]

#: Held while plugins are searched, imported and called: they may not be thread-safe.
PLUGINS: Final = RLock()


@dataclass(frozen=True)
class FoundRuntime:
    """A plugin's runtime, and whether its delegates keep buffers of the program inside themselves."""

    runtime: DelegateRuntime
    owns_state: bool

    def kernel(self, name: str, where: str) -> Callable[..., None]:
        """The kernel of an operator. Raises FormatError if the plugin has none."""
        runtime: Any = self.runtime
        if not isinstance(runtime, OperatorRuntime):
            raise FormatError("the plugin of this name brings delegates, no operators", where=where)
        with blaming(lambda fault: FormatError(f"the plugin has no kernel for it: {fault}", where=where)), PLUGINS:
            return runtime.kernel(name)


class Runtimes:
    """The plugins' runtimes: looked up when a delegate first needs one, then shared by a program's delegates."""

    def __init__(self, find: BackendFinder, isolate: bool | Collection[str] = False) -> None:
        """`isolate`: the backends whose runtimes run in a process of their own, all or those named; some always do.
        A mapping has addresses."""
        self._find = find
        self._isolate = isolate
        self._known: dict[tuple[str, str], FoundRuntime] = {}

    def get(self, delegate_id: str, owner: Owner, where: str) -> FoundRuntime:
        """The runtime for the delegates of an id and an owner. Raises RuntimeUnavailableError, naming what to install.

        Delegates of one id made by different plugins are run by different runtimes.
        """
        key = delegate_id, owner.distribution
        with PLUGINS:
            if key not in self._known:
                self._known[key] = self._create(delegate_id, owner, where)
            return self._known[key]

    def _create(self, delegate_id: str, owner: Owner, where: str) -> FoundRuntime:
        made_by = f"the file was made with {owner.distribution} {owner.version}" if owner != Owner() else None
        try:
            backend = self._find(delegate_id, owner)
        except PluginError as error:
            keeps_hint = made_by is None or isinstance(error, OwnerError)
            hint = error.hint if keeps_hint else f"pip install {owner.distribution} ({made_by})"
            raise RuntimeUnavailableError(error.what, where=where, hint=hint) from None
        isolate, name = self._isolate, backend.name
        wanted = isolate.get(name) if isinstance(isolate, Mapping) else isolate is True or name in (isolate or ())
        apart: dict[str, Any] = {"apart": wanted} if wanted else {}
        available = backend.runtime_availability(**apart)
        if not available.available:
            raise RuntimeUnavailableError(
                f"the runtime of backend {backend.name} ({delegate_id}) cannot work here: {available.reason}",
                where=where,
                hint=made_by,
            )
        description = getattr(backend, "description", None)
        return FoundRuntime(backend.create_runtime(**apart), bool(getattr(description, "owns_state", False)))


class DelegateInstance:
    """One initialized delegate; released by `destroy`, or when it is garbage collected."""

    def __init__(self, found: FoundRuntime, payload: DelegatePayload, where: str) -> None:
        self._where = where
        self._runtime = found.runtime
        self._owns_state = found.owns_state
        self._payload = payload
        #: The destination of the times of the operators inside, in each call; None: not profiled.
        self.times: list[OperatorTime] | None = None
        self._init()

    def _init(self) -> None:
        with (
            blaming(lambda fault: FormatError(f"its runtime refused the blob: {fault}", where=self._where)),
            PLUGINS,
        ):
            self._handle: Any = self._runtime.init(self._payload)
        self._release = weakref.finalize(self, _destroy, self._runtime, self._handle, self._where)

    def execute(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once, writing into `outputs`."""
        try:  # not `blaming`, for speed: this runs in each call
            if self.times is None:
                self._runtime.execute(self._handle, inputs, outputs)
            else:
                self.times.extend(operator_times(self._runtime, self._handle, inputs, outputs, self._where))
        except (DelegateKitError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise ExecutionError(f"failed: {fault(error)}", where=self._where) from error

    def reset(self) -> None:
        """Put buffers that the delegate keeps inside itself back to their initial values: it is initialized again."""
        if self._owns_state and self._release.alive:
            self.destroy()
            self._init()

    def destroy(self) -> None:
        """Release the runtime's handle."""
        self._release()


def _destroy(runtime: DelegateRuntime, handle: Any, where: str) -> None:
    """Release a handle; a failing runtime is reported: there may be no caller to handle an error."""
    try:
        runtime.destroy(handle)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        warn(f"{where}: its runtime failed to release the delegate: {fault(error)}")


def payload(
    file: PteFile, table: schema.BackendDelegate, inputs: Sequence[Any], outputs: Sequence[Any], method: str
) -> DelegatePayload:
    """The input of a delegate's runtime, for a call with these tables as inputs and outputs in a method."""
    return payload_of(table, file.delegate_blob(table), file.named_data, inputs, outputs, method)


def payload_of(
    table: schema.BackendDelegate,
    blob: memoryview,
    named_data: Mapping[str, memoryview],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    method: str,
) -> DelegatePayload:
    """The same for a delegate whose blob and named data are given."""
    specs = tuple(CompileSpec(str(spec.key), spec.value or b"") for spec in table.compile_specs or ())
    input_specs, output_specs = ([tensor_spec(tensor) for tensor in tensors] for tensors in (inputs, outputs))

    def as_program(keys: Collection[str]) -> bytes:
        missing = [key for key in keys if key not in named_data]
        if missing:
            raise FormatError(
                f"needs the named data {missing[0]!r}, which neither the .pte nor a data file has",
                where=f"delegate {table.id}",
                hint=GIVE_DATA,
            )
        named = tuple(NamedData(key, named_data[key]) for key in keys)
        return to_bytes(delegate_program(table, blob, named, inputs, outputs, method))

    return DelegatePayload(
        delegate_id=str(table.id),
        blob=blob,
        compile_specs=specs,
        inputs=tuple(spec for spec in input_specs if spec is not None),
        outputs=tuple(spec for spec in output_specs if spec is not None),
        named_data=named_data,
        as_program=as_program,
        method=method,
        numbers=tuple(place for place, item in enumerate(inputs) if not isinstance(item, schema.Tensor)),
    )


def delegate_program(
    table: schema.BackendDelegate,
    blob: memoryview,
    named_data: tuple[NamedData, ...],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    method: str,
) -> PteImage:
    """A file with one method that calls one delegate; its inputs and outputs are not memory-planned.

    Numbers among the inputs stay as in the file: the runtimes that this is for ignore them.
    """
    values = [schema.EValue(_unplanned(table)) for table in (*inputs, *outputs)]
    arguments = list(range(len(values)))
    delegate = schema.BackendDelegate(
        id=table.id,
        processed=schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 0),
        compile_specs=table.compile_specs or [],
    )
    plan = schema.ExecutionPlan(
        name=method,
        container_meta_type=schema.ContainerMetadata("", ""),
        values=values,
        inputs=[index for index, table in enumerate(inputs) if isinstance(table, schema.Tensor)],
        outputs=arguments[len(inputs) :],
        chains=[schema.Chain([], [], [schema.Instruction(schema.DelegateCall(0, arguments))])],
        operators=[],
        delegates=[delegate],
        non_const_buffer_sizes=[0, 0],
    )
    return PteImage(plans=(plan,), delegate_blobs=(blob,), named_data=named_data)


def _unplanned(table: Any) -> Any:
    if not isinstance(table, schema.Tensor):
        return table
    return schema.Tensor(
        scalar_type=table.scalar_type,
        sizes=table.sizes,
        dim_order=table.dim_order,
        shape_dynamism=table.shape_dynamism,
    )
