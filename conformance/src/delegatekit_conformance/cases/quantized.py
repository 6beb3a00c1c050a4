"""Quantized programs: a backend's numbers are judged against the fake-quantized program, run in eager.

A quantized result is not right or wrong to a rounding: an accumulator that ends between two steps may round either way,
and each later operator may carry that on. Two measures separate such a difference from faults: the largest distance in
steps of the output's own scale, which no rounding makes large, and the ratio of signal to quantization noise, which no
single outlier makes small.
"""

from __future__ import annotations

import copy
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import delegatekit
from delegatekit.plugins import discovery
from delegatekit.quantization.ratio import sqnr_db
from delegatekit_api import PluginError, QuantizationError
from delegatekit_api.schemes import QuantizationScheme

from .. import stock
from ..context import Context
from ..declaration import Measured
from ..outcome import Outcome, Verdict
from ..trial import Runnable, attempt, flatten, not_in_stock, words
from .base import Case
from .patterns import pattern
from .subjects import SubjectCase

#: A backend that rounds each operator's result to the nearest step, either way in a tie, stays within these.
MAX_STEPS = 1
MIN_SQNR_DB = 35.0
#: The part of a pattern's decibels that its layers may lose: a bit has six of them. A scheme that ruins a model keeps
#: less, and what a backend computes of its integers may be right nevertheless.
_KEPT_DB_PER_BIT = 3.0
#: The reason of cases of schemes where there are none.
NO_SCHEMES = "the backend declares no quantization schemes"


@dataclass(frozen=True)
class Judgement:
    """The distance of a quantized result from its reference."""

    #: Decibels; infinite for equal tensors.
    sqnr_db: float
    #: Largest difference in steps of the output's scale.
    steps: int
    #: Differences that no rounding excuses, in words; empty if there are none.
    difference: str = ""

    @property
    def agrees(self) -> bool:
        """True if the result counts as right."""
        return not self.difference


def max_steps(result: torch.Tensor, reference: torch.Tensor, scale: float) -> int:
    """The largest difference in whole steps of `scale`. Raises ValueError for a scale that is not above 0."""
    if not scale > 0.0:
        raise ValueError(f"a scale must be above 0, not {scale}")
    if not reference.numel():
        return 0
    return round(float((result.double() - reference.double()).abs().max()) / scale)


def judge(
    result: torch.Tensor,
    reference: torch.Tensor,
    scale: float | None,
    *,
    steps: int = MAX_STEPS,
    decibels: float = MIN_SQNR_DB,
    inexact: float = 0.0,
) -> Judgement:
    """Judge a dequantized result against the fake-quantized program's, both of one shape, whose step is `scale`.

    Without `scale` (a result that is not rounded to steps), only the ratio is judged.

    More than `steps` steps are wrong anywhere, and so is a ratio below `decibels`. Where the device is `inexact` by so
    much of the largest number, as many more steps are right, with their ratio to the signal. The ratio is
    not judged for a reference within one step of zero: it has hardly any signal.
    """
    if result.shape != reference.shape:
        return Judgement(-math.inf, 0, f"has shape {tuple(result.shape)}, not {tuple(reference.shape)}")
    if not result.isfinite().all():
        return Judgement(-math.inf, 0, "has NaN or infinities, which no quantized program makes")
    if inexact and scale and reference.numel():
        more = math.ceil(inexact * float(reference.abs().max()) / scale)
        steps += more
        signal = float(reference.double().square().mean().sqrt())
        decibels = min(decibels, 20 * math.log10(max(signal, scale) / (more * scale))) if more else decibels
    ratio, far = sqnr_db(result, reference), 0 if scale is None else max_steps(result, reference, scale)
    if far > steps:
        return Judgement(ratio, far, f"is {far} steps of {scale:.3g} away, {steps} are allowed")
    silent = not reference.numel() or float(reference.abs().max()) <= (scale or 0.0)
    if ratio < decibels and not silent:
        return Judgement(ratio, far, f"has a signal to noise ratio of {ratio:.1f} dB, {decibels:.1f} dB are wanted")
    return Judgement(ratio, far)


#: Patterns that quantizers and quantized kernels treat in different ways: see `patterns` for each.
_PATTERNS = (
    "conv-bn-relu",
    "conv-relu6",
    "conv-hardswish",
    "conv-used-twice",
    "convolution-kinds",
    "strides-and-borders",
    "convolutions-over-time",
    "patches-and-class-token",
    "linear-over-columns",
    "depthwise-separable",
    "large-kernels",
    "inverted-residual",
    "residual-relu",
    "squeeze-excite",
    "pooling-head",
    "mean-head",
    "pad-conv",
    "pads-beside-zeros",
    "averages-at-borders",
    "windows-of-every-kind",
    "kernels-of-every-kind",
    "upsample-skip",
    "resize-bilinear",
    "transposed-conv-relu",
    "transposed-conv-groups",
    "one-image",
    "channel-shuffle",
    "linear-gelu",
    "linear-over-pixels",
    "linear-relu-chain",
    "addmm-chain",
    "transformer-layer",
    "multihead-attention",
    "attention-written-out",
    "attention-minus-infinity",
    "attention-added-masks",
    "attention-padded",
    "mask-of-large-numbers",
    "sdpa",
    "sdpa-causal",
    "sdpa-bool-mask",
    "sdpa-grouped-queries",
    "layer-norm",
    "layer-norm-written-out",
    "rms-norm",
    "group-norm-silu",
    "instance-norm",
    "embedding-and-position",
    "shared-weight",
    "weights-of-zeros",
    "clamps",
    "functions",
    "gates-and-slopes",
    "scaled",
    "views-around-an-operator",
    "split-and-cat",
    "slices",
    "nested-outputs",
    "values-eleven",
    "values-hundred-and-one",
)
#: Calibration inputs beside those of the pattern itself.
_CALIBRATION = 2


class SchemeCase(Case):
    """A case of programs that are quantized by each scheme of the backend: an example is the name of a scheme."""

    #: The reason why there is nothing to try, where there are no schemes.
    no_schemes: ClassVar[str] = NO_SCHEMES

    def schemes(self, context: Context) -> Sequence[str]:
        """The schemes that the backend declares."""
        return scheme_names(context)

    @property
    def cost(self) -> float:
        """Quantizing takes most of it."""
        return 4.0

    def examples(self, context: Context) -> Sequence[str]:
        """The schemes, or the reason why there are none."""
        return self.schemes(context) or (self.no_schemes,)

    def run(self, example: str, context: Context) -> Outcome:
        """Quantize, lower, run, compare; and run without a backend, to distinguish a fault of core."""
        if example == self.no_schemes:
            return Outcome(Verdict.NOT_APPLICABLE, example, example=example)
        start = time.perf_counter()
        torch.manual_seed(0)
        outcome = self.try_scheme(example, context)
        if outcome.verdict.is_fault:
            outcome = replace(outcome, snippet=self.snippet(example, context))
        return replace(outcome, example=example, seconds=time.perf_counter() - start)

    @abstractmethod
    def try_scheme(self, scheme: str, context: Context) -> Outcome:
        """The outcome of the program by one scheme."""


class QuantizedCase(SchemeCase):
    """A pattern.

    The reference is the quantized module in eager, which computes with the numbers that its integers represent.
    """

    def __init__(self, pattern: SubjectCase) -> None:
        self.name = f"quantized/{pattern.name.partition('/')[2]}"
        self._pattern = pattern

    def try_scheme(self, scheme: str, context: Context) -> Outcome:
        """Quantize, lower, run, compare."""
        try:
            module, calls, *dynamic = self._pattern.build()
        except Exception as error:
            return Outcome(Verdict.NOT_EXPORTABLE, words(error))
        with torch.no_grad():
            floats = flatten(copy.deepcopy(module).eval()(*calls[0]))
        return try_quantized(module, calls[0], scheme, context, dynamic[0] if dynamic else None, floats=floats)

    def snippet(self, example: str, context: Context) -> str:
        """The pattern's text, quantized."""
        text = self._pattern.snippet("", context)
        # The reference is the quantized module.
        text = text.replace("exact = copy.deepcopy(module).double()\n", "").replace("exact(*wide)", "module(*inputs)")
        before, line, after = text.partition("module.eval()\n")
        scheme = f"backend={context.backend!r}, scheme={example!r}"
        if context.options:
            scheme += f", options={dict(context.options)!r}"
        return f"{before}{line}module = delegatekit.quantize(module, calls[:1], {scheme})\n{after}"


def try_quantized(
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    scheme: str,
    context: Context,
    dynamic_shapes: Any = None,
    *,
    decibels: float = MIN_SQNR_DB,
    floats: Sequence[torch.Tensor] | None = None,
) -> Outcome:
    """Try a module quantized by a scheme of the context's backend, and the same program without any backend.

    `decibels` is the least ratio of signal to noise that its outputs may have. With the results `floats` of the module
    itself, the quantized module in eager must resemble them.
    """
    quantized = quantized_by(scheme, module, inputs, context, dynamic_shapes)
    if isinstance(quantized, Outcome):
        return quantized
    if floats is not None:
        with torch.no_grad():
            ruin = ruined(flatten(quantized(*inputs)), floats, scheme, context)
        if ruin:
            return Outcome(Verdict.MISMATCH, ruin, blame="backend")
    return judged(quantized, inputs, scheme, context, dynamic=dynamic_shapes is not None, decibels=decibels)


def ruined(results: Sequence[torch.Tensor], floats: Sequence[torch.Tensor], scheme: str, context: Context) -> str:
    """The output of a quantized module that has lost the float module's signal, in words; empty if none has."""
    least = _KEPT_DB_PER_BIT * _bits(scheme, context)
    for index, (result, wanted) in enumerate(zip(results, floats, strict=True)):
        if not wanted.is_floating_point() or not wanted.isfinite().all():
            continue
        ratio = sqnr_db(result, wanted)
        if not ratio >= least:
            return (
                f"output {index} of the quantized module in eager has a signal to noise ratio of {ratio:.1f} dB "
                f"against the float module, {least:.0f} dB are wanted"
            )
    return ""


def _bits(name: str, context: Context) -> int:
    """The fewest bits that a scheme has for a number; 4 for a plugin's own quantizer, which declares none."""
    rules = scheme_of(name, context).rules
    forms = [form for rule in rules for form in (rule.input, rule.weight, rule.output) if form is not None]
    return min(8, *((form.range[1] - form.range[0]).bit_length() for form in forms)) if forms else 4


def scheme_names(context: Context) -> tuple[str, ...]:
    """The schemes of the context's backend, under its options."""
    backend = discovery.get_backend(context.backend)
    return tuple(scheme.name for scheme in backend.quantization_schemes(backend.make_options(context.options)))


def quantized_by(
    scheme: str,
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    context: Context,
    dynamic_shapes: Any = None,
    *,
    more: Sequence[tuple[Any, ...]] | None = None,
) -> Any:
    """The module quantized by a scheme of the context's backend, or the outcome where it cannot be.

    It is calibrated by these inputs and `more`; by default by other numbers like them.
    """
    if more is None:
        more = [tuple(map(_other, inputs)) for _ in range(_CALIBRATION)]
    try:
        return delegatekit.quantize(
            module.eval(),
            [inputs, *more],
            backend=context.backend,
            scheme=scheme,
            options=context.options or None,
            dynamic_shapes=dynamic_shapes,
            progress=False,
        )
    except (PluginError, QuantizationError) as error:
        if "quantizes nothing" in str(error):
            return Outcome(Verdict.NOT_APPLICABLE, words(error))
        return Outcome(Verdict.LOWERING_ERROR, words(error), blame="backend")
    except Exception as error:
        return Outcome(Verdict.NOT_EXPORTABLE, words(error))


def judged(
    quantized: Any,
    inputs: tuple[Any, ...],
    scheme: str,
    context: Context,
    *,
    dynamic: bool = False,
    decibels: float = MIN_SQNR_DB,
    compare: Callable[[Runnable], Outcome] | None = None,
) -> Outcome:
    """Try a quantized module, whose numbers in eager are the reference, and the same program without any backend.

    `compare` runs the program and judges its results in another way than by steps and decibels. A module that quantizes
    NaN has no reference: which integer PyTorch makes of it is undefined.
    """
    try:
        program = torch.export.export(quantized, inputs, strict=False)
    except Exception as error:
        return Outcome(Verdict.NOT_EXPORTABLE, words(error))
    watched = _Quantizes()
    with watched, torch.no_grad():
        quantized(*inputs)
    if watched.nan:
        return Outcome(Verdict.NOT_APPLICABLE, "NaN is quantized: which integer that is, is undefined")
    half = _rounding_of_half(program, quantized, inputs) if _computes_in_half(context) else None
    run = compare or partial(
        _compared, program, quantized, inputs, scheme, relative_error(scheme, context), decibels, half
    )
    options = context.by_backend
    backends = [context.backend]
    alone_here = not_in_stock(context, backends, dynamic=dynamic)
    outcome = attempt(program, run, backends=backends, options=options, second=not alone_here)
    outcome = stock.unjudged(outcome, alone_here)
    if not context.profile.alone and not outcome.verdict.is_fault:
        return outcome
    alone = attempt(program, run, backends=[], second=outcome.verdict is Verdict.STOCK)
    if alone.verdict.is_fault:
        outcome = replace(outcome, core=f"{alone.verdict.value}: {alone.detail}")
    if outcome.verdict.is_fault:
        core = alone.verdict is outcome.verdict or not outcome.delegates
        outcome = replace(outcome, blame="core" if core and alone.verdict.is_fault else "backend")
    return outcome


def relative_error(name: str, context: Context) -> float:
    """The scheme's declared error of a layer's results from the exact ones."""
    return scheme_of(name, context).relative_error


def scheme_of(name: str, context: Context) -> QuantizationScheme:
    """The scheme of this name of the context's backend, under its options."""
    backend = discovery.get_backend(context.backend)
    schemes = backend.quantization_schemes(backend.make_options(context.options))
    return next(scheme for scheme in schemes if scheme.name == name)


def _compared(
    program: ExportedProgram,
    quantized: Any,
    inputs: tuple[Any, ...],
    scheme: str,
    relative_error: float,
    decibels: float,
    half: Sequence[float] | None,
    method: Runnable,
) -> Outcome:
    """Run the method and compare with the quantized module in eager."""
    try:
        results = flatten(method.run(inputs))
    except Exception as error:
        return Outcome(Verdict.RUN_ERROR, words(error))
    with torch.no_grad():
        references = flatten(quantized(*inputs))
    scales, depth = output_scales(program), depth_of(program)
    measured = []
    for index, (result, reference) in enumerate(zip(results, references, strict=True)):
        if not reference.is_floating_point():
            if not torch.equal(result, reference):
                return Outcome(Verdict.MISMATCH, f"output {index} differs")
            continue
        scale = scales[index]
        more = math.ceil(half[index] / scale) if half and scale else 0
        found = judge(result, reference, scale, steps=depth + more, decibels=decibels, inexact=relative_error * depth)
        if not found.agrees:
            return Outcome(Verdict.MISMATCH, f"output {index} {found.difference}")
        if relative_error and scale is not None:
            # Of each layer: the error of several is divided among them.
            measured.append(Measured(f"relative_error:{scheme}", inexactness(result, reference, scale) / depth))
    return Outcome(Verdict.DELEGATED, measured=tuple(measured))


def inexactness(result: torch.Tensor, reference: torch.Tensor, scale: float) -> float:
    """The estimated inexactness of a device's sums, relative to the largest: from steps that differ from eager's.

    An error of a part of a step rounds that part of all elements to the next one: the mean distance is the mean
    error, and the largest is assumed to be four times as much.
    """
    if not reference.numel():
        return 0.0
    steps = ((result.double() - reference.double()).abs() / scale).round()
    largest = max(float(reference.abs().max()) / scale, 1.0)
    return max(float(steps.max()) - 1, 4 * float(steps.mean()), 0.0) / largest


def _computes_in_half(context: Context) -> bool:
    """True if the backend declares that it keeps numbers between quantized values as float16."""
    return discovery.get_backend(context.backend).compute_precision(context.options) == "float16"


def _rounding_of_half(program: ExportedProgram, quantized: Any, inputs: tuple[Any, ...]) -> Sequence[float] | None:
    """The change of each output if numbers between quantized values are float16; None if eager cannot compute it.

    Numbers that are large before a clamp, or before they cancel, lose more than a step of the result.
    """
    try:
        with torch.no_grad():
            exact, rounded = flatten(quantized(*inputs)), flatten(InHalf(program.module()).run(*inputs))
    except Exception:
        return None
    return [
        float((one.double() - other.double()).abs().nan_to_num(0.0, 0.0).max()) if one.numel() else 0.0
        for one, other in zip(exact, rounded, strict=True)
    ]


class InDouble(torch.fx.Interpreter):
    """Runs a quantized module in eager, with double precision between each dequantize and the quantize after it.

    Two executions of a quantized network that are equally right differ at the end: a sum that ends between two steps
    rounds one way or the other, and later layers propagate that. The difference between this one and eager itself shows
    how close a third must be.
    """

    dtype = torch.float64

    def run_node(self, n: torch.fx.Node) -> Any:
        """The node's result: `dtype` where eager has a float, but for quantization itself."""
        if n.op != "call_function":
            return super().run_node(n)
        arguments, keywords = self.fetch_args_kwargs_from_env(n)
        target: Any = n.target
        own = str(target).startswith(("quantized_decomposed.", "torchao."))
        dtype = torch.float32 if own else self.dtype
        cast = partial(_cast, dtype=dtype)
        with torch.no_grad():
            return target(*pytree.tree_map(cast, arguments), **pytree.tree_map(cast, keywords))


class InHalf(InDouble):
    """The same with half precision in between."""

    dtype = torch.float16


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _other(value: Any) -> Any:
    """Other numbers of the same kind, for calibration."""
    return value.flip(tuple(range(value.dim()))) if isinstance(value, torch.Tensor) and value.dim() else value


class _Quantizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches whether a quantize of eager gets NaN."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nan = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func).startswith("quantized_decomposed.quantize"):
            self.nan |= bool(args[0].isnan().any())
        return func(*args, **(kwargs or {}))


def output_scales(program: ExportedProgram) -> list[float | None]:
    """For each output of a quantized program the scale of its steps; None for one that is not rounded to steps.

    Views between the last dequantize and the output keep the steps.
    """
    output = next(node for node in reversed(program.graph.nodes) if node.op == "output")
    found: list[float | None] = []
    for spec, node in zip(program.graph_signature.output_specs, output.args[0], strict=True):
        if spec.kind is OutputKind.USER_OUTPUT and node is not None:
            found.append(_scale(node))
    return found


def _scale(node: Any) -> float | None:
    while isinstance(node, torch.fx.Node) and node.op == "call_function":
        if str(node.target).startswith("quantized_decomposed.dequantize_per_tensor"):
            return node.args[1] if isinstance(node.args[1], float) else None
        if not str(node.target).partition(".")[2].startswith(_VIEWS) or not node.args:
            return None
        node = node.args[0]
    return None


_VIEWS = ("view", "reshape", "permute", "transpose", "squeeze", "unsqueeze", "flatten", "slice", "select", "clone")


def depth_of(program: ExportedProgram) -> int:
    """The largest number of consecutive quantized values: each may be rounded differently from eager."""
    depth: dict[torch.fx.Node, int] = {}
    for node in program.graph.nodes:
        before = max((depth[argument] for argument in node.all_input_nodes), default=0)
        depth[node] = before + str(node.target).startswith("quantized_decomposed.quantize")
    return max(MAX_STEPS, *depth.values())


def cases() -> Iterator[Case]:
    """The patterns above."""
    for name in _PATTERNS:
        yield QuantizedCase(pattern.cases[name])
