"""Rules about declarations themselves: none is beyond its limit, and each is the same when it is asked again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from delegatekit.plugins import discovery
from delegatekit_api.schemes import QuantizationScheme

from ...context import Context
from ..base import Broken, Case, NotApplicable, Rule
from .collect import declarations, steps_of


def within_limits(context: Context) -> str:
    """No declaration is beyond the limit that its number format sets."""
    found = declarations(context)
    broken = [item for item in found if item.breaks]
    if broken:
        raise Broken("; ".join(f"{item.where} declares {item.what}: {item.breaks}" for item in broken))
    return f"{len(found)} declarations"


def declared_again(context: Context) -> str:
    """Everything that is declared is declared the same way each time."""
    first, second = declarations(context), declarations(context)
    if first != second:
        other = {item.key: item for item in second}
        wrong = next(item for item in (*first, *second) if other.get(item.key) != item or item not in first)
        raise Broken(f"{wrong.where} declares {wrong.what}, and something else when it is asked again")
    return f"{len(first)} declarations"


def schemes_say_what_they_do(context: Context) -> str:
    """Schemes whose names or summaries name a number of bits, of channels or of groups declare these."""
    backend = discovery.get_backend(context.backend)
    schemes = backend.quantization_schemes(backend.make_options(context.options)) or ()
    if not schemes:
        raise NotApplicable("the backend declares no quantization schemes")
    for scheme in schemes:
        wrong = _wrong_words(scheme)
        if wrong:
            raise Broken(f"scheme {scheme.name} ({scheme.summary!r}) {wrong}")
    return f"{len(schemes)} schemes"


def _wrong_words(scheme: QuantizationScheme) -> str:
    """Promises of a scheme's words that its rules do not keep; empty if there are none."""
    weights = [rule.weight for rule in scheme.rules if rule.weight is not None]
    kinds = {weight.granularity.kind for weight in weights}
    words = f"{scheme.name} {scheme.summary}".lower()
    if not weights:
        return ""
    if "scale for each output channel" in words and "channel" not in kinds:
        return "promises a scale for each output channel, and has none"
    layers = [
        rule.weight for rule in scheme.rules if rule.weight is not None and {"linear", "conv2d"} & {*rule.operators}
    ]
    for weight in layers:
        bits = steps_of(weight).bit_length()
        if f"int{bits}" not in words and re.search(r"int\d", words):
            return f"says nothing of int{bits}, which is all that its weights have"
    if "groups of" in words and "group" not in kinds:
        return "promises groups, and has none"
    return ""


def cases() -> Iterator[Case]:
    """The rules."""
    yield Rule("declared/within-limits", within_limits)
    yield Rule("declared/the-same-again", declared_again)
    yield Rule("declared/schemes-say-what-they-do", schemes_say_what_they_do)
