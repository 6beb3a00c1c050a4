"""`delegatekit operators`: list the operators that can reach a backend."""

from __future__ import annotations

from typing import Annotated

import typer

from delegatekit.cli import JsonOption, installed_backends, print_json, results_alone, show


@results_alone
def operators(
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            "-b",
            help="Mark operators in this backend's table (+), and list names in it that cannot occur.",
            autocompletion=installed_backends,
        ),
    ] = None,
    schemas: Annotated[
        bool, typer.Option("--schemas", help="Print PyTorch's schemas, with arguments and types.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the operators of the edge dialect: all that can reach a backend, and those without a conformance example."""
    from delegatekit.plugins import get_backend

    from ..dialect import operators as list_operators

    found = list_operators(None if backend is None else get_backend(backend))
    if as_json:
        print_json(found.to_json())
    else:
        show(found, type(found).text, schemas=schemas)
