"""Arguments that several commands share, and what they mean to `lower` and `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from .console import usage

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="A .pt2 file, or package.module:callable that returns (module, inputs), followed by kwargs and "
        "dynamic_shapes if there are any, an ExportedProgram, or a dict of these by method name."
    ),
]
BackendOption = Annotated[
    list[str], typer.Option("--backend", "-b", help="Backend, in priority order; repeat for more than one.")
]
SettingOption = Annotated[
    list[str], typer.Option("--option", help="Backend option: NAME.KEY=VALUE (or KEY=VALUE with one backend).")
]
OnlyOption = Annotated[
    list[str],
    typer.Option(
        help="Module path ('layers.*.attn') or operator that backends may take, BACKEND=SELECTOR for one backend; "
        "repeat for more."
    ),
]
SkipOption = Annotated[
    list[str],
    typer.Option(help="Module path or operator that no backend takes, BACKEND=SELECTOR for one; repeat for more."),
]
TrustOption = Annotated[
    bool,
    typer.Option("--trust", help="Also load .pt2 and .pt files with pickled objects, which can run any code."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
FileArgument = Annotated[Path, typer.Argument(help="A .pte file.")]


def selectors(texts: Sequence[str], backends: Sequence[str]) -> list[str] | dict[str, list[str]] | None:
    """Selectors as what `lower` takes: SELECTOR is for all backends, BACKEND=SELECTOR for one."""
    if not any("=" in text for text in texts):
        return list(texts) or None
    found: dict[str, list[str]] = {}
    for text in texts:
        backend, equals, selector = text.partition("=")
        if equals and backend not in backends:
            usage(f"{text!r} names {backend!r}, which is not among the backends {', '.join(backends)}")
        for name in [backend] if equals else backends:
            found.setdefault(name, []).append(selector if equals else text)
    return found


def settings(options: Sequence[str], backends: Sequence[str]) -> dict[str, dict[str, str]]:
    """The backends' options by backend, as text, of NAME.KEY=VALUE."""
    found: dict[str, dict[str, str]] = {}
    for text in options:
        key, equals, value = text.partition("=")
        backend, dot, name = key.rpartition(".")
        if not equals or not name or (not dot and len(backends) != 1):
            usage(f"--option {text!r} is not of the form NAME.KEY=VALUE")
        found.setdefault(backend or backends[0], {})[name] = value
    return found
