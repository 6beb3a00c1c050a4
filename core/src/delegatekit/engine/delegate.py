"""A delegate of a loaded method: finds the plugin that owns it and drives the plugin's runtime."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

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

from .. import discovery
from ..pte import PteFile, PteImage, schema, to_bytes


class DelegateInstance:
    """One initialised delegate. Raises RuntimeUnavailableError, before anything runs, if it cannot run here."""

    def __init__(
        self,
        file: PteFile,
        table: schema.BackendDelegate,
        inputs: Sequence[schema.Tensor],
        outputs: Sequence[schema.Tensor],
        where: str,
    ) -> None:
        self._where = where
        self._runtime = _runtime(str(table.id))
        payload = _payload(file, table, inputs, outputs)
        try:
            self._handle: Any = self._runtime.init(payload)
        except DelegateKitError:
            raise
        except Exception as error:
            raise FormatError(f"its runtime refused the blob: {type(error).__name__}: {error}", where=where) from error
        self._alive = True

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
        if self._alive:
            self._alive = False
            self._runtime.destroy(self._handle)


@cache
def _runtime(delegate_id: str) -> DelegateRuntime:
    try:
        backend = discovery.find_by_delegate_id(delegate_id)
    except PluginError as error:
        raise RuntimeUnavailableError(error.what, hint=error.hint) from None
    available = backend.runtime_availability()
    if not available.available:
        raise RuntimeUnavailableError(
            f"the runtime of backend {backend.name} cannot work here: {available.reason}",
            where=f"delegate {delegate_id}",
        )
    return backend.create_runtime()


def _payload(
    file: PteFile, table: schema.BackendDelegate, inputs: Sequence[schema.Tensor], outputs: Sequence[schema.Tensor]
) -> DelegatePayload:
    from .method import tensor_spec

    blob = file.delegate_blob(table)
    specs = tuple(CompileSpec(str(spec.key), spec.value or b"") for spec in table.compile_specs or ())
    input_specs, output_specs = ([tensor_spec(tensor) for tensor in tensors] for tensors in (inputs, outputs))

    def as_program(keys: Collection[str]) -> bytes:
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
