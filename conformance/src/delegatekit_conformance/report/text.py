"""Foreign text (error messages, reasons), sanitized for a terminal, a page, XML and Markdown."""

from __future__ import annotations

import re

from delegatekit.text import visible

#: What XML 1.0 cannot hold (control characters, unpaired surrogates, two non-characters): they are left out.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: Colors and cursor movements of terminals, as compilers print them.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def clean(text: str) -> str:
    """The text without characters that cannot be shown; those that turn others around or hide them are escapes."""
    return visible(_UNPRINTABLE.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n"))))


def first_line(text: str, limit: int = 200) -> str:
    """The first nonempty line, cut at `limit` characters."""
    line = next((line.strip() for line in clean(text).splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def cell(text: str) -> str:
    """The text as a cell of a Markdown table, without meaning for Markdown or HTML."""
    line = " ".join(clean(text).split())
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def code(text: str) -> str:
    """The text as inline code of Markdown, in a table too."""
    line = " ".join(clean(text).split()).replace("|", "\\|")
    ticks = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}" if line else ""


def block(text: str, language: str = "") -> str:
    """The text as a block of code of Markdown."""
    text = clean(text).rstrip("\n")
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence}{language}\n{text}\n{fence}"
