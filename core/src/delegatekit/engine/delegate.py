"""A delegate of a loaded method: finds the plugin that owns it and drives the plugin's runtime."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

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

from ..discovery import LoadedBackend
from ..manifest import Owner
from ..pte import PteFile, PteImage, schema, to_bytes

#: Finds the backend that runs delegates of an id; raises PluginError if there is none.
BackendFinder: TypeAlias = Callable[[str], LoadedBackend]


class Runtimes:
    """The plugins' runtimes: found when a delegate first needs one, then shared by a program's delegates."""

    def __init__(self, find: BackendFinder) -> None:
        self._find = find
        self._known: dict[str, DelegateRuntime] = {}

    def get(self, delegate_id: str, owner: Owner, where: str) -> DelegateRuntime:
        """The runtime for a delegate id. Raises RuntimeUnavailableError, naming what to install."""
        if delegate_id not in self._known:
            self._known[delegate_id] = self._create(delegate_id, owner, where)
        return self._known[delegate_id]

    def _create(self, delegate_id: str, owner: Owner, where: str) -> DelegateRuntime:
        made_by = f"the file was made with {owner.distribution} {owner.version}" if owner != Owner() else None
        try:
            backend = self._find(delegate_id)
        except PluginError as error:
            hint = error.hint if made_by is None else f"pip install {owner.distribution} ({made_by})"
            raise RuntimeUnavailableError(error.what, where=where, hint=hint) from None
        available = backend.runtime_availability()
        if not available.available:
            raise RuntimeUnavailableError(
                f"the runtime of backend {backend.name} ({delegate_id}) cannot work here: {available.reason}",
                where=where,
                hint=made_by,
            )
        return backend.create_runtime()


class DelegateInstance:
    """One initialised delegate; released by `destroy`, or when it is collected."""

    def __init__(self, runtime: DelegateRuntime, payload: DelegatePayload, where: str) -> None:
        self._where = where
        self._runtime = runtime
        try:
            self._handle: Any = runtime.init(payload)
        except DelegateKitError:
            raise
        except Exception as error:
            raise FormatError(f"its runtime refused the blob: {type(error).__name__}: {error}", where=where) from error
        self._release = weakref.finalize(self, runtime.destroy, self._handle)

    def execute(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once, writing into `outputs`."""
        try:
            self._runtime.execute(self._handle, inputs, outputs)
        except DelegateKitError:
            raise
        except Exception as error:
            raise ExecutionError(f"failed: {type(error).__name__}: {error}", where=self._where) from error

    def destroy(self) -> None:
        """Release the runtime's handle."""
        self._release()


def payload(
    file: PteFile, table: schema.BackendDelegate, inputs: Sequence[schema.Tensor], outputs: Sequence[schema.Tensor]
) -> DelegatePayload:
    """What a delegate's runtime receives, for a call with these inputs and outputs."""
    from .method import tensor_spec

    blob = file.delegate_blob(table)
    specs = tuple(CompileSpec(str(spec.key), spec.value or b"") for spec in table.compile_specs or ())
    input_specs, output_specs = ([tensor_spec(tensor) for tensor in tensors] for tensors in (inputs, outputs))

    def as_program(keys: Collection[str]) -> bytes:
        missing = [key for key in keys if key not in file.named_data]
        if missing:
            raise FormatError(
                f"needs the named data {missing[0]!r}, which neither the .pte nor a data file has",
                where=f"delegate {table.id}",
                hint="give the .ptd files that were written with it: load(path, data=[...])",
            )
        named = tuple(NamedData(key, file.named_data[key]) for key in keys)
        return to_bytes(delegate_program(table, blob, named, inputs, outputs))

    return DelegatePayload(
        delegate_id=str(table.id),
        blob=blob,
        compile_specs=specs,
        inputs=tuple(spec for spec in input_specs if spec is not None),
        outputs=tuple(spec for spec in output_specs if spec is not None),
        named_data=file.named_data,
        as_program=as_program,
    )


def delegate_program(
    table: schema.BackendDelegate,
    blob: memoryview,
    named_data: tuple[NamedData, ...],
    inputs: Sequence[schema.Tensor],
    outputs: Sequence[schema.Tensor],
) -> PteImage:
    """A file with one method that calls one delegate; its inputs and outputs are not memory-planned."""
    values = [
        schema.EValue(
            schema.Tensor(
                scalar_type=tensor.scalar_type,
                sizes=tensor.sizes,
                dim_order=tensor.dim_order,
                shape_dynamism=tensor.shape_dynamism,
            )
        )
        for tensor in (*inputs, *outputs)
    ]
    arguments = list(range(len(values)))
    delegate = schema.BackendDelegate(
        id=table.id,
        processed=schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 0),
        compile_specs=table.compile_specs or [],
    )
    plan = schema.ExecutionPlan(
        name="forward",
        container_meta_type=schema.ContainerMetadata("", ""),
        values=values,
        inputs=arguments[: len(inputs)],
        outputs=arguments[len(inputs) :],
        chains=[schema.Chain([], [], [schema.Instruction(schema.DelegateCall(0, arguments))])],
        operators=[],
        delegates=[delegate],
        non_const_buffer_sizes=[0, 0],
    )
    return PteImage(plans=(plan,), delegate_blobs=(blob,), named_data=named_data)
