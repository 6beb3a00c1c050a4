"""`quantize`: export, annotate, calibrate, convert."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from time import process_time
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from delegatekit_api import (
    BackendOptions,
    LoweringError,
    OptionError,
    PluginError,
    QuantizationError,
    UnsupportedError,
)
from delegatekit_api.observers import StageEvent
from delegatekit_api.schemes import QuantizationScheme

from ..edge.build import functionalized
from ..errors.foreign import UNEXPECTED, as_ours
from ..pipeline import Quantizing, Source, Training, takes
from ..plugins import LoadedBackend, blaming, notify, warn
from . import torchao
from .bias import correct_biases
from .calibration import Calibration
from .choices import KeptInFloat
from .graph import attribute_to_modules, copied, fold_weights, keep_large_biases, normalize, remove_dropout
from .products import products_to_linear
from .ranges import unbounded_values, unfit_layers
from .report import QuantizationReport
from .schemes import choose_scheme
from .sensitivity import measure as measure_layers
from .state import give_own_state, state_kept

if TYPE_CHECKING:
    from .patterns import Layer
    from .trial import Trial

#: Converts errors inside PyTorch and torchao, and for arguments of a wrong type.
_checked = as_ours(lambda fault: QuantizationError(fault, where="quantization", hint=UNEXPECTED))

#: Reasons that the error of a model without quantized layers names.
_SHOWN: Final = 4


@_checked
@takes(Quantizing)
def quantize(given: Quantizing) -> torch.nn.Module:
    """Quantize a model for a backend, after training.

    Returns a module that computes the quantized model in eager mode, and that `lower` and torch.export accept.
    Its attribute `quantization` is a QuantizationReport.

    Raises PluginError for an unknown backend, OptionError for an unknown scheme or option, LoweringError where
    torch.export refuses the model, and QuantizationError for other wrong input, or if the scheme quantizes nothing.
    """
    loaded, chosen = choose_scheme(given.backend, given.scheme, given.options, given.group_size)
    _warn_without_compiler(loaded, given.options)
    worst = given.keep_worst_float
    if worst < 0:
        raise QuantizationError(f"keep_worst_float={worst} is negative")
    _check_model(given.model)
    measured = given.measure or worst > 0
    data = Calibration(given.calibration, repeatable=measured or given.correct_bias, progress=given.progress)
    with _stage("export"):
        program = _export(given.model, data.example, given.dynamic_shapes)
    program = _without_written_parts(program)
    kept = KeptInFloat(given.keep_float)
    order = _Order(program, data, loaded, chosen, kept, given.options, measured, given.correct_bias, given.deferred)
    run = _weights if chosen.rules and is_weight_scheme(chosen) else _static
    if given.deferred and run is _static:
        raise QuantizationError(f"deferred: scheme {chosen.name} calibrates activations, which needs all integers")
    result: Any = run(order)
    if worst:
        kept = kept.with_nodes(dict.fromkeys(_worst(result.quantization, worst), f"one of the {worst} worst layers"))
        result = run(replace(order, kept=kept))
    quantized: torch.nn.Module = result
    return quantized


@contextmanager
def _stage(name: str) -> Iterator[Callable[[int, int], None]]:
    """A stage that observers hear of; gives a function that is told how much of how much is done."""
    start = process_time()
    notify(StageEvent(name, "start"))
    try:
        yield lambda done, total: notify(StageEvent(name, "progress", done=done, total=total))
    finally:
        notify(StageEvent(name, "finish", cpu_seconds=process_time() - start))


def _warn_without_compiler(backend: LoadedBackend, options: Mapping[str, Any] | None) -> None:
    """A quantized model may be lowered elsewhere, where the compiler is installed; but the user should know now."""
    compiler = backend.compiler_availability(backend.make_options(options or {}))
    if not compiler.available:
        warn(f"backend {backend.name} cannot compile quantized models here: {compiler.reason}")


@dataclass(frozen=True)
class _Order:
    """The arguments of a quantization."""

    program: ExportedProgram
    data: Calibration
    backend: LoadedBackend
    scheme: QuantizationScheme
    kept: KeptInFloat
    options: Mapping[str, Any] | None
    #: True if the report gets signal to noise ratios.
    measured: bool
    correct_bias: bool
    #: True if integers of weights are computed where they are read.
    deferred: bool

    @property
    def compares(self) -> bool:
        """True if the float graph is needed, too."""
        return self.measured or self.correct_bias

    def module(self) -> GraphModule:
        """The program as a modifiable module of its own, with the initial state of the model."""
        module = self.program.module(check_guards=False)
        assert isinstance(module, GraphModule)
        give_own_state(module)
        return module


@_checked
@takes(Training)
def prepare_qat(given: Training) -> GraphModule:
    """A module to train with quantization in the forward pass; `convert_qat` converts it to the quantized module.

    The result has parameters of its own. Call `train()` and `eval()` on it as usual. Raises as `quantize` does, and
    OptionError if the scheme does not offer training.
    """
    loaded, chosen = choose_scheme(given.backend, given.scheme, given.options)
    if not chosen.qat:
        checked = loaded.make_options(given.options or {})
        offered = [found.name for found in loaded.quantization_schemes(checked) if found.qat]
        raise OptionError(
            f"scheme {chosen.name} does not offer training",
            where=f"backend {given.backend}",
            hint=f"schemes with training: {', '.join(offered) or 'none'}",
        )
    if not given.model.training:
        raise QuantizationError("the model is in eval mode", hint="model.train(), or `quantize` without training")
    pt2e = torchao.load("quantization.pt2e.quantize_pt2e")
    data = Calibration([tuple(given.example)], repeatable=True, progress=False)
    kept = KeptInFloat(given.keep_float)
    program = _export(copy.deepcopy(given.model), data.example, given.dynamic_shapes)
    if _without_written_parts(program) is not program:
        raise QuantizationError(
            "the model writes into parts of tensors, which would be lost between quantized values",
            hint="make new tensors (torch.cat, torch.where), or quantize the model after training",
        )
    captured = program.module(check_guards=False)
    quantizer, make_report = make_quantizer(loaded, chosen, kept, given.options, qat=True)
    with blaming_quantizer(loaded, chosen):
        prepared: GraphModule = pt2e.prepare_qat_pt2e(captured, quantizer)
    kept.check()
    torchao.load("quantization.pt2e").allow_exported_model_train_eval(prepared)
    prepared.meta["delegatekit.quantization"] = make_report()
    return prepared


@_checked
def convert_qat(prepared: GraphModule) -> torch.nn.Module:
    """The quantized module from a trained module of `prepare_qat`."""
    report = getattr(prepared, "meta", {}).get("delegatekit.quantization")
    if not isinstance(report, QuantizationReport):
        raise QuantizationError("convert_qat takes what prepare_qat returned")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's, about its own tree specs
        prepared = copy.deepcopy(prepared)
    torchao.load("quantization.pt2e").move_exported_model_to_eval(prepared)
    converted: GraphModule = _converted(prepared, report, trained=True)
    remove_dropout(converted)
    return converted


def _without_written_parts(program: ExportedProgram) -> ExportedProgram:
    """The program without writes into parts of tensors: they would be lost, since a quantize would come before them."""
    try:
        return functionalized(program)[0]
    except UnsupportedError:
        return program  # `lower` says why it refuses it, unless it gets the tensors as buffers


def _check_model(model: Any) -> None:
    if isinstance(model, torch.nn.Module):
        if model.training and any(True for _ in model.children()):
            raise QuantizationError("the model is in training mode", hint="model.eval(), or `prepare_qat` to train it")
    elif not isinstance(model, ExportedProgram):
        raise QuantizationError(f"cannot quantize a {type(model).__name__}", hint="pass a module or an ExportedProgram")


def is_weight_scheme(scheme: QuantizationScheme) -> bool:
    """True if the graph is written by `weights`: weights only, or activations row by row or sample by sample."""
    if scheme.kind == "weight-only":
        return True
    given = [item for rule in scheme.rules for item in (rule.input, rule.weight) if item is not None]
    return scheme.kind == "dynamic" and any(item.granularity.kind in ("token", "sample", "group") for item in given)


def _export(model: torch.nn.Module | ExportedProgram, example: tuple[Any, ...], dynamic_shapes: Any) -> ExportedProgram:
    if isinstance(model, ExportedProgram):
        if dynamic_shapes is not None:
            raise QuantizationError("an ExportedProgram has its shapes already", hint="drop dynamic_shapes")
        return model
    try:
        return Source(model, example, dynamic_shapes=dynamic_shapes).programs()["forward"]
    except LoweringError as error:
        error.hint = error.hint or "the first calibration input is the example"
        raise


def make_quantizer(
    loaded: LoadedBackend,
    scheme: QuantizationScheme,
    kept: KeptInFloat,
    options: Mapping[str, Any] | None,
    *,
    qat: bool = False,
    compare: bool = False,
) -> tuple[Any, Callable[[], QuantizationReport]]:
    """The Quantizer, and the function that makes the report after annotation."""
    torchao.load("quantization.pt2e.quantizer")
    checked = loaded.make_options(options or {})
    if not scheme.rules:
        if kept:
            raise QuantizationError(f"scheme {scheme.name} is the plugin's own: keep_float is not for it")
        quantizer = loaded.create_quantizer(scheme.name, checked)
        return quantizer, lambda: QuantizationReport(loaded.name, scheme.name, 0, ())
    from .annotator import SchemeQuantizer

    own = SchemeQuantizer(scheme, kept, trial=make_trial(loaded, checked), qat=qat, compare=compare)

    return own, lambda: checked_report(QuantizationReport(loaded.name, scheme.name, 0, own.describe()))


def blaming_quantizer(loaded: LoadedBackend, scheme: QuantizationScheme) -> AbstractContextManager[None]:
    """Turn exceptions of a plugin's quantizer into an error that names it; a no-op for a declared scheme."""
    if scheme.rules:
        return nullcontext()
    where = f"backend {loaded.name} ({loaded.distribution} {loaded.version})"
    return blaming(lambda fault: PluginError(f"the quantizer of scheme {scheme.name} failed: {fault}", where=where))


def make_trial(loaded: LoadedBackend, options: BackendOptions) -> Trial | None:
    """The object that asks the backend about layers; None for a backend that only declares schemes."""
    from .trial import Trial

    return Trial(loaded, options) if loaded.has("create_partitioner") else None


def _static(order: _Order) -> Any:
    """Annotate, calibrate, convert."""
    pt2e = torchao.load("quantization.pt2e.quantize_pt2e")
    quantizer, make_report = make_quantizer(
        order.backend, order.scheme, order.kept, order.options, compare=order.compares
    )
    with blaming_quantizer(order.backend, order.scheme):
        prepared = pt2e.prepare_pt2e(order.module(), quantizer)
    order.kept.check()
    report = make_report()
    if unfit := _calibrated(prepared, order.data, getattr(quantizer, "layers", ())):
        return _static(replace(order, kept=order.kept.with_nodes(unfit)))
    report = replace(report, samples=order.data.count)
    original = getattr(quantizer, "float_module", None)
    if order.correct_bias and original is None:
        raise QuantizationError(f"scheme {order.scheme.name} is the plugin's own: correct_bias is not for it")
    converted = _converted(prepared, report, original if order.correct_bias else None, order.data)
    if order.measured and original is not None:
        converted.quantization = measure_layers(original, converted, order.data, report)
    return converted


def _calibrated(prepared: GraphModule, data: Calibration, layers: Sequence[Layer]) -> dict[str, str]:
    """Run a module with observers on the inputs, up to one that shows layers that must stay in float.

    These are returned with the reasons, by their first nodes, if the inputs can be read again without them.
    """
    with torch.no_grad(), state_kept(prepared):
        for index, inputs in enumerate(data):
            try:
                prepared(*inputs)
            except Exception as error:
                raise QuantizationError(
                    f"the model failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
                    where=f"calibration input {index}",
                    hint="inputs must have the shapes of the first; dynamic_shapes allows others",
                ) from error
            if data.restarts() and (unfit := unfit_layers(prepared, layers)):
                return unfit
    return {}


def _weights(order: _Order) -> Any:
    """Quantize weights; nothing is calibrated, and the inputs are only for measuring."""
    torchao.load("quantization")
    from .affine import Weights
    from .weights import quantize_weights

    options = order.backend.make_options(order.options or {})
    captured = order.module()
    torchao.fold_batch_norms(captured)
    normalize(captured)
    products_to_linear(captured, order.scheme, order.kept)
    original = captured
    if order.compares:
        original = copied(captured)
        give_own_state(original)
    with _stage("quantize") as progress:
        weights = Weights(captured, deferred=order.deferred, progress=progress)
        trial = make_trial(order.backend, options)
        result, layers = quantize_weights(captured, order.scheme, order.kept, trial, weights)
    order.kept.check()
    if order.correct_bias:
        correct_biases(original, result, order.data, [layer.anchor for layer in layers if layer.quantized])
    report = checked_report(QuantizationReport(order.backend.name, order.scheme.name, 0, layers))
    if order.measured:
        report = replace(measure_layers(original, result, order.data, report), samples=order.data.count)
    return _finished(result, report)


def checked_report(report: QuantizationReport) -> QuantizationReport:
    """The report. Raises QuantizationError if nothing is quantized."""
    if not report.quantized:
        reasons = list(dict.fromkeys(layer.reason for layer in report.kept))
        more = [f"and {len(reasons) - _SHOWN} more"] if len(reasons) > _SHOWN else []
        raise QuantizationError(
            f"scheme {report.scheme} quantizes nothing of this model: "
            + ("; ".join(reasons[:_SHOWN] + more) or "it has no operators on float32 tensors")
        )
    return report


def _converted(
    prepared: GraphModule,
    report: QuantizationReport,
    original: GraphModule | None = None,
    data: Iterable[Sequence[Any]] = (),
    *,
    trained: bool = False,
) -> Any:
    """Convert the annotated module; with the float module `original`, correct the biases first."""
    if found := unbounded_values(prepared):
        raise QuantizationError(
            f"{found[0].name} has infinities or NaNs: no integers stand for them",
            where=f"scheme {report.scheme}",
            hint="keep_float its layer, or add a finite number to hide scores",
        )
    converted = torchao.convert(prepared, trained=trained)
    keep_large_biases(converted)
    if original is not None:
        correct_biases(original, converted, data, [layer.anchor for layer in report.quantized])
    fold_weights(converted)
    return _finished(GraphModule(converted, converted.graph), report)  # without the float weights


def _finished(module: Any, report: QuantizationReport) -> Any:
    attribute_to_modules(module)
    module.quantization = report
    # torchao makes both raise; training mode changes nothing in it.
    module.training = False
    module.eval = lambda: module
    return module


def _worst(report: QuantizationReport, count: int) -> list[str]:
    """The first nodes of the layers with the largest errors of their own."""
    layers = [layer for layer in report.quantized if layer.own_sqnr is not None]
    if count >= len(layers):
        raise QuantizationError(f"keep_worst_float={count} leaves nothing of {len(layers)} layers to quantize")
    return [layer.anchor for layer in sorted(layers, key=lambda layer: layer.own_sqnr or 0.0)[:count]]
