"""`delegatekit schemes`: list the quantization schemes of backends."""

from __future__ import annotations

from typing import Annotated

import typer

from .arguments import JsonOption, SettingOption, installed_backends, settings
from .console import print_json, say, show


def schemes(
    backend: Annotated[
        str | None, typer.Argument(help="A backend; without it, all.", autocompletion=installed_backends)
    ] = None,
    option: SettingOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """List the quantization schemes of the backends: operators, and how their operands and results are quantized."""
    from ..quantization.listing import schemes_as_json, schemes_by_backend, schemes_text

    found = schemes_by_backend(backend, settings(option, [backend] if backend else []))
    if as_json:
        print_json(schemes_as_json(found))
    elif not any(found.values()):
        say("no backend declares a quantization scheme" if backend is None else f"{backend} declares no scheme")
    else:
        show(found, schemes_text)
