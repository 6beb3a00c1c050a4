"""Writes an ETRecord for ExecuTorch 1.5: a zip archive of programs and of instructions' debug handles."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final

import torch

from delegatekit.files import shielded
from delegatekit.lowering import Delegate, LoweredMethod
from delegatekit.pipeline import LoweredProgram
from delegatekit.pte import calls, schema
from delegatekit_toolkit.json_text import to_json

from .graph import StoredProgram, stored_program

#: The member that identifies the archive.
_IDENTIFIER: Final = "ETRECORD_V0"
_EDGE: Final = "edge_dialect_exported_program"
#: Fixed timestamp: archives are reproducible.
_DATE: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class _RecordedMethod:
    """A method as lowered and as in the file, and the debug handles of its instructions."""

    lowered: LoweredMethod
    plan: schema.ExecutionPlan
    handles: Sequence[Sequence[int]]


def etrecord(program: LoweredProgram) -> Callable[[BinaryIO], None]:
    """The writer of a lowered program's ETRecord: `program.save("net.pte", beside={"net.etrecord": ...})`.

    It maps events of ExecuTorch's runtime to operators and source lines; it contains the weights, too.
    """
    plans = {str(plan.name): plan for plan in program.image.plans}
    methods = {
        name: _RecordedMethod(method, plans[name], program.emitted.handles[name])
        for name, method in program.methods.items()
    }
    return partial(_write, methods)


def _write(methods: Mapping[str, _RecordedMethod], file: BinaryIO) -> None:
    """Write the archive. Weights are streamed from their storage, one program at a time.

    ExecuTorch's Inspector supports one edge program, that of "forward" (or of the only method): others are stored as
    `methods/NAME`.
    """
    main = "forward" if "forward" in methods else next(iter(methods))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive:
        _add(archive, _IDENTIFIER, b"")
        for name, method in methods.items():
            member = f"{_EDGE}/{name}" if name == main else f"methods/{name}"
            _add_program(archive, member, stored_program(method.lowered.edge))
        _add_json(archive, "debug_handle_map", {name: _handles(method) for name, method in methods.items()})
        _add_json(archive, "delegate_map", {name: _delegates(method) for name, method in methods.items()})
        counts = {name: _output_counts(method) for name, method in methods.items()}
        _add_json(archive, "instruction_id_to_num_outs_map", counts)


def _handles(method: _RecordedMethod) -> dict[int, list[int]]:
    return {index: list(handles) for index, handles in enumerate(method.handles)}


def _delegates(method: _RecordedMethod) -> dict[int, dict[str, Any]]:
    """Delegate id, and debug handles by the backend's own ids, for each instruction that calls a delegate.

    The Inspector matches an id that is a substring of an event's name, and the last match counts: so longer ones come
    last, and numbers, which match by accident ("Transpose (ND, X32) #1"), are left out.
    """
    found = {}
    for index, call in enumerate(calls(method.plan)):
        if isinstance(call, schema.DelegateCall):
            delegate = method.lowered.delegates[call.delegate_index]
            texts = [(key, list(value)) for key, value in delegate.debug_handle_map.items() if isinstance(key, str)]
            name = str((method.plan.delegates or [])[call.delegate_index].id)
            ids = dict(sorted(texts, key=lambda item: (len(item[0]), item[0])))
            found[index] = {"name": name, "delegate_map": ids}
    return found


def _output_counts(method: _RecordedMethod) -> dict[int, int]:
    delegates: Sequence[Delegate] = method.lowered.delegates
    values = [value.val for value in method.plan.values or ()]
    found = {}
    for index, call in enumerate(calls(method.plan)):
        if isinstance(call, schema.DelegateCall):
            found[index] = len(delegates[call.delegate_index].results)
        elif isinstance(call, schema.KernelCall) and call.args:
            last = values[call.args[-1]]
            found[index] = len(last.items or ()) if isinstance(last, schema.TensorList) else 1
    return found


def _add_program(archive: zipfile.ZipFile, name: str, stored: StoredProgram) -> None:
    # PyTorch reads infinities as Python spells them, which JSON itself lacks.
    _add(archive, name, json.dumps(stored.program).encode())
    _add_tensors(archive, f"{name}_state_dict", stored.state)
    _add_tensors(archive, f"{name}_constants", stored.constants)
    _add(archive, f"{name}_example_inputs", b"")


def _add_tensors(archive: zipfile.ZipFile, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    content = {key: tensor.detach() for key, tensor in tensors.items()}
    with archive.open(_member(name), "w", force_zip64=True) as member:
        shielded(lambda file: torch.save(content, file))(member)  # type: ignore[arg-type]


def _add_json(archive: zipfile.ZipFile, name: str, content: Any) -> None:
    _add(archive, name, to_json(content, compact=True).encode())


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(_member(name), content)


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DATE)
    info.external_attr = 0o644 << 16
    return info
