"""How far a quantized graph is from the float one: signal to noise ratios of each layer, on the calibration inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves

from .report import QuantizationReport


def measure(
    float_module: GraphModule, quantized: GraphModule, inputs: Iterable[Sequence[Any]], report: QuantizationReport
) -> QuantizationReport:
    """The report with its ratios in dB.

    Both graphs have nodes of the same names. `sqnr` compares the values of a whole run, `own_sqnr` those of a run in
    which each layer gets the float graph's values.
    """
    names = {layer.node for layer in report.layers}
    whole = {name: _Ratio() for name in names}
    own = {name: _Ratio() for name in names}
    total = _Ratio()
    with torch.no_grad():
        for values in inputs:
            recorder = _Recorder(float_module, names)
            expected = recorder.run(*values)
            comparer = _Comparer(quantized, recorder.values, whole)
            actual = comparer.run(*values)
            _Forced(quantized, recorder.values, own).run(*values)
            for first, second in zip(tree_leaves(expected), tree_leaves(actual), strict=True):
                total.add(first, second)
    layers = tuple(
        replace(layer, sqnr=whole[layer.node].decibels, own_sqnr=own[layer.node].decibels) for layer in report.layers
    )
    return replace(report, layers=layers, sqnr=total.decibels)


class _Ratio:
    """Energies of a signal and of its noise, summed up."""

    def __init__(self) -> None:
        self._signal = self._noise = 0.0
        self._seen = False

    def add(self, expected: Any, actual: Any) -> None:
        """Count a tensor; what is no tensor of floats is passed over."""
        if not isinstance(expected, torch.Tensor) or not expected.is_floating_point():
            return
        self._seen = True
        exact = expected.double()
        self._signal += float(exact.square().sum())
        self._noise += float((actual.double() - exact).square().sum())

    @property
    def decibels(self) -> float | None:
        """10 log10 of the ratio: infinite without noise, None if nothing was counted."""
        if not self._seen:
            return None
        if self._noise == 0:
            return math.inf
        return 10 * math.log10(self._signal / self._noise) if self._signal else -math.inf


class _Recorder(Interpreter):
    """Runs the float graph and keeps copies of the layers' values: an operator may write into one later."""

    def __init__(self, module: GraphModule, names: set[str]) -> None:
        super().__init__(module)
        self._names = names
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.name in self._names and isinstance(result, torch.Tensor):
            self.values[n.name] = result.clone()
        return result


class _Comparer(Interpreter):
    """Runs the quantized graph and compares."""

    def __init__(self, module: GraphModule, values: dict[str, torch.Tensor], ratios: dict[str, _Ratio]) -> None:
        super().__init__(module)
        self._values = values
        self._ratios = ratios

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.name in self._values:
            self._ratios[n.name].add(self._values[n.name], result)
        return result


class _Forced(_Comparer):
    """Goes on from each layer with the value of the float graph."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        return self._values.get(n.name, result)
