"""Chooses a backend's scheme by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from delegatekit_api import OptionError, PluginError, QuantizationError
from delegatekit_api.schemes import QuantizationScheme, TensorQuantization

from ..plugins import LoadedBackend, get_backend


def choose_scheme(
    backend: str, scheme: str | None, options: Mapping[str, Any] | None = None, group_size: int | None = None
) -> tuple[LoadedBackend, QuantizationScheme]:
    """The backend and, with these options, its scheme of this name (the first, without one).

    `group_size` replaces that of its weights. Raises PluginError for an unknown backend, OptionError for an unknown
    scheme and for wrong options.
    """
    loaded = get_backend(backend)
    schemes = {found.name: found for found in loaded.quantization_schemes(loaded.make_options(options or {}))}
    if not schemes:
        raise PluginError("declares no quantization schemes", where=f"backend {backend}", hint="`delegatekit schemes`")
    if scheme is None:
        chosen = next(iter(schemes.values()))
    elif scheme in schemes:
        chosen = schemes[scheme]
    else:
        raise OptionError(f"no scheme {scheme!r}", where=f"backend {backend}", hint=f"schemes: {', '.join(schemes)}")
    return loaded, chosen if group_size is None else _with_group(chosen, group_size)


def _with_group(scheme: QuantizationScheme, size: int) -> QuantizationScheme:
    if not any(_has_groups(rule.weight) for rule in scheme.rules):
        raise QuantizationError(f"group_size={size}, but scheme {scheme.name} has no groups")
    rules = tuple(dataclasses.replace(rule, weight=_grouped(rule.weight, size)) for rule in scheme.rules)
    return dataclasses.replace(scheme, rules=rules)


def _has_groups(weight: TensorQuantization | None) -> bool:
    return weight is not None and weight.granularity.group is not None


def _grouped(weight: TensorQuantization | None, size: int) -> TensorQuantization | None:
    """The same with groups of this size, of values or of channels, if it has groups."""
    if weight is None or not _has_groups(weight):
        return weight
    try:
        granularity = dataclasses.replace(weight.granularity, group=size)
    except ValueError as error:
        raise QuantizationError(f"group_size={size}: {error}") from None
    return dataclasses.replace(weight, granularity=granularity)
