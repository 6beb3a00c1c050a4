"""Several methods of one model, quantized: what they share stays shared, also in their .pt2 file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch
from torch.export import Dim, ExportedProgram

from delegatekit_api import QuantizationError
from delegatekit_toolkit.json_text import decoded, parse_object, to_json

from ..files.archives import open_archive
from ..pipeline import Source
from .flow import quantize
from .report import QuantizationReport
from .state import give_own_state

#: The part of a .pt2 file that names the tensors that its programs share.
SHARED: Final = "delegatekit_shared.json"


@dataclass(frozen=True)
class Shared:
    """What `SHARED` has."""

    #: Parameters, buffers and constants that are one tensor in the programs that have them.
    names: list[str]


@dataclass(frozen=True)
class QuantizedMethods:
    """Programs by method name, which `lower` takes, and what was quantized in each."""

    programs: Mapping[str, ExportedProgram]
    reports: Mapping[str, QuantizationReport]


def quantize_methods(
    programs: Mapping[str, ExportedProgram], calibration: Mapping[str, Iterable[Sequence[Any]]], **settings: Any
) -> QuantizedMethods:
    """Quantize the methods of one model, each by its own inputs.

    Args:
        programs: The methods' programs, by name. They are not changed.
        calibration: The inputs of each method.
        settings: The other arguments of `quantize`.

    Buffers that methods share stay one: a cache that one method fills is what the others read. So methods are
    calibrated in their order, each from the state that the calls before it left: `prefill` comes before `decode`.
    Raises as `quantize` does, and QuantizationError if the methods of the inputs are not those of the model.
    """
    if set(programs) != set(calibration):
        told = ", ".join(calibration) or "none"
        raise QuantizationError(
            f"has inputs for the methods {told}, the model has {', '.join(programs)}", where="calibration"
        )
    made, reports = {}, {}
    shared = shared_names(programs)
    state: dict[str, torch.Tensor] = {}
    for name, program in programs.items():
        samples = [tuple(sample) for sample in calibration[name]]
        with _started_from(program, state) as initial:
            quantized: Any = quantize(program, samples, **settings)
            made[name] = exported(quantized, samples[0], program)
            reports[name] = quantized.quantization
            state |= _state_after(program, samples, shared)
        _give(made[name], initial)
    tie(made, shared)
    return QuantizedMethods(made, reports)


@contextmanager
def _started_from(program: ExportedProgram, state: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """A block in which a program has this state; gives what it has for it else."""
    initial = {name: tensor for _, name, tensor in _tensors(program) if name in state}
    _give(program, state)
    try:
        yield initial
    finally:
        _give(program, initial)


def _state_after(
    program: ExportedProgram, samples: Iterable[tuple[Any, ...]], names: Iterable[str]
) -> dict[str, torch.Tensor]:
    """The values that tensors of these names have after calls in float, where calls change them."""
    module: Any = program.module(check_guards=False)
    give_own_state(module)
    wanted = set(names)
    own = {name: tensor for name, tensor in module.named_buffers() if name in wanted}
    if not own:  # only weights are shared, if anything is
        return {}
    before = {name: tensor.clone() for name, tensor in own.items()}
    with torch.no_grad():
        for sample in samples:
            module(*sample)
    return {name: tensor for name, tensor in own.items() if not torch.equal(tensor, before[name])}


def _give(program: ExportedProgram, tensors: Mapping[str, torch.Tensor]) -> None:
    for home, name, _ in _tensors(program):
        if name in tensors:
            home[name] = tensors[name]


def exported(module: torch.nn.Module, example: tuple[Any, ...], program: ExportedProgram) -> ExportedProgram:
    """The program of a module that was made of another program; the same sizes may change."""
    return Source(module, example, dynamic_shapes=_shapes(program)).programs()["forward"]


def save_methods(programs: Mapping[str, ExportedProgram], file: BinaryIO) -> None:
    """Write the programs as one .pt2 file, with the names of what they share."""
    from torch.export.pt2_archive._package import package_pt2

    package_pt2(file, exported_programs=dict(programs), extra_files={SHARED: to_json(Shared(shared_names(programs)))})


def holds_methods(path: Path) -> bool:
    """True for a .pt2 file that `save_methods` wrote. Raises FormatError if it is no archive."""
    with open_archive(path, ".pt2 file") as archive:
        return any(name.endswith(f"/{SHARED}") for name in archive.names)


def load_methods(path: Path) -> dict[str, ExportedProgram]:
    """The programs of a .pt2 file by method name, which share what is named in it. The file was checked before."""
    from torch.export.pt2_archive._package import load_pt2

    content = load_pt2(str(path))
    programs: dict[str, ExportedProgram] = dict(content.exported_programs)
    shared = decoded(Shared, parse_object(content.extra_files[SHARED].encode(), SHARED), f"{path}, {SHARED}")
    tie(programs, shared.names)
    return programs


def shared_names(programs: Mapping[str, ExportedProgram]) -> list[str]:
    """The names of parameters, buffers and constants that are one tensor in several programs."""
    found = Counter(
        (name, tensor.data_ptr())
        for program in programs.values()
        for _, name, tensor in _tensors(program)
        if tensor.numel()
    )
    return sorted({name for (name, _), count in found.items() if count > 1})


def tie(programs: Mapping[str, ExportedProgram], names: Iterable[str]) -> None:
    """Make equal tensors of these names one in all programs that have them."""
    wanted, first = set(names), dict[str, torch.Tensor]()
    for program in programs.values():
        for home, name, tensor in _tensors(program):
            if name in wanted:
                one = first.setdefault(name, tensor)
                if one.dtype == tensor.dtype and torch.equal(one, tensor):
                    home[name] = one


def _tensors(program: ExportedProgram) -> list[tuple[MutableMapping[str, Any], str, torch.Tensor]]:
    homes: tuple[MutableMapping[str, Any], ...] = (program.state_dict, program.constants)
    return [(home, name, tensor) for home in homes for name, tensor in home.items() if isinstance(tensor, torch.Tensor)]


def _shapes(program: ExportedProgram) -> Any:
    """The sizes of a program's inputs that may change, in torch.export's form; None if none may."""

    def size(found: torch.SymInt) -> Any:
        known = program.range_constraints.get(found.node.expr)
        ends = {} if known is None else {"min": known.lower, "max": known.upper}
        return Dim.AUTO(**{end: int(value) for end, value in ends.items() if value.is_Integer})

    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    shapes = []
    for name in names:
        sizes = getattr(values[name], "shape", ())
        shapes.append({index: size(found) for index, found in enumerate(sizes) if isinstance(found, torch.SymInt)})
    return tuple(shapes) if any(shapes) else None
