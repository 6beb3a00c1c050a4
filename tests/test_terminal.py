"""Foreign text on the terminal: names of files, modules, plugins and arguments are printed as text.

Commands are found by themselves: a new one is tried with hostile arguments automatically.
"""

from __future__ import annotations

import ast
import io
import re
import unicodedata
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.progress import Progress, TextColumn

import delegatekit
from delegatekit.cli import extensions
from delegatekit.cli.command_line import app
from delegatekit.text import indented, one_line, one_lined, visible
from delegatekit.text.terminal import CleanStream, Terminal

#: A title for the window, an erased screen, a C1 code, a deleted line, text turned around, rich's markup and emoji
#: codes, and a line that looks like one of ours.
HOSTILE = "n\x1b]0;owned\x07\x1b[2J\x9b2K\u202e[bold]x[/bold]:smile:\x7f\r\nFORGED line"


def faults(text: str) -> list[str]:
    """Faults of a printed text."""
    found = [
        f"U+{ord(item):04X} in {line!r}"
        for line in text.split("\n")
        for item in line
        if unicodedata.category(item) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]
    found += [line for line in text.split("\n") if line.startswith("FORGED")]
    found += ["an emoji"] * ("\N{SMILING FACE WITH OPEN MOUTH AND SMILING EYES}" in text)
    found += ["markup was read"] * ("owned" in text and "[bold]" not in text)
    return found


def commands(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, of groups in groups, too."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


def invocations(command: Any) -> Iterator[list[str]]:
    """Arguments in which each parameter is hostile once, and the help."""
    yield ["--help"]
    needed = [HOSTILE for item in command.params if item.param_type_name == "argument" and item.required]
    yield needed
    for item in command.params:
        if item.param_type_name == "option" and not item.is_flag:
            yield [*needed, item.opts[0], HOSTILE]
    yield [*needed, f"--{HOSTILE}"]


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str]]:
    """Calls the command; its exit code, and what it printed, stdout and stderr together."""
    from delegatekit.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["delegatekit", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out + captured.err

    return run


def names() -> list[str]:
    """The commands of the core, and those of other distributions."""
    brought = [item.name for item in extensions.entry_points(extensions.COMMAND_GROUP)]
    return [*typer.main.get_command(app).commands, *brought]  # type: ignore[attr-defined]


@pytest.mark.sweep
@pytest.mark.parametrize("name", names())
def test_hostile_arguments_of_every_command_are_shown_as_text(name: str, call: Callable[..., tuple[int, str]]) -> None:
    whole = typer.Typer()
    whole.registered_commands = list(app.registered_commands)
    extensions.add_commands(whole, typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    found = [(path, command) for path, command in commands(typer.main.get_command(whole)) if path[0] == name]
    assert found
    for path, command in found:
        for arguments in invocations(command):
            if not arguments and path[0] in ("backends", "doctor"):
                continue  # no hostile argument, and processes would be started
            _, printed = call(*path, *arguments)
            assert not faults(printed), (path, arguments)


PLUGIN = """
from dataclasses import dataclass
from delegatekit_api import *
from delegatekit_api.devices import *

HOSTILE = {hostile!r}

class Nothing:
    def keep_operators(self): return ()
    def check(self, call): return Verdict.no(HOSTILE)
    def propose(self, program): return None

@dataclass(frozen=True)
class Options(BackendOptions):
    level: int = option(1, help=HOSTILE)

@hookimpl
def describe_backend():
    return BackendDescription("odd", "Odd" + HOSTILE, "delegatekit-odd", "1.2", HOSTILE, options=Options)

@hookimpl
def targets():
    return [TargetInfo("chip", HOSTILE, {{"level": "1"}})]

@hookimpl
def create_partitioner(options):
    return Nothing()
"""

MODELS = """
import torch
from torch import nn

HOSTILE = {hostile!r}
LINE = " ".join(HOSTILE.split())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module(HOSTILE, nn.Linear(4, 4))

    def forward(self, x):
        return torch.atan(getattr(self, HOSTILE)(x)) + 1

def net():
    return Net().eval(), (torch.ones(2, 4),)

def raises():
    raise RuntimeError(HOSTILE)

def breaks():
    raise RuntimeError(LINE)

def imports():
    raise ImportError(HOSTILE)

def warns():
    import logging, sys, warnings
    warnings.warn(LINE)
    logging.getLogger("x").warning(LINE)
    print(LINE)
    print(LINE, file=sys.stderr)
    return net()
"""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["explain", "hostile_models:net", "-b", "odd", "--all"], 0, "owned"),
        (["explain", "hostile_models:net", "-b", "odd", "--json"], 0, "owned"),
        (["explain", "hostile_models:warns", "-b", "odd"], 0, "owned"),
        (["lower", "hostile_models:net", "-b", "odd", "--memory-report"], 0, "owned"),
        (["lower", "hostile_models:net", "-b", "odd", "--external", "absent*"], 2, "owned"),
        (["lower", "hostile_models:raises", "-b", "odd"], 1, "owned"),
        (["--debug", "lower", "hostile_models:breaks", "-b", "odd"], 1, "Traceback"),
        (["lower", "hostile_models:imports", "-b", "odd"], 2, "owned"),
        (["lower", "hostile_models:net", "-b", "odd", "--option", f"odd.{HOSTILE}=1"], 2, "owned"),
        (["lower", "hostile_models:net", "-b", "odd", "--option", f"odd.level={HOSTILE}"], 2, "owned"),
        (["compare", "hostile_models:net", "-b", "odd"], 1, "odd"),
        (["targets", "odd"], 0, "owned"),
        (["schemes", "odd"], 0, "odd"),
    ],
)
def test_hostile_plugins_and_modules_are_shown_as_text(
    arguments: list[str], code: int, said: str, call: Callable[..., Any], install_plugin: Callable[..., Any]
) -> None:
    install_plugin("odd", PLUGIN.format(hostile=HOSTILE))
    Path("hostile_models.py").write_text(MODELS.format(hostile=HOSTILE))
    ended, printed = call(*arguments)
    assert (ended, faults(printed)) == (code, []), printed
    assert said in printed


#: Hostile texts of any length that a text in a file may have.
SHORT = "\x1b[2J\nFORGED \x07\x9b\u202e:smile:[bold]"


def variants(data: bytes) -> Iterator[bytes]:
    """The file with one text in it replaced by a hostile one that has as many bytes; each is replaced once."""
    for text in sorted(set(re.findall(rb"[A-Za-z_][\w.:/-]{4,}", data))):
        hostile = SHORT.encode()[: len(text)].decode("utf-8", "ignore").encode()
        yield data.replace(text, hostile.ljust(len(text), b"."))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a delegate, its data and bundle, and no text of the compiler's in its blobs."""
    import torch

    folder = tmp_path_factory.mktemp("program")
    lowered = delegatekit.lower(
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid()).eval(),
        (torch.ones(1, 4),),
        backends=["reference"],
        only=["0"],
    )
    lowered.save(folder / "net.pte")
    case = delegatekit.Case((torch.ones(1, 4),))
    delegatekit.bundle(folder / "net.pte", {"forward": [case]}).save(folder / "net.bpte")
    return folder / "net.pte"


@pytest.mark.parametrize("command", ["inspect", "run", "profile", "bundle", "verify"])
def test_hostile_texts_in_files_are_shown_as_text(command: str, call: Callable[..., Any], program: Path) -> None:
    more = {"profile": ["--runs", "1", "--warm-up", "0"]}.get(command, [])
    file = program.with_suffix(".bpte" if command == "verify" else ".pte")
    shown = 0
    # `inspect` shows all texts that the others may show, and is the fastest.
    for number, data in enumerate(islice(variants(file.read_bytes()), 0, None, 1 if command == "inspect" else 4)):
        path = Path(f"{number}{file.suffix}")
        path.write_bytes(data)
        _, printed = call(command, str(path), *more)
        assert not faults(printed), number
        shown += r"\x1b[2J" in printed
    assert shown or command == "verify"


def test_a_console_shows_text_as_it_is_and_keeps_its_own_colors() -> None:
    stream = io.StringIO()
    console = Terminal(file=stream, force_terminal=True, color_system="standard", width=200, highlight=False)
    console.print(HOSTILE, style="red")
    assert stream.getvalue().startswith("\x1b[31mn\\x1b]0;owned\\x1b[2J\\x9b2K\\u202e[bold]x[/bold]:smile:\\x7f")
    assert not faults(re.sub("\x1b\\[[0-9;]*m", "", stream.getvalue()).replace("FORGED", ""))


def test_a_progress_bar_moves_the_cursor_and_its_texts_do_not() -> None:
    stream = io.StringIO()
    console = Terminal(file=stream, force_terminal=True, color_system=None, width=100)
    with Progress(TextColumn("{task.description}", markup=False), console=console, transient=True) as progress:
        progress.add_task(HOSTILE.replace("\n", ""), total=None)
        progress.refresh()
    printed = stream.getvalue()
    assert "\x1b[?25l" in printed and "\x1b]0;" not in printed and "\x1b[2J" not in printed and "\x9b" not in printed
    assert r"\x1b]0;owned" in printed and "\u202e" not in printed


def test_a_stream_passes_on_text_and_is_no_terminal() -> None:
    inner = io.StringIO()
    stream: Any = CleanStream(inner)
    stream.writelines(["1 %\r2 %\r\n", "\x1b[31m\tx\ud800\n"])
    assert inner.getvalue() == "1 %\n2 %\n\\x1b[31m\tx\\ud800\n"
    assert not stream.isatty() and stream.getvalue() == inner.getvalue()


def test_texts_of_the_field_stay_as_they_are() -> None:
    text = "größe 模型 \N{NO-BREAK SPACE}… ✓ 😀 é"
    assert visible(text) == one_line(text) == indented(text) == text
    assert one_lined({"a\n": ["b\r", ("c\u2028", 1.5, None)]}) == {r"a\n": [r"b\r", (r"c\u2028", 1.5, None)]}


def test_core_and_suite_print_by_the_one_console_only() -> None:
    roots = [Path(delegatekit.__file__).parent, Path(str(find_spec("delegatekit_conformance").origin)).parent]  # type: ignore[union-attr]
    allowed = {
        "text/terminal.py",
        "cli/stdout.py",
        # processes of ours, whose stdout is read by us
        "plugins/probe.py",
    }
    found = set()
    for root in roots:
        for path in root.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and _prints(node):
                    found.add(path.relative_to(root).as_posix())
    # Scripts of processes of their own.
    scripts = {"cases/robustness.py", "cases/hostile.py", "cases/quantized_operators.py"}
    assert found <= allowed | scripts


def _prints(node: ast.Call) -> bool:
    name = ast.unparse(node.func)
    if name.endswith("TextColumn"):
        return not any(item.arg == "markup" for item in node.keywords)
    return name in (
        "print",
        "Console",
        "typer.echo",
        "typer.secho",
        "sys.stdout.write",
        "sys.stderr.write",
        "rich.print",
    )
