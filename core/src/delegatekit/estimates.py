"""What backends expect their delegates to cost: shown by `inspect` and reports, held to budgets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from delegatekit_api import Estimate, LoweringError

from .text import human_size

if TYPE_CHECKING:
    from .lowering import Delegate, LoweredMethod

#: So many layers are shown unless all are asked for.
_SHOWN: Final = 10

#: "latency" (seconds) or the name of a memory (bytes) -> a number, or a text such as "512KB" or "20ms".
Budget: TypeAlias = Mapping[str, float | str]

LATENCY: Final = "latency"
_UNITS: Final = {"b": 1, "kb": 1 << 10, "kib": 1 << 10, "mb": 1 << 20, "mib": 1 << 20, "gb": 1 << 30, "gib": 1 << 30}
_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def summary(estimate: Estimate) -> str:
    """One line: "24.62 ms, sram 1.5 MiB, flash 3.4 MiB (compiler 2.1 for chip-x)"."""
    parts = [] if estimate.latency is None else [human_time(estimate.latency)]
    if estimate.cycles is not None:
        parts.append(f"{estimate.cycles:,} cycles")
    sizes = {**estimate.memory, **estimate.storage}
    parts.extend(f"{name} {human_size(size)}" for name, size in sizes.items() if size)
    return f"{', '.join(parts)} ({estimate.source})"


def layer_lines(estimate: Estimate, *, every: bool = False) -> Iterator[str]:
    """The layers as a table, in order; without `every` only those that take longest."""
    layers = [layer for layer in estimate.layers if every or layer.latency]
    longest = sorted(range(len(layers)), key=lambda index: -layers[index].latency)
    shown = sorted(longest if every else longest[:_SHOWN])
    if not shown:
        return
    total = sum(layer.latency for layer in estimate.layers) or 1.0
    width = max(len(layers[index].operator) for index in shown)
    head = f"{'cycles':>12} {'time':>10} {'share':>6} {'MACs':>12} {'used':>6} {'memory':>10}"
    yield f"{head}  {'operator':<{width}} layer"
    for layer in (layers[index] for index in shown):
        cycles = "" if layer.cycles is None else f"{layer.cycles:,}"
        memory = human_size(max(layer.memory.values(), default=0))
        yield (
            f"{cycles:>12} {human_time(layer.latency):>10} {100 * layer.latency / total:5.1f}% {layer.macs:>12,} "
            f"{100 * layer.utilization:5.1f}% {memory:>10}  {layer.operator:<{width}} {layer.name}"
        )
    if len(shown) < len(estimate.layers):
        yield f"(the {len(shown)} longest of {len(estimate.layers)} layers: --layers shows all)"


def human_time(seconds: float) -> str:
    """A time: "24.62 ms", "1.20 s"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds / 1e-6:.2f} us"


# -- budgets ---------------------------------------------------------------------------------------------------------


def check_budget(methods: Mapping[str, LoweredMethod], budget: Budget) -> None:
    """Hold the delegates' estimates to a budget.

    Latencies of a method's delegates add up (each counted once, whatever control flow does), and the slowest method
    counts; of memory that is needed while a delegate runs the largest counts; what delegates keep adds up, over all
    methods. Operators outside delegates are not counted. Raises LoweringError with all figures that are over, for a
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
        hint = f"so says {source}: take a smaller model, other options or another device"
        raise LoweringError("; ".join(over), where="budget", hint=hint)


def parse_limit(name: str, value: float | str) -> float:
    """A limit in seconds or bytes: "20ms", "512KB" (1024 bytes to the KB), or a number. Raises LoweringError."""
    units = _SECONDS if name == LATENCY else _UNITS
    match = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", str(value).lower())
    try:
        if match is not None and (not match[2] or match[2] in units):
            return float(match[1]) * units.get(match[2], 1)
    except ValueError:
        pass
    allowed = ", ".join(("s", "ms", "us") if name == LATENCY else ("B", "KB", "MB", "GB"))
    raise LoweringError(f"{name} = {value!r} is not a limit", where="budget", hint=f"a number with one of {allowed}")


def _shown(name: str, value: float) -> str:
    return human_time(value) if name == LATENCY else f"{human_size(round(value))} ({round(value):,} bytes)"


def _all(methods: Mapping[str, LoweredMethod]) -> Iterator[tuple[str, Delegate]]:
    for name, method in methods.items():
        for delegate in method.delegates:
            yield name, delegate


def _figure(name: str, methods: Mapping[str, LoweredMethod]) -> float:
    """What all delegates together take of one thing."""
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
