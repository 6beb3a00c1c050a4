"""`delegatekit explain`: explain who would run each operator."""

from __future__ import annotations

import dataclasses
from typing import Annotated

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
from .console import out, print_json, progress, say
from .dynamic import DynamicOption, with_dynamic_shapes
from .model import read_model
from .passes import PassOption, read_passes


def explain(
    model: ModelArgument,
    backend: BackendOption,
    dynamic: DynamicOption = [],  # noqa: B006
    option: SettingOption = [],  # noqa: B006
    only: OnlyOption = [],  # noqa: B006
    skip: SkipOption = [],  # noqa: B006
    passes: PassOption = [],  # noqa: B006
    every: Annotated[bool, typer.Option("--all", help="Also list the operators that a backend takes.")] = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Tell who would run each operator, and for each that no backend takes, every backend's reason."""
    from .. import explain as explain_model

    wanted = read_passes(passes)
    with progress():
        explanation = explain_model(
            **with_dynamic_shapes(read_model(model, trust=trust), dynamic),
            backends=backend,
            options=settings(option, backend),
            only=selectors(only, backend),
            skip=selectors(skip, backend),
            passes=wanted,
        )
    if as_json:
        rows = (*explanation.decomposed, *explanation.rows)
        print_json(rows)
        return
    shown = explanation.rows if every else tuple(row for row in explanation.rows if row.backend is None)
    if text := str(dataclasses.replace(explanation, rows=shown)):
        say(text)
    total = len(explanation.rows)
    taken = sum(row.backend is not None for row in explanation.rows)
    out.print(
        f"{taken} of {total} operators run on {', '.join(backend)}; {len(explanation.unsupported)} cannot run at all"
    )
