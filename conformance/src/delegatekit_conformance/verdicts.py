"""What can come of a case, and the tolerance that separates right from wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

#: Unit roundoff of the precisions that backends declare: half the distance from 1 to the next number.
ROUNDOFF: Mapping[str, float] = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


class Verdict(Enum):
    """The outcome of one case."""

    DELEGATED = "correct, delegated"
    PARTLY = "correct, partly delegated"
    FALLBACK = "correct, nothing delegated"
    UNAVAILABLE = "compiled, runtime not available"
    LOWERING_ERROR = "lowering error"
    LOAD_ERROR = "load error"
    RUN_ERROR = "run error"
    MISMATCH = "wrong result"
    CRASH = "crash"
    TIMEOUT = "timeout"

    @property
    def is_fault(self) -> bool:
        """Whether the backend did something that a user must not meet."""
        return self in _FAULTS


_FAULTS = frozenset(
    {
        Verdict.LOWERING_ERROR,
        Verdict.LOAD_ERROR,
        Verdict.RUN_ERROR,
        Verdict.MISMATCH,
        Verdict.CRASH,
        Verdict.TIMEOUT,
    }
)


@dataclass(frozen=True)
class Outcome:
    """A case with its verdict. Errors are relative to the largest reference value; seconds are wall time."""

    case: str
    verdict: Verdict
    detail: str = ""
    delegates: int = 0
    delegated_nodes: int = 0
    fallback_calls: int = 0
    #: Operators that the backend left, with its reasons.
    refusals: tuple[str, ...] = ()
    error: float | None = None
    tolerance: float | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return asdict(self) | {"verdict": self.verdict.value, "fault": self.verdict.is_fault}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """The inverse of `to_json`."""
        fields = {key: value for key, value in values.items() if key != "fault"}
        fields["verdict"] = Verdict(fields["verdict"])
        fields["refusals"] = tuple(fields["refusals"])
        return cls(**fields)


def tolerance(precision: str, depth: int, terms: int) -> float:
    """Largest admissible error, relative to the largest reference value.

    Each of `depth` operators one behind the other rounds its result a few times, and one that sums up `terms` products
    adds rounding errors that behave like a random walk: sqrt(terms) roundoffs. The factor 8 covers approximated
    functions (exp, tanh: a few units in the last place) and unlucky walks.
    """
    return 8.0 * ROUNDOFF[precision] * depth * math.sqrt(max(1, terms))
