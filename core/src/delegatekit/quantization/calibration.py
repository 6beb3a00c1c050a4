"""The calibration data: an iterable of inputs, checked during iteration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from delegatekit_api import QuantizationError
from delegatekit_api.observers import StageEvent

from ..plugins import notify


class Calibration:
    """Inputs of a model, each a tuple. A one-shot iterable is stored if it is needed again (`repeatable`)."""

    def __init__(self, data: Iterable[Any], *, repeatable: bool, progress: bool | None) -> None:
        if isinstance(data, torch.Tensor):
            raise QuantizationError(
                "calibration is a tensor", hint="pass a list of inputs: [tensor, ...] or [(a, b), ...]"
            )
        if not isinstance(data, Iterable):
            raise QuantizationError(f"calibration is a {type(data).__name__}, not an iterable of inputs")
        self._data: Iterable[Any] = data
        if repeatable and iter(data) is data:
            self._data = list(data)
        self._progress = progress
        self._rest: Iterator[Any] | None = iter(self._data)
        first = next(self._rest, None)
        if first is None:
            raise QuantizationError("calibration is empty", hint="pass at least one input; a hundred are usual")
        #: The first inputs, with which the model is exported.
        self.example = self._checked(0, first, None)
        self._once = iter(self._data) is self._data
        self.count = 0

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """All inputs in order."""
        self.count, total = 0, self._total()
        notify(StageEvent("calibrate", "start"))
        with _bar(total, self._progress) as advance:
            for index, item in enumerate(self._items()):
                yield self._checked(index, item, self.example)
                self.count += 1
                notify(StageEvent("calibrate", "progress", done=self.count, total=total or 0))
                advance()

    def restarts(self) -> bool:
        """True if all inputs can be read again, during an iteration."""
        return self.count == 0 or not self._once

    def _items(self) -> Iterator[Any]:
        if self._once:
            assert self._rest is not None, "read once"
            yield self.example
            rest, self._rest = self._rest, None
            yield from rest
        else:
            yield from self._data

    def _total(self) -> int | None:
        try:
            return len(self._data)  # type: ignore[arg-type]
        except TypeError:
            return None

    def _checked(self, index: int, item: Any, example: Sequence[Any] | None) -> tuple[Any, ...]:
        where = f"calibration input {index}"
        values = tuple(item) if isinstance(item, tuple | list) else (item,)
        for position, value in enumerate(values):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise QuantizationError(f"value {position} has infinities or NaNs", where=where)
        if example is None:
            return values
        if len(values) != len(example):
            raise QuantizationError(f"has {len(values)} values, the first has {len(example)}", where=where)
        for position, (value, first) in enumerate(zip(values, example, strict=True)):
            if isinstance(first, torch.Tensor) != isinstance(value, torch.Tensor) or (
                isinstance(first, torch.Tensor) and first.dtype != value.dtype
            ):
                raise QuantizationError(
                    f"value {position} is {describe(value)}, in the first input it is {describe(first)}", where=where
                )
        return values


def describe(value: Any) -> str:
    """A short description of a value."""
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"


@contextmanager
def _bar(total: int | None, wanted: bool | None) -> Iterator[Any]:
    """A progress bar on stderr: on a terminal, or on request."""
    from rich.progress import Progress

    from ..text.terminal import Terminal

    console = Terminal(stderr=True)
    shown = console.is_terminal if wanted is None else wanted
    with Progress(console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("calibrating", total=total)
        yield lambda: progress.advance(task)
