"""The quality of quantized layers: their error and its bias, beside those of a textbook's quantizer on the same data.

The textbook: symmetric weights with a scale for each output channel, affine activations, ranges from minimum to
maximum, rounding to the nearest step; written here in plain torch. A scheme may choose its ranges better, and may be
worse by `FACTOR` in any output channel, no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

import delegatekit
from delegatekit.plugins import discovery
from delegatekit_api import QuantizationError
from delegatekit_api.schemes import QuantizationRule, QuantizationScheme, TensorQuantization
from delegatekit_toolkit.accuracy import ROUNDOFF

from ...context import Context
from ...declaration import Measured
from ...outcome import Outcome, Verdict
from ...trial import Runnable, attempt, flatten, words
from ..base import Case
from ..quantized import SchemeCase, inexactness, output_scales
from .collect import steps_of

#: Factor by which a scheme's root mean square error may exceed the textbook's: two bits.
FACTOR = 4.0
#: A mean signed error is a bias beyond this many of its standard errors, ...
SIGNIFICANT = 8.0
#: ... and a fault beyond this part of a step: truncation loses half a step.
MATERIAL = 0.25
_BITS = TensorQuantization()


@dataclass(frozen=True)
class Situation:
    """Weights and inputs of one layer."""

    name: str
    #: Changes a weight of normal numbers (out, in, ...) and inputs of normal numbers (rows, in, ...).
    weight: Callable[[torch.Tensor], torch.Tensor] = lambda weight: weight
    inputs: Callable[[torch.Tensor], torch.Tensor] = lambda inputs: inputs
    #: Changes a small bias.
    bias: Callable[[torch.Tensor], torch.Tensor] = lambda bias: bias
    #: The power of two that `_BIAS` is in steps of inputs times weights, about; 0: as they are.
    power: int = 0


def _channels(weight: torch.Tensor) -> torch.Tensor:
    """Factors from 1/64 to 1, one for each output channel."""
    exponents = torch.linspace(-6, 0, weight.shape[0])
    return (2.0**exponents).reshape(-1, *[1] * (weight.dim() - 1))


def _without_some(weight: torch.Tensor) -> torch.Tensor:
    alive = (torch.arange(weight.shape[0]) % 4 != 1).to(weight.dtype)
    return weight * alive.reshape(-1, *[1] * (weight.dim() - 1))


def _outlier(inputs: torch.Tensor) -> torch.Tensor:
    inputs = inputs.clone()
    inputs.reshape(-1)[::997] *= 6.0
    return inputs


SITUATIONS: Sequence[Situation] = (
    Situation("plain numbers"),
    Situation("tiny weights", lambda weight: weight * 2.0**-8),
    Situation("a wide range of weights", lambda weight: weight * _channels(weight)),
    Situation("inputs of one sign", inputs=lambda inputs: inputs.abs() + 0.5),
    Situation("channels without weights", _without_some),
    Situation("a narrow range of inputs", inputs=lambda inputs: inputs * 2.0**-9),
    Situation("inputs with outliers", inputs=_outlier),
)


#: A bias beside which products hardly count, and the number of steps that eight bits have.
_BIAS = 5.0
_STEPS = 255


def _one(sign: float, bias: torch.Tensor) -> torch.Tensor:
    bias = bias.clone()
    bias[2] = sign * _BIAS
    return bias


def _every(sign: float, bias: torch.Tensor) -> torch.Tensor:
    return torch.full_like(bias, sign * _BIAS)


def _both(bias: torch.Tensor) -> torch.Tensor:
    return bias.sign() * _BIAS


def _large_biases() -> Iterator[Situation]:
    """Biases that int32 holds in steps of the sums, that it hardly holds, and that it does not by far."""
    for power in (30, 31, 33, 41):
        for sign, word in ((1.0, "above"), (-1.0, "below")):
            yield Situation(f"one bias {word} 0, 2^{power} steps", bias=partial(_one, sign), power=power)
            yield Situation(f"all biases {word} 0, 2^{power} steps", bias=partial(_every, sign), power=power)
        yield Situation(f"biases of both signs, 2^{power} steps", bias=_both, power=power)


LARGE_BIASES: Sequence[Situation] = tuple(_large_biases())


class _Layers(nn.Module):
    """One layer for each situation, side by side."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(value) for layer, value in zip(self.layers, inputs, strict=True))


def linear_layers(situations: Sequence[Situation] = SITUATIONS) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """32 inputs to 8 outputs, 256 rows."""
    return _filled(lambda: nn.Linear(32, 8), (256, 32), situations)


def convolutions(situations: Sequence[Situation] = SITUATIONS) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """3x3 convolutions of 4 channels to 8, on 16x16 places."""
    return _filled(lambda: nn.Conv2d(4, 8, 3, padding=1), (1, 4, 16, 16), situations)


def transposed_convolutions(
    situations: Sequence[Situation] = SITUATIONS,
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """2x2 transposed convolutions of 4 channels to 8, from 8x8 places to 16x16."""
    return _filled(lambda: nn.ConvTranspose2d(4, 8, 2, 2), (1, 4, 8, 8), situations)


def _filled(
    make: Callable[[], nn.Module], shape: tuple[int, ...], situations: Sequence[Situation]
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(7)
    layers, inputs = [], []
    for situation in situations:
        layer: Any = make()
        value = situation.inputs(torch.randn(shape, generator=generator))
        with torch.no_grad():
            weight = torch.randn(layer.weight.shape, generator=generator) / math.sqrt(layer.weight[0].numel())
            weight = situation.weight(weight)
            factor = _factor(value, weight, situation.power)
            value = value * factor
            layer.weight.copy_(weight * factor)
            layer.bias.zero_()
            # About half a step of the result, up and down: visible only in a mean error.
            spread = float(layer(value).std())
            signs = torch.tensor([1.0, -1.0]).repeat(layer.bias.numel() // 2)
            layer.bias.copy_(situation.bias(0.02 * spread * signs))
        layers.append(layer.eval().requires_grad_(False))
        inputs.append(value)
    return _Layers(layers).eval(), tuple(inputs)


def _factor(value: torch.Tensor, weight: torch.Tensor, power: int) -> float:
    """The factor of inputs and of weights with which `_BIAS` is so many steps of their products.

    Both get the same one: a scale has a least value, and tiny inputs alone would reach it.
    """
    if not power:
        return 1.0
    steps = float(value.max() - value.min()) / _STEPS, 2 * float(weight.abs().max()) / _STEPS
    return math.sqrt(_BIAS / 2.0**power / (steps[0] * steps[1]))


# -- the textbook ------------------------------------------------------------------------------------------------------


def textbook(
    layer: nn.Module, inputs: torch.Tensor, rule: QuantizationRule | None, *, dynamic: bool = False
) -> torch.Tensor:
    """The layer's result as a plain quantizer makes it, with the numbers of steps and smallest scales of the rule.

    Without a rule: eight bits throughout. A weight has a scale for each output channel, or one, or groups, as the rule
    says; inputs of a dynamic rule have one for each row.
    """
    double: Any = _doubled(layer)
    weight, value = double.weight, inputs.double()
    how = (rule.weight if rule is not None else None) or replace(_BITS, low=-127, symmetric=True)
    across = isinstance(layer, nn.ConvTranspose2d)
    weight = _symmetric(weight.transpose(0, 1) if across else weight, how, rule is None)
    double.weight.data = weight.transpose(0, 1) if across else weight
    activation = _BITS if rule is None else rule.input
    if activation is not None:
        value = _affine(value, activation, by_rows=dynamic)
    result: torch.Tensor = double(value)
    output = _BITS if rule is None else rule.output
    return result if output is None else _affine(result, output)


def _doubled(layer: nn.Module) -> Any:
    import copy

    return copy.deepcopy(layer).double()


def _symmetric(weight: torch.Tensor, how: TensorQuantization, channels: bool) -> torch.Tensor:
    kind = "channel" if channels else how.granularity.kind
    flat = weight.reshape(1, -1) if kind == "tensor" else weight.flatten(1)
    if kind == "group" and how.granularity.group is not None:
        flat = weight.reshape(-1, min(how.granularity.group, weight.shape[1]))
    scale = (flat.abs().amax(1, keepdim=True) / (steps_of(how) / 2)).clamp(min=how.eps)
    return ((flat / scale).round() * scale).reshape(weight.shape)


def _affine(value: torch.Tensor, how: TensorQuantization, *, by_rows: bool = False) -> torch.Tensor:
    rows = value.flatten(1) if by_rows else value.reshape(1, -1)
    low, high = rows.amin(1, keepdim=True).clamp(max=0), rows.amax(1, keepdim=True).clamp(min=0)
    scale = ((high - low) / steps_of(how)).clamp(min=how.eps)
    zero = (-low / scale).round()
    steps = ((rows / scale).round() + zero).clamp(0, steps_of(how)) - zero
    return (steps * scale).reshape(value.shape)


def rule_of(scheme: QuantizationScheme, operator: str) -> QuantizationRule | None:
    """The scheme's first rule with a weight for an operator; None if it has none."""
    return next((rule for rule in scheme.rules if operator in rule.operators and rule.weight is not None), None)


# -- the cases ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Given:
    """References for the results of a run, for all layers."""

    scheme: QuantizationScheme
    layers: nn.Module
    situations: Sequence[Situation]
    inputs: tuple[torch.Tensor, ...]
    #: Of eager in double precision, of the quantized module in eager, and of the textbook.
    exact: list[torch.Tensor]
    quantized: list[torch.Tensor]
    textbook: list[torch.Tensor]
    #: The step of each result; None where it is not rounded to steps.
    scales: list[float | None]
    precision: str
    #: The steps of a textbook's results: a scheme's own may be larger, and excuse nothing. 0 where there are none.
    steps: list[float]


class QualityCase(SchemeCase):
    """Layers of one kind in all situations, quantized together; an example is the name of a scheme."""

    def __init__(
        self,
        name: str,
        operator: str,
        build: Callable[[Sequence[Situation]], tuple[nn.Module, tuple[torch.Tensor, ...]]],
        situations: Sequence[Situation] = SITUATIONS,
    ):
        self.name = f"quality/{name}"
        self._operator = operator
        self._build = build
        self._situations = situations

    @property
    def cost(self) -> float:
        """Quantizing takes most of it."""
        return 6.0

    def try_scheme(self, scheme: str, context: Context) -> Outcome:
        """Quantize, lower, run and compare with the textbook: a fault is the backend's."""
        outcome = self._try(_schemes(context)[scheme], context)
        return replace(outcome, blame="backend") if outcome.verdict.is_fault else outcome

    def _try(self, scheme: QuantizationScheme, context: Context) -> Outcome:
        module, inputs = self._build(self._situations)
        rule = rule_of(scheme, self._operator)
        if rule is None and scheme.rules:
            return Outcome(Verdict.NOT_APPLICABLE, f"the scheme has no rule for {self._operator}")
        try:
            quantized = delegatekit.quantize(
                module,
                [inputs],
                backend=context.backend,
                scheme=scheme.name,
                options=context.options or None,
                progress=False,
            )
            program = torch.export.export(quantized, inputs, strict=False)
        except QuantizationError as error:
            if "quantizes nothing" in str(error):
                return Outcome(Verdict.NOT_APPLICABLE, words(error))
            return Outcome(Verdict.LOWERING_ERROR, words(error))
        given = _given(scheme, rule, module, self._situations, quantized, program, inputs, context)
        options = context.by_backend
        return attempt(program, lambda method: _judged(given, method), backends=[context.backend], options=options)


def _schemes(context: Context) -> Mapping[str, QuantizationScheme]:
    backend = discovery.get_backend(context.backend)
    schemes = backend.quantization_schemes(backend.make_options(context.options)) or ()
    return {scheme.name: scheme for scheme in schemes}


def _given(
    scheme: QuantizationScheme,
    rule: QuantizationRule | None,
    module: Any,
    situations: Sequence[Situation],
    quantized: Any,
    program: ExportedProgram,
    inputs: tuple[torch.Tensor, ...],
    context: Context,
) -> _Given:
    pairs = list(zip(module.layers, inputs, strict=True))
    with torch.no_grad():
        exact = [_doubled(layer)(value.double()) for layer, value in pairs]
        plain = [textbook(layer, value, rule, dynamic=scheme.kind == "dynamic") for layer, value in pairs]
        fake = flatten(quantized(*inputs))
    precision = discovery.get_backend(context.backend).compute_precision(context.options)
    output = _BITS if rule is None else rule.output
    steps = [_step(result, output) for result in exact]
    return _Given(scheme, module, situations, inputs, exact, fake, plain, output_scales(program), precision, steps)


def _step(result: torch.Tensor, how: TensorQuantization | None) -> float:
    if how is None:
        return 0.0
    reach = result.max().clamp(min=0) - result.min().clamp(max=0)
    return max(float(reach) / steps_of(how), how.eps)


def _judged(given: _Given, method: Runnable) -> Outcome:
    """Run the layers and judge each situation; the first fault counts."""
    try:
        results = flatten(method.run(given.inputs))
    except Exception as error:
        return Outcome(Verdict.RUN_ERROR, words(error))
    measured = []
    for index, result in enumerate(results):
        name = given.situations[index].name
        if not result.isfinite().all():
            return Outcome(Verdict.MISMATCH, f"{name}: has NaN or infinities, which no quantized layer makes")
        wrong = _worse(given, index, result) or _biased(given, index, result)
        if wrong:
            return Outcome(Verdict.MISMATCH, f"{name}: {wrong}")
        scale = given.scales[index]
        if scale is not None and given.scheme.relative_error:
            measured.append(
                Measured(f"relative_error:{given.scheme.name}", inexactness(result, given.quantized[index], scale))
            )
    return Outcome(Verdict.DELEGATED, measured=tuple(measured))


def by_channels(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of each output channel: (channels, elements), of a result (rows, channels) or (1, channels, ...)."""
    return tensor.double().movedim(1, 0).flatten(1)


def _slack(given: _Given, index: int) -> torch.Tensor:
    """Error allowed by precision, declared inexactness and the steps of the result, as a root mean square."""
    largest = float(given.exact[index].abs().max())
    weight: Any = given.layers.layers[index].weight  # type: ignore[union-attr, index]
    terms = weight[0].numel()
    roundoff = max(ROUNDOFF["float32"], ROUNDOFF.get(given.precision, 0.0))
    inexact = 8 * roundoff * math.sqrt(terms) + given.scheme.relative_error
    return torch.tensor(inexact * largest + given.steps[index], dtype=torch.float64)


def _worse(given: _Given, index: int, result: torch.Tensor) -> str:
    """The excess of a result's errors over the textbook's, in words; empty if there is none."""
    errors = _root(by_channels(result) - by_channels(given.exact[index]))
    plain = _root(by_channels(given.textbook[index]) - by_channels(given.exact[index]))
    ratio = errors / (plain * FACTOR + _slack(given, index))
    worst = int(ratio.argmax())
    if float(ratio[worst]) <= 1:
        return ""
    return (
        f"the error of output channel {worst} is {float(errors[worst]):.3g} (root mean square), that of a textbook's "
        f"quantizer {float(plain[worst]):.3g}: {FACTOR:g} times as much is allowed"
    )


def _root(errors: torch.Tensor) -> torch.Tensor:
    return errors.square().mean(1).sqrt()


def _biased(given: _Given, index: int, result: torch.Tensor) -> str:
    """A bias in a channel's mean signed error against the quantized module in eager, in words; empty if none."""
    difference = by_channels(result) - by_channels(given.quantized[index])
    scale = given.scales[index]
    step = scale if scale is not None else _root(by_channels(given.textbook[index]) - by_channels(given.exact[index]))
    declared = given.scheme.relative_error * by_channels(given.exact[index]).abs().mean(1)
    roundoff = max(ROUNDOFF["float32"], ROUNDOFF.get(given.precision, 0.0))
    floor = declared + 8 * roundoff * float(given.exact[index].abs().max())
    if given.situations[index].power:
        # Elements that are all the bias are rounded once, not independently: that step is no mean.
        floor = floor + step
    return bias(difference, torch.as_tensor(step), floor)


def bias(difference: torch.Tensor, step: torch.Tensor, floor: torch.Tensor | float = 0.0) -> str:
    """The mean signed error that is both significant and material, in words; empty if there is none.

    `difference` (channels, elements) are signed errors, `step` the size of a step, of all channels or of each, `floor`
    other excused errors. Errors of independent roundings have a mean of zero, up to some standard errors; one rounding
    more or less of each element adds at most a twelfth of a squared step to its variance.
    """
    count = difference.shape[1]
    if count < 2:
        return ""
    mean = difference.mean(1)
    spread = (difference.var(1) + step.square() / 12).sqrt() / math.sqrt(count)
    beyond = (mean.abs() - floor) / torch.maximum(SIGNIFICANT * spread, MATERIAL * step + spread * 0).clamp(min=1e-300)
    worst = int(beyond.argmax())
    if float(beyond[worst]) <= 1:
        return ""
    steps = float(mean[worst] / (step if step.dim() == 0 else step[worst]))
    return (
        f"output channel {worst} is off by {steps:+.2f} steps in the mean of {count} elements: errors of rounding have "
        "a mean of zero"
    )


def cases() -> Iterator[Case]:
    """Linear layers and convolutions; and those with biases far above the products."""
    yield QualityCase("linear-layers", "linear", linear_layers)
    yield QualityCase("convolutions", "conv2d", convolutions)
    yield QualityCase("large-biases-of-linear-layers", "linear", linear_layers, LARGE_BIASES)
    yield QualityCase("large-biases-of-convolutions", "conv2d", convolutions, LARGE_BIASES)
    yield QualityCase(
        "large-biases-of-transposed-convolutions", "conv_transpose2d", transposed_convolutions, LARGE_BIASES
    )
