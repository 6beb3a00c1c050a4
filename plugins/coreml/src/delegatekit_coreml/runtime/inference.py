"""Types and shapes of a tape's values, for inputs of given sizes: from executing it on tensors without elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from delegatekit_api import FormatError
from delegatekit_toolkit.dataflow import element_count

from ..ir.program import TensorType
from .kernel import held_as
from .tape import FAULTS, Call, Tape

#: Values of at most this many elements are computed, if all their operands are known: they may be sizes.
_FEW: Final = 64


def check_types(tape: Tape, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes of the outputs by name, for inputs of these shapes.

    Raises FormatError for a result whose type or shape differs from the declared one.
    """
    values: list[Any] = [None if item is None else _known(item) for item in tape.constants]
    for place, state in tape.states.items():
        values[place] = state.to("meta")
    for name, place in tape.inputs.items():
        values[place] = torch.empty(shapes[name], dtype=held_as(tape.types[name].datatype), device="meta")
    for call in tape.calls:
        for place, value in zip(call.results, _results(call, values), strict=False):
            values[place] = value
    return {name: tuple(values[place].shape) for name, place in tape.outputs.items()}


def _known(constant: torch.Tensor) -> torch.Tensor:
    return constant if constant.numel() <= _FEW else constant.to("meta")


def _results(call: Call, values: Sequence[Any]) -> Sequence[torch.Tensor]:
    """The results of a call: with elements only if few follow from known ones."""
    if any(values[place].is_meta for place in call.sizes.values()):
        return [_declared(kind, call.where) for kind in call.types]
    places = [place for item in call.reads.values() for place in (item if isinstance(item, tuple) else (item,))]
    is_known = all(not values[place].is_meta for place in places)
    wanted = list(values)
    for place in places:
        wanted[place] = values[place].to("meta")
    made = _checked(call, guarded(lambda: call.compute(wanted), call.where))
    if not (is_known or call.kernel.of_sizes) or any(value.numel() > _FEW for value in made):
        return made
    return made if call.kernel.of_sizes else _checked(call, guarded(lambda: call.compute(values), call.where))


def _declared(kind: TensorType, where: str) -> torch.Tensor:
    """A result with the declared sizes, if they depend on elements."""
    if None in kind.shape:
        raise FormatError("has sizes that depend on elements, which is not supported", where=where)
    sizes = tuple(size for size in kind.shape if size is not None)
    return torch.empty(sizes, dtype=held_as(kind.datatype), device="meta")


def _checked(call: Call, results: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    if len(results) < len(call.types):
        raise FormatError(f"has {len(results)} results, the program says {len(call.types)}", where=call.where)
    for value, kind in zip(results, call.types, strict=False):
        check_result(value, kind, call.where)
    return results


def check_result(value: torch.Tensor, kind: TensorType, where: str) -> None:
    """Raise FormatError for a value that is not of the declared type, or too large."""
    fits = value.dim() == len(kind.shape) and all(
        known in (None, size) for size, known in zip(value.shape, kind.shape, strict=True)
    )
    if not fits or value.dtype != held_as(kind.datatype):
        raise FormatError(f"has the result {value.dtype} {tuple(value.shape)}, the program says {kind}", where=where)
    element_count(tuple(value.shape), where, item_bytes=4, least=0)


def guarded(function: Callable[[], Any], where: str) -> Any:
    """A function's result. Raises FormatError for what PyTorch refuses."""
    try:
        return function()
    except FAULTS as error:
        raise FormatError(
            f"cannot be executed: {str(error).splitlines()[0] if str(error) else error!r}", where=where
        ) from None
