"""Estimates as text: one line, and a table of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from delegatekit_api.devices import Estimate, LayerEstimate
from delegatekit_toolkit.number_text import human_size, human_time

#: The number of layers shown by default.
_SHOWN: Final = 10


def summary(estimate: Estimate) -> str:
    """One line: "24.62 ms, sram 1.5 MiB, flash 3.4 MiB (compiler 2.1 for chip-x)"; empty if nothing is estimated."""
    parts = [] if estimate.latency is None else [human_time(estimate.latency)]
    if estimate.cycles is not None:
        parts.append(f"{estimate.cycles:,} cycles")
    sizes = {**estimate.memory, **estimate.storage}
    parts.extend(f"{name} {human_size(size)}" for name, size in sizes.items() if size)
    return f"{', '.join(parts)} ({estimate.source})" if parts else ""


def layer_lines(estimate: Estimate, *, every: bool = False, narrow: bool = False) -> Iterator[str]:
    """The layers as a table, in order; without `every` only the longest; if `narrow`, in short lines."""
    layers = [layer for layer in estimate.layers if every or layer.latency]
    longest = sorted(range(len(layers)), key=lambda index: -layers[index].latency)
    shown = sorted(longest if every else longest[:_SHOWN])
    if not shown:
        return
    total = sum(layer.latency for layer in estimate.layers) or 1.0
    lines = _short_lines if narrow else _table_lines
    yield from lines([layers[index] for index in shown], total)
    if len(shown) < len(estimate.layers):
        yield f"(the {len(shown)} longest of {len(estimate.layers)} layers: `inspect --layers` shows all)"


def _short_lines(layers: Sequence[LayerEstimate], total: float) -> Iterator[str]:
    """Three lines for each layer, for narrow terminals."""
    for layer in layers:
        cycles = "" if layer.cycles is None else f", {layer.cycles:,} cycles"
        yield f"{layer.operator} {layer.name}"
        yield f"  {human_time(layer.latency)}, {100 * layer.latency / total:.1f}%{cycles}"
        yield f"  {layer.macs:,} MACs, {100 * layer.utilization:.1f}% used, {_memory(layer)}"


def _memory(layer: LayerEstimate) -> str:
    return human_size(max(layer.memory.values(), default=0))


def _table_lines(layers: Sequence[LayerEstimate], total: float) -> Iterator[str]:
    width = max(len(layer.operator) for layer in layers)
    head = f"{'cycles':>12} {'time':>10} {'share':>6} {'MACs':>12} {'used':>6} {'memory':>10}"
    yield f"{head}  {'operator':<{width}} layer"
    for layer in layers:
        cycles = "" if layer.cycles is None else f"{layer.cycles:,}"
        yield (
            f"{cycles:>12} {human_time(layer.latency):>10} {100 * layer.latency / total:5.1f}% {layer.macs:>12,} "
            f"{100 * layer.utilization:5.1f}% {_memory(layer):>10}  {layer.operator:<{width}} {layer.name}"
        )
