"""`delegatekit explain`: show what runs each operator."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from delegatekit.cli import (
    BackendOption,
    DynamicOption,
    JsonOption,
    ModelArgument,
    OnlyOption,
    PassOption,
    SettingOption,
    SkipOption,
    TrustOption,
    files_of,
    print_json,
    progress,
    question_place,
    read_model,
    read_passes,
    results_alone,
    say,
    selectors,
    settings,
    show,
    with_dynamic_shapes,
)


@results_alone
def explain(
    model: ModelArgument,
    backend: BackendOption,
    dynamic: DynamicOption = [],  # noqa: B006
    option: SettingOption = [],  # noqa: B006
    only: OnlyOption = [],  # noqa: B006
    skip: SkipOption = [],  # noqa: B006
    passes: PassOption = [],  # noqa: B006
    every: Annotated[bool, typer.Option("--all", help="Also list the delegated operators.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with the graph, what runs each operator and why, and weights.")
    ] = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what would run each operator, and for each that no backend takes, every backend's reason."""
    from delegatekit import explain as explain_model
    from delegatekit.files import HTML, check_outputs, write_text

    check_outputs(html, inputs=files_of(model))
    question_place("--html", html, HTML)
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
    if html is not None:
        write_text(html, explanation.html(f"{model} for {', '.join(backend)}"))
    if as_json:
        rows = (*explanation.decomposed, *explanation.rows)
        print_json(rows)
        return
    shown = explanation.rows if every else tuple(row for row in explanation.rows if row.backend is None)
    told = dataclasses.replace(explanation, rows=shown, methods={})
    if str(told):
        show(told, str)
    total = len(explanation.rows)
    taken = sum(row.backend is not None for row in explanation.rows)
    say(f"{taken} of {total} operators run on {', '.join(backend)}; {len(explanation.unsupported)} cannot run at all")
    if html is not None:
        say(f"wrote {html}")
