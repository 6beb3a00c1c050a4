"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int) -> list[str]:
    """Lines of a table with columns of the required width; the first `numbers` columns are right-aligned.

    >>> aligned(("ms", "what"), [("1.5", "a"), ("12.0", "b")], 1)
    ['  ms  what', '----  ----', ' 1.5  a', '12.0  b']
    """
    cells = [heads, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(width) if column < numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines
