"""Writes the operator pages of the docs from what the plugins declare: their support tables and their options.

python docs/generate.py            # write docs/operators-NAME.md
python docs/generate.py --check    # exit 1, and name the pages, if they are not up to date
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from delegatekit.plugins import get_backend
from delegatekit_api import BackendOptions, Constraint, OperatorSupport, SupportTable

DOCS: Final = Path(__file__).parent
#: Backend -> module of its support tables, and for each column of conditions the name of a table.
TABLES: Final = {
    "ethosu": ("delegatekit_ethosu.support", {"Ethos-U55 and U65": "TABLE", "Ethos-U85": "TABLE_U85"}),
    "xnnpack": ("delegatekit_xnnpack.support", {"conditions": "TABLE"}),
}
#: Backend -> what its page has at the end: heading, introduction, and the function that writes a table.
MORE: Final = {
    "ethosu": (
        "Commands of the Ethos-U55 that the host executes",
        "Everything else in a command stream is refused, with its place and value.",
        ("delegatekit_ethosu.stream", "listing"),
    ),
}


def main() -> int:
    """Write or check all pages; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a page is not up to date")
    check = parser.parse_args().check
    stale = []
    for path, text in pages().items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            stale.append(path.name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"not up to date: {', '.join(stale)}; run python docs/generate.py", file=sys.stderr)
    return bool(stale)


def pages() -> dict[Path, str]:
    """The text of every generated page, by its path."""
    return {DOCS / f"operators-{name}.md": page(name) for name in TABLES}


def page(name: str) -> str:
    """The page of one backend: its operators and its options, as Markdown."""
    backend = get_backend(name)
    module, columns = TABLES[name]
    tables: list[SupportTable] = [getattr(import_module(module), attribute) for attribute in columns.values()]
    table, *others = tables
    if any(other.keys() != table.keys() for other in others):
        raise ValueError(f"the support tables of {name} have different operators")
    lines = [
        f"# Operators and options of the {name} backend",
        "",
        f"Written by `python docs/generate.py` from `{module}` and the backend's options. Do not edit.",
        "",
        f"Backend `{name}`, delegate id `{backend.description.delegate_id}`, distribution `{backend.distribution}`.",
        "",
        "## Operators",
        "",
        f"{len(table)} operators of the edge dialect ([architecture.md](architecture.md#the-edge-dialect)). Operators "
        "that are not in the table may still be taken after decomposition: `delegatekit explain` shows it for a model.",
        "",
        "* *whole*: the backend asks the core to keep the operator; the others have no smaller pieces to fall into, or "
        "are what PyTorch decomposes to.",
        "* *passenger*: taken only in a partition with an operator that is no passenger.",
        "",
        "Sizes may change from call to call, under the conditions given."
        if backend.description.supports_dynamic_shapes
        else "Sizes are the same in every call.",
    ]
    if table.common:
        lines += ["", "Conditions for every operator:", ""]
        lines += [f"* {describe(constraint)}" for constraint in table.common]
    lines += ["", f"| operator | whole | passenger | {' | '.join(columns)} |", "|---" * (3 + len(columns)) + "|"]
    lines += [operator_row(*(item[operator] for item in tables)) for operator in sorted(table, key=str.lower)]
    lines += ["", "## Options", "", *option_table(backend.description.options), ""]
    if name in MORE:
        heading, introduction, (module, function) = MORE[name]
        lines += [f"## {heading}", "", introduction, "", getattr(import_module(module), function)().rstrip(), ""]
    return "\n".join(lines)


def operator_row(row: OperatorSupport, *others: OperatorSupport) -> str:
    """One row of the table of operators; in `others` the same operator has other conditions."""
    first = conditions(row)
    cells = [first, *("the same" if first and conditions(other) == first else conditions(other) for other in others)]
    texts = " | ".join(map(_cell, cells))
    return f"| `{row.operator}` | {_mark(row.keep)} | {_mark(row.passenger)} | {texts} |"


def conditions(row: OperatorSupport) -> str:
    """The conditions of an operator, a sentence each."""
    text = " ".join(describe(constraint) for constraint in row.constraints)
    return f"No size changes from call to call. {text}".strip() if row.static_only else text


def describe(constraint: Constraint) -> str:
    """The first line of a constraint's docstring. Raises ValueError if it has none."""
    text = (constraint.__doc__ or "").strip()
    if not text:
        raise ValueError(f"the constraint {constraint} has no docstring")
    return text.splitlines()[0]


def option_table(options: type[BackendOptions]) -> list[str]:
    """The options as lines of a Markdown table."""
    rows = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for info in options.describe():
        choices = "" if info.choices is None else " One of: " + ", ".join(map(str, info.choices)) + "."
        rows.append(f"| `{info.name}` | `{info.type}` | {_default(info.default)} | {_cell(info.help + choices)} |")
    return rows if len(rows) > 2 else ["None."]


def _default(value: Any) -> str:
    return "empty" if isinstance(value, tuple | frozenset) and not value else f"`{value}`"


def _mark(value: bool) -> str:
    return "yes" if value else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
