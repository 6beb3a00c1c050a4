"""Checks the backends' estimates of their delegates against a budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from delegatekit_api import LoweringError
from delegatekit_api.devices import Estimate
from delegatekit_toolkit.number_text import BYTES, human_size, human_time, with_unit

from ..errors.misuse import WrongArgumentError
from . import Delegate, LoweredMethod

#: "latency" (seconds) or the name of a memory (bytes) -> a number, or a string such as "512KB" or "20ms".
Budget: TypeAlias = Mapping[str, float | str]

LATENCY: Final = "latency"
_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def check_budget(methods: Mapping[str, LoweredMethod], budget: Budget) -> None:
    """Check the delegates' estimates against a budget.

    Latencies of a method's delegates add up (each counted once, regardless of control flow), and the slowest method
    counts; of memory that is needed while a delegate runs the largest counts; what delegates keep adds up, over all
    methods. Operators outside delegates are not counted. Raises LoweringError with all exceeded figures, for a
    name that no delegate has an estimate of, or for a delegate without one.
    """
    limits = {name: parse_limit(name, value) for name, value in budget.items()}
    figures = {name: _figure(name, methods) for name in limits}
    over = [
        f"{name} is {_shown(name, figures[name])}, {_shown(name, limit)} are allowed"
        for name, limit in limits.items()
        if figures[name] > limit
    ]
    if over:
        source = next(delegate.estimate.source for _, delegate in _all(methods) if delegate.estimate is not None)
        hint = f"estimated by {source}: use a smaller model, other options or another device"
        raise LoweringError("; ".join(over), where="budget", hint=hint)


def parse_limit(name: str, value: float | str) -> float:
    """A limit in seconds or bytes: "20ms", "512KB" (1024 bytes to the KB), or a number. Raises LoweringError."""
    limit = with_unit(str(value), _SECONDS if name == LATENCY else BYTES)
    if limit is not None:
        return limit
    allowed = ", ".join(("s", "ms", "us") if name == LATENCY else ("B", "KB", "MB", "GB"))
    raise WrongArgumentError(
        f"{name} = {value!r} is not a limit", where="budget", hint=f"a number with one of {allowed}"
    )


def _shown(name: str, value: float) -> str:
    return human_time(value) if name == LATENCY else f"{human_size(round(value))} ({round(value):,} bytes)"


def _all(methods: Mapping[str, LoweredMethod]) -> Iterator[tuple[str, Delegate]]:
    for name, method in methods.items():
        for delegate in method.delegates:
            yield name, delegate


def _figure(name: str, methods: Mapping[str, LoweredMethod]) -> float:
    """The total of all delegates for one budget item."""
    known: set[str] = set()
    latencies: dict[str, float] = {}
    needed, kept = 0, {}
    for method, delegate in _all(methods):
        estimate = delegate.estimate or Estimate("")
        figures = {**estimate.memory, **estimate.storage}
        if estimate.latency is not None:
            figures[LATENCY] = 0
        known.update(figures)
        if name not in figures:
            raise _unknown(name, known, f"a delegate of backend {delegate.chosen.backend.name} in method {method}")
        if name == LATENCY:
            latencies[method] = latencies.get(method, 0.0) + (estimate.latency or 0.0)
        needed = max(needed, estimate.memory.get(name, 0))
        # A module that is called twice is stored once.
        kept[id(delegate.blob)] = estimate.storage.get(name, 0)
    if not kept:
        raise _unknown(name, known, "the program: it has no delegate")
    return max(latencies.values()) if name == LATENCY else needed + sum(kept.values())


def _unknown(name: str, known: set[str], what: str) -> LoweringError:
    hint = f"there are estimates of {', '.join(sorted(known))}" if known else "its backend estimates nothing"
    return LoweringError(f"there is no estimate of {name!r} for {what}", where="budget", hint=hint)
