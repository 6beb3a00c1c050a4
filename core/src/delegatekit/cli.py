"""The command line: `delegatekit backends | targets | lower | explain | quantize | inspect | run`, and what others add.

Exit codes: 0 ok, 1 failed, 2 wrong usage. Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from delegatekit_api import DelegateKitError, OptionError, PluginError, StageEvent, hookimpl

#: Entry points of further commands: functions for typer, or Typer applications that hold several.
COMMAND_GROUP = "delegatekit.commands"

out = Console()
err = Console(stderr=True)
app = typer.Typer(
    name="delegatekit",
    help="Lower PyTorch programs to hardware backends, and inspect, explain and run the .pte files.",
    epilog="With --debug, a command that fails shows the whole traceback, and stages check what they hand on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="A .pt2 file, or package.module:callable that returns (module, inputs), with kwargs and dynamic_shapes "
        "behind them if there are any, an ExportedProgram, or a dict of these by method name."
    ),
]
BackendOption = Annotated[
    list[str], typer.Option("--backend", "-b", help="Backend, in priority order; repeat for more than one.")
]
SettingOption = Annotated[
    list[str], typer.Option("--option", help="Backend option: NAME.KEY=VALUE (or KEY=VALUE with one backend).")
]
OnlyOption = Annotated[
    list[str],
    typer.Option(
        help="Module path ('layers.*.attn') or operator that backends may take, BACKEND=SELECTOR for one backend; "
        "repeat for more."
    ),
]
SkipOption = Annotated[
    list[str],
    typer.Option(help="Module path or operator that no backend takes, BACKEND=SELECTOR for one; repeat for more."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
FileArgument = Annotated[Path, typer.Argument(help="A .pte file.")]


def main() -> None:
    """Entry point of the `delegatekit` command."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
        os.environ["DELEGATEKIT_VERIFY"] = "1"
    _add_commands(sys.argv[1:])
    try:
        app()
    except (DelegateKitError, OSError) as error:
        if debug:
            raise
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        raise SystemExit(2 if isinstance(error, OptionError) else 1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


@app.command()
def backends(as_json: JsonOption = False) -> None:
    """List the installed backends: version, API version, and whether they can be used, or why not."""
    from .discovery import backends as find
    from .discovery import get_backend

    found = find()
    runtimes = {name: get_backend(name).runtime_availability() if info.usable else None for name, info in found.items()}
    if as_json:
        rows = {
            name: dataclasses.asdict(info)
            | {"runtime": None if (runtime := runtimes[name]) is None else dataclasses.asdict(runtime)}
            for name, info in found.items()
        }
        print(json.dumps(rows, indent=1))
        return
    if not found:
        out.print("no backends are installed: pip install delegatekit-NAME")
        return
    table = Table("backend", "distribution", "version", "API", "lowering", "runs here")
    for name, info in found.items():
        runtime = runtimes[name]
        runs = "" if runtime is None else "yes" if runtime.available else f"no: {runtime.reason}"
        status = "ready" if info.usable else f"{info.status}: {info.reason}"
        table.add_row(name, info.distribution, info.version, info.api_version or "?", escape(status), escape(runs))
    out.print(table)


@app.command()
def lower(
    model: ModelArgument,
    backend: BackendOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .pte file to write.")],
    option: SettingOption = [],  # noqa: B006  (typer copies it)
    only: OnlyOption = [],  # noqa: B006
    skip: SkipOption = [],  # noqa: B006
    external: Annotated[
        list[str],
        typer.Option(
            help="Keep weights whose name matches a pattern ('*', 'layers.*.weight') in a data file beside the .pte; "
            "NAME=PATTERN names the file. Repeat for more: the first that matches counts."
        ),
    ] = [],  # noqa: B006
    debug_map: Annotated[
        Path | None, typer.Option(help="Write a JSON file that leads from instructions back to source lines.")
    ] = None,
    stack_traces: Annotated[bool, typer.Option(help="Put the source lines of instructions into the file.")] = False,
    planner: Annotated[str, typer.Option(help="What plans the memory: best, greedy or best-fit.")] = "best",
    alignment: Annotated[int, typer.Option(help="Values begin at multiples of so many bytes.")] = 16,
    memory_report: Annotated[
        bool, typer.Option("--memory-report", help="Show the planned memory and what fills it.")
    ] = False,
    budget: Annotated[
        list[str],
        typer.Option(
            help="What the delegates may take by their backends' estimates: latency=20ms, sram=512KB (1024 bytes to "
            "the KB), or another memory that the backend names. Repeat for more; what does not fit is refused."
        ),
    ] = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Lower a model to backends and write a .pte file."""
    from . import MemoryOptions
    from . import lower as lower_model

    settings, outside, limits = _settings(option, backend), _external(external), _budget(budget)
    memory = MemoryOptions(planner, alignment)
    with _progress():
        program = lower_model(
            **_model(model),
            backends=backend,
            options=settings,
            only=_selectors(only, backend),
            skip=_selectors(skip, backend),
            external=outside,
            stack_traces=stack_traces,
            memory=memory,
            budget=limits,
        )
        written = list(program.save(output))
    if debug_map is not None:
        debug_map.write_text(json.dumps(program.debug_map(), indent=1))
        written.append(debug_map)
    report = program.report()
    for name, reason in report.idle.items():
        err.print(f"warning: backend {name} took nothing: {reason}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps(dataclasses.asdict(report), indent=1))
        return
    out.print(str(report), markup=False, highlight=False, soft_wrap=True)
    if memory_report:
        out.print(report.memory(), markup=False, highlight=False, soft_wrap=True)
    for path in written:
        out.print(f"wrote {path} ({path.stat().st_size:,} bytes)", markup=False, highlight=False, soft_wrap=True)


@app.command()
def explain(
    model: ModelArgument,
    backend: BackendOption,
    option: SettingOption = [],  # noqa: B006
    only: OnlyOption = [],  # noqa: B006
    skip: SkipOption = [],  # noqa: B006
    every: Annotated[bool, typer.Option("--all", help="Also list the operators that a backend takes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Tell who would run each operator, and for each that no backend takes, every backend's reason."""
    from . import explain as explain_model

    with _progress():
        explanation = explain_model(
            **_model(model),
            backends=backend,
            options=_settings(option, backend),
            only=_selectors(only, backend),
            skip=_selectors(skip, backend),
        )
    if as_json:
        print(
            json.dumps([dataclasses.asdict(row) | {"reasons": dict(row.reasons)} for row in explanation.rows], indent=1)
        )
        return
    shown = explanation.rows if every else tuple(row for row in explanation.rows if row.backend is None)
    if shown:
        text = str(dataclasses.replace(explanation, rows=shown))
        out.print(text, markup=False, highlight=False, soft_wrap=True)
    total = len(explanation.rows)
    taken = sum(row.backend is not None for row in explanation.rows)
    out.print(
        f"{taken} of {total} operators run on {', '.join(backend)}; {len(explanation.unsupported)} cannot run at all"
    )


@app.command()
def targets(
    backend: Annotated[str | None, typer.Argument(help="A backend; without it, all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the devices that the backends compile for, and the options that choose each."""
    from .discovery import backends as find
    from .discovery import get_backend

    names = [backend] if backend else [name for name, info in find().items() if info.usable]
    found = {name: get_backend(name).targets() for name in names}
    if as_json:
        print(json.dumps({name: list(map(dataclasses.asdict, items)) for name, items in found.items()}, indent=1))
        return
    if not any(found.values()):
        out.print("no backend lists targets" if backend is None else f"{backend} lists no targets")
        return
    for name, items in found.items():
        width = max((len(item.name) for item in items), default=0)
        for item in items:
            chosen = " ".join(f"--option {name}.{key}={value}" for key, value in item.options.items())
            line = f"{name}: {item.name:<{width}}  {item.summary}" + (f"  ({chosen})" if chosen else "")
            out.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def schemes(
    backend: Annotated[str | None, typer.Argument(help="A backend; without it, all.")] = None,
    option: SettingOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """List the quantization schemes of the backends: operators, and how their operands and results are quantized."""
    from .quantization.commands import schemes_as_json, schemes_by_backend, schemes_text

    found = schemes_by_backend(backend, _settings(option, [backend] if backend else []))
    if as_json:
        print(json.dumps(schemes_as_json(found), indent=1))
    elif not any(found.values()):
        out.print("no backend declares a quantization scheme" if backend is None else f"{backend} declares no scheme")
    else:
        out.print(schemes_text(found), markup=False, highlight=False, soft_wrap=True)


@app.command()
def quantize(
    model: ModelArgument,
    backend: Annotated[str, typer.Option("--backend", "-b", help="The backend whose scheme is used.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .pt2 file to write, for `delegatekit lower`.")],
    scheme: Annotated[
        str | None, typer.Option(help="A scheme of the backend (`delegatekit schemes`); without it, the first.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="A .pt file with a list of inputs, or a .pt or .npz file with the samples of each input as one tensor."
        ),
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, help="Calibrate with so many random inputs: to try things out only.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Measure each layer against float.")] = False,
    keep_float: Annotated[
        list[str], typer.Option(help="Module path or operator that stays in float; repeat for more.")
    ] = [],  # noqa: B006
    keep_worst: Annotated[int, typer.Option(min=0, help="Keep so many of the least exact layers in float.")] = 0,
    correct_bias: Annotated[
        bool, typer.Option("--correct-bias", help="Take the layers' mean errors out of their biases.")
    ] = False,
    group_size: Annotated[int | None, typer.Option(min=1, help="Size of the weights' groups.")] = None,
    option: SettingOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Quantize a model for a backend and write a .pt2 file; tells which layers stay in float, and why."""
    from .quantization.commands import quantize_model

    if (calibration is None) == (random is None):
        _usage("give --calibration FILE, or --random COUNT to try things out")
    found = quantize_model(
        _model(model),
        calibration=calibration,
        random=random,
        output=output,
        backend=backend,
        scheme=scheme,
        keep_float=keep_float,
        keep_worst_float=keep_worst,
        measure=report,
        correct_bias=correct_bias,
        group_size=group_size,
        options=_settings(option, [backend]).get(backend),
    )
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=1, default=str))
        return
    out.print(str(found), markup=False, highlight=False, soft_wrap=True)
    size = f"{output.stat().st_size:,} bytes"
    out.print(f"wrote {output} ({size})", markup=False, highlight=False, soft_wrap=True)


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A .pte or .ptd file.")],
    layers: Annotated[
        bool, typer.Option("--layers", help="Show all layers of estimates, not the longest only.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a .pte file: methods, delegates with their owners, operators, memory, segments; or in a .ptd."""
    from .inspection import Inspection, inspect_data
    from .inspection import inspect as inspect_program
    from .pte.ptd_schema import PTD_IDENTIFIER
    from .pte.storage import open_view

    is_data = bytes(open_view(file)[4:8]) == PTD_IDENTIFIER
    found = inspect_data(file) if is_data else inspect_program(file)
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=1, default=dict))
        return
    text = found.text(layers=layers) if isinstance(found, Inspection) else str(found)
    out.print(text, markup=False, highlight=False, soft_wrap=True)


@app.command()
def run(
    file: FileArgument,
    inputs: Annotated[list[str], typer.Argument(help="Inputs in order: .npy, .pt or image files.")] = [],  # noqa: B006
    method: Annotated[str, typer.Option(help="The method to run.")] = "forward",
    data: Annotated[list[Path], typer.Option(help="A data file (.ptd) of the program; repeat for more.")] = [],  # noqa: B006
    seed: Annotated[int, typer.Option(help="Seed of the random inputs, used where no files are given.")] = 0,
    repeat: Annotated[int, typer.Option(min=1, help="Run so many times and time all but the first.")] = 1,
    save: Annotated[Path | None, typer.Option(help="Write the outputs to this .pt file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a method of a .pte file on the Python engine and print its outputs and timing."""
    import torch

    from . import load

    loaded = load(file, data=data)[method]
    values = _read_inputs(inputs, loaded) if inputs else _random_inputs(loaded, seed)
    times = []
    for _ in range(repeat):
        start, cpu = time.perf_counter(), time.process_time()
        results = loaded.run(values)
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    wall, cpu = min(times[1:] or times)
    if save is not None:
        torch.save([result.clone() if isinstance(result, torch.Tensor) else result for result in results], save)
    if as_json:
        summaries = [_summary(result) for result in results]
        print(json.dumps({"outputs": summaries, "wall_seconds": wall, "cpu_seconds": cpu, "runs": repeat}, indent=1))
        return
    for index, result in enumerate(results):
        facts = ", ".join(f"{key} {value}" for key, value in _summary(result).items())
        out.print(f"output {index}: {facts}", markup=False, highlight=False, soft_wrap=True)
    best = f" (best of {repeat - 1})" if repeat > 2 else ""
    out.print(f"{1e3 * wall:.2f} ms wall, {1e3 * cpu:.2f} ms CPU{best}", highlight=False)


# -- parts of commands -----------------------------------------------------------------------------------------------


def _usage(message: str) -> NoReturn:
    err.print(f"[bold red]usage:[/] {escape(message)}", soft_wrap=True)
    raise typer.Exit(2)


def _add_commands(arguments: Sequence[str]) -> None:
    """Add the commands of other distributions, unless it is clear that none of them is wanted.

    One that cannot be loaded says so when it is called; none may take the place of a command that exists.
    """
    taken = {command.callback.__name__ for command in app.registered_commands if command.callback is not None}
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    if wanted in taken:
        return
    for entry_point in metadata.entry_points(group=COMMAND_GROUP):
        if entry_point.name in taken:
            err.print(f"the command {entry_point.name} of {entry_point.value} is ignored: the name is taken")
            continue
        taken.add(entry_point.name)
        command = _load_command(entry_point)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=entry_point.name)
        else:
            app.command(entry_point.name)(command)


def _load_command(entry_point: metadata.EntryPoint) -> Callable[..., Any] | typer.Typer:
    try:
        with redirect_stdout(sys.stderr):
            command: Callable[..., Any] | typer.Typer = entry_point.load()
    except (Exception, SystemExit) as error:
        reason = f"cannot be loaded: {type(error).__name__}: {error}"

        def broken() -> None:
            raise PluginError(reason, where=f"command {entry_point.name} ({entry_point.value})")

        broken.__doc__ = f"(broken: {entry_point.value} cannot be loaded)"
        return broken
    return command


def _model(text: str) -> dict[str, Any]:
    """The first arguments of `lower` for a MODEL argument: model, and inputs and kwargs for a module."""
    if text.endswith(".pt2"):
        return {"model": _load_exported(Path(text))}
    if not re.fullmatch(r"[\w.]+:[\w.]+", text):
        _usage(f"MODEL {text!r} is neither a .pt2 file nor package.module:callable")
    module_name, _, attribute = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        function: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        _usage(f"MODEL {text!r} cannot be imported: {error}")
    from torch.export import ExportedProgram

    result = function if isinstance(function, ExportedProgram) or not callable(function) else function()
    if isinstance(result, ExportedProgram | dict):
        return {"model": result}
    if isinstance(result, tuple) and len(result) in (2, 3, 4):
        return dict(zip(("model", "inputs", "kwargs", "dynamic_shapes"), result, strict=False))
    _usage(
        f"{text} gave a {type(result).__name__}, not (module, inputs[, kwargs[, dynamic_shapes]]), an ExportedProgram "
        "or a dict of ExportedPrograms by method name"
    )


def _load_exported(path: Path) -> Any:
    from . import precompiled  # noqa: F401  (programs may call its operator)
    from .quantization.commands import load_quantized

    if not path.is_file():
        _usage(f"{path} does not exist")
    return load_quantized(path)


def _selectors(texts: Sequence[str], backends: Sequence[str]) -> list[str] | dict[str, list[str]] | None:
    """Selectors as what `lower` takes: SELECTOR is for all backends, BACKEND=SELECTOR for one."""
    if not any("=" in text for text in texts):
        return list(texts) or None
    found: dict[str, list[str]] = {}
    for text in texts:
        backend, equals, selector = text.partition("=")
        if equals and backend not in backends:
            _usage(f"{text!r} names {backend!r}, which is not among the backends {', '.join(backends)}")
        for name in [backend] if equals else backends:
            found.setdefault(name, []).append(selector if equals else text)
    return found


def _settings(options: Sequence[str], backends: Sequence[str]) -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {}
    for text in options:
        key, equals, value = text.partition("=")
        backend, dot, name = key.rpartition(".")
        if not equals or not name or (not dot and len(backends) != 1):
            _usage(f"--option {text!r} is not of the form NAME.KEY=VALUE")
        settings.setdefault(backend or backends[0], {})[name] = value
    return settings


def _budget(limits: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in limits]
    wrong = next((text for text, (name, _, limit) in zip(limits, pairs, strict=True) if not name or not limit), None)
    if wrong is not None:
        _usage(f"--budget {wrong!r} is not of the form NAME=LIMIT")
    return {name: limit for name, _, limit in pairs}


def _external(patterns: Sequence[str]) -> Callable[[str, Any], bool | str]:
    """Patterns as what `lower` takes."""
    pairs = [tuple(text.split("=", 1)) if "=" in text else ("", text) for text in patterns]

    def choose(name: str, data: Any) -> bool | str:
        return next((file or True for file, pattern in pairs if fnmatchcase(name, pattern)), False)

    return choose


@contextmanager
def _progress() -> Iterator[None]:
    """A progress line on stderr while lowering takes long."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from .discovery import add_observer

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("starting", total=None)

        class Shown:
            """Shows each stage as it begins and moves on."""

            @hookimpl
            def on_stage(self, event: StageEvent) -> None:
                count = f" {event.done}/{event.total}" if event.total else ""
                progress.update(task, description=f"{event.stage} {event.method}{count}")

        remove = add_observer(Shown())
        try:
            yield
        finally:
            remove()


def _summary(result: Any) -> dict[str, Any]:
    """What is shown of an output: for a tensor its type, its range and, if it looks like scores, the largest five."""
    import torch

    if not isinstance(result, torch.Tensor):
        return {"value": result}
    facts: dict[str, Any] = {"type": str(result.dtype).removeprefix("torch."), "shape": list(result.shape)}
    if not result.numel() or result.is_complex():
        return facts
    numbers = result.double()
    for name in ("mean", "min", "max"):
        facts[name] = float(f"{getattr(numbers, name)().item():.6g}")
    if result.dim() == 2 and result.shape[0] == 1 and result.shape[1] > 5 and result.is_floating_point():
        top = result[0].topk(5)
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        facts["largest"] = {index: float(f"{value:.4g}") for index, value in pairs}
    return facts


def _random_inputs(method: Any, seed: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    values: list[Any] = []
    for spec in method.inputs:
        if spec is None:
            raise DelegateKitError("the method takes inputs that are no tensors", hint="give them as .pt files")
        dtype = getattr(torch, spec.dtype)
        if dtype.is_floating_point:
            values.append(torch.randn(spec.shape, generator=generator).to(dtype))
        else:
            values.append(torch.randint(0, 2, spec.shape, generator=generator).to(dtype))
    return values


def _read_inputs(paths: Sequence[str], method: Any) -> list[Any]:
    if len(paths) != len(method.inputs):
        _usage(f"the method takes {len(method.inputs)} inputs, {len(paths)} files are given")
    return [_read_input(Path(path), spec) for path, spec in zip(paths, method.inputs, strict=True)]


def _read_input(path: Path, spec: Any) -> Any:
    import torch

    if not path.is_file():
        _usage(f"input {path} does not exist")
    try:
        if path.suffix == ".npy":
            import numpy

            return torch.from_numpy(numpy.load(path, allow_pickle=False))
        if path.suffix == ".pt":
            return torch.load(path, weights_only=True)
    except Exception as error:
        raise DelegateKitError(f"cannot be read: {error}", where=str(path)) from error
    return _read_image(path, spec)


def _read_image(path: Path, spec: Any) -> Any:
    """An image as (1, 3, H, W) float32, resized, with the ImageNet mean and standard deviation taken out."""
    import torch

    if spec is None or len(spec.shape) != 4 or spec.shape[1] != 3:
        raise DelegateKitError("an image fits only an input of shape [1, 3, H, W]", where=str(path))
    try:
        import numpy
        from PIL import Image

        with Image.open(path) as image:
            pixels = numpy.asarray(image.convert("RGB").resize((spec.shape[3], spec.shape[2])), dtype="float32") / 255.0
    except ImportError as error:
        raise DelegateKitError("images need Pillow", hint="pip install pillow") from error
    except OSError as error:
        raise DelegateKitError(
            f"is no image: {error}", where=str(path), hint="inputs are .npy, .pt or images"
        ) from error
    normal = (torch.from_numpy(pixels) - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    return normal.permute(2, 0, 1).unsqueeze(0).contiguous()


if __name__ == "__main__":
    main()
