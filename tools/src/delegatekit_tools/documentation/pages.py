"""The pages about a backend that lie beside its sources, and their comparison with what it says now."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

from delegatekit.files import write_files
from delegatekit_api import FormatError

from .overview import overview
from .tables import operator_csv, operator_section, option_table, scheme_section, target_table

if TYPE_CHECKING:
    from delegatekit.plugins import LoadedBackend

#: Texts of pages by the names of their files.
Pages: TypeAlias = Mapping[str, str]

_NOTE: Final = "Written by `delegatekit docs {}` from what the backend says in its hooks. Do not edit."


def pages(backend: LoadedBackend, *, executorch: bool = False) -> Pages:
    """The pages of a backend; with `executorch` also one with the sections that ExecuTorch's backends are described by.

    Raises PluginError if a hook fails.
    """
    name, told = backend.name, backend.documentation()
    note = _NOTE.format(f"{name} --executorch" if executorch else name)
    found = {"partitioner.md": _page(f"Partitioner API of {name}", note, _partitioner(backend))}
    if told.operators is not None:
        dynamic = backend.description.supports_dynamic_shapes
        section = operator_section(told.operators, dynamic=dynamic)[2:]
        others = [line for heading, text in told.sections.items() for line in (f"## {heading}", "", text.rstrip(), "")]
        found["operators.md"] = _page(f"Operators of {name}", note, [*section, *others])
        found["op-support.csv"] = operator_csv(told.operators)
    schemes = backend.quantization_schemes()
    if schemes:
        lines = [line for scheme in schemes for line in scheme_section(scheme, name)]
        found["quantization.md"] = _page(f"Quantization schemes of {name}", note, lines)
    if executorch:
        found["overview.md"] = _page(f"{backend.description.delegate_id} ({name})", note, overview(backend, found))
    return found


def stale(wanted: Pages, folder: Path) -> list[str]:
    """The names of pages that a folder lacks, or has with another text."""
    return [
        name
        for name, text in wanted.items()
        if not (folder / name).is_file() or (folder / name).read_text("utf-8", errors="replace") != text
    ]


def _partitioner(backend: LoadedBackend) -> list[str]:
    name = backend.name
    lines = [
        f'Options are given by `lower(model, inputs, backends=["{name}"], options={{"{name}": {{...}}}})`, or on the '
        f"command line by `--option {name}.OPTION=VALUE`.",
        "",
        "## Options",
        "",
        *option_table(backend.description.options),
        "",
    ]
    targets = backend.targets()
    return [*lines, "## Targets", "", *target_table(targets, name), ""] if targets else lines


def _page(title: str, note: str, lines: list[str]) -> str:
    return "\n".join([f"# {title}", "", note, "", *lines]).rstrip() + "\n"


def written(wanted: Pages, folder: Path) -> None:
    """Write pages into a folder, which is made: all of them, or none. Raises FormatError if it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(f"cannot be made: {error.strerror}", where=str(folder)) from error
    write_files({folder / name: partial(_write, text) for name, text in wanted.items()})


def _write(text: str, file: BinaryIO) -> None:
    file.write(text.encode())
