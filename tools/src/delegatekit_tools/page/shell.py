"""The frame of every page: it is self-contained, needs no network, and runs no script but its own."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from delegatekit_toolkit.json_text import to_json

from ..text import content_policy


def shell(title: str, style: str, body: Iterable[str], script: str = "") -> str:
    """A page. `body` is HTML; the title is text."""
    policy = content_policy(style=style, script=script)
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{text(title)}</title><style>{style}</style></head><body>",
            *body,
            f"<script>{script}</script></body></html>" if script else "</body></html>",
        )
    )


def text(content: object) -> str:
    """Text as HTML shows it: nothing in it is markup, and control characters, which would hide others, are boxes."""
    return escape(printable(content))


def printable(content: object) -> str:
    """Text in which control characters are boxes."""
    return "".join(item if item.isprintable() or item in "\n\t " else "\N{WHITE SQUARE}" for item in str(content))


def embedded(name: str, value: Any) -> str:
    """A value for the page's script, as JSON that cannot end the element that it is in."""
    content = to_json(value, compact=True).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    return f'<script type="application/json" id="{name}">{content}</script>'
