"""`delegatekit profile`: where the time of a method goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from delegatekit_api import DelegateKitError

from .arguments import (
    DataOption,
    FileArgument,
    InputsArgument,
    IsolateOption,
    JsonOption,
    MethodOption,
    RunnerOption,
    SeedOption,
    TimeLimitOption,
    TrustOption,
)
from .console import print_json, say
from .inputs import apart, inputs_for
from .places import question_place
from .watch import ended_after


def profile(
    file: FileArgument,
    inputs: InputsArgument = [],  # noqa: B006
    method: MethodOption = "forward",
    data: DataOption = [],  # noqa: B006
    backend: RunnerOption = [],  # noqa: B006
    isolate: IsolateOption = [],  # noqa: B006
    seed: SeedOption = 0,
    runs: Annotated[int, typer.Option(min=1, max=100_000, help="Calls that are measured, of each kind.")] = 20,
    warm_up: Annotated[int, typer.Option(min=0, max=100_000, help="Calls before them, reported apart.")] = 3,
    debug_map: Annotated[
        Path | None, typer.Option(help="The JSON that `lower --debug-map` wrote: shows modules and source lines.")
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Rows of the table; 0 for all.")] = 30,
    in_order: Annotated[bool, typer.Option("--in-order", help="As they run, not the longest first.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Write a trace for Perfetto to this .json file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a table to this .csv file.")] = None,
    time_limit: TimeLimitOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a method of a .pte file and show where its time goes: by instruction, delegate, operator and source line."""
    from .. import load
    from .. import profile as measure
    from ..files import CSV, JSON, check_outputs, write_files
    from ..profiling import files

    given = [] if debug_map is None else [debug_map]
    check_outputs(trace, csv, inputs=[file, *data, *inputs, *given])
    question_place("--trace", trace, JSON)
    question_place("--csv", csv, CSV)
    known = None if debug_map is None else _read(debug_map)
    loaded = load(file, data=data, backends=backend, time_limit=time_limit, isolate=apart(isolate))[method]
    values = inputs_for(loaded, inputs, seed=seed, trust=trust)
    # The limit is a call's; a call that only a signal can end is ended by that.
    with ended_after(None if time_limit is None else time_limit * (3 * runs + warm_up), f"method {method}"):
        found = measure(loaded, values, runs=runs, warm_up=warm_up, debug_map=known)
    texts = {path: text(found) for path, text in ((trace, files.trace), (csv, files.table)) if path is not None}
    write_files({path: _writer(text) for path, text in texts.items()})
    if as_json:
        print_json(found)
        return
    say(found.text(rows=rows or None, in_order=in_order))
    for path in texts:
        say(f"wrote {path}")


def _read(path: Path) -> Mapping[str, Any]:
    from ..files import open_file

    with open_file(path) as file:
        try:
            found: Any = json.loads(file.read())
        except (ValueError, RecursionError) as error:
            raise DelegateKitError(f"is not JSON: {error}", where=str(path), hint="it is no debug map") from None
    if not isinstance(found, dict):
        raise DelegateKitError("is no debug map", where=str(path), hint="`lower --debug-map` writes one")
    return found


def _writer(text: str) -> Any:
    return lambda file: file.write(text.encode())
