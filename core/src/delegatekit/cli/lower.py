"""`delegatekit lower`: lower a model to backends."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delegatekit_toolkit.json_text import to_json

from ..errors.misuse import MissingToolsError
from ..pipeline import Lowering, Source
from ..plugins.discovery import AUTO
from .arguments import JsonOption, Said, command, option, texts
from .auto import tuned, without_auto
from .console import is_narrow, print_json, progress, remark, say, show, usage, warn
from .places import default_place, question_place

if TYPE_CHECKING:
    import torch

    from .. import Measurements, Report
    from ..pipeline import Content, LoweredProgram

#: Characters of a weight's name that are shown: backends make names of 64 from the content.
_LONGEST: Final = 40


@command(
    Lowering,
    external=texts(
        read=lambda given, _: _External(given) if given else False,
        metavar="PATTERN",
        help=": those whose name matches a pattern ('*', 'layers.*.weight'), in a data file; NAME=PATTERN names it. "
        "Repeat for more: the first that matches counts.",
    ),
    stack_traces=option(),
    budget=texts(
        read=lambda given, _: _budget(given),
        metavar="LIMIT",
        help=": latency=20ms, sram=512KB (1024 bytes to the KB), or another memory that the backend names. Repeat for "
        "more; what does not fit is refused.",
    ),
    min_delegated=texts(
        read=lambda given, _: _minimum(given),
        metavar="SHARE",
        help=": 95% of the operators, macs=95% of the multiply-accumulates; repeat for both. Less is refused, with the "
        "largest that is left out and why.",
    ),
)
def lower(
    said: Said,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The .pte file to write. By default net.pte for net.pt2, nets.py:net."),
    ] = None,
    measurements: Annotated[
        Path | None,
        typer.Option(help="For -b auto: the file that `delegatekit tune` wrote. Without, the model is tuned first."),
    ] = None,
    debug_map: Annotated[
        Path | None, typer.Option(help="Write a JSON file that leads from instructions back to source lines.")
    ] = None,
    etrecord: Annotated[
        Path | None,
        typer.Option(help="Write an ETRecord, by which ExecuTorch's Inspector finds operators and source lines."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page that shows the graph, who runs what and why, memory over time, and weights."),
    ] = None,
    planner: Annotated[str, typer.Option(help="What plans the memory: best, greedy or best-fit.")] = "best",
    alignment: Annotated[int, typer.Option(help="Alignment of values in memory, in bytes.")] = 16,
    memory_report: Annotated[
        bool, typer.Option("--memory-report", help="Show the planned memory and what fills it.")
    ] = False,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Run each backend's compiler in a process of its own.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Partitions to compile in parallel.")] = 1,
    cache: Annotated[
        bool, typer.Option(help="Use what was compiled before, of backends that tell their compiler's version.")
    ] = True,
    compile_time: Annotated[
        float, typer.Option(min=0.0, help="Seconds that a compiler's own process may take.")
    ] = 3600.0,
    repartition: Annotated[
        bool,
        typer.Option("--repartition", help="Take out of the delegates what a compiler fails at, and lower the rest."),
    ] = False,
    repartition_limit: Annotated[
        int, typer.Option(min=1, help="Compilations of parts that the search for such operators may take.")
    ] = 64,
    integer_io: Annotated[
        bool, typer.Option("--integer-io", help="Take and return integers where a quantized model allows it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Lower a model to backends and write a .pte file."""
    from .. import Compiling, MemoryOptions

    place = default_place(said.model, ".pte") if output is None else output
    auto = AUTO in said.backends
    if measurements is not None and not auto:
        usage("--measurements is for -b auto", f"delegatekit lower {said.model} -b auto --measurements {measurements}")
    settings = said.settings()
    _check_outputs(said, place, debug_map, etrecord, html, settings["external"])
    if auto and (settings["only"] or settings["skip"] or settings["passes"]):
        usage("-b auto places the whole model as measured, and --only, --skip and --passes change it", _NOT_AUTO)
    tools = _Tools(html=html, etrecord=etrecord, memory_report=memory_report, as_json=as_json, repartition=repartition)
    source = _with_integers(said.source(), silent=as_json) if integer_io else said.source()
    if auto:
        settings |= _placed(source, without_auto(said.backends), settings["options"], measurements)
    with progress():
        program = tools.lowered(
            repartition_limit if repartition else None,
            **vars(source),
            **settings,
            memory=MemoryOptions(planner, alignment),
            compiling=Compiling(isolate=isolate, jobs=jobs, cache=cache, seconds=compile_time),
        )
        if isinstance(settings["external"], _External):
            settings["external"].check_used()
        beside = tools.beside(program, place)
        if debug_map is not None:
            beside[debug_map] = to_json(program.debug_map())
        written = program.save(place, beside=beside)
    # Measurements may well leave nothing to a backend.
    tools.show(program, idle=not auto)
    if not as_json:
        for path in written:
            say(f"wrote {path} ({path.stat().st_size:,} bytes)")


def _with_integers(model: Source, *, silent: bool) -> Source:
    """The model with integer inputs and outputs; tells their numbers, and what stays as it is."""
    from ..quantization import integer_io

    found = integer_io(model.programs())
    for item in () if silent else found.arguments:
        say(str(item))
    for text in found.left:
        warn(f"--integer-io leaves floats: {text}")
    return Source(found.programs)


_NOT_AUTO: Final = "name the backends instead; `delegatekit tune` tells which ones are the fastest"


def _placed(
    model: Source, backends: Sequence[str], options: Mapping[str, Mapping[str, Any]], file: Path | None
) -> dict[str, Any]:
    """The arguments of `lower` that measurements give: those of a file, or of the model, which is tuned now."""
    from .. import placement

    measurements: Measurements | Path | None = file
    if measurements is None:
        warn("the model is tuned first; `delegatekit tune` writes measurements that `--measurements` reads")
        measurements = tuned(model, backends, options=options)
        remark(f"{measurements}")
    return placement(**vars(model), measurements=measurements, backends=backends, options=options)


class _Tools:
    """Results of `delegatekit-tools`, where it is installed: the report, and files that it makes.

    Raises MissingToolsError, before any work, where something is asked for that only the tools make.
    """

    def __init__(
        self, *, html: Path | None, etrecord: Path | None, memory_report: bool, as_json: bool, repartition: bool
    ) -> None:
        self._html, self._etrecord, self._memory, self._as_json = html, etrecord, memory_report, as_json
        self._report: Callable[[LoweredProgram], Report] | None = None
        try:
            from .. import report
        except MissingToolsError:
            asked = {"--html": html, "--etrecord": etrecord, "--memory-report": memory_report, "--json": as_json}
            asked["--repartition"] = repartition
            for option, given in asked.items():
                if given:
                    raise MissingToolsError(option) from None
        else:
            self._report = report

    def lowered(self, limit: int | None, **arguments: Any) -> LoweredProgram:
        """The lowered program; with a limit, without what compilers fail at, which is told."""
        from .. import lower

        if limit is None:
            return lower(**arguments)
        from .. import repartition

        found = repartition(**arguments, limit=limit)
        for item in found.taken_out:
            warn(str(item))
        return found.program

    def beside(self, program: LoweredProgram, place: Path) -> dict[str | Path, Content]:
        """The files beside the program."""
        found: dict[str | Path, Content] = {}
        if self._html is not None:
            from .. import html

            found[self._html] = html(program, place.name)
        if self._etrecord is not None:
            from .. import etrecord

            found[self._etrecord] = etrecord(program)
        return found

    def show(self, program: LoweredProgram, *, idle: bool) -> None:
        """Who runs what, and, with the tools, the report."""
        if not self._as_json:
            for line in program.shares.lines():
                say(line, "bold red" if program.shares.is_idle else "")
        if self._report is None:
            return
        found = self._report(program)
        for name, reason in found.idle.items() if idle else ():
            warn(f"backend {name} took nothing: {reason}")
        if self._as_json:
            print_json(found)
            return
        show(found, type(found).text, idle=False, shares=False)
        if self._memory:
            show(found, type(found).memory, narrow=is_narrow())


def _budget(limits: Sequence[str]) -> dict[str, str] | None:
    pairs = [text.partition("=") for text in limits]
    wrong = next((text for text, (name, _, limit) in zip(limits, pairs, strict=True) if not name or not limit), None)
    if wrong is not None:
        usage(f"--budget {wrong!r} is not of the form NAME=LIMIT")
    return {name: limit for name, _, limit in pairs} or None


def _minimum(shares: Sequence[str]) -> dict[str, str] | None:
    pairs = [text.rpartition("=") for text in shares]
    return {name or "operators": share for name, _, share in pairs} or None


def _check_outputs(
    said: Said,
    output: Path,
    debug_map: Path | None,
    etrecord: Path | None,
    html: Path | None,
    external: _External | bool,
) -> None:
    """Try all files that may be written, before the work begins."""
    from ..files import ETRECORD, HTML, JSON, PTE, check_outputs
    from ..pte.writer import data_paths

    names = external.files if isinstance(external, _External) else ()
    wrong = next((name for name in names if name.startswith(".") or re.search(r"[/\\\0]", name)), None)
    if wrong is not None:
        usage(f"--external {wrong}=...: {wrong!r} is not the name of a file", "it is written beside the .pte")
    check_outputs(output, debug_map, etrecord, html, *data_paths(output, names), inputs=said.files)
    question_place("--output", output, PTE)
    question_place("--debug-map", debug_map, JSON)
    question_place("--etrecord", etrecord, ETRECORD)
    question_place("--html", html, HTML)


class _External:
    """The patterns of `--external`: asked for each weight, and afterwards whether each has matched any."""

    def __init__(self, patterns: Sequence[str]) -> None:
        pairs = [text.split("=", 1) if "=" in text else ["", text] for text in patterns]
        self._patterns = {text: (file, pattern) for text, (file, pattern) in zip(patterns, pairs, strict=True)}
        #: The names of the data files, "" for that of the .pte.
        self.files = dict.fromkeys(file for file, _ in pairs)
        self._unused = set(patterns)
        self._names: list[str] = []

    def __call__(self, name: str, data: torch.Tensor | memoryview) -> bool | str:
        """The place of a weight, as `lower` asks for it."""
        self._names.append(name)
        matching = [text for text, (_, pattern) in self._patterns.items() if fnmatchcase(name, pattern)]
        self._unused.difference_update(matching)
        return self._patterns[matching[0]][0] or True if matching else False

    def check_used(self) -> None:
        """End the command if a pattern matches no weight."""
        text = next((text for text in self._patterns if text in self._unused), None)
        if text is None:
            return
        close = get_close_matches(self._patterns[text][1], self._names, n=5, cutoff=0.3) or sorted(self._names)[:5]
        close = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in close]
        rest = f" and {len(self._names) - len(close)} more" if len(close) < len(self._names) else ""
        names = (
            f"the weights: {', '.join(close)}{rest}; a backend names those that it keeps by itself; '*' matches all"
            if close
            else "the file stores no weights that could be outside"
        )
        usage(f"--external {text!r} matches no weight", names)
