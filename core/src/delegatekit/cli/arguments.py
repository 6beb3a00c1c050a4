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
        help="A .pt2 file, or package.module:callable (path/file.py:callable) that returns (module, inputs), followed "
        "by kwargs and dynamic_shapes if there are any, an ExportedProgram, or a dict of these by method name."
    ),
]


def installed_backends(incomplete: str) -> list[str]:
    """The backends whose names begin so, for completion in a shell; none is imported."""
    from ..plugins import backends

    return [name for name in backends(check=False) if name.startswith(incomplete)]


def split_names(given: list[str]) -> list[str]:
    """`-b first,second` is `-b first -b second`."""
    names = [name.strip() for text in given for name in text.split(",")]
    if not all(names):
        usage(f"--backend {','.join(given)!r} leaves out a name", "write -b first,second or -b first -b second")
    return list(dict.fromkeys(names))


BackendOption = Annotated[
    list[str],
    typer.Option(
        "--backend",
        "-b",
        metavar="NAMES",
        callback=split_names,
        autocompletion=installed_backends,
        help="Backends in priority order: -b first,second or -b first -b second.",
    ),
]
SettingOption = Annotated[
    list[str],
    typer.Option("--option", metavar="SETTING", help="Backend option: NAME.KEY=VALUE (or KEY=VALUE with one backend)."),
]
OnlyOption = Annotated[
    list[str],
    typer.Option(
        metavar="SELECTOR",
        help="Module path ('layers.*.attn') or operator that backends may take, BACKEND=SELECTOR for one backend; "
        "repeat for more.",
    ),
]
SkipOption = Annotated[
    list[str],
    typer.Option(
        metavar="SELECTOR",
        help="Module path or operator that no backend takes, BACKEND=SELECTOR for one; repeat for more.",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option("--trust", help="Also load .pt2 and .pt files with pickled objects, which can run any code."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
FileArgument = Annotated[Path, typer.Argument(help="A .pte file, or a .bpte with one in it.")]
InputsArgument = Annotated[list[str], typer.Argument(help="Inputs in order: .npy, .pt or image files.")]
MethodOption = Annotated[str, typer.Option(help="The method to run.")]
DataOption = Annotated[list[Path], typer.Option(help="A data file (.ptd) of the program; repeat for more.")]
RunnerOption = Annotated[
    list[str],
    typer.Option(
        "--backend",
        "-b",
        help="Backend that runs the delegates of its id, whichever plugin made them; repeat for more.",
        autocompletion=installed_backends,
    ),
]
IsolateOption = Annotated[
    list[str],
    typer.Option(
        metavar="BACKEND",
        help="Run this backend's delegates in a process of their own, or those of all; repeat for more.",
        autocompletion=installed_backends,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(min=-(2**63), max=2**64 - 1, help="Seed of the random inputs, used where no files are given."),
]
TimeLimitOption = Annotated[
    float | None, typer.Option(min=0.001, max=1e6, metavar="SECONDS", help="End a call that takes longer.")
]


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
            form = "KEY=VALUE or NAME.KEY=VALUE" if len(backends) == 1 else "NAME.KEY=VALUE"
            usage(
                f"--option {text!r} is not of the form {form}",
                f"NAME is a backend: {', '.join(backends)}" if backends else None,
            )
        found.setdefault(backend or backends[0], {})[name] = value
    return found
