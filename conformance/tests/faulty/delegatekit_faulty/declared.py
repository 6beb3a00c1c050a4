"""Faults of a backend's declarations and reports: limits, precision, quantization, special values, times, options."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from .fault import Wrapped, fault, wrong

# What is declared


def _schemes(*select: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register a change of every scheme of a native backend."""

    def register(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def part(sound: Any) -> Any:
            return lambda: tuple(change(scheme) for scheme in sound())

        part.__name__, part.__doc__ = change.__name__, change.__doc__
        fault("schemes", *select, native=True)(part)
        return change

    return register


def _with_tensors(scheme: Any, change: Callable[[str, Any], Any]) -> Any:
    """The scheme with other quantized tensors; `change` gets "input", "weight" or "output" and the present one."""
    rules = []
    for rule in scheme.rules:
        names = [name for name in ("input", "weight", "output") if getattr(rule, name) is not None]
        rules.append(dataclasses.replace(rule, **{name: change(name, getattr(rule, name)) for name in names}))
    return dataclasses.replace(scheme, rules=tuple(rules))


@_schemes("declared/within-limits")
def _half_of_a_result_may_be_wrong(scheme: Any) -> Any:
    """Schemes declare that results of layers may be off by one half."""
    return dataclasses.replace(scheme, relative_error=0.5)


@_schemes("declared/*", "quality/*")
def _exact_sums_are_declared_inexact(scheme: Any) -> Any:
    """Schemes declare sums that are exact to be off by a five-hundredth."""
    return dataclasses.replace(scheme, relative_error=2.0**-9)


@_schemes("declared/within-limits")
def _small_scales_are_not_there(scheme: Any) -> Any:
    """No scale is smaller than a thousandth: tensors of small numbers have few steps."""
    return _with_tensors(scheme, lambda name, tensor: dataclasses.replace(tensor, eps=1e-3))


@_schemes("declared/schemes-say-what-they-do")
def _one_scale_under_another_name(scheme: Any) -> Any:
    """Schemes that promise a scale for each output channel have one for the weight."""
    if "scale for each output channel" not in scheme.summary:
        return scheme
    from delegatekit_api.schemes import PER_TENSOR

    return _with_tensors(
        scheme,
        lambda name, tensor: dataclasses.replace(tensor, granularity=PER_TENSOR) if name == "weight" else tensor,
    )


@_schemes("declared/schemes-say-what-they-do")
def _four_bits_under_another_name(scheme: Any) -> Any:
    """Weights of a scheme called int8 have fifteen steps."""

    def change(name: str, tensor: Any) -> Any:
        narrow = name == "weight" and tensor.dtype == "int8"
        return dataclasses.replace(tensor, low=-7, high=7) if narrow else tensor

    return _with_tensors(scheme, change)


@fault("describe", "declared/within-limits")
def _a_megabyte_is_read_beyond_the_end(sound: Any) -> Any:
    """Kernels are said to read a megabyte after the end of their inputs."""
    return dataclasses.replace(sound, overread_bytes=1 << 20)


@fault("precision", "options/decompose=true")
def _half_precision_for_nothing(sound: Any) -> Any:
    """With an option, float16 is declared for computation in float32."""
    return lambda options: "float16" if options.decompose else sound(options)


@fault("precision", "declared/the-same-again")
def _precision_changes_its_mind(sound: Any) -> Any:
    """The declared precision is another one after some questions."""

    def compute_precision(options: Any) -> Any:
        _asked.append(options)
        return "float16" if len(_asked) < 4 else "bfloat16"

    return compute_precision


_asked: list[Any] = []

# Quantized layers


def _edited(*select: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a change of each node of a partition before a native backend compiles it."""

    def register(change: Callable[[Any], None]) -> Callable[[Any], None]:
        def part(sound: Any) -> Any:
            def preprocess(partition: Any, options: Any) -> Any:
                for node in partition.view.graph.nodes:
                    if node.op == "call_function":
                        change(node)
                return sound(partition=partition, options=options)

            return preprocess

        part.__name__, part.__doc__ = change.__name__, change.__doc__
        fault("preprocess", *select, native=True)(part)
        return change

    return register


@_edited("quality/linear-layers")
def _biases_of_linear_layers_are_left_out(node: Any) -> None:
    """Linear layers are compiled without their bias."""
    if "linear" in str(node.target) and len(node.args) == 3:
        node.args = (*node.args[:2], None)


@fault("runtime", "quality/*", native=True)
def _results_are_one_step_too_large(sound: Any) -> Any:
    """The zero point of quantized results is off by one."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            for value in outputs:
                steps = value.unique().diff() if value.is_floating_point() else value[:0]
                if 8 < len(steps) < 256:
                    value.add_(float(steps.min()))

    return Runtime(sound)


@_schemes("quality/linear-layers")
def _all_activations_have_one_range(scheme: Any) -> Any:
    """Activations get the range from -8 to 8, for any numbers."""
    if scheme.kind != "static":
        return scheme
    return _with_tensors(
        scheme,
        lambda name, tensor: tensor if name == "weight" else dataclasses.replace(tensor, scale=1 / 16, zero_point=0),
    )


@fault("runtime", "quality/*", native=True)
def _channels_without_weights_are_nan(sound: Any) -> Any:
    """The range of a channel whose numbers are all the same is zero, and the result is divided by it."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            for value in outputs:
                if value.dim() == 2 and value.is_floating_point() and value.shape[0] > 1:
                    same = value.amax(0) == value.amin(0)
                    value[:, same] = float("nan")

    return Runtime(sound)


@fault("runtime", "quality/linear-layers", native=True)
def _small_inputs_are_zero(sound: Any) -> Any:
    """Inputs that are small throughout are taken for zeros."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            small = [value.is_floating_point() and float(value.abs().max()) < 0.05 for value in inputs]
            given = [value * 0 if flag else value for value, flag in zip(inputs, small, strict=True)]
            self._sound.execute(handle, given, outputs)

    return Runtime(sound)


@fault("runtime", "quality/linear-layers", native=True)
def _digits_are_cut_off(sound: Any) -> Any:
    """Quantized results are cut to the step below instead of rounded to the nearest."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            for value in outputs:
                steps = value.unique().diff() if value.is_floating_point() and value.numel() > 64 else value[:0]
                if 8 < len(steps) < 256:
                    import torch

                    lower = torch.rand(value.shape, generator=torch.Generator().manual_seed(0)) < 0.5
                    value.sub_(lower * float(steps.min()))

    return Runtime(sound)


# Ranges of given programs

# The reference backend computes a quantization in its parts, of which one cuts numbers off at the ends of a range.
_CUT = "aten.clamp.default"
_GIVEN = "quality/given-range-*"


@wrong(_CUT, _GIVEN)
def _ranges_are_those_of_the_type(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Quantized numbers are cut off at the ends of their type, for any range of the program."""
    return sound(args[0], -128 if args[1] < 0 else 0, 127 if args[1] < 0 else 255)


@wrong(_CUT, _GIVEN)
def _only_the_lower_end_is_kept(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The upper end of a range of fewer than eight bits is ignored."""
    return sound(args[0], args[1], 127 if args[2] < 127 else args[2])


@wrong(_CUT, _GIVEN)
def _the_lowest_number_is_allowed(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """A range without the lowest number of its type gets it back."""
    return sound(args[0], -128 if args[1] == -127 else args[1], args[2])


@wrong(_CUT, _GIVEN)
def _ranges_begin_at_their_negative_end(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Ranges that begin at zero are taken for symmetric ones."""
    return sound(args[0], -args[2] if args[1] == 0 else args[1], args[2])


@wrong(_CUT, _GIVEN)
def _four_bits_are_taken_for_eight(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Ranges of sixteen steps are those of a byte."""
    return sound(args[0], -128, 127) if args[2] - args[1] == 15 else sound(*args, **kwargs)


# Special values


def _with_words(words: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A partitioner that declares special values."""

    class Partitioner(Wrapped):
        def special_values(self, call: Any) -> Any:
            return words(call)

    return Partitioner


def _outputs_changed(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A runtime whose results of floating point are changed."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            for value in outputs:
                if value.is_floating_point():
                    value.copy_(change(value))

    return Runtime


_EXP = "operators/aten.exp.default/float32"


@fault("partitioner and runtime", _EXP, "operators/aten.abs.default/float32")
def _special_values_excuse_ordinary_ones(sound: Any, part: str) -> Any:
    """NaN is declared to be special, and ordinary results are a hundredth too large."""
    if part == "partitioner":
        return _with_words(lambda call: "NaN becomes a number")(sound)
    return _outputs_changed(lambda value: value * 1.01)(sound)


@fault("partitioner and runtime", "operators/aten.max.default/*", "operators/aten.min.default/*")
def _nan_is_dropped_by_operators_that_declare_nothing(sound: Any, part: str) -> Any:
    """NaN becomes zero everywhere, and is declared for the exponential function only."""
    if part == "partitioner":
        return _with_words(lambda call: "exp(NaN) is 0" if call.operator == "aten.exp.default" else "")(sound)
    return _outputs_changed(lambda value: value.nan_to_num(0.0, float("inf"), float("-inf")))(sound)


@fault("partitioner and runtime", "operators/aten.max.default/*", "operators/aten.min.default/*")
def _special_values_in_no_words(sound: Any, part: str) -> Any:
    """NaN becomes zero, and its declaration is blank."""
    if part == "partitioner":
        return _with_words(lambda call: "  ")(sound)
    return _outputs_changed(lambda value: value.nan_to_num(0.0, float("inf"), float("-inf")))(sound)


@fault("partitioner and runtime", "operators/aten.neg.default/float32", "operators/aten.abs.default/float32")
def _special_values_hide_a_sign(sound: Any, part: str) -> Any:
    """Infinities are declared to be special, and negative numbers lose their sign."""
    if part == "partitioner":
        return _with_words(lambda call: "infinities are the largest number")(sound)
    return _outputs_changed(lambda value: value.abs() + 0.125)(sound)


@fault("partitioner and runtime", "operators/aten.add.Tensor/int32", "operators/aten.mul.Tensor/int32")
def _narrowing_excuses_small_numbers(sound: Any, part: str) -> Any:
    """Whole numbers are declared to be narrowed to 32 bits, and results have four."""
    if part == "partitioner":
        return _with_words(lambda call: "int64 is computed in 32 bits")(sound)

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            for value in outputs:
                if not value.is_floating_point() and value.element_size() > 1:
                    value.clamp_(-8, 7)

    return Runtime(sound)


# Times, handles, estimates, operators of blobs


def _profiles(*select: str) -> Callable[[Callable[[list[Any]], Any]], Callable[[list[Any]], Any]]:
    """Register a change of the times that a profiled call reports."""

    def register(change: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        def part(sound: Any) -> Any:
            class Runtime(Wrapped):
                def profile(self, handle: Any, inputs: Any, outputs: Any) -> Any:
                    return change(list(self._sound.profile(handle, inputs, outputs)))

            return Runtime(sound)

        part.__name__, part.__doc__ = change.__name__, change.__doc__
        fault("runtime", *select)(part)
        return change

    return register


@_profiles("declared/times-add-up")
def _times_are_milliseconds(times: list[Any]) -> Any:
    """Times of operators are milliseconds."""
    return [dataclasses.replace(item, seconds=item.seconds * 1e3) for item in times]


@_profiles("declared/times-add-up")
def _times_are_thousands_of_seconds(times: list[Any]) -> Any:
    """Times of operators are a thousandth of the real ones."""
    return [dataclasses.replace(item, seconds=item.seconds / 1e3) for item in times]


@_profiles("declared/the-largest-is-the-slowest")
def _times_are_shared_out(times: list[Any]) -> Any:
    """Every operator gets the same share of the call's time."""
    whole = sum(item.seconds for item in times)
    return [dataclasses.replace(item, seconds=whole / len(times)) for item in times]


@_profiles("declared/the-largest-is-the-slowest")
def _times_are_in_reverse(times: list[Any]) -> Any:
    """The first operator has the time of the last one."""
    seconds = [item.seconds for item in reversed(times)]
    return [dataclasses.replace(item, seconds=value) for item, value in zip(times, seconds, strict=True)]


@_profiles("declared/the-largest-is-the-slowest")
def _times_have_the_key_of_the_next(times: list[Any]) -> Any:
    """Each operator's time has the debug key of the next one."""
    keys = [item.key for item in times]
    return [dataclasses.replace(item, key=key) for item, key in zip(times, [*keys[1:], *keys[:1]], strict=True)]


def _estimating(*select: str) -> Callable[[Callable[[int, int], Any]], Callable[[int, int], Any]]:
    """Register a compiler that estimates from the elements of the first input and those of all constants."""

    def register(change: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
        def part(sound: Any) -> Any:
            def preprocess(partition: Any, options: Any) -> Any:
                result = sound(partition=partition, options=options)
                elements = partition.view.inputs[0].meta["val"].numel()
                stored = sum(value.numel() * 4 for value in partition.view.constants.values())
                return dataclasses.replace(result, estimate=change(elements, stored))

            return preprocess

        part.__name__, part.__doc__ = change.__name__, change.__doc__
        fault("preprocess", *select)(part)
        return change

    return register


def _estimate(elements: int, stored: int) -> Any:
    from delegatekit_api.devices import Estimate

    macs = elements * 64
    return Estimate("model 1.0", latency=macs / 1e9, cycles=macs, macs=macs, storage={"flash": stored})


@_estimating("declared/estimates-grow")
def _estimates_do_not_know_the_batch(elements: int, stored: int) -> Any:
    """Estimates are those of one row, however many there are."""
    return _estimate(64, stored)


@_estimating("declared/estimates-grow")
def _estimates_are_milliseconds(elements: int, stored: int) -> Any:
    """Estimated latencies are a million times the real ones."""
    sound = _estimate(elements, stored)
    return dataclasses.replace(sound, latency=sound.latency * 1e6)


@_estimating("declared/estimates-grow")
def _estimates_forget_the_weights(elements: int, stored: int) -> Any:
    """The estimated storage is a header."""
    return _estimate(elements, 64)


@_estimating("declared/estimates-grow")
def _estimates_forget_the_results(elements: int, stored: int) -> Any:
    """The estimated memory is that of a row, as if the rest were elsewhere."""
    return dataclasses.replace(_estimate(elements, stored), memory={"sram": 64 * 4})


@fault("operators of blobs", "declared/blob-operators-are-those-lowered")
def _the_first_blob_is_told_of_all(sound: Any) -> Any:
    """The operators of the first blob are reported for all others."""
    return lambda blob: _first.setdefault("told", sound(blob))


_first: dict[str, Any] = {}


@fault("operators of blobs", "declared/blob-operators-are-those-lowered")
def _operators_are_told_as_one(sound: Any) -> Any:
    """Of a blob's operators, only the last one is reported."""

    def told(blob: Any) -> Any:
        return tuple(sound(blob))[-1:]

    return told


@fault("runtime", "declared/availability-is-true")
def _the_runtime_is_said_to_be_missing(sound: Any) -> Any:
    """The runtime reports that a library is missing, which it does not need."""

    class Runtime(Wrapped):
        def is_available(self) -> Any:
            from delegatekit_api import Availability

            return Availability(False, "the library libacme is not installed")

    return Runtime(sound)


# Options


@functools.cache
def _with_an_option(sound: Any, name: str, kind: Any, default: Any, choices: Any) -> Any:
    from delegatekit_api import option

    made = option(default, help="How the program is computed.", choices=choices)
    found = dataclasses.make_dataclass("Options", [(name, kind, made)], bases=(sound,), frozen=True)
    found.__doc__ = "The options of the backend."
    return found


def _optional(
    name: str, kind: Any, default: Any, choices: Any, *select: str
) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Register an option with its effect on a compiled partition: (value, result) -> result."""

    def register(change: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def part(sound: Any, where: str) -> Any:
            if where == "options":
                return _with_an_option(sound, name, kind, default, choices)

            def preprocess(partition: Any, options: Any) -> Any:
                return change(getattr(options, name), sound(partition=partition, options=options))

            return preprocess

        part.__name__, part.__doc__ = change.__name__, change.__doc__
        fault("options and preprocess", *select)(part)
        return change

    return register


def _first_operand_only(result: Any) -> Any:
    """The blob with a last step that reads nothing but its first operand."""
    from delegatekit_reference.blob import read_blob, write_blob
    from delegatekit_reference.ir.graph import Ref

    graph = read_blob(memoryview(bytes(result.blob)))
    last = graph.steps[-1]
    refs = [item for item in last.args if isinstance(item, Ref)]
    args = tuple(refs[0] if item in refs else item for item in last.args)
    return dataclasses.replace(
        result,
        blob=write_blob(dataclasses.replace(graph, steps=(*graph.steps[:-1], dataclasses.replace(last, args=args)))),
    )


@_optional("mode", str, "exact", ("exact", "fast", "faster"), "options/mode=*")
def _the_last_choice_is_wrong(value: Any, result: Any) -> Any:
    """The last of three choices of an option drops operands."""
    return _first_operand_only(result) if value == "faster" else result


@_optional("limit", int, 7, None, "options/limit=*")
def _an_option_is_wrong_at_its_bound(value: Any, result: Any) -> Any:
    """At the largest value of an option, operands are dropped."""
    return _first_operand_only(result) if value >= 1 << 20 else result


@_optional("limit_of_rows", int, 7, None, "options/limit_of_rows=*")
def _zero_is_taken_for_all(value: Any, result: Any) -> Any:
    """At zero, an option treats the program as one of no operands."""
    return _first_operand_only(result) if value == 0 else result


@_optional("share", float, 0.25, None, "options/share=*")
def _a_whole_share_leaves_nothing(value: Any, result: Any) -> Any:
    """With a share of one, an option leaves the blob empty."""
    return dataclasses.replace(result, blob=b"") if value == 1.0 else result


@fault("precision and runtime", "options/decompose=true")
def _an_option_loses_digits_that_it_declares(sound: Any, part: str) -> Any:
    """With every option results have the digits of bfloat16, and float32 is declared."""
    if part == "precision":
        return lambda options: "float32"
    return _outputs_changed(lambda value: value.bfloat16().to(value.dtype))(sound)
