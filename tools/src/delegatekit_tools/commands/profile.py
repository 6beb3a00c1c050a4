"""`delegatekit profile`: the time of a method by instruction and operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delegatekit import cli

if TYPE_CHECKING:
    from delegatekit.engine import LoadedProgram, Method

    from ..etrecord import Record
    from ..profile import Profile


class By(str, Enum):
    """The ways to show a profile."""

    MODULE = "module"
    KERNEL = "kernel"
    LINE = "line"
    INSTRUCTION = "instruction"


@cli.results_alone
def profile(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A .pte file, or a .bpte with one in it; with --etdump it may be left out.", callback=cli.given_file
        ),
    ] = None,
    inputs: cli.InputsArgument = [],  # noqa: B006
    method: Annotated[
        str | None, typer.Option(help="The method, by default forward; with --etdump the one that ran.")
    ] = None,
    data: cli.DataOption = [],  # noqa: B006
    backend: cli.RunnerOption = [],  # noqa: B006
    isolate: cli.IsolateOption = [],  # noqa: B006
    seed: cli.SeedOption = 0,
    runs: Annotated[int, typer.Option(min=1, max=100_000, help="Measured calls, of each kind.")] = 20,
    warm_up: Annotated[int, typer.Option(min=0, max=100_000, help="Warm-up calls, reported separately.")] = 3,
    debug_map: Annotated[
        Path | None, typer.Option(help="The JSON that `lower --debug-map` wrote: shows modules and source lines.")
    ] = None,
    etrecord: Annotated[
        Path | None, typer.Option(help="Instead of a debug map: the ETRecord that ExecuTorch or `lower` wrote.")
    ] = None,
    etdump: Annotated[
        Path | None,
        typer.Option(help="Show an ETDump that ExecuTorch recorded on a device; nothing is run."),
    ] = None,
    ticks: Annotated[
        float, typer.Option(min=1e-3, help="With --etdump: ticks of the device's clock in a second.")
    ] = 1e9,
    by: Annotated[
        By | None,
        typer.Option(
            help="Add the times up by module, kernel or source line, or show each instruction. By default by module, "
            "or by kernel where nothing tells modules."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Rows of the table; 0 for all.")] = 30,
    in_order: Annotated[bool, typer.Option("--in-order", help="In execution order, not the longest first.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Write a trace for Perfetto to this .json file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a table to this .csv file.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with the graph, colored by time, to this .html file.")
    ] = None,
    time_limit: cli.TimeLimitOption = None,
    trust: cli.TrustOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Show the time of a method by module, kernel, source line or instruction, here or on a device."""
    from delegatekit.files import CSV, HTML, JSON, check_outputs, write_files

    from ..profile import files

    given = [path for path in (file, debug_map, etrecord, etdump) if path is not None]
    check_outputs(trace, csv, html, inputs=[*given, *data, *inputs])
    cli.question_place("--trace", trace, JSON)
    cli.question_place("--csv", csv, CSV)
    cli.question_place("--html", html, HTML)
    if debug_map is not None and etrecord is not None:
        cli.usage("--debug-map and --etrecord are both given", "each tells modules and lines: choose one")
    known = _known(debug_map, etrecord)
    if etdump is not None:
        if inputs or data or backend or isolate:
            cli.usage("--etdump runs nothing: no inputs, data files or backends are needed", "leave them out")
        found = _told(etdump, file, method, known, warm_up, ticks)
    elif file is None:
        cli.usage("Missing argument 'FILE'", "give a .pte file, or --etdump")
    else:
        with cli.progress("loading") as waiting:
            loaded = _loaded(file, data, backend, isolate, time_limit)[method or "forward"]
            values = cli.inputs_for(loaded, inputs, seed=seed, trust=trust)
            waiting.begin("measuring")
            found = _measured(loaded, values, runs, warm_up, known, time_limit, waiting.moved)
    texts = {path: text(found) for path, text in ((trace, files.trace), (csv, files.table)) if path is not None}
    if html is not None:
        texts[html] = found.html(f"Profile of {(file or etdump or html).name}", file)
    write_files({path: _writer(text) for path, text in texts.items()})
    if as_json:
        cli.print_json(found)
        return
    cli.show(found, type(found).text, rows=rows or None, in_order=in_order, by=None if by is None else by.value)
    for path in texts:
        cli.say(f"wrote {path}")


def _told(
    etdump: Path,
    file: Path | None,
    method: str | None,
    known: Mapping[str, Any] | Record | None,
    warm_up: int,
    ticks: float,
) -> Profile:
    from delegatekit import read_etdump

    return read_etdump(etdump, file, method=method, debug_map=known, warm_up=warm_up, ticks_per_second=ticks)


def _loaded(
    file: Path, data: Sequence[Path], backend: Sequence[str], isolate: Sequence[str], time_limit: float | None
) -> LoadedProgram:
    from delegatekit import load

    return load(file, data=data, backends=backend, time_limit=time_limit, isolate=cli.apart(isolate))


def _measured(
    method: Method,
    values: Sequence[Any],
    runs: int,
    warm_up: int,
    known: Mapping[str, Any] | Record | None,
    time_limit: float | None,
    moved: Callable[[int, int], None],
) -> Profile:
    from delegatekit import profile as measure

    # The limit applies to each call; a call that only a signal can end is ended by one.
    whole = None if time_limit is None else time_limit * (3 * runs + warm_up)
    with cli.ended_after(whole, f"method {method.name}"):
        return measure(method, values, runs=runs, warm_up=warm_up, debug_map=known, progress=moved)


def _known(debug_map: Path | None, etrecord: Path | None) -> Mapping[str, Any] | Record | None:
    if etrecord is not None:
        from ..etrecord import read_etrecord

        return read_etrecord(etrecord)
    return None if debug_map is None else _read(debug_map)


def _read(path: Path) -> Mapping[str, Any]:
    from delegatekit.files import open_file
    from delegatekit_toolkit.json_text import parse_object

    with open_file(path) as file:
        return parse_object(file.read(), str(path), hint="`lower --debug-map` writes a debug map")


def _writer(text: str) -> Any:
    return lambda file: file.write(text.encode())
