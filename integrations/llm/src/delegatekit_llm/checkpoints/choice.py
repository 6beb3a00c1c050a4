"""Chooses what becomes of integers that a model comes with: a scheme of the backend that takes them, or numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from delegatekit.errors.misuse import WrongArgumentError
from delegatekit.plugins import get_backend
from delegatekit.quantization.affine import given_integers
from delegatekit.quantization.flow import is_weight_scheme
from delegatekit.quantization.schemes import choose_scheme
from delegatekit_api.nodes import operator_name
from delegatekit_api.schemes import QuantizationScheme, TensorQuantization

from .layers import Form, form_of, forms, integer_layers


@dataclass(frozen=True)
class Choice:
    """A scheme, the size of its groups, and the nodes that it leaves alone; and what is told of them."""

    scheme: str | None
    group_size: int | None
    keep_float: tuple[Callable[[Node], bool], ...] = ()
    told: tuple[str, ...] = ()


def choose(
    model: torch.nn.Module,
    backend: str,
    scheme: str | None,
    group_size: int | None,
    options: Mapping[str, Any] | None,
    *,
    dequantize: bool,
) -> Choice:
    """What becomes of the integers of a model: of most layers, and of those that have another form.

    With `dequantize` all become numbers. A model without integers, and a scheme for numbers, stay as they were.

    Raises WrongArgumentError where only schemes that round activations take the integers, and none was given; and for a
    scheme that takes none of them.
    """
    found = forms(model)
    odd = {path: layer for path, layer in integer_layers(model) if layer.reason}
    if not found:
        nothing = "its weights are float numbers already: there is nothing to dequantize"
        return Choice(scheme, group_size, told=(nothing,) if dequantize else ())
    if dequantize:
        _to_numbers(model)
        what = "float numbers" if scheme is None else f"float numbers, which {scheme} quantizes anew"
        return Choice(scheme, group_size, told=_told(found, what, "asked for by dequantize"))
    common, _ = max(found.items(), key=lambda item: item[1])
    if scheme is not None:
        _, chosen = choose_scheme(backend, scheme, options, group_size)
        _check_takes(chosen, backend, common, options)
        grouped = any(rule.weight is not None and rule.weight.granularity.kind == "group" for rule in chosen.rules)
        if group_size is None and grouped:
            group_size = common.group
        told, kept = _subtracted(model, chosen, common)
        return Choice(scheme, group_size, (*_kept(odd), *kept), told)
    loaded = get_backend(backend)
    fitting = [item for item in loaded.quantization_schemes(loaded.make_options(options or {})) if _takes(item, common)]
    why = f"no scheme of {backend} takes these"
    if other := {layer.dtype for _, layer in integer_layers(model)} - {torch.float32}:
        fitting, why = [], f"schemes are for float32, not {str(other.pop()).rpartition('.')[2]}"
    fitting.sort(key=lambda item: (item.kind == "dynamic") is not common.dynamic)
    if not fitting:
        for _, layer in integer_layers(model):
            layer.numbers = True
        return Choice(None, None, told=_told(found, "float numbers", why))
    best = fitting[0]
    if best.kind == "dynamic" and not common.dynamic:
        names = " or ".join(f"--scheme {item.name}" for item in fitting)
        raise WrongArgumentError(
            f"its weights are {common}, which {backend} multiplies by activations of 8 bits only",
            where="scheme",
            hint=f"{names} takes the integers as they are, and rounds activations in each call; --dequantize makes "
            "float numbers of the integers",
        )
    told, kept = _subtracted(model, best, common)
    told = (f"scheme {best.name} takes the integers: {found[common]} layers are {common}", *told)
    return Choice(best.name, common.group, (*_kept(odd), *kept, _only_given), told)


def _takes(scheme: QuantizationScheme, form: Form) -> bool:
    """True if a scheme's linear layers have such integers; which groups there are, the backend decides."""
    return bool(scheme.rules) and is_weight_scheme(scheme) and any(_has_form(item, form) for item in _weights(scheme))


def _weights(scheme: QuantizationScheme) -> list[TensorQuantization]:
    return [rule.weight for rule in scheme.rules if "linear" in rule.operators and rule.weight is not None]


def _has_form(weight: TensorQuantization, form: Form) -> bool:
    kind = "channel" if form.group is None else "group"
    return weight.dtype == f"int{form.bits}" and weight.granularity.kind == kind


def _subtracted(
    model: torch.nn.Module, scheme: QuantizationScheme, form: Form
) -> tuple[tuple[str, ...], tuple[Callable[[Node], bool], ...]]:
    """Let layers with zero points, which the scheme has not, subtract what these make; what is told, and is kept."""
    (weight, *_) = [item for item in _weights(scheme) if _has_form(item, form)]
    layers = {path: layer for path, layer in integer_layers(model) if layer.has_zeros and not layer.reason}
    if not layers or not weight.symmetric:
        return (), ()
    for layer in layers.values():
        layer.subtract_zeros(getattr(torch, weight.scale_dtype))
    told = f"{len(layers)} layers have zero points: what these make is subtracted, as products of sums of the groups"

    def kept(node: Node) -> bool:
        return _within(node, layers) and _only_given(node)

    kept.reason = "it multiplies the zero points of integers"  # type: ignore[attr-defined]
    return (told,), (kept,)


def _within(node: Node, paths: Collection[str]) -> bool:
    """True if a node is of a module with one of these paths, in the model that is called."""
    stack = (node.meta.get("nn_module_stack") or {}).values()
    return any(f".{path}".endswith(tuple(f".{item}" for item in paths)) for path, _ in stack)


def _check_takes(scheme: QuantizationScheme, backend: str, form: Form, options: Mapping[str, Any] | None) -> None:
    if not scheme.rules or not is_weight_scheme(scheme):
        raise WrongArgumentError(
            f"scheme {scheme.name} of {backend} calibrates activations, and the weights are {form} already",
            where="scheme",
            hint="a scheme of weights takes integers; --dequantize lets this one quantize their numbers anew",
        )
    if not _takes(scheme, form):
        loaded = get_backend(backend)
        offered = loaded.quantization_schemes(loaded.make_options(options or {}))
        others = [item.name for item in offered if _takes(item, form)]
        raise WrongArgumentError(
            f"scheme {scheme.name} of {backend} has other integers than the weights, which are {form} already",
            where="scheme",
            hint="".join(f"--scheme {name} takes them; " for name in others)
            + "--dequantize lets this one quantize their numbers anew",
        )


def _to_numbers(model: torch.nn.Module) -> None:
    """Let the layers compute with numbers, which are no quantized weights of a program."""
    for _, layer in integer_layers(model):
        layer.numbers = True
    for module in model.modules():
        weight: Any = module._parameters.get("weight")
        if isinstance(module, torch.nn.Linear) and form_of(weight) is not None:
            module.weight = torch.nn.Parameter(weight.dequantize(), requires_grad=False)


def _told(found: Mapping[Form, int], become: str, reason: str) -> tuple[str, ...]:
    return tuple(f"{count} layers of {form} become {become}: {reason}" for form, count in found.items())


def _kept(odd: Mapping[str, Any]) -> tuple[Callable[[Node], bool], ...]:
    """Selectors of layers whose integers are no weight that a backend takes, with the reasons."""
    found = []
    for reason in {layer.reason for layer in odd.values()}:
        paths = {path for path, layer in odd.items() if layer.reason == reason}

        def kept(node: Node, paths: set[str] = paths) -> bool:
            return _within(node, paths)

        kept.reason = f"its weight is integers, but {reason}"  # type: ignore[attr-defined]
        found.append(kept)
    return tuple(found)


def _only_given(node: Node) -> bool:
    """True for a layer that does not come as integers."""
    weight = node.args[1] if len(node.args) > 1 else None
    return not (operator_name(node) == "aten.linear.default" and isinstance(weight, Node) and given_integers(weight))


_only_given.reason = "it comes in float numbers, and no scheme was given for these"  # type: ignore[attr-defined]
