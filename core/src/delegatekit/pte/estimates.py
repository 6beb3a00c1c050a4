"""The backends' estimates in a file: the named data "delegatekit.estimates"."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delegatekit_api.devices import Estimate, LayerEstimate
from delegatekit_toolkit.json_text import read_object, to_json

from . import schema
from .dataflow import calls
from .reader import PteFile

#: Key of the estimates among the file's named data: JSON, for each method a list with an item for each delegate.
ESTIMATES_KEY: Final = "delegatekit.estimates"
#: Size limit: JSON unfolds to many times its size in memory, and larger data is not DelegateKit's.
_LARGEST: Final = 16 << 20


@dataclass(frozen=True)
class Estimates:
    """The estimates of a file: for each method, an item for each of its delegates, None if there is none."""

    methods: Mapping[str, Sequence[Estimate | None]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """True if there is any."""
        return any(item is not None for of_method in self.methods.values() for item in of_method)

    def of(self, method: str, index: int) -> Estimate | None:
        """The estimate of a method's delegate, if there is one."""
        of_method = self.methods.get(method, ())
        return of_method[index] if index < len(of_method) else None

    def to_json(self) -> bytes:
        """The estimates in the file's form."""
        return to_json(self.methods, sort_keys=True, compact=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Estimates:
        """The estimates of a file. Damaged ones are ignored."""
        content = read_object(data)
        return cls(
            {method: tuple(map(_estimate, items)) for method, items in content.items() if isinstance(items, list)}
        )


def read_estimates(file: PteFile) -> Estimates:
    """The file's estimates. Missing or damaged ones are ignored."""
    stored = file.named_data.get(ESTIMATES_KEY, memoryview(b""))
    return Estimates.from_json(bytes(stored)) if 0 < len(stored) <= _LARGEST else Estimates()


def estimates_of(file: PteFile, plan: schema.ExecutionPlan) -> dict[int, Estimate]:
    """The estimates of the delegates that instructions call, by the instructions' positions."""
    known, name = read_estimates(file), str(plan.name)
    found = {}
    for position, call in enumerate(calls(plan)):
        estimate = known.of(name, call.delegate_index) if isinstance(call, schema.DelegateCall) else None
        if estimate is not None:
            found[position] = estimate
    return found


def _estimate(item: Any) -> Estimate | None:
    """An item of the file, or None if it is malformed."""
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
