"""Conventions of all commands: help, version, completion, errors, and where they print."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from delegatekit import __version__
from delegatekit.cli import command_line
from delegatekit.cli.console import table
from delegatekit.plugins.declared import COMMAND_GROUP, entry_points
from delegatekit_tools.text import layer_lines

#: Those of the core and of the tools.
COMMANDS = [
    *(command.__name__ for command in command_line.COMMANDS),
    *(
        entry_point.name
        for entry_point in entry_points(COMMAND_GROUP)
        if entry_point.value.startswith("delegatekit_tools.")
    ),
]
PYTHON = [sys.executable, "-m", "delegatekit"]


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_told_and_no_plugin_asked(option: str, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegatekit.cli.extensions._load", pytest.fail)
    assert cli(option).stdout == f"delegatekit {__version__}\n"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_has_a_short_help_option(command: str, cli: Any) -> None:
    words = [command] if command else []
    assert cli(*words, "-h").stdout == cli(*words, "--help").stdout
    assert " ".join(["Usage: delegatekit", *words]) in cli(*words, "-h").stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("delegatekit ex", ["explain"]),
        ("delegatekit explain models:linear -b noth", ["nothing"]),
        ("delegatekit targets noth", ["nothing"]),
        ("delegatekit lower models:linear -b reference --option reference.leave", ["reference.leave_out="]),
        ("delegatekit lower models:linear -b ethosu --option target = ethos-u85-5", ["ethos-u85-512"]),
        ("delegatekit lower models:linear -b vulkan --option storage = b --option fp16 = t", ["true"]),
        ("delegatekit quantize models:linear -b vulkan --option storage=te", ["storage=texture"]),
        ("delegatekit schemes vulkan --option vulkan.fp", ["vulkan.fp16="]),
        ("delegatekit lower models:linear -b absent --option fp", []),
    ],
)
def test_a_shell_completes_commands_backends_and_options(
    line: str, expected: list[str], cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_DELEGATEKIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    assert cli().stdout.split() == expected


def test_completion_can_be_installed(cli: Any) -> None:
    assert "--install-completion" in cli("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["inspect", "absent.pte"], 2, {"kind": "MissingFileError", "where": "absent.pte"}),
        (["lower", "models"], 2, {"kind": "UsageError", "hint": "delegatekit lower --help"}),
        (["lower", "models", "-b", "nothing"], 2, {"kind": "UsageError"}),
        (["explain", "models:linear", "-b", "nothing", "--option", "depth=1"], 2, {"kind": "OptionError"}),
        (["explain", "models:raises", "-b", "nothing"], 1, {"what": "raised RuntimeError: the user's own fault"}),
        (["run", "models.py"], 1, {"kind": "FormatError"}),
        (["run", "--frobnicate"], 2, {"kind": "UsageError", "hint": "delegatekit run --help"}),
    ],
)
def test_errors_are_json_where_results_are(arguments: list[str], code: int, error: dict[str, Any], cli: Any) -> None:
    result = cli(*arguments, "--json", code=code)
    found = json.loads(result.stdout)["error"]
    assert set(found) == {"kind", "what", "where", "hint", "exit_code"}
    assert {key: found[key] for key in error} == error and found["exit_code"] == code
    assert result.stderr == ""
    plain = cli(*arguments, code=code)
    assert plain.stdout == "" and found["what"] in plain.stderr


def test_what_nobody_expected_is_one_line_too(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(**_: Any) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("delegatekit_tools.commands.doctor.examine", breaks)
    result = cli("doctor", code=1)
    assert result.stderr.startswith("error: unexpected KeyError: 'lost'\n  -> --debug") and not result.stdout
    assert json.loads(cli("doctor", "--json", code=1).stdout)["error"]["kind"] == "KeyError"


def test_a_reader_that_leaves_gets_no_traceback() -> None:
    process = subprocess.Popen([*PYTHON, "backends", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux' /dev/full")
def test_a_full_disk_under_stdout_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([*PYTHON, "backends"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "error: No space left on device\n"


def shown(width: int) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    rows = [("ethosu", "delegatekit-ethosu", "no: pip install [x]"), ("a", "delegatekit-a", "")]
    console.print(table(("backend", "distribution", "runs here"), rows, width=width))
    return console.export_text()


def test_a_wide_terminal_gets_a_table() -> None:
    assert "┃ backend ┃ distribution" in shown(80)
    assert "no: pip install [x]" in shown(80)


def test_a_narrow_terminal_gets_every_word_of_a_table() -> None:
    text = shown(40)
    assert text.splitlines() == [
        "ethosu",
        "  distribution: delegatekit-ethosu",
        "  runs here: no: pip install [x]",
        "a",
        "  distribution: delegatekit-a",
    ]


def test_without_a_command_there_is_help_and_no_complaint(cli: Any) -> None:
    result = cli(code=2)
    assert "Usage: delegatekit" in result.stdout + result.stderr
    assert "usage:" not in result.stderr


def test_memory_and_layers_fit_a_narrow_terminal(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from delegatekit_api.devices import Estimate, LayerEstimate

    layers = tuple(LayerEstimate(f"l{i}", "Conv2D", 0.01, 1_000_000, 10_000, 0.5, {"sram": 4096}) for i in range(3))
    wide = list(layer_lines(Estimate("compiler", layers=layers)))
    narrow = list(layer_lines(Estimate("compiler", layers=layers), narrow=True))
    assert max(map(len, wide)) > 60 and max(map(len, narrow)) < 40
    assert [word for line in narrow for word in line.split() if word.startswith("l")] == ["l0", "l1", "l2"]
    monkeypatch.setattr("delegatekit.cli.console.out._width", 40)
    text = cli("lower", "models:linear", "-b", "nothing", "--memory-report").stdout
    assert re.search(r"^    48 B \S+ float32\[3,4\]$|^    32 B \S+ float32\[2,4\]$", text, re.MULTILINE)


def test_wrong_files_models_and_backends_are_told_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch")
    lines = {
        "inspect absent.pte": "absent.pte: does not exist",
        "run absent.pte": "absent.pte: does not exist",
        "profile absent.pte": "absent.pte: does not exist",
        "verify absent.bpte": "absent.bpte: does not exist",
        "bundle absent.pte": "absent.pte: does not exist",
        "lower absent.pt2 -b xnnpack": "absent.pt2 does not exist",
        "explain absent.py:make -b xnnpack": "absent.py does not exist",
        "compare absent:make -b xnnpack": "No module named 'absent'",
        "sweep publisher/model -b xnnpack": "there is no model 'publisher/model'",
        "tune absent.pt2": "absent.pt2 does not exist",
        "lower net:make -b xnnpak": "did you mean 'xnnpack'?",
    }
    code = (
        "import sys\nfrom delegatekit.cli import main\n"
        "for line in sys.stdin.read().splitlines():\n"
        "    sys.argv = ['delegatekit', *line.split()]\n"
        "    try:\n        main()\n    except SystemExit as end:\n        print(end.code)\n"
        "    print('torch' in sys.modules, file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], input="\n".join(lines), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert set(ended.stdout.split()) <= {"1", "2"} and len(ended.stdout.split()) == len(lines)
    told = ended.stderr.split("False\n")
    assert len(told) == len(lines) + 1, ended.stderr
    for line, text in zip(lines, told[:-1], strict=True):
        assert lines[line] in text, line
