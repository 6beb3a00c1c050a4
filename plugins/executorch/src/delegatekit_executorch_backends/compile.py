"""Compiles partitions by ExecuTorch's compilers."""

from __future__ import annotations

from typing import Any

from delegatekit_api import (
    BackendOptions,
    CompileSpec,
    DelegateKitError,
    LoweringError,
    NamedData,
    PartitionProgram,
    PreprocessResult,
)

from .compiler.loading import quietly, stock_class
from .compiler.partitioners import stock_compiler
from .support import kept_operators
from .targets import System


def compile_partition(system: System, partition: PartitionProgram, options: BackendOptions) -> PreprocessResult:
    """The delegate that ExecuTorch's compiler makes of a partition. Raises LoweringError with what it said."""
    stock = stock_compiler(system, options)
    compiler = stock_class(system, system.compiler)
    from .ir.edge import edge_program
    from .ir.sizes import sizes_kept

    program = edge_program(partition.view, kept_operators(system, options)).program
    try:
        with quietly(), sizes_kept(program, system):
            if system.marks_nodes:
                program = stock.partitioner.partition(program).tagged_exported_program
            made = compiler.preprocess(program, list(stock.specs))
    except DelegateKitError:
        raise
    except Exception as error:  # whatever ExecuTorch's passes and a vendor's compiler raise
        raise LoweringError(
            f"ExecuTorch's {compiler.__name__} failed: {_said(error)}", where=f"backend {system.name}"
        ) from error
    return PreprocessResult(
        made.processed_bytes,
        compile_specs=tuple(CompileSpec(spec.key, bytes(spec.value)) for spec in stock.specs),
        named_data=_named_data(made.data_store_output),
        debug_handle_map=_handles(made.debug_handle_map, partition),
    )


def _said(error: BaseException) -> str:
    """The error's text, and that of the error that it hides."""
    text = f"{type(error).__name__}: {error}"
    cause = error.__cause__
    return text if cause is None else f"{text} ({type(cause).__name__}: {cause})"


def _named_data(store: Any) -> tuple[NamedData, ...]:
    """The data beside the blob, also those that ExecuTorch would put into files of their own."""
    if store is None:
        return ()
    entries = {**store.pte_data}
    for external in store.external_data.values():
        entries.update(external)
    return tuple(
        NamedData(key, _bytes(store.buffers[entry.buffer_index]), max(int(entry.alignment or 1), 1))
        for key, entry in entries.items()
    )


def _bytes(data: Any) -> bytes:
    return bytes(data) if isinstance(data, bytes | bytearray | memoryview) else bytes(data.to_bytes())


def _handles(found: Any, partition: PartitionProgram) -> dict[int | str, tuple[int, ...]]:
    """The ids of the delegate's operators -> debug handles; ExecuTorch gives one, several, or none.

    Some of its passes number anew: what no call of the partition has is left out.
    """
    own = {call.debug_handle for call in partition.view.calls()}
    handles: dict[int | str, tuple[int, ...]] = {}
    for key, value in (found or {}).items():
        several = value if isinstance(value, tuple | list | set) else (value,)
        known = tuple(int(handle) for handle in several if handle in own)
        if known:
            handles[key] = known
    return handles
