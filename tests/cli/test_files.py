"""Files on the command line: checked before the work begins, never waited for, written whole, trusted only if told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch

MODELS = """
import torch

def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),)

def raises():
    raise RuntimeError("the work began")
"""


class Payload:
    """An object whose unpickling runs code."""

    def __reduce__(self) -> Any:
        return os.path.basename, ("ran",)


@pytest.fixture
def cli(command_with: Callable[[str], Callable[..., Any]]) -> Callable[..., str]:
    """Calls the command in a folder with `models.py`; gives what it printed on stderr."""
    command = command_with(MODELS)
    return lambda *arguments, code=0: str(command(*arguments, code=code).err)


def lower(*more: str) -> tuple[str, ...]:
    return ("lower", "models:linear", "-b", "reference", *more)


#: Commands that write to "bad", and would fail in another way once their work begins.
WRITERS: dict[str, tuple[str, ...]] = {
    "lower": ("lower", "models:raises", "-b", "reference", "-o", "bad.pte"),
    "debug map": ("lower", "models:raises", "-b", "reference", "-o", "ok.pte", "--debug-map", "bad"),
    "ETRecord": ("lower", "models:raises", "-b", "reference", "-o", "ok.pte", "--etrecord", "bad"),
    "data file": ("lower", "models:raises", "-b", "reference", "-o", "ok.pte", "--external", "bad=*"),
    "quantize": ("quantize", "models:raises", "-b", "reference", "--random", "1", "-o", "bad.pt2"),
    "run": ("run", "no.pte", "--save", "bad"),
    "profile": ("profile", "--etdump", "no.etdump", "--csv", "bad"),
    "bundle": ("bundle", "no.pte", "-o", "bad"),
}
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder": (Path.mkdir, "is a folder, not a file"),
    "FIFO": (os.mkfifo, "is a FIFO, not a file"),
    "device": (lambda path: path.symlink_to("/dev/full"), "is a device, not a file"),
    "protected": (lambda path: (path.touch(), path.chmod(0o444)), "is write-protected"),
    "no folder": (lambda path: path.symlink_to("missing/file"), "the folder does not exist"),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("writer", WRITERS)
def test_outputs_are_tried_before_the_work_begins(writer: str, bad: str, cli: Any, tmp_path: Path) -> None:
    make, words = BAD[bad]
    path = tmp_path / {"lower": "bad.pte", "quantize": "bad.pt2", "data file": "bad.ptd"}.get(writer, "bad")
    make(path)
    (tmp_path / "no.pte").write_bytes(b"not a program")
    message = cli(*WRITERS[writer], code=2)
    assert path.name in message and words in message
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted(["models.py", "no.pte", path.name])


@pytest.mark.parametrize("debug_map", ["m.pte", "./m.pte", "m.ptd", "link"])
def test_two_outputs_of_one_name_are_refused(debug_map: str, cli: Any, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("m.pte")
    message = cli(*lower("-o", "m.pte", "--external", "*", "--debug-map", debug_map), code=2)
    assert "is the same file as" in message
    assert not (tmp_path / "m.pte").exists()


def test_the_debug_map_appears_with_the_program_or_not_at_all(cli: Any, tmp_path: Path) -> None:
    cli(*lower("-o", "m.pte", "--debug-map", "m.json"))
    assert json.loads((tmp_path / "m.json").read_text())
    assert (tmp_path / "m.pte").exists()
    before = (tmp_path / "m.pte").read_bytes()
    code = """
import resource, sys
from delegatekit.cli import main
import torch
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
sys.argv = ["delegatekit", *sys.argv[1:]]
main()
"""
    arguments = lower("-o", "m.pte", "--debug-map", "other.json")
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, capture_output=True, check=False, text=True, timeout=120)
    assert result.returncode == 1 and "cannot be written: File too large" in result.stderr
    assert (tmp_path / "m.pte").read_bytes() == before
    assert not (tmp_path / "other.json").exists()


def test_saved_outputs_keep_the_mode_of_the_file(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(handmade.add_program())
    (tmp_path / "out.pt").touch()
    (tmp_path / "out.pt").chmod(0o600)
    cli("run", "m.pte", "--save", "out.pt")
    (result,) = torch.load(tmp_path / "out.pt", weights_only=True)
    assert result.shape == (5,)
    assert (tmp_path / "out.pt").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["FIFO", "folder", "device"])
@pytest.mark.parametrize("command", ["inspect", "run", "run with data", "run with input", "lower", "quantize"])
def test_inputs_that_are_no_files_are_refused_at_once(command: str, kind: str, cli: Any, tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(handmade.add_program())
    commands = {
        "inspect": ["inspect", "odd.pte"],
        "run": ["run", "odd.pte"],
        "run with data": ["run", "m.pte", "--data", "odd.pte"],
        "run with input": ["run", "m.pte", "odd.pt"],
        "lower": ["lower", "odd.pt2", "-b", "reference", "-o", "x.pte"],
        "quantize": ["quantize", "odd.pt2", "-b", "reference", "--random", "1", "-o", "x.pt2"],
    }
    path = tmp_path / next(word for word in commands[command] if word.startswith("odd"))
    {"FIFO": os.mkfifo, "folder": Path.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}[kind](path)
    assert f"is a {kind}, not a file" in cli(*commands[command], code=1)


def test_a_pickled_input_needs_trust(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(handmade.add_program())
    torch.save(Payload(), tmp_path / "x.pt")
    message = cli("run", "m.pte", "x.pt", code=1)
    assert "x.pt: has a pickled object (posixpath.basename), which can run any code while it is loaded" in message
    assert "--trust" in message
    assert "is 'ran', not a tensor" in cli("run", "m.pte", "x.pt", "--trust", code=1)


def test_an_exported_program_with_pickles_needs_trust(cli: Any, tmp_path: Path) -> None:
    exported = torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),))
    exported.example_inputs = ((Payload(),), {})
    torch.export.save(exported, tmp_path / "odd.pt2")
    assert "which can run any code" in cli("lower", "odd.pt2", "-b", "reference", "-o", "m.pte", code=1)
    cli("lower", "odd.pt2", "-b", "reference", "-o", "m.pte", "--trust")
    assert (tmp_path / "m.pte").exists()


def test_a_run_that_takes_too_long_is_ended(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(handmade.endless())
    assert "took longer than the time limit" in cli("run", "m.pte", "--time-limit", "0.05", code=1)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import time; time.sleep(60)", "error: a call: took longer than 0.05 s and could not be interrupted"),
        ("import re; re.match('(a*)*b', 'a' * 60)", "Timeout"),
    ],
)
def test_a_call_that_never_comes_back_ends_the_process(code: str, words: str) -> None:
    """The second example holds the interpreter's lock, as native code may do."""
    program = (
        f"from delegatekit.cli import watch\nwatch._GRACE = 0.2\nwith watch.ended_after(0.05, 'a call'):\n    {code}\n"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)
    assert result.returncode == 1
    assert words in result.stderr


#: Commands that would write over a file that they read, and the path of that file.
OVERWRITING: dict[str, tuple[tuple[str, ...], str]] = {
    "run over its program": (("run", "m.pte", "--save", "m.pte"), "m.pte"),
    "run over its program through a link": (("run", "m.pte", "--save", "link.pt"), "m.pte"),
    "run over its program by a second name": (("run", "m.pte", "--save", "second.pt"), "m.pte"),
    "run over its data": (("run", "m.pte", "--data", "d.pt", "--save", "d.pt"), "d.pt"),
    "run over an input": (("run", "m.pte", "x.pt", "--save", "./x.pt"), "x.pt"),
    "lower over an exported program": (("lower", "link.pt2", "-b", "reference", "-o", "m.pte"), "m.pte"),
    "debug map over the model": (
        ("lower", "odd.py:linear", "-b", "reference", "-o", "new.pte", "--debug-map", "odd.json"),
        "odd.py",
    ),
    "debug map over the model's module": (
        ("lower", "models:linear", "-b", "reference", "-o", "new.pte", "--debug-map", "models.json"),
        "models.py",
    ),
    "quantize over the program": (("quantize", "p.pt2", "-b", "reference", "--random", "1", "-o", "p.pt2"), "p.pt2"),
    "quantize over the samples": (
        ("quantize", "models:linear", "-b", "reference", "--calibration", "samples.npz", "-o", "samples.pt2"),
        "samples.npz",
    ),
}


@pytest.mark.parametrize("case", OVERWRITING)
def test_an_output_is_never_one_of_the_inputs(case: str, cli: Any, tmp_path: Path) -> None:
    arguments, name = OVERWRITING[case]
    (tmp_path / "m.pte").write_bytes(handmade.add_program())
    for other in ("d.pt", "x.pt", "p.pt2", "samples.npz", "odd.py"):
        (tmp_path / other).write_bytes(b"precious")
    for link, target in (("link.pt", "m.pte"), ("link.pt2", "m.pte"), ("samples.pt2", "samples.npz")):
        (tmp_path / link).symlink_to(target)
    os.link(tmp_path / "m.pte", tmp_path / "second.pt")
    os.link(tmp_path / "odd.py", tmp_path / "odd.json")
    os.link(tmp_path / "models.py", tmp_path / "models.json")
    before = (tmp_path / name).read_bytes()
    message = cli(*arguments, code=2)
    assert "input" in message and "of this command" in message
    assert (tmp_path / name).read_bytes() == before


#: Commands that would replace a file of another kind, and the name of that file.
REPLACING: dict[str, tuple[tuple[str, ...], str]] = {
    "lower": (("lower", "models:linear", "-b", "reference", "-o", "net.py"), "net.py"),
    "debug map": (("lower", "models:linear", "-b", "reference", "--debug-map", "net.py"), "net.py"),
    "quantize": (("quantize", "models:linear", "-b", "reference", "--random", "1", "-o", "net.py"), "net.py"),
    "quantize over an archive of another kind": (
        ("quantize", "models:linear", "-b", "reference", "--random", "1", "-o", "x.npz"),
        "x.npz",
    ),
    "run": (("run", "m.pte", "--save", "net.py"), "net.py"),
    "run over an archive of another kind": (("run", "m.pte", "--save", "x.npz"), "x.npz"),
    "run over an exported program": (("run", "m.pte", "--save", "p.pt2"), "p.pt2"),
    "conform": (("conform", "reference", "--json", "net.py"), "net.py"),
}


@pytest.mark.parametrize("case", REPLACING)
def test_a_file_of_another_kind_is_not_replaced(case: str, cli: Any, tmp_path: Path) -> None:
    import numpy

    arguments, name = REPLACING[case]
    (tmp_path / "m.pte").write_bytes(handmade.add_program())
    (tmp_path / "net.py").write_text("print('a source')\n")
    numpy.savez(tmp_path / "x.npz", x=numpy.ones(3))
    exported = torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),))
    torch.export.save(exported, tmp_path / "p.pt2")
    before = (tmp_path / name).read_bytes()
    assert f"{name} exists, and is not a" in cli(*arguments, code=2)
    assert (tmp_path / name).read_bytes() == before


def test_a_file_of_the_same_kind_is_replaced_whatever_its_name(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(handmade.add_program())
    for _ in range(2):
        cli("run", "m.pte", "--save", "result")
        cli(*lower("-o", "program", "--debug-map", "map"))
    assert torch.load(tmp_path / "result", weights_only=True)


#: Values and names that no command can take, each with a part of the message.
IMPOSSIBLE: dict[str, tuple[tuple[str, ...], str]] = {
    "endless limit": (("run", "m.pte", "--time-limit", "inf"), "--time-limit"),
    "seed of more than 64 bits": (("run", "m.pte", "--seed", "9" * 23), "--seed"),
    "data file outside of the folder": (lower("--external", "../../evil=*"), "'../../evil' is not the name of a file"),
    "hidden data file": (lower("--external", ".evil=*"), "'.evil' is not the name of a file"),
    "size of more than 32 bits": (lower("--dynamic", "input:0=b:1..9999999999999"), "9999999999999 is more than the"),
    "axis given twice": (
        lower("--dynamic", "input:0=b:1..8", "--dynamic", "input:-2=c:1..4"),
        "axis 0 of input is given twice",
    ),
    "alignment of 4 GiB": (lower("--alignment", "4294967296"), "at most 65536"),
    "options for a stranger": (lower("--option", "other.x=1"), "not among the backends"),
    "unknown backend": (("lower", "models:linear", "-b", "absent"), "no backend 'absent'"),
    "unknown backend to run on": (("run", "m.pte", "-b", "absent"), "no backend 'absent'"),
    "unknown backend to explain": (("explain", "models:linear", "-b", "absent"), "no backend 'absent'"),
    "unknown backend to quantize for": (("quantize", "models:linear", "-b", "absent", "--random", "1"), "no backend"),
    "unknown backend of schemes": (("schemes", "absent"), "no backend 'absent'"),
    "unknown backend of targets": (("targets", "absent"), "no backend 'absent'"),
    "backend of another delegate": (("run", "m.pte", "-b", "reference"), "runs delegates of id"),
    "unknown method": (("run", "m.pte", "--method", "absent"), "there is no method 'absent'"),
    "unknown operator": (lower("--only", "absent"), "selects no operator"),
    "absent program": (("run", "absent.pte"), "does not exist"),
    "absent file to inspect": (("inspect", "absent.pte"), "does not exist"),
    "absent data file": (("run", "m.pte", "--data", "absent.ptd"), "does not exist"),
    "absent model": (("lower", "absent.pt2", "-b", "reference"), "does not exist"),
    "absent samples": (
        ("quantize", "models:linear", "-b", "xnnpack", "--calibration", "absent.npz"),
        "does not exist",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_cannot_be_meant_is_wrong_usage_in_every_command(case: str, cli: Any, tmp_path: Path) -> None:
    arguments, words = IMPOSSIBLE[case]
    (tmp_path / "m.pte").write_bytes(handmade.add_program())
    message = cli(*arguments, code=2)
    assert words in message and "Traceback" not in message and "unexpected" not in message


@pytest.mark.parametrize("damage", ["cut off", "another kind", "offset"])
@pytest.mark.parametrize("command", ["inspect", "run"])
def test_a_damaged_file_is_named(command: str, damage: str, cli: Any, tmp_path: Path) -> None:
    whole = handmade.add_program()
    content = {"cut off": whole[: len(whole) // 2], "another kind": b"PK" * 100, "offset": whole[:40] + b"\xff" * 200}
    (tmp_path / "m.pte").write_bytes(content[damage])
    assert cli(command, "m.pte", code=1).startswith("error: m.pte")


def test_data_files_are_asked_for_and_strange_ones_refused(cli: Any, tmp_path: Path) -> None:
    cli(*lower("-o", "m.pte", "--external", "*"))
    (tmp_path / "other.py").write_text(
        "import torch\nclass M(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.other = torch.nn.Linear(4, 3)\n    def forward(self, x): return self.other(x)\n"
        "def make(): return M().eval(), (torch.ones(2, 4),)\n"
    )
    cli("lower", "other.py:make", "-b", "reference", "-o", "other.pte", "--external", "*")
    cli("run", "m.pte")
    (tmp_path / "m.ptd").rename(tmp_path / "away.ptd")
    assert "`run --data FILE`" in cli("run", "m.pte", code=1)
    (tmp_path / "away.ptd").rename(tmp_path / "m.ptd")
    cli(*lower("-o", "whole.pte"))
    assert "other.ptd: has nothing that the program needs" in cli("run", "whole.pte", "--data", "other.ptd", code=1)
    both = "run", "m.pte", "--data", "m.ptd"
    cli(*both)
    assert "other.ptd: has nothing that the program needs" in cli(*both, "--data", "other.ptd", code=1)
