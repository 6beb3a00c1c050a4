"""The backends' estimates in a file: the named data "delegatekit.estimates"."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from delegatekit_api import Estimate, LayerEstimate

from .reader import PteFile

#: Key of the estimates among the file's named data: JSON, for each method a list with an item for each delegate.
ESTIMATES_KEY: Final = "delegatekit.estimates"
#: JSON unfolds to many times its size in memory: what is longer is not ours.
_LARGEST: Final = 16 << 20


def estimates_to_json(methods: Mapping[str, Sequence[Estimate | None]]) -> bytes:
    """The estimates of each method's delegates, as the file has them."""
    content = {
        name: [None if item is None else dataclasses.asdict(item) for item in of_method]
        for name, of_method in methods.items()
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":"), default=dict).encode()


def read_estimates(file: PteFile) -> dict[tuple[str, int], Estimate]:
    """The file's estimates by method and index of the delegate. What is missing or damaged is not there."""
    stored = file.named_data.get(ESTIMATES_KEY, memoryview(b""))
    if not 0 < len(stored) <= _LARGEST:
        return {}
    try:
        content: Any = json.loads(bytes(stored))
    except (ValueError, RecursionError):
        return {}
    found = {}
    for method, of_method in content.items() if isinstance(content, dict) else ():
        for index, item in enumerate(of_method if isinstance(of_method, list) else ()):
            estimate = _estimate(item)
            if estimate is not None:
                found[method, index] = estimate
    return found


def _estimate(item: Any) -> Estimate | None:
    """An item of the file, or None if it is not of the right form."""
    if not isinstance(item, dict):
        return None
    layers = item.get("layers", [])
    try:
        return Estimate(
            source=_text(item["source"]),
            latency=_optional(_number, item.get("latency")),
            cycles=_optional(_count, item.get("cycles")),
            macs=_optional(_count, item.get("macs")),
            memory=_sizes(item.get("memory", {})),
            storage=_sizes(item.get("storage", {})),
            layers=tuple(
                LayerEstimate(
                    name=_text(layer["name"]),
                    operator=_text(layer["operator"]),
                    latency=_number(layer["latency"]),
                    cycles=_optional(_count, layer.get("cycles")),
                    macs=_count(layer.get("macs", 0)),
                    utilization=_number(layer.get("utilization", 0.0)),
                    memory=_sizes(layer.get("memory", {})),
                )
                for layer in layers
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError("not a number")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("not a count")
    return value


def _optional(read: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else read(value)


def _sizes(value: Any) -> dict[str, int]:
    return {_text(name): _count(size) for name, size in value.items()}
