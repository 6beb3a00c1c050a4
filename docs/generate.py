"""Writes what is generated: backends' operators and options, API reference, notebooks, the table of deprecations.

python docs/generate.py            # write docs/operators-NAME.md, docs/api/, versions.md, examples/gallery/*.ipynb
python docs/generate.py --check    # exit 1, and name the pages, if they are not up to date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

try:
    from delegatekit.plugins import get_backend
    from delegatekit_api import DelegateKitError
    from delegatekit_api.versions import DEPRECATIONS
    from delegatekit_tools.documentation import operator_section, option_table
except ModuleNotFoundError as error:
    sys.exit(
        f"{error.name} is not installed for {sys.executable}: run `make setup`, then .venv/bin/python {sys.argv[0]}"
    )

DOCS: Final = Path(__file__).parent
VERSIONS: Final = DOCS / "versions.md"
GALLERY: Final = DOCS.parent / "examples" / "gallery"
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

from notebooks import notebooks  # noqa: E402
from packages import Package, plugins  # noqa: E402
from reference import reference  # noqa: E402


def main() -> int:
    """Write or check all pages; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a page is not up to date")
    check = parser.parse_args().check
    stale = stale_pages()
    for path, text in stale.items() if not check else ():
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if check and stale:
        names = ", ".join(path.relative_to(DOCS.parent).as_posix() for path in stale)
        print(f"not up to date: {names}; run python docs/generate.py", file=sys.stderr)
        return 1
    return 0


def stale_pages() -> dict[Path, str | None]:
    """The generated pages that are not up to date, with their text; None for those that should not be there."""
    wanted = pages()
    there = {path for pattern in ("operators-*.md", "api/*.md") for path in DOCS.glob(pattern)}
    there |= {*GALLERY.glob("*.ipynb"), VERSIONS}
    gone: dict[Path, str | None] = dict.fromkeys(sorted(there - wanted.keys()))
    return gone | {path: text for path, text in wanted.items() if path not in there or path.read_text("utf-8") != text}


def pages() -> dict[Path, str]:
    """The text of every generated page, by its path. Ends the script for an invalid plugin."""
    operators = {
        DOCS / f"operators-{name}.md": page_of(plugin, name) for plugin in plugins() for name in plugin.backends
    }
    return operators | reference(DOCS / "api") | notebooks(GALLERY) | {VERSIONS: versions()}


def versions() -> str:
    """The page of versions with the table of deprecations."""
    before, start, rest = VERSIONS.read_text("utf-8").partition("from here -->\n")
    _, end, after = rest.partition("<!-- to here -->")
    lines = ["| what | deprecated since | goes | instead |", "|---|---|---|---|"]
    for row in DEPRECATIONS:
        name, instead = (text if row.is_check else f"`{text}`" for text in (row.name, row.instead))
        lines.append(f"| {name} | API {row.since}, {row.date} | API {row.goes} | {instead} |")
    return "".join([before, start, "\n".join([*lines, ""]), end, after])


def page_of(plugin: Package, name: str) -> str:
    """The page of one backend of a plugin's folder. Ends the script with one sentence if the backend cannot be used."""
    if not list(plugin.source.glob("*/__init__.py")):
        sys.exit(f"{plugin}/src has no package")
    wanted = plugin.module
    if not wanted.startswith(plugin.distribution.replace("-", "_")):
        sys.exit(
            f"{plugin}/src has the package {wanted}, but its pyproject.toml names {plugin.distribution}: rename one"
        )
    try:
        return page(name)
    except DelegateKitError as error:
        sys.exit(f"the backend {name!r} of {plugin} cannot be used: {error.what} (`make setup` installs new plugins)")


def page(name: str) -> str:
    """The page of one backend: its operators, its options and what else it tells, as Markdown."""
    backend = get_backend(name)
    description, told = backend.description, backend.documentation()
    lines = [
        f"# Operators and options of the {name} backend",
        "",
        "Written by `python docs/generate.py` from what the backend says in its hooks. Do not edit.",
        "",
        f"Backend `{name}`, delegate id `{description.delegate_id}`, distribution `{backend.distribution}`.",
        "",
    ]
    if told.operators is not None:
        dialect = "the edge dialect ([architecture.md](architecture.md#the-edge-dialect))"
        dynamic = description.supports_dynamic_shapes
        lines += operator_section(told.operators, dynamic=dynamic, dialect=dialect)
    lines += ["## Options", "", *option_table(description.options), ""]
    for heading, text in told.sections.items():
        lines += [f"## {heading}", "", text.rstrip(), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
