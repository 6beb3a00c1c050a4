"""The table of a sweep as one self-contained page of HTML: columns sort, each row has its details below it.

Where the window is narrow, a row is a card with a line for each figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files

from delegatekit_toolkit.json_text import to_json
from delegatekit_toolkit.number_text import human_size, human_time

from ..page.shell import shell, text
from .row import COMPILES, FAILED, Row
from .table import HEADERS, OUTPUT_HEADERS, Cell, cells, name_of, notes, output_cells, used_columns


def page(rows: Sequence[Row], title: str) -> str:
    """The page. Columns without any value are left out; unknown values are empty cells, and sort last."""
    used = used_columns([cells(row) for row in rows])
    names = [text(HEADERS[index]) for index in used]
    heads = "".join(f'<th scope="col" role="columnheader"><button>{name}</button></th>' for name in names)
    options = "".join(
        f'<option value="{place} {word}">{name}{sign}</option>'
        for place, name in enumerate(names)
        for word, sign in (("false", " \N{UPWARDS ARROW}"), ("true", " \N{DOWNWARDS ARROW}"))
    )
    body = (
        f"<header><h1>{text(title)}</h1><p>Estimates are those of the backends' compilers for the device; times here "
        "are of this machine, of a simulator or interpreter where the device is not here. Errors are those against the "
        "float model in eager.</p>",
        f'<ul class="cards">{"".join(_cards(rows))}</ul></header><main>',
        f'<p class="sort"><label>Sort by <select><option value="">as made</option>{options}</select></label></p>',
        '<div class="wide" role="region" aria-label="results" tabindex="0"><table class="rows" role="table">',
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>',
        *(_body(row, used) for row in rows),
        "</table></div></main>",
    )
    return shell(title, _asset("page.css"), body, _asset("page.js"))


def _cards(rows: Sequence[Row]) -> Iterator[str]:
    compiled = [row for row in rows if row.outcome == COMPILES]
    failed = [row for row in rows if row.outcome == FAILED]
    kinds = ", ".join(f"{count} {kind}" for kind, count in _counted(rows).items() if kind != COMPILES)
    yield _card("compile", f"{len(compiled)} of {len(rows)}", kinds, "bad" if failed else "")
    yield from _best("quickest estimate", compiled, lambda row: row.estimated_seconds, human_time)
    yield from _best("quickest here", compiled, lambda row: row.wall_seconds, human_time)
    yield from _best("smallest file", compiled, lambda row: row.file_size, lambda size: human_size(int(size)))
    yield from _best(
        "most accurate",
        compiled,
        lambda row: None if row.sqnr is None or math.isnan(row.sqnr) else -row.sqnr,
        lambda found: "exact" if found == -math.inf else f"{-found:.1f} dB",
    )


def _best(
    title: str, rows: Sequence[Row], figure: Callable[[Row], float | None], shown: Callable[[float], str]
) -> Iterator[str]:
    """The row with the least figure, if several have one."""
    known = [(found, row) for row in rows if (found := figure(row)) is not None]
    if len(known) > 1:
        least, row = min(known, key=lambda pair: pair[0])
        yield _card(title, shown(least), name_of(row))


def _card(title: str, figure: str, more: str, tone: str = "") -> str:
    kind = f' class="{tone}"' if tone else ""
    return f'<li{kind}><h2>{text(title)}</h2><p class="figure">{text(figure)}</p><p>{text(more)}</p></li>'


def _counted(rows: Sequence[Row]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        found[row.outcome] = found.get(row.outcome, 0) + 1
    return found


def _body(row: Row, used: Sequence[int]) -> str:
    shown = cells(row)
    found = "".join(_cell(shown[index], HEADERS[index], row) for index in used)
    return (
        f'<tbody role="rowgroup"><tr class="row" role="row">{found}</tr>'
        f'<tr class="more" role="row"><td role="cell" colspan="{len(used)}">{"".join(_details(row))}</td></tr></tbody>'
    )


def _cell(cell: Cell, header: str, row: Row) -> str:
    kinds = {"backend": "name", "result": "good" if row.outcome == COMPILES else "bad", "memory": ""}
    number = cell.value is not None and not math.isnan(cell.value)
    kind = kinds.get(header, "number" if number else "")
    value = f' data-value="{text(str(cell.value).replace("inf", "Infinity"))}"' if number else ""
    shown = f' class="{kind}"' if kind else ""
    return f'<td role="cell"{shown}{value} data-label="{text(header)}">{text(cell.text)}</td>'


def _details(row: Row) -> Iterator[str]:
    told = notes(row)
    yield f"<details><summary>{text(told[0] if told else row.made_by or 'details')}</summary><ul>"
    yield from (f"<li>{text(note)}</li>" for note in told[1:])
    yield from (
        f"<li>left to the runtime: {text(item.operator)} x{text(item.count)}: {text(item.reason)}</li>"
        for item in row.left_out
    )
    yield from (f"<li>{text(said)}</li>" for said in (row.made_by,) if said)
    if row.estimated_by:
        yield f"<li>estimated by {text(row.estimated_by)}</li>"
    yield "</ul>"
    if row.outputs:
        yield from _outputs(row)
    yield f"<pre>{text(to_json(row.options))}</pre></details>"


def _outputs(row: Row) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{text(name)}</th>' for name in OUTPUT_HEADERS)
    yield f'<table class="outputs"><thead><tr>{heads}</tr></thead><tbody>'
    for item in row.outputs:
        kinds = ("" if cell.value is None else ' class="number"' for cell in output_cells(item))
        found = (f"<td{kind}>{text(cell.text)}</td>" for kind, cell in zip(kinds, output_cells(item), strict=True))
        yield f"<tr>{''.join(found)}</tr>"
    yield "</tbody></table>"


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
