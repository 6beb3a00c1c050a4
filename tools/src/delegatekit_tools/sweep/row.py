"""One row of a sweep: the result of one backend on the model for one target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import AnyFloat, decoded, said

#: The outcomes, the best first.
COMPILES: Final = "compiles"
TAKES_NOTHING: Final = "takes nothing"
REFUSED: Final = "refused"
FAILED: Final = "failed"
_OUTCOMES: Final = (COMPILES, TAKES_NOTHING, REFUSED, FAILED)
#: The signal to noise in dB below which outputs may follow another choice; rounding alone, to float16, stays above.
_OTHERWISE: Final = 40.0
#: The scheme of programs that were not quantized for the row.
FLOAT: Final = "float"


@dataclass(frozen=True)
class LeftOut:
    """Operators of one kind that the backend left to the runtime for one reason."""

    operator: str
    count: int
    reason: str


@dataclass(frozen=True)
class OutputErrors:
    """The errors of one output against eager, over all samples. None is unknown, and so it is for whole numbers."""

    #: Where it is in what the model returns: "[0]", "[boxes]"; the method's name if that is one tensor.
    name: str
    #: Its element type, as "float32".
    dtype: str
    #: Elements, and those that are not equal: of whole numbers and flags, which are no measures, that is all.
    elements: int
    different: int
    #: The signal to noise in dB, the largest error, the cosine.
    sqnr: AnyFloat | None = None
    largest_error: AnyFloat | None = None
    cosine: AnyFloat | None = None

    @property
    def is_measure(self) -> bool:
        """True for floats, whose differences are errors; indices and flags are equal or not."""
        return self.largest_error is not None


@dataclass(frozen=True)
class Row:
    """The result of one backend on the model for one target. None is unknown."""

    #: A digest of the program, the inputs, the backend and its version, target, options and scheme.
    key: str
    backend: str
    target: str
    #: "compiles", "takes nothing", "refused" (with a reason in words) or "failed" (a fault, a crash, a timeout).
    outcome: str
    reason: str = ""
    #: The backend's distribution and version.
    made_by: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The scheme that the program was quantized with: "float" if it was not.
    scheme: str = FLOAT
    delegates: int | None = None
    #: Operators that delegates compute, and all.
    delegated: int | None = None
    operators: int | None = None
    left_out: tuple[LeftOut, ...] = ()
    #: The backend's own estimate for the device: seconds of the slowest method, and bytes by the memory's name.
    estimated_seconds: float | None = None
    estimated_memory: Mapping[str, int] = field(default_factory=dict)
    estimated_by: str = ""
    #: Bytes of planned memory outside delegates, and of the file.
    arena: int | None = None
    file_size: int | None = None
    #: Median seconds of a call here: wall time, and CPU time of this process; of the slowest method.
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    runs: int = 0
    #: The reason why it was not run, or not to the end.
    not_run: str = ""
    #: The errors of each output against eager.
    outputs: tuple[OutputErrors, ...] = ()
    #: Operators of the model that choose elements by their numbers, the most frequent first: "aten.topk.default".
    selecting: tuple[str, ...] = ()
    #: CPU seconds of quantizing and lowering.
    lowering_seconds: float | None = None

    @classmethod
    def from_json(cls, content: Any, where: str = "row") -> Row:
        """The row from parsed JSON. Raises FormatError, with `where`, for anything else."""
        found = decoded(cls, content, where, what="is no row")
        if found.outcome not in _OUTCOMES:
            raise FormatError(f"is no row: outcome is {said(found.outcome)}", where=where)
        return found

    @property
    def may_have_chosen_otherwise(self) -> bool:
        """True if outputs differ much, as they do where one of two nearly equal elements is chosen for the other."""
        differ = self.different is not None and self.different[0] > 0
        return bool(self.selecting) and (differ or (self.sqnr is not None and self.sqnr < _OTHERWISE))

    @property
    def sqnr(self) -> float | None:
        """The least signal to noise in dB of an output."""
        return min((item.sqnr for item in self.outputs if item.sqnr is not None), default=None)

    @property
    def largest_error(self) -> float | None:
        """The largest error of an output of floats; NaN if one has such an error."""
        known = [item.largest_error for item in self.outputs if item.largest_error is not None]
        return next(filter(math.isnan, known), max(known, default=None))

    @property
    def cosine(self) -> float | None:
        """The least cosine of an output; NaN if one has none."""
        known = [item.cosine for item in self.outputs if item.cosine is not None]
        return next(filter(math.isnan, known), min(known, default=None))

    @property
    def different(self) -> tuple[int, int] | None:
        """Whole numbers and flags in outputs that are not equal, and all; None if there are none."""
        exact = [item for item in self.outputs if not item.is_measure]
        return (sum(item.different for item in exact), sum(item.elements for item in exact)) if exact else None

    @property
    def is_fault(self) -> bool:
        """True if a retry may give another result: it failed, and not with a reason in words."""
        return self.outcome == FAILED
