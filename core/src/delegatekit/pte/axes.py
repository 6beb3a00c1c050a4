"""The changing sizes of a method's inputs: part of the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Axis:
    """A changing size: `times` * n + `plus`, where n is the same number at all axes of one `name`."""

    name: str
    #: The smallest and the largest size.
    least: int
    most: int
    times: int = 1
    plus: int = 0

    def to_json(self) -> dict[str, Any]:
        """The axis in the manifest's form."""
        return asdict(self)

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Axis:
        """The axis from the manifest. Raises ValueError if it is damaged."""
        numbers = [item.get(key) for key in ("least", "most", "times", "plus")]
        if not all(type(number) is int for number in numbers) or not item["times"] > 0:
            raise ValueError("no axis")
        return cls(str(item.get("name")), *numbers)  # type: ignore[arg-type]


#: The sizes of a method's flat inputs, each a number or an axis that changes; None for an input whose sizes are fixed.
InputAxes: TypeAlias = tuple[tuple[int | Axis, ...] | None, ...]


def axes_to_json(inputs: InputAxes) -> list[Any]:
    """The axes in the manifest's form."""
    return [
        None if sizes is None else [size.to_json() if isinstance(size, Axis) else size for size in sizes]
        for sizes in inputs
    ]


def axes_from_json(content: Any) -> InputAxes:
    """The axes of a method from the manifest; () if they are damaged."""
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
    """The axes of inputs with these largest `shapes` in the file (None: no tensor); () if they do not fit."""
    fits = len(inputs) == len(shapes) and all(
        sizes is None
        or (shape is not None and [size.most if isinstance(size, Axis) else size for size in sizes] == list(shape))
        for sizes, shape in zip(inputs, shapes, strict=True)
    )
    return inputs if fits else ()
