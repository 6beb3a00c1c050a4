"""Checks the sizes of a call's inputs against those that the method was exported for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..pte.axes import Axis, InputAxes


class InputSizes:
    """The sizes of a method's inputs that change, and the fixed ones beside them.

    The file format records only that some size of a tensor changes. Without `axes`, from the manifest, all sizes
    up to the largest are accepted.
    """

    def __init__(self, axes: InputAxes) -> None:
        self._changing = [(position, sizes) for position, sizes in enumerate(axes) if sizes is not None]
        #: Sizes that were valid in an earlier call.
        self._known: list[torch.Size | None] | None = None

    def refusal(self, inputs: Sequence[object], describe: Callable[[int], str]) -> tuple[int, str] | None:
        """The first input of wrong sizes, and the fault; None if all are right.

        An input that is no tensor, or that has another rank, is skipped: it is refused anyway.
        """
        if not self._changing:
            return None
        shapes = [item.shape if isinstance(item, torch.Tensor) else None for item in inputs]
        if shapes == self._known:
            return None
        #: Name of a size -> its value, and the place of its first occurrence.
        numbers: dict[str, tuple[int, str]] = {}
        for position, sizes in self._changing:
            shape = shapes[position]
            if shape is None or len(shape) != len(sizes):
                continue
            for axis, (size, wanted) in enumerate(zip(shape, sizes, strict=True)):
                place = f"axis {axis} of {describe(position)}"
                wrong = _wrong(size, wanted, place, numbers)
                if wrong is not None:
                    return position, f"has shape {tuple(shape)}: axis {axis} must be {wrong}"
        self._known = shapes
        return None


def _wrong(size: int, wanted: int | Axis, place: str, numbers: dict[str, tuple[int, str]]) -> str | None:
    """The required size; None if it is right."""
    if isinstance(wanted, int):
        return None if size == wanted else str(wanted)
    if not wanted.least <= size <= wanted.most:
        return f"{wanted.least} to {wanted.most}"
    number, rest = divmod(size - wanted.plus, wanted.times)
    if rest:
        return f"a multiple of {wanted.times}" + (f" plus {wanted.plus}" if wanted.plus else "")
    known, where = numbers.setdefault(wanted.name, (number, place))
    return None if known == number else f"{known * wanted.times + wanted.plus}, which follows from {where}"
