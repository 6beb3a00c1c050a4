"""`delegatekit explain`: explain who would run each operator."""

from __future__ import annotations

import dataclasses
import json
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
from .console import out, progress
from .model import read_model


def explain(
    model: ModelArgument,
    backend: BackendOption,
    option: SettingOption = [],  # noqa: B006
    only: OnlyOption = [],  # noqa: B006
    skip: SkipOption = [],  # noqa: B006
    every: Annotated[bool, typer.Option("--all", help="Also list the operators that a backend takes.")] = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Tell who would run each operator, and for each that no backend takes, every backend's reason."""
    from .. import explain as explain_model

    with progress():
        explanation = explain_model(
            **read_model(model, trust=trust),
            backends=backend,
            options=settings(option, backend),
            only=selectors(only, backend),
            skip=selectors(skip, backend),
        )
    if as_json:
        rows = (*explanation.decomposed, *explanation.rows)
        print(json.dumps([dataclasses.asdict(row) | {"reasons": dict(row.reasons)} for row in rows], indent=1))
        return
    shown = explanation.rows if every else tuple(row for row in explanation.rows if row.backend is None)
    if text := str(dataclasses.replace(explanation, rows=shown)):
        out.print(text, markup=False, highlight=False, soft_wrap=True)
    total = len(explanation.rows)
    taken = sum(row.backend is not None for row in explanation.rows)
    out.print(
        f"{taken} of {total} operators run on {', '.join(backend)}; {len(explanation.unsupported)} cannot run at all"
    )
