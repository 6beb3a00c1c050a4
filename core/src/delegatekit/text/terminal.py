"""All output to a terminal: a console that shows foreign text literally, and streams that do.

Other output (by Typer, `print`, logging, warnings, tracebacks) goes through the streams.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from .foreign import visible


class Terminal(Console):
    """A console of rich's without markup or emoji codes in texts, and without terminal control characters.

    The control sequences of rich itself, colors and the movements of a progress bar, are kept.
    """

    def __init__(self, *, markup: bool = False, emoji: bool = False, **options: Any) -> None:
        super().__init__(markup=markup, emoji=emoji, **options)

    @property
    def file(self) -> IO[str]:
        """The stream itself, as the segments are clean already."""
        found = super().file
        return cast("IO[str]", getattr(found, "_cleaned", found))

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments, which all output passes as."""
        for segment in super().render(renderable, options):
            if segment.control is None and not segment.text.isprintable():
                yield Segment(visible(segment.text, keep="\n"), segment.style)
            else:
                yield segment


class CleanStream:
    """A text stream that passes only safe text on to another. It is no terminal, so that it gets no colors.

    A carriage return, by which a line would replace itself, ends the line.
    """

    def __init__(self, stream: TextIO) -> None:
        self._cleaned = stream

    def write(self, text: str) -> int:
        """Write the safe form of the text; returns its length."""
        self._cleaned.write(visible(text.replace("\r\n", "\n").replace("\r", "\n")))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        """False."""
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cleaned, name)


@contextmanager
def clean_streams() -> Iterator[None]:
    """While it is open, stdout and stderr accept only safe text."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        stream if stream is None or isinstance(stream, CleanStream) else cast(TextIO, CleanStream(stream))
        for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
