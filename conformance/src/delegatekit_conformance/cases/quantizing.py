"""What `quantize` is asked for beside a scheme: layers in float, corrected biases, measures; and the user's own model.

The reports and the quantized modules in eager are compared with what this module computes of the float model itself.
One program has what quantizers treat in different ways: layers and activations that are fused, a module used twice, two
layers that share a weight, two that share a bias, and a value that several layers read.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.fx import GraphModule, Interpreter, Node

import delegatekit
from delegatekit.quantization.ratio import SignalToNoise, sqnr_db
from delegatekit.quantization.report import LayerReport, QuantizationReport
from delegatekit_api import PluginError, QuantizationError
from delegatekit_toolkit.accuracy import ROUNDOFF

from ..context import Context
from ..outcome import Outcome, Verdict
from ..trial import flatten, words
from .base import Broken, Case, NotApplicable
from .declared.quality import SIGNIFICANT
from .quantized import judged, output_scales, scheme_names, scheme_of
from .requantized import GivenCase

#: Inputs of calls.
Calls: TypeAlias = "Sequence[tuple[torch.Tensor, ...]]"

#: Calibration inputs.
_CALLS = 4
#: Layers that are kept in float for their errors.
_WORST = 2
#: Decibels between two computations of one ratio: the same kernels computed the same numbers, up to sums of errors.
_SAME_DB = 0.1
#: Reason of a selector that is a function.
_REASON = "the second use is to be exact"


class Layers(nn.Module):
    """Linear layers and convolutions, which share values, weights and biases."""

    def __init__(self, *, coarse: bool) -> None:
        super().__init__()
        self.wide, self.above, self.deep = nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3)
        self.up, self.rectified, self.twice = nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)
        self.left, self.right = nn.Linear(64, 64), nn.Linear(64, 64)
        self.right.weight = self.left.weight
        self.one, self.other = nn.Linear(64, 64), nn.Linear(64, 64)
        self.other.bias = self.one.bias
        if not coarse:
            return
        with torch.no_grad():
            # Weights of an input that is nearly zero make the steps of the others coarse: these two layers are the
            # least exact by themselves, and the means of their results are off.
            self.up.weight[:, 0], self.one.weight[:, 0] = 4.0, 1.5

    def forward(self, rows: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(16, 64) and (1, 4, 6, 6) -> the results of the layers of `ENDS`."""
        hidden = self.rectified(self.up(rows))
        sides = self.left(hidden), self.right(hidden), self.one(rows), self.other(rows)
        return self.twice(self.twice(hidden)), *sides, self.deep(self.above(self.wide(image)))


#: For each output of `Layers`, the module of its last layer.
ENDS = ("twice", "left", "right", "one", "other", "deep")


def layers(*, coarse: bool = True) -> tuple[nn.Module, Calls]:
    """The layers, and calibration inputs: positive numbers, since errors of weights then shift the results' means.

    Without `coarse` steps of weights, and with numbers of both signs, the sums of a layer do not cancel what the layer
    before it is off by on a device: such errors are allowed relative to the results.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = Layers(coarse=coarse).eval()
        numbers, least = (torch.rand, 0.5) if coarse else (torch.randn, 0.0)
        calls = [(numbers(16, 64) + least, numbers(1, 4, 6, 6) + least) for _ in range(_CALLS)]
    if not coarse:
        return made, calls
    for rows, _ in calls:
        rows[:, 0] *= 0.01
    return made, calls


class Writing(nn.Module):
    """Layers between writes into buffers: whole, through views, in place, and not kept in files."""

    whole: torch.Tensor
    parts: torch.Tensor
    columns: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(64, 64), nn.Linear(64, 64)
        self.after.weight = self.before.weight
        self.register_buffer("whole", torch.rand(16, 64))
        self.register_buffer("parts", torch.rand(3, 64))
        self.register_buffer("columns", torch.rand(2, 64))
        self.register_buffer("count", torch.zeros(1), persistent=False)

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(16, 64) -> results that depend on what was written before."""
        found = self.before(rows + self.whole)
        self.whole.copy_(found)
        self.parts[1:2].copy_(found[:1])
        self.columns.select(0, 1).add_(found[0])
        self.count.add_(1.0)
        return self.after(found + self.parts[1] + self.columns[1]), self.count + 0.0


@dataclass(frozen=True)
class _Quantize:
    """Calls `quantize` with one backend, scheme and options."""

    scheme: str
    context: Context

    def __call__(self, module: nn.Module, calls: Calls, **more: Any) -> Any:
        """The quantized module. Raises the exceptions of `quantize`."""
        return delegatekit.quantize(
            module,
            calls,
            backend=self.context.backend,
            scheme=self.scheme,
            options=self.context.options or None,
            progress=False,
            **more,
        )

    @property
    def is_own(self) -> bool:
        """True if the quantizer is the plugin's own."""
        return not scheme_of(self.scheme, self.context).rules


class QuantizingCase(GivenCase):
    """One argument of `quantize`, by each scheme."""

    #: The argument, where plugins' own quantizers do not have it.
    argument = ""

    def try_scheme(self, scheme: str, context: Context) -> Outcome:
        """The outcome of `check`."""
        quantize = _Quantize(scheme, context)
        if self.argument and quantize.is_own:
            reason = f"scheme {scheme} is the plugin's own: {self.argument} is not for it"
            return Outcome(Verdict.NOT_APPLICABLE, reason)
        try:
            with torch.no_grad():
                return self.check(quantize)
        except NotApplicable as reason:
            return Outcome(Verdict.NOT_APPLICABLE, str(reason))
        except Broken as fault:
            # A plugin's own quantizer gets the model; all else is done by the core.
            return Outcome(Verdict.VIOLATION, str(fault), blame="backend" if quantize.is_own else "core")
        except (PluginError, QuantizationError) as error:
            if "quantizes nothing" in str(error):
                return Outcome(Verdict.NOT_APPLICABLE, words(error))
            return Outcome(Verdict.LOWERING_ERROR, words(error), blame="backend")

    @abstractmethod
    def check(self, quantize: _Quantize) -> Outcome:
        """Quantize and compare. Raises `Broken`, saying what differs, and the exceptions of `quantize`."""


@dataclass(frozen=True)
class Place:
    """An operator of the float program: the path of its module, its name, and the weight of a layer."""

    module: str
    operator: str
    weight: torch.Tensor | None = None


def places(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Mapping[str, Place]:
    """The operators of a module's program, by the names of their nodes."""
    found = {}
    for node in exported(module, inputs).graph.nodes:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if node.op == "call_function" and stack:
            path = str(stack[-1][0])
            weight = getattr(module.get_submodule(path), "weight", None)
            found[node.name] = Place(path, str(node.target).split(".")[1], weight)
    return found


def exported(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> GraphModule:
    """The float program as a graph; a quantized module's nodes have the same names."""
    found = torch.export.export(module, inputs, strict=False).module(check_guards=False)
    assert isinstance(found, GraphModule)
    return found


@dataclass(frozen=True)
class Told:
    """What a report says of one operator: quantized, or in float for a reason."""

    quantized: bool
    reason: str


def told(report: QuantizationReport) -> Mapping[str, Told]:
    """What a report says of each operator, by the names of their nodes: a layer and the activation fused with it."""
    return {name: Told(row.quantized, row.reason) for row in report.layers for name in (row.anchor, row.node)}


class KeptCase(QuantizingCase):
    """Each operator, each module, and one of two uses of a module stay in float in turn."""

    name = "quantized/with-kept-layers"
    argument = "keep_float"

    def check(self, quantize: _Quantize) -> Outcome:
        """The reports, the weights that stay in float, and the numbers with a layer and an activation in float."""
        module, calls = layers()
        known = places(module, calls[0])
        base = told(quantize(module, calls).quantization)
        if unknown := sorted(set(base) - set(known)):
            raise Broken(f"the report names {unknown[0]}, which is no operator of the model")
        for selector, chosen, reason in _selections(known, _share(quantize)):
            _check_kept(quantize, selector, chosen & set(base), reason, base, known)
        # One of three layers that read a value, and the activation before them.
        module, calls = layers(coarse=False)
        kept = quantize(module, calls, keep_float=["left", "rectified"])
        return judged(kept, calls[0], quantize.scheme, quantize.context)


def _share(quantize: _Quantize) -> slice:
    """The modules to try with a scheme: in the quick profile all with the first, the others share them."""
    names = scheme_names(quantize.context)
    index = names.index(quantize.scheme)
    return slice(None) if quantize.context.profile.alone or not index else slice(index - 1, None, len(names) - 1)


def _selections(known: Mapping[str, Place], share: slice) -> Iterator[tuple[Any, set[str], str]]:
    """A selector, the names of the operators that it means, and the reason that the report must give.

    Each operator, a `share` of the modules, and a function that means one of two uses of a module.
    """
    for operator in dict.fromkeys(place.operator for place in known.values()):
        named = {name for name, place in known.items() if place.operator == operator}
        yield operator, named, f"kept by keep_float={operator!r}"
    for path in list(dict.fromkeys(place.module for place in known.values()))[share]:
        named = {name for name, place in known.items() if place.module == path}
        yield path, named, f"kept by keep_float={path!r}"
    second = [name for name, place in known.items() if place.module == "twice"][-1]

    def is_second(node: Node) -> bool:
        return node.name == second

    is_second.reason = _REASON  # type: ignore[attr-defined]
    yield is_second, {second}, _REASON


def _check_kept(
    quantize: _Quantize,
    selector: Any,
    chosen: set[str],
    reason: str,
    base: Mapping[str, Told],
    known: Mapping[str, Place],
) -> None:
    """Quantize with one selector. Raises `Broken` unless exactly the operators `chosen` are kept for `reason`.

    `base` tells of the quantization without a selector.
    """
    what = f"with keep_float=[{selector!r}]" if isinstance(selector, str) else "with one of two uses kept in float"
    module, calls = layers()
    weights = {name for name, item in base.items() if item.quantized and known[name].weight is not None}
    try:
        quantized = quantize(module, calls, keep_float=[selector])
    except QuantizationError as error:
        if "quantizes nothing" in str(error) and weights <= chosen:
            return
        raise Broken(f"{what}, {words(error)}") from None
    found = told(quantized.quantization)
    if set(found) != set(base):
        raise Broken(f"{what}, the report differs in {', '.join(sorted(set(found) ^ set(base)))}")
    for name, item in found.items():
        where = f"{what}, {known[name].module} ({name})"
        if name in chosen and (item.quantized or item.reason != reason):
            how = "is quantized" if item.quantized else f'is in float because "{item.reason}"'
            raise Broken(f'{where} {how}: it should be "{reason}"')
        if name not in chosen and item.reason == reason:
            raise Broken(f'{where} is in float because "{reason}": it was not chosen')
        # An activation may need the integers of the layer before it; a layer with a weight makes them itself.
        excused = bool(item.reason) and name not in weights
        if name not in chosen and base[name].quantized and not item.quantized and not excused:
            raise Broken(f'{where} is in float, too, because "{item.reason}"')
    floats = {name for name, place in known.items() if place.weight is not None and _has(quantized, place.weight)}
    for name in sorted(weights):
        sharing = [other for other in weights if known[other].weight is known[name].weight]
        is_float = any(not found[other].quantized for other in sharing)
        if (name in floats) is not is_float:
            state = "is" if name in floats else "is not"
            said = "float" if is_float else "quantized"
            raise Broken(f"{what}, the float weight of {known[name].module} {state} in the module that has it {said}")


def _has(quantized: nn.Module, weight: torch.Tensor) -> bool:
    """True if one of a quantized module's tensors is this weight."""
    return any(torch.equal(value, weight) for value in tensors(quantized).values() if value.shape == weight.shape)


class CorrectedCase(QuantizingCase):
    """The mean errors of the channels of corrected layers vanish over the calibration inputs."""

    name = "quantized/with-corrected-biases"
    argument = "correct_bias"

    def check(self, quantize: _Quantize) -> Outcome:
        """Each output that a quantized layer makes; the others have no bias to correct."""
        module, calls = layers()
        quantized = quantize(module, calls, correct_bias=True)
        corrected = {layer.module for layer in quantized.quantization.quantized}
        scales = output_scales(torch.export.export(quantized, calls[0], strict=False))
        results = zip(*(flatten(quantized(*inputs)) for inputs in calls), strict=True)
        floats = zip(*(flatten(module(*inputs)) for inputs in calls), strict=True)
        for end, scale, result, wanted in zip(ENDS, scales, results, floats, strict=True):
            if end in corrected and (wrong := off_mean(torch.cat(result), torch.cat(wanted), scale or 0.0)):
                raise Broken(f"with correct_bias, {end}: {wrong}")
        return Outcome(Verdict.PASSED)


def off_mean(result: torch.Tensor, wanted: torch.Tensor, step: float) -> str:
    """The channel whose mean error corrected biases do not explain, in words; empty if there is none.

    Results are (rows, channels) or (images, channels, ...). The mean of what the layer computes is exact over these
    inputs. What remains are roundings to the `step` of the result, whose errors are independent; and roundings of the
    corrected biases themselves, of this layer and of those before it, which stay below the errors' standard error.
    """
    result, wanted = (item.double().movedim(1, 0).flatten(1) for item in (result, wanted))
    # Elements at the ends of the range may be clipped, which no bias makes up for.
    whole = ((result < result.max()) & (result > result.min())).all(1) if step else result.isfinite().all(1)
    error = result - wanted
    mean, count = error.mean(1).abs() * whole, error.shape[1]
    largest = float(wanted.abs().max())
    rounding = SIGNIFICANT * step / math.sqrt(12 * count) + 8 * ROUNDOFF["float32"] * largest
    allowed = rounding + error.std(1) / math.sqrt(count)
    worst = int((mean / allowed).argmax())
    if float(mean[worst]) <= float(allowed[worst]):
        return ""
    return (
        f"channel {worst} is off by {float(mean[worst]):.3g} in the mean of {count} elements of the calibration "
        f"inputs, {float(allowed[worst]):.3g} are allowed"
    )


class _Watched(Interpreter):
    """Runs a graph, keeps the values of its nodes, and gives their users those of `instead`."""

    def __init__(self, module: GraphModule, instead: Mapping[str, Any] | None = None) -> None:
        super().__init__(module)
        self.values: dict[str, Any] = {}
        self._instead = instead or {}

    def run_node(self, n: Node) -> Any:
        self.values[n.name] = super().run_node(n)
        return self._instead.get(n.name, self.values[n.name])


@dataclass
class _Ratios:
    """Energies of one layer's errors: in a whole run, and with the float program's values before the layer."""

    whole: SignalToNoise
    own: SignalToNoise


class MeasuredCase(QuantizingCase):
    """The ratios of signal to noise of a report, and the layers that are kept in float for theirs."""

    name = "quantized/with-measures"
    argument = "measure"

    def check(self, quantize: _Quantize) -> Outcome:
        """The outputs' ratio, each layer's, and those of the worst layers."""
        module, calls = layers()
        plain, quantized = quantize(module, calls), quantize(module, calls, measure=True)
        _check_alike(plain, quantized, calls[0], "with measure, the quantized module")
        report = quantized.quantization
        if _unmeasured(report).layers != plain.quantization.layers:
            raise Broken("with measure, the report tells other layers than without")
        if report.samples != len(calls):
            raise Broken(f"the report measures {report.samples} samples, {len(calls)} were given")
        results = [result for inputs in calls for result in flatten(quantized(*inputs))]
        wanted = [result for inputs in calls for result in flatten(module(*inputs))]
        _check_ratio("sqnr of the outputs", report.sqnr, sqnr_db(results, wanted))
        for row, ratios in zip(report.layers, _ratios(report.layers, module, quantized, calls), strict=True):
            layer = f"of {row.module} ({row.node})"
            _check_ratio(f"sqnr {layer}", row.sqnr, ratios.whole.decibels)
            _check_ratio(f"own_sqnr {layer}", row.own_sqnr, ratios.own.decibels)
        _check_worst(quantize, report)
        return Outcome(Verdict.PASSED)


def _unmeasured(report: QuantizationReport) -> QuantizationReport:
    """The report without ratios."""
    return replace(report, sqnr=None, layers=tuple(replace(row, sqnr=None, own_sqnr=None) for row in report.layers))


def _check_ratio(what: str, given: float | None, computed: float | None) -> None:
    if given is None or computed is None or not (given == computed or abs(given - computed) <= _SAME_DB):
        raise Broken(f"the report's {what} is {_text(given)}, the errors in eager give {_text(computed)}")


def _text(ratio: float | None) -> str:
    return "missing" if ratio is None else f"{ratio:.2f} dB"


def _ratios(rows: Sequence[LayerReport], module: nn.Module, quantized: GraphModule, calls: Calls) -> list[_Ratios]:
    """The ratios of each layer's values in the two graphs, over the calls."""
    floats = exported(module, calls[0])
    found = [_Ratios(SignalToNoise(), SignalToNoise()) for _ in rows]
    for inputs in calls:
        exact, whole = _Watched(floats), _Watched(quantized)
        exact.run(*inputs)
        whole.run(*inputs)
        own = _Watched(quantized, {row.node: exact.values[row.node] for row in rows})
        own.run(*inputs)
        for row, ratios in zip(rows, found, strict=True):
            ratios.whole.add(exact.values[row.node], whole.values[row.node])
            ratios.own.add(exact.values[row.node], own.values[row.node])
    return found


def _check_worst(quantize: _Quantize, report: QuantizationReport) -> None:
    """Raise `Broken` unless the layers with the least ratios of their own stay in float when so many are to."""
    module, calls = layers()
    worst = sorted((row for row in report.quantized), key=lambda row: row.own_sqnr or 0.0)
    count = min(_WORST, len(worst) - 1)
    if not count:
        return
    found = told(quantize(module, calls, keep_worst_float=count).quantization)
    reason = f"one of the {count} worst layers"
    kept = {row.anchor for row in worst if found[row.anchor].reason == reason}
    if kept != {row.anchor for row in worst[:count]}:
        told_ratios = ", ".join(f"{row.module} ({row.anchor}) {_text(row.own_sqnr)}" for row in worst)
        raise Broken(f"keep_worst_float={count} keeps {', '.join(sorted(kept)) or 'nothing'}: {told_ratios}")


class StateCase(QuantizingCase):
    """The user's model and calibration inputs stay as they are, and quantizing twice gives the same numbers."""

    name = "quantized/with-the-models-state"

    def check(self, quantize: _Quantize) -> Outcome:
        """A model that writes into buffers, quantized plainly, with corrections and measures, and plainly again."""
        torch.manual_seed(0)
        module = Writing().eval()
        calls = [(torch.rand(16, 64),) for _ in range(_CALLS)]
        before, given = _kept(module), copy.deepcopy(calls)
        first = quantize(module, calls)
        _check_untouched(module, before, calls, given, "quantize")
        if not quantize.is_own:
            quantize(module, calls, measure=True, correct_bias=True)
            _check_untouched(module, before, calls, given, "quantize with measure and correct_bias")
        second = quantize(module, calls)
        begins = tensors(first)
        for name in ("whole", "parts", "columns", "count"):
            if name not in begins or not _same_bits(begins[name], before[name][1]):
                raise Broken(f"the quantized module begins with another {name} than the model has")
        _check_alike(first, second, calls[0], "the module that was quantized again")
        _check_untouched(module, before, calls, given, "a call of the quantized module")
        return Outcome(Verdict.PASSED)


def tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a module, with all names of shared ones, and those that are not in files."""
    named = (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    return {name: value for items in named for name, value in items}


def _kept(module: nn.Module) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Each tensor of a module, and a copy of its numbers."""
    return {name: (value, value.detach().clone()) for name, value in tensors(module).items()}


def _check_untouched(
    module: nn.Module,
    before: Mapping[str, tuple[torch.Tensor, torch.Tensor]],
    calls: Calls,
    given: Calls,
    what: str,
) -> None:
    """Raise `Broken` if the model or the calibration inputs are not as before."""
    now = tensors(module)
    if set(now) != set(before):
        raise Broken(f"{what} changes the names of the model's tensors: {', '.join(sorted(set(now) ^ set(before)))}")
    for name, (value, numbers) in before.items():
        if now[name] is not value:
            raise Broken(f"{what} gives the model another tensor {name}")
        if not _same_bits(value, numbers):
            raise Broken(f"{what} changes {name} of the model")
    if module.training or any(child.training for child in module.modules()):
        raise Broken(f"{what} changes the model to training mode")
    for index, (inputs, copies) in enumerate(zip(calls, given, strict=True)):
        if not all(map(_same_bits, inputs, copies)):
            raise Broken(f"{what} changes calibration input {index}")


def _check_alike(one: nn.Module, two: nn.Module, inputs: tuple[torch.Tensor, ...], what: str) -> None:
    """Raise `Broken` unless two quantized modules have the same tensors and results."""
    first, second = tensors(one), tensors(two)
    if set(first) != set(second):
        raise Broken(f"{what} has other tensors: {', '.join(sorted(set(first) ^ set(second)))}")
    for name, value in first.items():
        if not _same_bits(value, second[name]):
            raise Broken(f"{what} has another {name}")
    for index, (left, right) in enumerate(zip(flatten(one(*inputs)), flatten(two(*inputs)), strict=True)):
        if not _same_bits(left, right):
            raise Broken(f"{what} computes another output {index}")


def _same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    """True for tensors of one dtype and shape with equal numbers."""
    return one.dtype == two.dtype and one.shape == two.shape and one.detach().equal(two.detach())


def cases() -> Iterator[Case]:
    """One for each argument, and one for the model."""
    yield KeptCase()
    yield CorrectedCase()
    yield MeasuredCase()
    yield StateCase()
