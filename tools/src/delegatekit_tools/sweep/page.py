"""The table of a sweep as one self-contained page of HTML: columns sort, rows expand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from delegatekit_toolkit.json_text import to_json

from ..page.shell import shell, text
from .row import COMPILES, Row
from .table import HEADERS, Cell, cells, notes

_STYLE: Final = """
:root { color-scheme: light dark; --line: #ccc; --head: #f0f0f0; --good: #0a7a2f; --bad: #b3261e;
  --text: #1a1a1a; --page: #fff }
@media (prefers-color-scheme: dark) {
  :root { --line: #444; --head: #2a2a2a; --good: #62d088; --bad: #ff8a80; --text: #e8e8e8; --page: #161616 } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1rem; color: var(--text); background: var(--page) }
h1 { font-size: 1.25rem } .wide { overflow-x: auto } table { border-collapse: collapse; white-space: nowrap }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top }
th { background: var(--head); position: sticky; top: 0 }
th button { all: unset; cursor: pointer; font-weight: 600 } th button:focus-visible { outline: 2px solid }
th[aria-sort=ascending] button::after { content: " \\25B2" }
th[aria-sort=descending] button::after { content: " \\25BC" }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.good { color: var(--good) } .bad { color: var(--bad) }
th:nth-child(2), td:nth-child(2) { position: sticky; left: 0; background: var(--page) }
th:nth-child(2) { background: var(--head); z-index: 1 }
details { width: min(28rem, 80vw) } details[open] { white-space: normal }
summary { overflow: hidden; text-overflow: ellipsis; cursor: pointer } pre { overflow-x: auto; font-size: 13px }
"""

_SCRIPT: Final = """
const body = document.querySelector("tbody");
for (const [index, head] of [...document.querySelectorAll("th")].entries()) {
  head.querySelector("button")?.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    document.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => {
      const cell = row.cells[index];
      return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
    };
    const empty = row => row.cells[index].textContent === "";
    const order = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    [...body.rows].sort((a, b) => empty(a) - empty(b) || (down ? -1 : 1) * order(key(a), key(b)))
      .forEach(row => body.append(row));
  });
}
"""


def page(rows: Sequence[Row], title: str) -> str:
    """The page. Unknown values are empty cells, and sort last."""
    heads = "".join(f'<th scope="col"><button>{text(name)}</button></th>' for name in (*HEADERS, "more"))
    compiled = sum(row.outcome == COMPILES for row in rows)
    body = (
        f"<h1>{text(title)}</h1><p>{compiled} of {len(rows)} compile. Click a column to sort. Estimates "
        "are those of the backends' compilers for the device; times here are of this machine, of a simulator or "
        "interpreter where the device is not here.</p>",
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>',
        *map(_line, rows),
        "</tbody></table></div>",
    )
    return shell(title, _STYLE, body, _SCRIPT)


def _line(row: Row) -> str:
    found = "".join(_cell(cell, index, row) for index, cell in enumerate(cells(row)))
    return f"<tr>{found}<td>{''.join(_details(row))}</td></tr>"


def _cell(cell: Cell, index: int, row: Row) -> str:
    if HEADERS[index] == "result":
        return f'<td class="{"good" if row.outcome == COMPILES else "bad"}">{text(cell.text)}</td>'
    if cell.value is None or math.isnan(cell.value):
        return f"<td>{text(cell.text)}</td>"
    value = str(cell.value).replace("inf", "Infinity")
    kind = "" if HEADERS[index] == "memory" else ' class="number"'
    return f'<td{kind} data-value="{text(value)}">{text(cell.text)}</td>'


def _details(row: Row) -> Iterator[str]:
    told = notes(row)
    yield f"<details><summary>{text(told[0]) if told else text(row.made_by)}</summary><ul>"
    yield from (f"<li>{text(note)}</li>" for note in told[1:])
    yield from (
        f"<li>left to the runtime: {text(item.operator)} x{text(item.count)}: {text(item.reason)}</li>"
        for item in row.left_out
    )
    if row.estimated_by:
        yield f"<li>estimated by {text(row.estimated_by)}</li>"
    yield f"</ul><pre>{text(to_json(row.options))}</pre></details>"
