"""`--dynamic INPUT:AXIS=NAME:MIN..MAX`: sizes of a module's inputs that may change from call to call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..pipeline import Source
from .console import usage

if TYPE_CHECKING:
    import torch
    from torch.export import Dim

#: Axis -> its size.
Axes: TypeAlias = "dict[int, Dim]"
_FORM: Final = re.compile(r"(\w+):(-?\d+)=([A-Za-z_]\w*):(\d+)\.\.(\d+)")
#: Sizes have 32 bits in the file.
_LARGEST: Final = 2**31 - 1
_HINT: Final = "--dynamic x:0=batch:1..8 lets axis 0 of the input x have 1 to 8 elements"


@dataclass(frozen=True)
class _Change:
    """An axis of an input whose size may change, and within which bounds."""

    text: str
    argument: str
    axis: int
    name: str
    least: int
    most: int


def with_dynamic_shapes(model: Source, texts: Sequence[str]) -> Source:
    """The model with the `dynamic_shapes` that `texts` ask for.

    An example that has one element along such an axis gets two: torch.export takes a one for a constant.
    """
    from torch.nn import Module

    if not texts:
        return model
    if not isinstance(model.model, Module):
        usage("--dynamic is for modules: this program is exported already, and its sizes are settled", _EXPORT)
    if model.dynamic_shapes is not None:
        usage("--dynamic and dynamic_shapes are both given: the model's function returns its own", "choose one of them")
    changes = [_parse(text) for text in texts]
    _check_names(changes)
    inputs, kwargs = tuple(model.inputs or ()), dict(model.kwargs or {})
    arguments = _arguments(model.model, inputs, kwargs)
    shapes: dict[str, Axes | None] = dict.fromkeys(arguments)
    for change in changes:
        axis, known = _axis(change, arguments), shapes.get(change.argument) or {}
        if axis in known:
            usage(f"--dynamic {change.text!r}: axis {axis} of {change.argument} is given twice", "keep one of them")
        shapes[change.argument] = known | {axis: _dimension(change)}
    stretched = _stretched(arguments, shapes)
    return replace(
        model,
        inputs=tuple(stretched.get(id(value), value) for value in inputs),
        kwargs={name: stretched.get(id(value), value) for name, value in kwargs.items()} or None,
        dynamic_shapes=shapes,
    )


_EXPORT: Final = "give dynamic_shapes to torch.export.export"


def _parse(text: str) -> _Change:
    found = _FORM.fullmatch(text)
    if found is None:
        usage(f"--dynamic {text!r} is not of the form INPUT:AXIS=NAME:MIN..MAX", _HINT)
    argument, axis, name, least, most = found.groups()
    change = _Change(text, argument, int(axis), name, int(least), int(most))
    if change.least >= change.most:
        usage(f"--dynamic {text!r}: {least}..{most} is no range in which a size can change", _HINT)
    if change.most > _LARGEST:
        usage(f"--dynamic {text!r}: {most} is more than the {_LARGEST} elements that an axis can have")
    return change


def _check_names(changes: Sequence[_Change]) -> None:
    bounds: dict[str, _Change] = {}
    for change in changes:
        other = bounds.setdefault(change.name, change)
        if (other.least, other.most) != (change.least, change.most):
            usage(
                f"--dynamic gives {change.name} two ranges: {other.text!r} and {change.text!r}",
                "sizes of one name are equal: give the same range, or another name",
            )


def _arguments(module: torch.nn.Module, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The example inputs by the names of the module's parameters."""
    try:
        return dict(inspect.signature(module.forward).bind(*inputs, **kwargs).arguments)
    except TypeError as error:
        return usage(f"the example inputs do not fit {type(module).__name__}.forward: {error}")


def _axis(change: _Change, arguments: Mapping[str, Any]) -> int:
    """The axis, counted from the front, that a change is about; it exists and the example is within the bounds."""
    import torch

    if change.argument not in arguments:
        usage(
            f"--dynamic {change.text!r}: the model has no input {change.argument!r}", f"its inputs: {_list(arguments)}"
        )
    value = arguments[change.argument]
    if not isinstance(value, torch.Tensor):
        usage(
            f"--dynamic {change.text!r}: {change.argument} is a {type(value).__name__}, not a tensor",
            "have the model's function return (module, inputs, kwargs, dynamic_shapes)",
        )
    if not -value.dim() <= change.axis < value.dim():
        usage(f"--dynamic {change.text!r}: {change.argument} has {value.dim()} axes, shape {list(value.shape)}")
    axis = change.axis % value.dim()
    if not change.least <= value.shape[axis] <= change.most:
        usage(
            f"--dynamic {change.text!r}: the example has {value.shape[axis]} elements there, shape {list(value.shape)}"
        )
    return axis


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "none"


def _dimension(change: _Change) -> Dim:
    from torch.export import Dim

    return Dim(change.name, min=change.least, max=change.most)


def _stretched(arguments: Mapping[str, Any], shapes: Mapping[str, Axes | None]) -> dict[int, torch.Tensor]:
    """Examples in place of those with a single element along an axis that changes, by the identity of the example."""
    found = {}
    for name, axes in shapes.items():
        value = arguments[name]
        single = [axis for axis in axes or () if value.shape[axis] == 1]
        if single:
            found[id(value)] = value.repeat([2 if axis in single else 1 for axis in range(value.dim())])
    return found
