"""`delegatekit schemes`: list the quantization schemes of backends."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .arguments import JsonOption, SettingOption, settings
from .console import out


def schemes(
    backend: Annotated[str | None, typer.Argument(help="A backend; without it, all.")] = None,
    option: SettingOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """List the quantization schemes of the backends: operators, and how their operands and results are quantized."""
    from ..quantization.commands import schemes_as_json, schemes_by_backend, schemes_text

    found = schemes_by_backend(backend, settings(option, [backend] if backend else []))
    if as_json:
        print(json.dumps(schemes_as_json(found), indent=1))
    elif not any(found.values()):
        out.print("no backend declares a quantization scheme" if backend is None else f"{backend} declares no scheme")
    else:
        out.print(schemes_text(found), markup=False, highlight=False, soft_wrap=True)
