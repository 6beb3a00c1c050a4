"""A third-party tool: a page that lists the delegates of files, the largest first.

    python examples/delegates_by_size.py net.pte other.pte --output delegates.html

It is written on the reading API alone (docs/reading.md): no plugin is imported, nothing is run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from delegatekit.files import HTML, check_outputs, write_text
from delegatekit.reading import FileDelegate, FileMethod, open_program
from delegatekit_toolkit.number_text import human_size, human_time

HEAD = "<!doctype html><meta charset=utf-8><title>Delegates by size</title><h1>Delegates by size</h1><table border=1>"
COLUMNS = ("file", "method", "delegate", "made by", "blob", "share of its file", "estimated latency", "reads", "writes")


def rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The size of each delegate of a file, and its row of the table."""
    program = open_program(path)
    for method in program.methods.values():
        for delegate in method.delegates:
            share = len(delegate.blob) / program.size
            latency = delegate.estimate.latency if delegate.estimate else None
            facts = [path.name, method.name, f"{delegate.index}: {delegate.id}", delegate.made_by]
            facts += [human_size(len(delegate.blob)), f"{share:.0%}", human_time(latency) if latency else ""]
            yield len(delegate.blob), [*facts, *values_of(method, delegate)]


def values_of(method: FileMethod, delegate: FileDelegate) -> list[str]:
    """The values that the calls of a delegate read and write, as text."""
    calls = [item for item in method.instructions if item.delegate == delegate.index]
    both = [[index for item in calls for index in item.reads], [index for item in calls for index in item.writes]]
    return [", ".join(str(method.values[index]) for index in dict.fromkeys(found)) for found in both]


def page(paths: Sequence[Path]) -> str:
    """The page of these files."""
    found = sorted((row for path in paths for row in rows(path)), reverse=True)
    lines = [COLUMNS, *(facts for _, facts in found)]
    cells = ("".join(f"<td>{escape(text)}</td>" for text in line) for line in lines)
    return HEAD + "".join(f"<tr>{line}</tr>\n" for line in cells) + "</table>\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A page that lists the delegates of files, the largest first.")
    parser.add_argument("files", nargs="+", type=Path, help=".pte or .bpte files")
    parser.add_argument("--output", type=Path, default=Path(f"delegates{HTML.suffixes[0]}"))
    given = parser.parse_args()
    check_outputs(given.output, inputs=given.files)
    write_text(given.output, page(given.files))
    print(f"wrote {given.output}")
