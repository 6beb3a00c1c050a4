"""`delegatekit explain`: show what runs each operator."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from delegatekit import cli
from delegatekit.pipeline import Partitioning


@cli.results_alone
@cli.command(Partitioning)
def explain(
    said: cli.Said,
    every: Annotated[bool, typer.Option("--all", help="Also list the delegated operators.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with the graph, what runs each operator and why, and weights.")
    ] = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Show what would run each operator, and for each that no backend takes, every backend's reason."""
    from delegatekit import explain as explain_model
    from delegatekit.files import HTML, check_outputs, write_text

    check_outputs(html, inputs=said.files)
    cli.question_place("--html", html, HTML)
    settings = said.settings()
    with cli.progress():
        explanation = explain_model(**settings, **vars(said.source()))
    backends = ", ".join(said.backends)
    if html is not None:
        write_text(html, explanation.html(f"{said.model} for {backends}"))
    if as_json:
        rows = (*explanation.decomposed, *explanation.rows)
        cli.print_json(rows)
        return
    shown = explanation.rows if every else tuple(row for row in explanation.rows if row.backend is None)
    told = dataclasses.replace(explanation, rows=shown, methods={})
    if str(told):
        cli.show(told, str)
    total = len(explanation.rows)
    taken = sum(row.backend is not None for row in explanation.rows)
    cli.say(f"{taken} of {total} operators run on {backends}; {len(explanation.unsupported)} cannot run at all")
    if html is not None:
        cli.say(f"wrote {html}")
