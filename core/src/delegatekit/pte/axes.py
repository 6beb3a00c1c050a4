"""Which sizes of a method's inputs change from call to call, and how: part of the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Axis:
    """A size that changes: `times` * n + `plus`, where n is the same number at all axes of one `name`."""

    name: str
    #: The smallest and the largest size.
    least: int
    most: int
    times: int = 1
    plus: int = 0

    def to_json(self) -> dict[str, Any]:
        """The axis as the manifest has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Axis:
        """The axis that the manifest has. Raises ValueError if it is damaged."""
        numbers = [item.get(key) for key in ("least", "most", "times", "plus")]
        if not all(type(number) is int for number in numbers) or not item["times"] > 0:
            raise ValueError("no axis")
        return cls(str(item.get("name")), *numbers)  # type: ignore[arg-type]


#: The sizes of a method's flat inputs, each a number or an axis that changes; None for an input whose sizes are fixed.
InputAxes: TypeAlias = tuple[tuple[int | Axis, ...] | None, ...]


def axes_to_json(inputs: InputAxes) -> list[Any]:
    """The axes as the manifest has them."""
    return [
        None if sizes is None else [size.to_json() if isinstance(size, Axis) else size for size in sizes]
        for sizes in inputs
    ]


def axes_from_json(content: Any) -> InputAxes:
    """The axes that the manifest has of a method; () if they are damaged."""
    if not isinstance(content, list):
        return ()
    try:
        return tuple(None if sizes is None else tuple(map(_size, sizes)) for sizes in content)
    except (TypeError, ValueError):
        return ()


def _size(item: Any) -> int | Axis:
    if type(item) is int:
        return item
    if isinstance(item, dict):
        return Axis.from_json(item)
    raise ValueError("no size")


def fitting_axes(inputs: InputAxes, shapes: Sequence[Sequence[int] | None]) -> InputAxes:
    """The axes of inputs whose largest sizes the file has as `shapes` (None: no tensor); () if they do not fit."""
    fits = len(inputs) == len(shapes) and all(
        sizes is None
        or (shape is not None and [size.most if isinstance(size, Axis) else size for size in sizes] == list(shape))
        for sizes, shape in zip(inputs, shapes, strict=True)
    )
    return inputs if fits else ()
