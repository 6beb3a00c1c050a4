"""`delegatekit conform`: run the suite against a backend, compare runs, report. Imports nothing heavy by itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import Console

    from .cases import Case
    from .context import Context
    from .outcome import CaseResult
    from .run import Run
    from .runner import Limits


class _Group(TyperGroup):
    """`conform NAME ...` is `conform run NAME ...`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


conform = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    help="Run the conformance suite against a backend: `delegatekit conform NAME` is short for "
    "`delegatekit conform run NAME`, whose --help shows the options.",
)

JsonOption = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON.")]
JunitOption = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")]
MarkdownOption = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write Markdown.")]
HtmlOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page that needs no other.")]
CsvOption = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table of operators.")]


@conform.command()
def run(
    backend: Annotated[str, typer.Argument(help="Name of the backend, as `delegatekit backends` lists it.")],
    select: Annotated[
        list[str],
        typer.Option(
            metavar="PATTERN",
            help="Run only the cases whose name matches, or begins so ('contract', '*conv*'); repeat for more.",
        ),
    ] = [],  # noqa: B006  (typer copies it)
    profile: Annotated[str, typer.Option(help="How much is tried: quick, default or thorough.")] = "default",
    quick: Annotated[bool, typer.Option("--quick", help="Short for --profile quick.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same examples.")] = 0,
    option: Annotated[list[str], typer.Option(metavar="KEY=VALUE", help="An option of the backend; repeatable.")] = [],  # noqa: B006
    jobs: Annotated[int, typer.Option(min=1, help="So many cases at a time, each in a process.")] = 2,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one example may take.")] = 60.0,
    memory: Annotated[float, typer.Option(min=0, help="GiB that a process may have; 0 for no limit (Linux).")] = 8.0,
    shard: Annotated[str, typer.Option(metavar="I/N", help="Run the I-th of N parts.")] = "",
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep finished cases in this file, and do not run again those in it."),
    ] = None,
    maxfail: Annotated[int, typer.Option(min=0, help="Stop after so many cases with faults; 0 for never.")] = 0,
    expectations: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Known faults, in the place of the vendor's conformance.toml.")
    ] = None,
    scheduler: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Run on a Dask cluster whose workers have a resource NAME.")
    ] = "",
    device: Annotated[
        list[str], typer.Option(metavar="KEY=VALUE", help="A fact about the device, for the report; repeatable.")
    ] = [],  # noqa: B006
    names_only: Annotated[
        bool, typer.Option("--list", help="Print the names of the chosen cases, and run none.")
    ] = False,
    json: JsonOption = None,
    junit: JunitOption = None,
    markdown: MarkdownOption = None,
    html: HtmlOption = None,
    csv: CsvOption = None,
) -> None:
    """Run the suite against a backend. Exit code 1 if it finds a fault, 130 after an interrupt."""
    from rich.console import Console

    from delegatekit.plugins import discovery

    from . import report
    from .cases import all_cases
    from .context import PROFILES, Context
    from .expectations import load
    from .run import Run
    from .runner import Limits
    from .runner import select as choose
    from .runner import shard as part
    from .runner.journal import Finished

    installed = discovery.backends(check=False)
    if backend not in installed:
        _usage(f"no backend {backend!r} is installed (installed: {', '.join(installed) or 'none'})")
    profile = "quick" if quick else profile
    if profile not in PROFILES:
        _usage(f"no profile {profile!r}; there are {', '.join(PROFILES)}")
    outputs = {"json": json, "junit": junit, "markdown": markdown, "html": html, "csv": csv}
    _check_outputs((*outputs.values(), resume))
    index, count = _shard(shard)
    chosen = discovery.get_backend(backend)  # says why if it cannot be used
    context = Context(backend, PROFILES[profile], seed, _settings(option, backend), timeout)
    if context.options:
        chosen.make_options(context.options)  # says so if one is wrong
    known = load(backend, expectations)
    cases = all_cases(context)
    names = choose(cases, select)
    if not names:
        rooms = dict.fromkeys(name.partition("/")[0] for name in cases)
        _usage(f"no case matches {' '.join(select)!r}; there are {', '.join(rooms)} (--list shows all names)")
    names = part(cases, names, index, count)
    if names_only:
        print("\n".join(names))
        return
    runtime = chosen.runtime_availability()
    if not runtime.available and not scheduler:
        typer.echo(
            f"the runtime of {backend} is not available: {runtime.reason}\n"
            "  -> cases are compiled only; no result of a delegate is compared",
            err=True,
        )
    finished = None if resume is None else Finished(resume, context, chosen.distribution)
    results = {name: finished.results[name] for name in names if finished and name in finished.results}
    results = {name: known.mark(result) for name, result in results.items()}
    if results:
        typer.echo(f"{len(results)} of {len(names)} cases are finished in {resume}", err=True)
    err = Console(stderr=True)
    start, begun = time.perf_counter(), time.gmtime()
    limits = Limits(memory=int(memory * 2**30) or None)
    facts: dict[str, object] = {}
    running = _results(context, [name for name in names if name not in results], cases, jobs, limits, scheduler, facts)
    interrupted = False
    try:
        for result in _shown(running, err, len(names), results):
            if finished is not None:
                finished.add(result)
            results[result.case] = known.mark(result)
            if maxfail and sum(one.is_fault for one in results.values()) >= maxfail:
                typer.echo(f"stopped after {maxfail} cases with faults; {len(names) - len(results)} not run", err=True)
                break
    except KeyboardInterrupt:
        interrupted = True
        typer.echo(f"interrupted: {len(names) - len(results)} of {len(names)} cases not run", err=True)
    finally:
        running.close()  # type: ignore[attr-defined]  # ends the workers
        if finished is not None:
            finished.close()
    whole = Run.of(
        context,
        [results[name] for name in names if name in results],
        selection=" ".join(select) or "*",
        shard=(index, count) if count > 1 else None,
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", begun),
        seconds=time.perf_counter() - start,
        device=_pairs(device, "--device"),
        unused_expectations=known.unused(cases),
        **facts,
    )
    report.print_console(Console(), whole)
    _write(outputs, [whole])
    if interrupted:
        raise typer.Exit(130)
    if whole.faults or (known.strict and whole.unexpected_passes):
        raise typer.Exit(1)


@conform.command()
def diff(
    old: Annotated[Path, typer.Argument(help="The JSON of the run before.")],
    new: Annotated[Path, typer.Argument(help="The JSON of the run after.")],
    threshold: Annotated[
        float | None, typer.Option(min=1, help="A case is slower if it takes so many times the time.")
    ] = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
) -> None:
    """Show what changed between two runs. Exit code 1 if there are new faults, or less is delegated."""
    from json import dumps

    from rich.console import Console

    from . import report

    _check_outputs((json, markdown))
    before, after = (report.read_json(_existing(path)) for path in (old, new))
    found = report.diff(before, after, latency_threshold=threshold or report.LATENCY_THRESHOLD)
    found.print(Console())
    if json is not None:
        json.write_text(dumps(found.to_json(), indent=1) + "\n", "utf-8")
    if markdown is not None:
        markdown.write_text(found.to_markdown(), "utf-8")
    if found.is_regression:
        raise typer.Exit(1)


@conform.command("report")
def report_command(
    runs: Annotated[list[Path], typer.Argument(help="JSON files of runs: shards of one, or of several backends.")],
    json: JsonOption = None,
    junit: JunitOption = None,
    markdown: MarkdownOption = None,
    html: HtmlOption = None,
    csv: CsvOption = None,
) -> None:
    """Put shards together, and write reports of finished runs; a page shows several backends side by side."""
    from rich.console import Console

    from . import report

    outputs = {"json": json, "junit": junit, "markdown": markdown, "html": html, "csv": csv}
    _check_outputs(outputs.values())
    shards: dict[str, list[Run]] = {}
    whole: list[Run] = []
    for path in runs:
        read = report.read_json(_existing(path))
        if read.shard is None:
            whole.append(read)
        else:
            shards.setdefault(read.backend.name, []).append(read)
    whole += [report.merge(parts) for parts in shards.values()]
    for one in whole:
        report.print_console(Console(), one)
    if len(whole) > 1 and any((json, junit, markdown, csv)):
        _usage("only --html takes runs of several backends at once")
    _write(outputs, whole)


# -- parts of commands -----------------------------------------------------------------------------------------------


def _results(
    context: Context,
    names: Sequence[str],
    cases: Mapping[str, Case],
    jobs: int,
    limits: Limits,
    scheduler: str,
    facts: dict[str, object],
) -> Iterator[CaseResult]:
    """Run the cases here or on a cluster; facts about the workers of a cluster go into `facts`."""
    if scheduler:
        from .runner.cluster import run_on_cluster

        yield from run_on_cluster(scheduler, context, names, cases, limits, facts)
        return
    from .runner import Pool

    with Pool(context, jobs=jobs, limits=limits, cases=cases) as pool:
        yield from pool.run(names)


def _shown(
    running: Iterator[CaseResult], console: Console, total: int, known: Mapping[str, CaseResult]
) -> Iterator[CaseResult]:
    """The results, with a progress bar."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[faults]} faulty"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("cases", total=total, completed=len(known), faults=0)
        for result in running:
            yield result
            faults = sum(one.is_fault for one in known.values())
            progress.update(task, advance=1, description=result.case[:40].ljust(40), faults=faults)


def _write(outputs: Mapping[str, Path | None], runs: Sequence[Run]) -> None:
    from . import report

    writers = {
        "json": report.write_json,
        "junit": report.write_junit,
        "markdown": report.write_markdown,
        "csv": report.write_csv,
    }
    for kind, path in outputs.items():
        if path is None:
            continue
        if kind == "html":
            report.write_html(path, runs)
        else:
            writers[kind](path, runs[0])
        typer.echo(f"wrote {path} ({path.stat().st_size:,} bytes)", err=True)


def _check_outputs(paths: Iterable[Path | None]) -> None:
    for path in paths:
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            _usage(f"{path} is a folder" if path.is_dir() else f"the folder {path.parent} does not exist")


def _existing(path: Path) -> Path:
    if not path.is_file():
        _usage(f"{path} does not exist")
    return path


def _shard(text: str) -> tuple[int, int]:
    if not text:
        return 1, 1
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        _usage(f"--shard {text!r} is not of the form I/N, with I from 1 to N")
    return int(index), int(count)


def _settings(options: Sequence[str], backend: str) -> dict[str, str]:
    """Backend options: KEY=VALUE, or NAME.KEY=VALUE as `delegatekit lower` takes them."""
    return {key.removeprefix(f"{backend}."): value for key, value in _pairs(options, "--option").items()}


def _pairs(texts: Sequence[str], name: str) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            _usage(f"{name} {text!r} is not of the form KEY=VALUE")
        found[key] = value
    return found


def _usage(message: str) -> NoReturn:
    print(f"usage: {message}", file=sys.stderr)
    raise typer.Exit(2)
