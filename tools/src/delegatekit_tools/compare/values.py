"""The compared call: its method and its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from delegatekit.errors import UnknownMethodError, WrongArgumentError
from delegatekit_api import TensorSpec


def wanted_method(programs: Mapping[str, ExportedProgram], method: str | None) -> str:
    """The method to compare: the one named, "forward", or the only one. Raises UnknownMethodError."""
    if method is None:
        if len(programs) > 1 and "forward" not in programs:
            raise UnknownMethodError(
                "which method is to be compared?", hint=f"the model has {', '.join(programs)}: name one of them"
            )
        return "forward" if "forward" in programs else next(iter(programs))
    if method not in programs:
        raise UnknownMethodError(f"there is no method {method!r} (methods: {', '.join(programs)})")
    return method


def specs_of(program: ExportedProgram) -> tuple[TensorSpec | None, ...]:
    """The flat inputs of a program, changing sizes as in the example; None for inputs that are not tensors."""
    return tuple(
        TensorSpec(str(value.dtype).removeprefix("torch."), tuple(map(_example, value.shape)))
        if isinstance(value, torch.Tensor)
        else None
        for value in _wanted(program)
    )


def flat_values(program: ExportedProgram, values: Sequence[Any] | None, seed: int) -> list[Any]:
    """The flat inputs of the call: those given, the program's examples, or random ones.

    Raises WrongArgumentError for inputs that the program does not accept.
    """
    wanted = _wanted(program)
    if values is None and program.example_inputs is not None:
        values = tree_leaves(program.example_inputs)
    if values is None:
        return _random(wanted, seed)
    if isinstance(values, torch.Tensor):
        raise WrongArgumentError("values is a tensor", hint="give a list of flat inputs: [tensor]")
    if len(values) != len(wanted):
        raise WrongArgumentError(f"the method takes {len(wanted)} inputs, {len(values)} are given")
    for index, (value, want) in enumerate(zip(values, wanted, strict=True)):
        if isinstance(want, torch.Tensor):
            _check(index, value, want)
    return [value.detach() if isinstance(value, torch.Tensor) else value for value in values]


def _check(index: int, value: Any, want: torch.Tensor) -> None:
    if not isinstance(value, torch.Tensor):
        raise WrongArgumentError(f"input {index} is a {type(value).__name__}, not a tensor")
    if value.dtype != want.dtype:
        raise WrongArgumentError(f"input {index} has dtype {value.dtype}, not {want.dtype}")
    sizes = zip(want.shape, value.shape, strict=False)
    if value.dim() != want.dim() or any(isinstance(size, int) and size != there for size, there in sizes):
        raise WrongArgumentError(f"input {index} has shape {tuple(value.shape)}, not {tuple(want.shape)}")


def _wanted(program: ExportedProgram) -> list[Any]:
    names = program.graph_signature.user_inputs
    known = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    return [known[name] if isinstance(name, str) and name in known else name for name in names]


def _random(wanted: Sequence[Any], seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    found: list[Any] = []
    for value in wanted:
        if not isinstance(value, torch.Tensor):
            found.append(value)
            continue
        shape = [_example(size) for size in value.shape]
        if value.dtype.is_floating_point:
            found.append(torch.randn(shape, generator=generator).to(value.dtype))
        else:
            found.append(torch.randint(0, 2, shape, generator=generator).to(value.dtype))
    return found


def _example(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)
