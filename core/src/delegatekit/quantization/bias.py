"""Bias correction: subtracts the mean error of each layer's channels from its bias, over the calibration inputs.

Rounded weights and clipped activations shift the means of a layer's channels, and the shifts add up from layer to
layer. The constant part of such an error is removed at no cost at run time. This is the empirical form of Nagel et al.,
"Data-Free Quantization through Weight Equalization and Bias Correction" (2019), in the order of the graph: each layer
is corrected after the layers before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import torch
from torch.fx import GraphModule, Interpreter, Node

from .graph import attribute, constants, set_attribute, short_name
from .patterns import ROLES, channel_dimension
from .state import state_kept

#: Limit of the inputs that are used: the values of all of them are in memory at the same time.
MOST_SAMPLES: Final = 64

#: The constant of a bias, and its user: the layer, or the quantize before the layer.
_Place: TypeAlias = tuple[Node, Node]


def correct_biases(
    float_module: GraphModule, quantized: GraphModule, inputs: Iterable[Sequence[Any]], layers: Iterable[str]
) -> None:
    """Correct the biases of `quantized` in place.

    Both graphs have nodes of the same names; `layers` names them. Layers without a bias are skipped. A bias
    that becomes integers must still be a float constant followed by its quantize. Each sample starts with the
    model's initial state.
    """
    names = set(layers)
    found = {node: _place(node) for node in quantized.graph.nodes if node.name in names}
    places = {node: place for node, place in found.items() if place is not None}
    samples = [tuple(values) for values in islice(inputs, MOST_SAMPLES)]
    with torch.no_grad():
        expected = _Means(float_module, {node.name: channel_dimension(node) for node in places}).over(samples)
        with state_kept(quantized):
            _run_and_correct(quantized, samples, places, expected)
    quantized.recompile()


def _place(layer: Node) -> _Place | None:
    roles = ROLES.get(short_name(layer))
    if roles is None or roles.bias is None or len(layer.args) <= roles.bias:
        return None
    user, bias = layer, layer.args[roles.bias]
    while isinstance(bias, Node) and bias.op == "call_function" and "quantize" in str(bias.target):
        user, bias = bias, bias.args[0]
    return (bias, user) if isinstance(bias, Node) and bias.op == "get_attr" else None


def _mean(value: torch.Tensor, channels: int) -> torch.Tensor:
    """The mean of each channel of one sample: (C,), in float64."""
    return value.movedim(channels, 0).flatten(1).double().mean(1)


class _Means(Interpreter):
    """The means of layers' channels over samples, in the float graph. `channels`: name -> dimension."""

    def __init__(self, module: GraphModule, channels: Mapping[str, int]) -> None:
        super().__init__(module)
        self._graph = module
        self._channels = channels
        self._means: dict[str, torch.Tensor] = {}

    def over(self, samples: Sequence[tuple[Any, ...]]) -> dict[str, torch.Tensor]:
        """Layer -> (C,)."""
        for values in samples:
            with state_kept(self._graph):
                self.run(*values)
        return {name: total / len(samples) for name, total in self._means.items()}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.name in self._channels:
            self._means[n.name] = self._means.get(n.name, 0.0) + _mean(result, self._channels[n.name])
        return result


def _run_and_correct(
    module: GraphModule,
    samples: Sequence[tuple[Any, ...]],
    places: Mapping[Node, _Place],
    expected: Mapping[str, torch.Tensor],
) -> None:
    """Run all samples node by node; correct each layer before its successors run."""
    fixed = constants(module, every=True)
    runs = [Interpreter(module) for _ in samples]
    for run, values in zip(runs, samples, strict=True):
        run.args_iter = iter(module.graph.process_inputs(*values))
    for node in list(module.graph.nodes):
        if node in fixed:  # weights are quantized once, not once for each sample
            value = runs[0].run_node(node)
            for run in runs:
                run.env[node] = value
        elif node.op != "output":
            for run in runs:
                run.env[node] = run.run_node(node)
        if node in places:
            dimension = channel_dimension(node)
            mean = sum(_mean(run.env[node], dimension) for run in runs) / len(runs)
            error = (expected[node.name] - mean).to(torch.float32)
            for run in runs:
                run.env[node] = run.env[node] + error.reshape(-1, *[1] * (-1 - dimension))
            _add(module, places[node], error)
        for run in runs:
            for value in run.user_to_last_uses.get(node, ()):
                del run.env[value]


def _add(module: GraphModule, place: _Place, error: torch.Tensor) -> None:
    bias, user = place
    path = str(bias.target)
    corrected = attribute(module, path).detach() + error
    if len(bias.users) == 1:
        set_attribute(module, path, corrected)
        return
    # Other layers have the same bias, but not the same error.
    path = f"{path.replace('.', '_')}_of_{user.name}"
    set_attribute(module, path, corrected)
    with module.graph.inserting_before(user):
        own = module.graph.get_attr(path)
    own.meta = dict(bias.meta)
    user.replace_input_with(bias, own)
