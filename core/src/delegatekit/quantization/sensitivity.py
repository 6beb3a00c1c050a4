"""The error of a quantized graph against float: signal to noise ratios of each layer, on the calibration inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves

from .graph import copied
from .ratio import SignalToNoise
from .report import QuantizationReport
from .state import give_own_state, state_kept


def measure(
    float_module: GraphModule, quantized: GraphModule, inputs: Iterable[Sequence[Any]], report: QuantizationReport
) -> QuantizationReport:
    """The report with its ratios in dB.

    Both graphs have nodes of the same names. `sqnr` compares the values of a whole run, `own_sqnr` those of a run in
    which each layer gets the float graph's values. Each of the three runs has its own state, from input to input.
    """
    names = {layer.node for layer in report.layers}
    whole = {name: SignalToNoise() for name in names}
    own = {name: SignalToNoise() for name in names}
    total = SignalToNoise()
    forced = copied(quantized)
    give_own_state(forced)
    with torch.no_grad(), state_kept(float_module), state_kept(quantized):
        for values in inputs:
            recorder = _Recorder(float_module, names)
            expected = recorder.run(*values)
            comparer = _Comparer(quantized, recorder.values, whole)
            actual = comparer.run(*values)
            _Forced(forced, recorder.values, own).run(*values)
            for first, second in zip(tree_leaves(expected), tree_leaves(actual), strict=True):
                total.add(first, second)
    layers = tuple(
        replace(layer, sqnr=whole[layer.node].decibels, own_sqnr=own[layer.node].decibels) for layer in report.layers
    )
    return replace(report, layers=layers, sqnr=total.decibels)


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

    def __init__(self, module: GraphModule, values: dict[str, torch.Tensor], ratios: dict[str, SignalToNoise]) -> None:
        super().__init__(module)
        self._values = values
        self._ratios = ratios

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.name in self._values:
            self._ratios[n.name].add(self._values[n.name], result)
        return result


class _Forced(_Comparer):
    """Replaces the value of each layer by that of the float graph."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        return self._values.get(n.name, result)
