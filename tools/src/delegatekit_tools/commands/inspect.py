"""`delegatekit inspect`: show the contents of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from delegatekit.cli import JsonOption, given_file, is_narrow, print_json, results_alone, show


@results_alone
def inspect(
    file: Annotated[Path, typer.Argument(help="A .pte, .bpte or .ptd file.", callback=given_file)],
    layers: Annotated[
        bool, typer.Option("--layers", help="Show all layers of estimates, not the longest only.")
    ] = False,
    operators: Annotated[
        bool, typer.Option("--operators", help="Show the operators inside delegates, as decoded by their plugins.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Show each segment and each weight in data files, not their kinds alone.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the contents of a .pte, .bpte or .ptd file: methods, delegates and owners, operators, memory, segments."""
    from delegatekit.files import open_view
    from delegatekit.pte import PTD_IDENTIFIER

    from ..inspection.inspection import Inspection, inspect_data
    from ..inspection.inspection import inspect as inspect_program

    is_data = bytes(open_view(file)[4:8]) == PTD_IDENTIFIER
    found = inspect_data(file) if is_data else inspect_program(file, operators=operators)
    if as_json:
        print_json(found)
        return
    if isinstance(found, Inspection):
        show(found, Inspection.text, layers=layers, narrow=is_narrow(), every=every)
    else:
        show(found, str)
