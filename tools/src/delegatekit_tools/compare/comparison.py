"""The result of a comparison, and its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from delegatekit.errors import WrongArgumentError
from delegatekit.partition import PartitionedMethod

from .page import page
from .result import Divergence, JudgedPass, Operator, Output
from .text import divergence, judged_pass, skipped, table, words

#: Rows of the table shown by default: those that come closest to their bounds.
_ROWS: Final = 10


@dataclass(frozen=True)
class Comparison:
    """Eager and lowered program side by side."""

    method: str
    backends: tuple[str, ...]
    #: In the order of the graph; operators of control flow precede its call.
    operators: tuple[Operator, ...]
    outputs: tuple[Output, ...]
    #: None if every operator is within its bound.
    first: Divergence | None
    #: Number of compilations, cache hits included.
    lowerings: int
    seconds: float
    #: Limits of the judgment, in words.
    remarks: tuple[str, ...] = ()
    #: The passes that changed the program before backends were asked about it.
    passes: tuple[JudgedPass, ...] = ()
    #: The method as it was lowered for the first backends; the drawing of the page.
    lowered: PartitionedMethod | None = field(default=None, repr=False, compare=False)

    @property
    def right(self) -> bool:
        """True if all operators, all outputs and what passes left of the program are within their bounds."""
        judged = [*(output.measured for output in self.outputs), *(item.measured for item in self.passes)]
        return self.first is None and all(item.right for item in judged)

    def text(self, *, rows: int | None = _ROWS, snippet: str = "`first.snippet`") -> str:
        """Verdict, first divergence, outputs, and a table of the `rows` operators that come closest to their bounds.

        `snippet` says where the program is that shows the divergence; "" if that need not be said.
        """
        compared = [item for item in self.operators if not item.skipped]
        lines = [self._verdict(compared)]
        if self.first is not None:
            lines += ["", *divergence(self.first)]
        lines += ["", *map(judged_pass, self.passes)]
        lines += [f"{item.name}: {words(item.measured)}" for item in self.outputs]
        if found := table(compared, rows):
            lines += ["", *found]
        lines += [*skipped(self.operators), *(f"note: {remark}" for remark in self.remarks)]
        lines.append(f"{self.lowerings} lowerings, {self.seconds:.1f} s")
        if snippet and self.first is not None and self.first.snippet:
            lines.append(f"a program that shows it by itself: {snippet}")
        return "\n".join(lines)

    def html(self, title: str = "Comparison") -> str:
        """One page: the graph colored by the errors, the operators as a table, and the verdict; it needs no network."""
        if self.lowered is None:
            raise WrongArgumentError("has no graph", where="Comparison.html", hint="`compare` makes one that has")
        return page(self, self.lowered, title)

    def __str__(self) -> str:
        return self.text()

    def _verdict(self, compared: list[Operator]) -> str:
        where = f"method {self.method} on {' against '.join(self.backends) or 'the runtime alone'}"
        wrong = sum(not item.measured.right for item in compared)
        if wrong:
            return f"{where}: {wrong} of {len(compared)} operators are beyond their bounds"
        if self.first is not None and self.first.kind == "pass":
            return f"{where}: a pass changes the program's results; all {len(compared)} operators after it are right"
        if self.first is not None and self.first.kind == "context":
            return f"{where}: each of {len(compared)} operators is right by itself, but not together with its neighbors"
        if self.first is not None:
            return f"{where}: it cannot be run as a whole"
        if not self.right:
            return f"{where}: each of {len(compared)} operators is within its bound, but the outputs are not"
        return f"{where}: all {len(compared)} operators are within their bounds"
