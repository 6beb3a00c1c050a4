"""A badge: the result of a backend's newest records as a small SVG, which needs nothing beside itself."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from ...report.text import first_line

#: Pixels: of a letter (a wide one: text must never be cut off), of the space beside a text.
_LETTER, _SPACE = 7, 8
#: Letters of a text.
_LONGEST: Final = 48
#: White text on these has the contrast that WCAG AA asks for.
COLORS: Final = {"good": "#1c68a8", "fault": "#b3300e", "none": "#4a5560"}
_LABEL: Final = "#333b44"

_TEMPLATE: Final = Markup(
    '<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" viewBox="0 0 {whole} 20" role="img" '
    'aria-label="{label}: {message}"><title>{label}: {message}</title>'
    '<rect width="{whole}" height="20" rx="3" fill="{grey}"/>'
    '<path d="M{left} 0h{flat}a3 3 0 0 1 3 3v14a3 3 0 0 1 -3 3h-{flat}z" fill="{color}"/>'
    '<g fill="#ffffff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
    '<text x="{middle}" y="14">{label}</text><text x="{other}" y="14">{message}</text></g></svg>\n'
)


def badge(label: str, message: str, kind: str) -> Markup:
    """The SVG of a label and a message; `kind` is a key of `COLORS`."""
    label, message = first_line(label, _LONGEST) or "?", first_line(message, _LONGEST)
    left, right = (_LETTER * len(text) + 2 * _SPACE for text in (label, message))
    return _TEMPLATE.format(
        whole=left + right,
        left=left,
        flat=right - 3,
        middle=left // 2,
        other=left + right // 2,
        label=label,
        message=message,
        color=COLORS[kind],
        grey=_LABEL,
    )
