"""Converts the models that `lower` accepts to exported programs by method name."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, TypeAlias, Union

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_map_only

from delegatekit_api import LoweringError

from ..errors.foreign import torch_logs_nothing

#: A module with its example inputs, or its torch.export result.
Model: TypeAlias = Union["torch.nn.Module", ExportedProgram]

_CACHE: Final = "the model returns its cache: set model.config.use_cache = False, or use lower-llm (delegatekit-llm)"
#: The folder of PyTorch's own source.
_TORCH: Final = str(Path(torch.__file__).parent)


def exported_programs(
    model: Model | Mapping[str, Model],
    inputs: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    stage: AbstractContextManager[Any],
) -> dict[str, ExportedProgram]:
    """The programs by method name; a module is exported within `stage`. Raises LoweringError."""
    if isinstance(model, torch.nn.Module):
        if inputs is None and kwargs is None:
            raise LoweringError(
                "a module needs example inputs", hint="lower(model, (torch.randn(...),), backends=[...])"
            )
        if isinstance(inputs, torch.Tensor):
            raise LoweringError("inputs is a tensor", hint="pass a tuple of inputs: (tensor,)")
        if not isinstance(inputs, Iterable | None) or isinstance(inputs, str):
            raise LoweringError(f"inputs is a {type(inputs).__name__}", hint="pass a tuple of inputs: (tensor,)")
        if not isinstance(kwargs, Mapping | None):
            raise LoweringError(f"kwargs is a {type(kwargs).__name__}", hint="pass a dict of inputs by name")
        with stage:
            return {"forward": _export(model, tuple(inputs or ()), dict(kwargs or {}), dynamic_shapes)}
    if isinstance(model, ExportedProgram | Mapping) and any(
        given is not None for given in (inputs, kwargs, dynamic_shapes)
    ):
        raise LoweringError("an ExportedProgram has its inputs already", hint="drop inputs, kwargs and dynamic_shapes")
    if isinstance(model, ExportedProgram):
        return {"forward": model}
    if not isinstance(model, Mapping):
        raise LoweringError(
            f"cannot lower a {type(model).__name__}",
            hint="pass a torch.nn.Module, an ExportedProgram or a dict of them",
        )
    if not model:
        raise LoweringError("no methods to lower", hint="pass {'forward': exported_program}")
    for name, program in model.items():
        if not isinstance(name, str) or not name:
            raise LoweringError(f"{name!r} is not the name of a method", hint="pass {'forward': exported_program}")
        if not isinstance(program, ExportedProgram):
            raise LoweringError(
                f"method {name!r} is a {type(program).__name__}, not an ExportedProgram",
                hint="export each method with torch.export.export first",
            )
    return dict(model)  # type: ignore[arg-type]


def _export(
    model: torch.nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    inputs, kwargs = _distinct((inputs, kwargs))
    try:
        with torch.no_grad(), torch_logs_nothing():
            return torch.export.export(model, inputs, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:
        # PyTorch's advice about dynamic shapes follows its first line.
        lines = str(error).strip().splitlines() or [""]
        advice = [line.strip() for line in lines if line.startswith("  ") and dynamic_shapes is not None][:8]
        raise LoweringError(
            f"torch.export refused the model: {type(error).__name__}: {'; '.join([lines[0], *advice])}",
            where=_place(model, error),
            hint=_CACHE
            if "Cache'> in output" in lines[0]
            else "torch.export.export(model, inputs) shows the traceback",
        ) from error


def _place(model: torch.nn.Module, error: Exception) -> str:
    """The model's class, and the line of the user's source at which PyTorch gave up."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames[2:] if not frame.filename.startswith((_TORCH, "<"))]
    name = type(model).__name__
    return f"{name} at {users[-1].filename}:{users[-1].lineno}: `{users[-1].line}`" if users else name


def _distinct(inputs: Any) -> Any:
    """The example inputs with a copy in place of a repeated tensor: torch.export would treat both as one."""
    seen: set[int] = set()

    def copied(item: torch.Tensor) -> torch.Tensor:
        if id(item) in seen:
            return item.detach().clone()
        seen.add(id(item))
        return item

    return tree_map_only(torch.Tensor, copied, inputs)
