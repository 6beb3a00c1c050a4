"""`delegatekit lower`: lower a model to backends."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import (
    BackendOption,
    JsonOption,
    ModelArgument,
    OnlyOption,
    SettingOption,
    SkipOption,
    TrustOption,
    selectors,
    settings,
)
from .console import err, out, progress, usage
from .model import read_model

if TYPE_CHECKING:
    from ..views.report import Report


def lower(
    model: ModelArgument,
    backend: BackendOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .pte file to write.")],
    option: SettingOption = [],  # noqa: B006  (typer copies it)
    only: OnlyOption = [],  # noqa: B006
    skip: SkipOption = [],  # noqa: B006
    external: Annotated[
        list[str],
        typer.Option(
            help="Keep weights whose name matches a pattern ('*', 'layers.*.weight') in a data file beside the .pte; "
            "NAME=PATTERN names the file. Repeat for more: the first that matches counts."
        ),
    ] = [],  # noqa: B006
    debug_map: Annotated[
        Path | None, typer.Option(help="Write a JSON file that leads from instructions back to source lines.")
    ] = None,
    stack_traces: Annotated[bool, typer.Option(help="Put the source lines of instructions into the file.")] = False,
    planner: Annotated[str, typer.Option(help="What plans the memory: best, greedy or best-fit.")] = "best",
    alignment: Annotated[int, typer.Option(help="Values begin at multiples of so many bytes.")] = 16,
    memory_report: Annotated[
        bool, typer.Option("--memory-report", help="Show the planned memory and what fills it.")
    ] = False,
    budget: Annotated[
        list[str],
        typer.Option(
            help="What the delegates may take by their backends' estimates: latency=20ms, sram=512KB (1024 bytes to "
            "the KB), or another memory that the backend names. Repeat for more; what does not fit is refused."
        ),
    ] = [],  # noqa: B006
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Lower a model to backends and write a .pte file."""
    from .. import MemoryOptions
    from .. import lower as lower_model

    limits = _budget(budget)
    _check_outputs(output, debug_map, external)
    with progress():
        program = lower_model(
            **read_model(model, trust=trust),
            backends=backend,
            options=settings(option, backend),
            only=selectors(only, backend),
            skip=selectors(skip, backend),
            external=_external(external),
            stack_traces=stack_traces,
            memory=MemoryOptions(planner, alignment),
            budget=limits,
        )
        written = program.save(output, debug_map=debug_map)
    _show(program.report(), written, memory_report=memory_report, as_json=as_json)


def _show(report: Report, written: Sequence[Path], *, memory_report: bool, as_json: bool) -> None:
    for name, reason in report.idle.items():
        err.print(f"warning: backend {name} took nothing: {reason}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps(dataclasses.asdict(report), indent=1))
        return
    out.print(str(report), markup=False, highlight=False, soft_wrap=True)
    if memory_report:
        out.print(report.memory(), markup=False, highlight=False, soft_wrap=True)
    for path in written:
        out.print(f"wrote {path} ({path.stat().st_size:,} bytes)", markup=False, highlight=False, soft_wrap=True)


def _budget(limits: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in limits]
    wrong = next((text for text, (name, _, limit) in zip(limits, pairs, strict=True) if not name or not limit), None)
    if wrong is not None:
        usage(f"--budget {wrong!r} is not of the form NAME=LIMIT")
    return {name: limit for name, _, limit in pairs}


def _check_outputs(output: Path, debug_map: Path | None, external: Sequence[str]) -> None:
    """Try all files that may be written, before the work begins."""
    from ..files import check_outputs
    from ..pte.writer import data_paths

    names = dict.fromkeys(text.partition("=")[0] if "=" in text else "" for text in external)
    check_outputs(output, debug_map, *data_paths(output, names))


def _external(patterns: Sequence[str]) -> Callable[[str, Any], bool | str]:
    """Patterns as what `lower` takes."""
    pairs = [tuple(text.split("=", 1)) if "=" in text else ("", text) for text in patterns]

    def choose(name: str, data: Any) -> bool | str:
        return next((file or True for file, pattern in pairs if fnmatchcase(name, pattern)), False)

    return choose
