"""`delegatekit schemes`: list the quantization schemes of backends."""

from __future__ import annotations

from typing import Annotated

import typer

from delegatekit import cli


@cli.results_alone
def schemes(
    backend: Annotated[
        str | None, typer.Argument(help="A backend; without it, all.", autocompletion=cli.installed_backends)
    ] = None,
    option: cli.SettingOption = [],  # noqa: B006
    as_json: cli.JsonOption = False,
) -> None:
    """List the quantization schemes of the backends: operators, and how their operands and results are quantized."""
    from delegatekit.quantization import schemes_as_json, schemes_by_backend, schemes_text

    found = schemes_by_backend(backend, cli.settings(option, [backend] if backend else []))
    if as_json:
        cli.print_json(schemes_as_json(found))
    elif not any(found.values()):
        cli.say("no backend declares a quantization scheme" if backend is None else f"{backend} declares no scheme")
    else:
        cli.show(found, schemes_text)
