"""`delegatekit conform`: run the suite against a backend, compare runs, report. Imports nothing heavy by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from .run import Run
    from .settings import Settings


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

SelectOption = Annotated[
    list[str],
    typer.Option(
        metavar="PATTERN",
        help="Run only the cases whose name matches, or begins so ('contract', '*conv*'); repeat for more.",
    ),
]
ProfileOption = Annotated[str, typer.Option(help="Amount of testing: quick, default or thorough.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="Short for --profile quick.")]
SeedOption = Annotated[int, typer.Option(help="The same seed gives the same examples.")]
BackendOption = Annotated[list[str], typer.Option(metavar="KEY=VALUE", help="An option of the backend; repeatable.")]
JobsOption = Annotated[int, typer.Option(min=1, help="Number of cases run in parallel, each in a process.")]
TimeoutOption = Annotated[
    float, typer.Option(min=1, help="CPU seconds that one example may take; five times as long if it sleeps.")
]
MemoryOption = Annotated[float, typer.Option(min=0, help="GiB that a process may have; 0 for no limit (Linux).")]
ShardOption = Annotated[str, typer.Option(metavar="I/N", help="Run the I-th of N parts.")]
ResumeOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Keep finished cases in this file, and do not run again those in it."),
]
MaxfailOption = Annotated[int, typer.Option(min=0, help="Stop after this many cases with faults; 0 for never.")]
ExpectationsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Known faults, used instead of the vendor's conformance.toml.")
]
WriteExpectationsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draft a conformance.toml of the faults that were found, each without its reason; a new file.",
    ),
]
SchedulerOption = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Run on a Dask cluster whose workers have a resource NAME.")
]
DeviceOption = Annotated[
    list[str], typer.Option(metavar="KEY=VALUE", help="A fact about the device, for the report; repeatable.")
]
StockOption = Annotated[
    bool,
    typer.Option(help="Run files in the stock ExecuTorch runtime, too, where that is installed and has the delegate."),
]
ListOption = Annotated[bool, typer.Option("--list", help="Print the names of the chosen cases, and run none.")]
JsonOption = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON.")]
JunitOption = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")]
MarkdownOption = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write Markdown.")]
HtmlOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained HTML page.")]
RecordOption = Annotated[
    Path | None, typer.Option("--record", metavar="FILE", help="Write the run as a record: the JSON, to be signed.")
]
KeysOption = Annotated[
    list[Path],
    typer.Option("--key", "--keys", metavar="FILE", help="A public key of minisign that may have signed; repeatable."),
]
CsvOption = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table of operators.")]


@conform.command()
def run(
    backend: Annotated[str, typer.Argument(help="Name of the backend, as `delegatekit backends` lists it.")],
    select: SelectOption = [],  # noqa: B006  (typer copies it)
    profile: ProfileOption = "default",
    quick: QuickOption = False,
    seed: SeedOption = 0,
    option: BackendOption = [],  # noqa: B006
    jobs: JobsOption = 2,
    timeout: TimeoutOption = 60.0,
    memory: MemoryOption = 8.0,
    shard: ShardOption = "",
    resume: ResumeOption = None,
    maxfail: MaxfailOption = 0,
    expectations: ExpectationsOption = None,
    write_expectations: WriteExpectationsOption = None,
    scheduler: SchedulerOption = "",
    device: DeviceOption = [],  # noqa: B006
    stock: StockOption = True,
    names_only: ListOption = False,
    json: JsonOption = None,
    junit: JunitOption = None,
    markdown: MarkdownOption = None,
    html: HtmlOption = None,
    csv: CsvOption = None,
    record: RecordOption = None,
) -> None:
    """Run the suite against a backend. Exit code 1 if it finds a fault, 130 after an interrupt or SIGTERM."""
    from .settings import Settings

    outputs = {"json": json, "junit": junit, "markdown": markdown, "html": html, "csv": csv, "record": record}
    if "," in backend:
        _usage(f"{backend!r} names several backends: each has a run of its own, and `conform report` joins the reports")
    _check_outputs(outputs | {"resume": resume, "expectations": write_expectations}, inputs=[expectations])
    if write_expectations is not None:
        from .drafting import check_new

        with _wrong_settings_are_wrong_usage():
            check_new(write_expectations)
    with _wrong_settings_are_wrong_usage():
        settings = Settings(
            backend,
            select=tuple(select),
            profile="quick" if quick else profile,
            seed=seed,
            options=_options(option, backend),
            jobs=jobs,
            timeout=timeout,
            memory=memory,
            shard=parse_shard(shard),
            resume=resume,
            maxfail=maxfail,
            expectations=expectations,
            scheduler=scheduler,
            device=pairs(device, "--device"),
            stock=stock,
        )
    _run(settings, outputs, names_only=names_only, draft=write_expectations)


def _run(
    settings: Settings, outputs: Mapping[str, Path | None], *, names_only: bool, draft: Path | None = None
) -> None:
    """Run the session and write its reports, or print the names of its cases."""
    from delegatekit.cli.console import say
    from delegatekit.text.terminal import Terminal

    from . import report
    from .progress import Bar
    from .session import Interrupted, Session

    with _wrong_settings_are_wrong_usage():
        session = Session(settings, listener=Bar())
        names = session.names
    if names_only:
        for name in names:
            say(name)
        return
    interrupted = False
    try:
        found = session.run()
    except Interrupted as interrupt:
        found, interrupted = interrupt.run, True
    report.print_console(Terminal(), found)
    _write(outputs, [found])
    if draft is not None:
        _draft(draft, found)
    if interrupted:
        raise typer.Exit(130)
    if not session.accepts(found):
        raise typer.Exit(1)


@conform.command()
def diff(
    old: Annotated[Path, typer.Argument(help="The JSON of the run before, or its record.")],
    new: Annotated[Path, typer.Argument(help="The JSON of the run after, or its record.")],
    threshold: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="A case is slower if it takes this many times as long (1.5): one call on the backend, also against "
            "eager; or the CPU time of the same examples, also beside other cases, and half a second more.",
        ),
    ] = None,
    json: JsonOption = None,
    markdown: MarkdownOption = None,
) -> None:
    """Show what changed between two runs. Exit code 1 if there are new faults, or less is delegated."""
    from delegatekit.files import write_text
    from delegatekit.text.terminal import Terminal
    from delegatekit_toolkit.json_text import to_json

    from . import report

    _check_outputs({"json": json, "markdown": markdown}, inputs=[old, new])
    before, after = (report.read_json(_existing(path)) for path in (old, new))
    found = report.diff(before, after, latency_threshold=threshold or report.LATENCY_THRESHOLD)
    found.print(Terminal())
    if json is not None:
        write_text(json, to_json(found.to_json()) + "\n")
    if markdown is not None:
        write_text(markdown, found.to_markdown())
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
    record: RecordOption = None,
) -> None:
    """Put shards together, and write reports of finished runs; a page shows several backends side by side."""
    from delegatekit.text.terminal import Terminal

    from . import report

    outputs = {"json": json, "junit": junit, "markdown": markdown, "html": html, "csv": csv, "record": record}
    _check_outputs(outputs, inputs=runs)
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
        report.print_console(Terminal(), one)
    if len(whole) > 1 and any((json, junit, markdown, csv, record)):
        _usage("only --html takes runs of several backends at once")
    _write(outputs, whole)


@conform.command()
def key(
    file: Annotated[Path, typer.Argument(help="The secret key; the public one is beside it, with the suffix .pub.")],
    password: Annotated[bool, typer.Option("--password", help="Ask for a password that protects the key.")] = False,
) -> None:
    """Make a key pair for records, in the format of minisign. Overwrites nothing."""
    from delegatekit.cli.console import remark

    from .records import minisign

    with _wrong_settings_are_wrong_usage():
        word = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True) if password else ""
        public = minisign.write_key(file, word)
        number = minisign.read_public_key(public).number
    remark(f"wrote the key {number}: {file} (secret: keep it), {public} (give it to those who verify)")


@conform.command()
def sign(
    record: Annotated[Path, typer.Argument(help="The record, as --record wrote it.")],
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The secret key, of `conform key` or minisign.")],
) -> None:
    """Sign a record: its signature is beside it, with the suffix .minisig."""
    from delegatekit.cli.console import remark
    from delegatekit.files import write_text

    from .records import checks, minisign

    _check_outputs({"signature": minisign.signature_of(record)}, inputs=[record, key])
    data, run = checks.read_whole(_existing(record))
    secret = minisign.read_secret_key(key, lambda: typer.prompt("Password", hide_input=True, err=True))
    write_text(minisign.signature_of(record), minisign.sign(data, secret, record.name))
    remark(f"wrote {minisign.signature_of(record)}, by the key {secret.public.number}: {checks.words(run)}")


@conform.command()
def verify(
    record: Annotated[Path, typer.Argument(help="The record; its signature is beside it.")],
    key: KeysOption = [],  # noqa: B006
    wheel: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The wheel that it must be of; without, what is installed.")
    ] = None,
) -> None:
    """Verify a record without a network: form, sums, signature, wheel. Exit code 1 if anything is wrong."""
    from delegatekit.cli.console import say

    from .records import checks, minisign

    keys = [minisign.read_public_key(path) for path in key]
    findings = checks.verify(_existing(record), keys, wheel)
    for finding in findings:
        say(str(finding))
    if any(finding.right is False for finding in findings):
        raise typer.Exit(1)


@conform.command()
def publish(
    folder: Annotated[Path, typer.Argument(help="The site's folder: a new one, or one that this command made.")],
    records: Annotated[list[Path], typer.Argument(help="Records; their signatures are beside them.")],
    key: KeysOption = [],  # noqa: B006
) -> None:
    """Write a static site of records: matrices, history, faults, badges. It is written whole, or not at all."""
    from delegatekit.cli.console import remark

    from .records import checks, minisign, site

    with _wrong_settings_are_wrong_usage():
        site.check_folder(folder)
    keys = [minisign.read_public_key(path) for path in key]
    files = site.pages([checks.read(_existing(path)) for path in records], keys)
    site.write_folder(folder, files)
    remark(f"wrote {folder} ({len(files)} files, {sum(map(len, files.values())):,} bytes): open {folder}/index.html")


# -- parts of commands -----------------------------------------------------------------------------------------------


def _draft(path: Path, run: Run) -> None:
    from delegatekit.cli.console import remark

    from .drafting import write_draft

    count = write_draft(path, run)
    if count:
        remark(f"wrote {path} ({count} entries without a reason yet)")
    else:
        remark(f"no fault is without an expectation: {path} is not written")


def _write(outputs: Mapping[str, Path | None], runs: Sequence[Run]) -> None:
    from delegatekit.cli.console import remark

    from . import report

    writers = {
        "json": report.write_json,
        "junit": report.write_junit,
        "markdown": report.write_markdown,
        "csv": report.write_csv,
        "record": report.write_record,
    }
    for kind, path in outputs.items():
        if path is None:
            continue
        if kind == "html":
            report.write_html(path, runs)
        else:
            writers[kind](path, runs[0])
        remark(f"wrote {path} ({path.stat().st_size:,} bytes)")


def _check_outputs(outputs: Mapping[str, Path | None], *, inputs: Iterable[Path | None]) -> None:
    """Try all files that are to be written, by option, before the work begins."""
    from delegatekit.files import JSON, Kind, check_outputs, holds_another_kind
    from delegatekit_api import FormatError

    kinds = {
        "json": JSON,
        "record": JSON,
        "junit": Kind((".xml",), re.compile(rb"<\?xml")),
        "markdown": Kind((".md", ".markdown"), re.compile(rb"#{1,3} Conformance")),
        "html": Kind((".html", ".htm"), re.compile(rb"<!doctype html>", re.IGNORECASE)),
        "csv": Kind((".csv",), re.compile(rb"operator,")),
        "signature": Kind((".minisig",), re.compile(rb"untrusted comment: ")),
    }
    for name, path in outputs.items():
        if path is not None and name in kinds and holds_another_kind(path, kinds[name]):
            _usage(f"--{name} {path} exists, and is not a {kinds[name].suffixes[0]} file: choose another name")
    try:
        check_outputs(*outputs.values(), inputs=inputs)
    except FormatError as error:
        _usage(str(error))


def _existing(path: Path) -> Path:
    if not path.exists():
        _usage(f"{path} does not exist")
    return path


def parse_shard(text: str) -> tuple[int, int] | None:
    """The parts of "I/N", or None of an empty text. Ends the command with exit code 2 for anything else."""
    if not text:
        return None
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        _usage(f"--shard {text!r} is not of the form I/N, with I from 1 to N")
    return int(index), int(count)


def _options(options: Sequence[str], backend: str) -> dict[str, str]:
    """Backend options: KEY=VALUE, or NAME.KEY=VALUE as `delegatekit lower` takes them."""
    return {key.removeprefix(f"{backend}."): value for key, value in pairs(options, "--option").items()}


def pairs(texts: Sequence[str], name: str) -> dict[str, str]:
    """Texts of the form KEY=VALUE as a mapping. Ends the command with exit code 2, naming the option, for others."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            _usage(f"{name} {text!r} is not of the form KEY=VALUE")
        found[key] = value
    return found


@contextmanager
def _wrong_settings_are_wrong_usage() -> Iterator[None]:
    """End the command with exit code 2 where a setting is wrong; what is wrong with a file is an error as any other."""
    from .errors import InputError

    try:
        yield
    except InputError as error:
        if error.where is not None:
            raise
        _usage(str(error))


def _usage(message: str) -> NoReturn:
    from delegatekit.cli.console import remark

    remark(f"usage: {message}")
    raise typer.Exit(2)
