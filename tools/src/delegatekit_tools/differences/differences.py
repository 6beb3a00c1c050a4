"""The differences of two files, as text and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..page.contents import Contents
from ..text import aligned
from .figures import Figure, Moved
from .page import page


@dataclass(frozen=True)
class Differences:
    """Two files side by side."""

    #: Names of the files.
    before: str
    after: str
    figures: tuple[Figure, ...]
    moved: tuple[Moved, ...]
    #: The calls of the runtime's kernels whose numbers differ.
    kernels: tuple[Figure, ...]
    #: Limits of what could be told, in words.
    remarks: tuple[str, ...] = ()
    #: The graphs of the page, by their names, and the operators in each that moved, with the place in the other file.
    graphs: Mapping[str, tuple[Contents, Mapping[int, str]]] = field(default_factory=dict, repr=False, compare=False)

    def text(self) -> str:
        """The figures, what moved, and the kernels, in lines."""
        lines = [f"{self.before} -> {self.after}", *_table(self.figures, "what")]
        if self.kernels:
            lines += ["", *_table(self.kernels, "calls of the runtime's kernels")]
        if self.moved:
            lines += [
                "",
                f"moved: {sum(item.count for item in self.moved)} operators",
                *(f"  {it}" for it in self.moved),
            ]
        return "\n".join([*lines, *(f"note: {remark}" for remark in self.remarks)])

    def html(self, title: str = "Differences") -> str:
        """One page: cards, what moved, all figures, and the graphs of both files; it needs no network."""
        return page(self, title)

    def __str__(self) -> str:
        return self.text()


def _table(figures: Sequence[Figure], head: str) -> Iterator[str]:
    rows = []
    for item in figures:
        name = f"{item.method}: {item.name}" if item.method else item.name
        rows.append((item.shown(item.before), item.shown(item.after), item.change, name))
    yield from aligned(("before", "after", "change", head), rows, 3)
