"""All declarations of a backend that loosen a check, collected from its description, hooks, schemes and support table.

Each has the limit for what may be declared. Limits follow from number formats, not from what backends declare today.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from delegatekit.plugins import LoadedBackend, discovery
from delegatekit_api import DelegateKitError
from delegatekit_api.schemes import QuantizationScheme, TensorQuantization
from delegatekit_toolkit.accuracy import ROUNDOFF

from ...context import Context
from ...declaration import Declaration
from ..contract.options import values_of

#: The finest precision whose tolerances loosen nothing.
_FINEST = "float32"
#: More bytes than a kernel reads beyond a tensor's end for any vector unit or cache line.
MOST_OVERREAD = 65_536
#: The largest smallest scale: 127 steps of it are 2^-9, and layers of a million inputs begin with weights of 2^-10.
LARGEST_EPS = 2.0**-16
#: Operators that a declaration names before "and N more".
_NAMED = 3


def declarations(context: Context) -> tuple[Declaration, ...]:
    """The backend's declarations with the options of the run. Those that cannot be queried are left out: other rules
    report them."""
    backend = discovery.get_backend(context.backend)
    found: list[Declaration] = []
    for part in (_precision, _description, _schemes, _rows):
        try:
            found += part(backend, context.options)
        except DelegateKitError:
            continue
    return tuple(found)


def _precision(backend: LoadedBackend, options: Mapping[str, Any]) -> Iterator[Declaration]:
    told = backend.compute_precision(options)
    chosen = ", ".join(f"{name}={value}" for name, value in options.items())
    where = "hook compute_precision" if backend.has("compute_precision") else "describe_backend"
    yield from _coarser(told, where + (f" with {chosen}" if chosen else ""), "compute_precision")
    if not backend.has("compute_precision"):
        return
    seen = set()
    for name, value in values_of(backend.description.options):
        try:
            other = backend.compute_precision({**options, name: value})
        except DelegateKitError:
            continue
        if other != told and (name, other) not in seen:
            seen.add((name, other))
            yield from _coarser(other, f"hook compute_precision with {name}={value}", f"compute_precision:{name}")


def _coarser(told: str, where: str, key: str) -> Iterator[Declaration]:
    if told in (_FINEST, "float64"):
        return
    ratio = ROUNDOFF.get(told, 0.0) / ROUNDOFF[_FINEST]
    yield Declaration(
        key,
        f"compute_precision = {told}",
        where,
        f"float32 results may be {ratio:,.0f} times as far from the exact ones as in float32",
        f"one of {', '.join(ROUNDOFF)}",
        "" if told in ROUNDOFF else f"{told} is no precision",
        ROUNDOFF.get(told),
    )


def _description(backend: LoadedBackend, options: Mapping[str, Any]) -> Iterator[Declaration]:
    description = backend.description
    if description.overread_bytes:
        size = description.overread_bytes
        yield Declaration(
            "overread_bytes",
            f"overread_bytes = {size}",
            "describe_backend",
            f"kernels may read {size} bytes after the end of an input",
            f"{MOST_OVERREAD:,} bytes: no vector is longer",
            f"{size:,} bytes are more than any kernel reads at once" if size > MOST_OVERREAD else "",
            size,
        )
    if description.supports_dynamic_shapes and not description.device_dynamic_shapes:
        yield Declaration(
            "device_dynamic_shapes",
            "device_dynamic_shapes = False",
            "describe_backend",
            "programs whose sizes change are not judged in the stock runtime",
        )
    if description.isolated_runtime:
        yield Declaration(
            "isolated_runtime",
            "isolated_runtime = True",
            "describe_backend",
            "a crash of the runtime ends a process of its own",
        )
    if not description.integrity_check and backend.has("create_runtime"):
        yield Declaration(
            "integrity_check",
            "integrity_check = False",
            "describe_backend",
            "a damaged blob may run, and give other numbers",
        )


def _schemes(backend: LoadedBackend, options: Mapping[str, Any]) -> Iterator[Declaration]:
    for scheme in backend.quantization_schemes(backend.make_options(options)) or ():
        yield from _of_scheme(scheme)


def _of_scheme(scheme: QuantizationScheme) -> Iterator[Declaration]:
    where = f"scheme {scheme.name}"
    error = scheme.relative_error
    if error:
        limit, why = error_limit(scheme)
        yield Declaration(
            f"relative_error:{scheme.name}",
            f"relative_error = {error:.3g}",
            where,
            f"results of a layer may be off by {error:.3g} of the largest one, beside the steps",
            f"{limit:.3g}: {why}",
            f"{error:.3g} is above {limit:.3g}: {why}" if error > limit else "",
            error,
        )
    weights = [rule.weight for rule in scheme.rules if rule.weight is not None]
    tensors = [item for rule in scheme.rules for item in (rule.input, rule.weight, rule.output) if item is not None]
    if any(_has_one_scale(weight) for weight in weights):
        yield Declaration(
            f"granularity:{scheme.name}",
            "one scale for a whole weight",
            where,
            "channels of small weights have fewer steps than those of large ones",
        )
    eps = max((tensor.eps for tensor in tensors), default=0.0)
    if eps > TensorQuantization().eps:
        yield Declaration(
            f"eps:{scheme.name}",
            f"eps = {eps:.3g}",
            where,
            f"tensors whose numbers are all below {127 * eps:.3g} have fewer steps",
            f"{LARGEST_EPS:.3g}: smaller numbers are usual in large layers",
            f"{eps:.3g} is above {LARGEST_EPS:.3g}" if eps > LARGEST_EPS else "",
            eps,
        )


def _has_one_scale(weight: TensorQuantization) -> bool:
    return weight.table is None and weight.granularity.kind == "tensor" and steps_of(weight) < 1 << 15


def steps_of(tensor: TensorQuantization) -> int:
    """The number of steps in its range."""
    low, high = tensor.range
    return high - low


def error_limit(scheme: QuantizationScheme) -> tuple[float, str]:
    """The largest `relative_error` that a scheme may declare, and why.

    Results of eight bits or fewer may be off by one step: more would be a type of fewer bits. Wider results must be
    better than those of eight bits. Where results stay in floating point, the steps of the weights take their place.
    """
    outputs = [steps_of(rule.output) for rule in scheme.rules if rule.output is not None]
    weights = [steps_of(rule.weight) for rule in scheme.rules if rule.weight is not None]
    steps = max(outputs or weights or [255])
    if steps > 255:
        return 1 / 255, "one step of 8 bits, without which the wider type is worth nothing"
    return 1 / steps, f"one step of {steps}, beyond which a type of fewer bits would do"


def _rows(backend: LoadedBackend, options: Mapping[str, Any]) -> Iterator[Declaration]:
    partitioner: Any = backend.create_partitioner(backend.make_options(options))
    if not hasattr(partitioner, "special_values"):
        return
    said: dict[str, list[str]] = {}
    table = getattr(partitioner, "table", {})
    for operator, row in dict(table).items():
        for special in (getattr(row, "special_values", ""), getattr(table, "special_values", "")):
            text = special if isinstance(special, str) else _first_line(special)
            if text:
                said.setdefault(text, []).append(operator)
    for text, operators in said.items():
        yield Declaration(
            f"special_values:{text}",
            text,
            f"rows of {_names(operators)}",
            "a result that is wrong for such inputs is no fault, if it is right for others",
            rows=tuple(operators),
        )


def _first_line(function: Any) -> str:
    said = (function.__doc__ or "").strip().splitlines()
    return said[0] if said else "decided for each call"


def _names(operators: Sequence[str]) -> str:
    more = f" and {len(operators) - _NAMED} more" if len(operators) > _NAMED else ""
    return ", ".join(operators[:_NAMED]) + more
