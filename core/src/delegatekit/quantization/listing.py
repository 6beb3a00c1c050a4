"""The schemes that backends offer, as text and as JSON: the implementation of the command `delegatekit schemes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delegatekit_api.schemes import MOVING_OPERATORS, QuantizationRule, QuantizationScheme


def schemes_by_backend(
    backend: str | None, options: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Sequence[QuantizationScheme]]:
    """The schemes of one backend, or of all usable ones; `options` for each backend.

    Raises PluginError for a backend that cannot be used, OptionError for wrong options.
    """
    from ..plugins import LoadedBackend, ask_all, get_backend

    def ask(found: LoadedBackend) -> Sequence[QuantizationScheme]:
        return found.quantization_schemes(found.make_options((options or {}).get(found.name, {})))

    return {backend: ask(get_backend(backend))} if backend is not None else ask_all(ask)


def schemes_as_json(found: Mapping[str, Sequence[QuantizationScheme]]) -> dict[str, list[dict[str, Any]]]:
    """The schemes as plain data, rules included."""
    return {name: [_scheme(scheme) for scheme in schemes] for name, schemes in found.items()}


def _scheme(scheme: QuantizationScheme) -> dict[str, Any]:
    rules = [
        {
            "operators": list(rule.operators),
            "fused": list(rule.fused),
            "input": _text(rule.input),
            "weight": _text(rule.weight),
            "bias": _text(rule.bias),
            "output": _text(rule.output),
            "shares": rule.shares,
            "follows": rule.follows,
            "declines": len(rule.declines),
        }
        for rule in scheme.rules
    ]
    return {"name": scheme.name, "summary": scheme.summary, "kind": scheme.kind, "qat": scheme.qat, "rules": rules}


def _text(given: Any) -> str | None:
    return None if given is None else str(given)


def schemes_text(found: Mapping[str, Sequence[QuantizationScheme]]) -> str:
    """The schemes as text: a paragraph for each, in which each operator occurs once."""
    lines = []
    for backend, schemes in found.items():
        for scheme in schemes:
            training = ", offers training" if scheme.qat else ""
            lines += ["", f"{backend}: {scheme.name} ({scheme.kind}{training})", f"  {scheme.summary}".rstrip()]
            lines += [f"  * {line}" for line in _lines(scheme)] or ["  * the plugin's own quantizer"]
            if scheme.rules:
                lines.append(
                    "  where the backend supports them: the report of `quantize` lists the exceptions, with reasons"
                )
    return "\n".join(lines[1:])


def _lines(scheme: QuantizationScheme) -> list[str]:
    """Operators with the same rules, and descriptions of these."""
    rules: dict[str, list[QuantizationRule]] = {}
    for rule in scheme.rules:
        for name in rule.operators:
            rules.setdefault(name, []).append(rule)
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, of_name in rules.items():
        fused = dict.fromkeys(_short(other) for rule in of_name for other in rule.fused)
        key = ", ".join(fused), *dict.fromkeys(map(_how, of_name))
        alike.setdefault(key, []).append(name)
    return [
        f"{_operators(names)}{f' (+ {fused})' if fused else ''}: {', or '.join(how)}"
        for (fused, *how), names in alike.items()
    ]


def _operators(operators: Sequence[str]) -> str:
    names = list(dict.fromkeys(map(_short, operators)))
    moving = [name for name in names if name in MOVING_OPERATORS]
    if len(moving) > 3:
        names = [name for name in names if name not in moving] + ["operators that only move values"]
    return ", ".join(names)


def _how(rule: QuantizationRule) -> str:
    if rule.shares:
        return "as its quantized input"
    parts = (("input", rule.input), ("weight", rule.weight), ("bias", rule.bias), ("output", rule.output))
    text = "; ".join(f"{name} {given}" for name, given in parts if given is not None)
    return text + ("; only after quantized operators" if rule.follows else "")


def _short(name: str) -> str:
    return name.removeprefix("aten.").removesuffix(".Tensor").removesuffix(".default")
