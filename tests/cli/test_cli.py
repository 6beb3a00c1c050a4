"""The command line as a user meets it: stdout and stderr, exit codes, and messages about wrong calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch


def lower(cli: Any, model: str, *more: str) -> Any:
    return cli("lower", f"models:{model}", "-b", "nothing", "-o", "model.pte", *more)


def test_help_imports_no_torch() -> None:
    code = (
        "import sys\nfrom delegatekit.cli import main\nsys.argv = ['delegatekit', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.split()[-1] == "False"
    for command in ("backends", "lower", "explain", "inspect", "run"):
        assert f" {command} " in result.stdout


def test_backends_lists_what_metadata_says_and_imports_nothing(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATEKIT_BACKENDS", "nothing")
    rows = json.loads(cli("backends", "--json").stdout)
    assert (rows["nothing"]["status"], rows["nothing"]["delegate_id"]) == ("not imported", None)
    assert rows["nothing"]["runtime"]["available"] is False
    assert {(row["status"], row["runtime"]) for name, row in rows.items() if name != "nothing"} <= {
        ("not allowed", None)
    }
    assert "delegatekit_nothing_plugin" not in sys.modules
    table = cli("backends").stdout
    assert "delegatekit-nothing" in table and "installed" in table and "no extra 'runtime'" in table


def test_backends_are_asked_when_they_are_to_be_checked(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATEKIT_BACKENDS", "nothing")
    rows = json.loads(cli("backends", "--check", "--json").stdout)
    assert (rows["nothing"]["status"], rows["nothing"]["delegate_id"]) == ("ready", "NothingBackend")
    assert "no runtime" in rows["nothing"]["runtime"]["reason"]
    assert {(row["status"], row["runtime"]) for name, row in rows.items() if name != "nothing"} <= {
        ("not allowed", None)
    }
    assert "delegatekit_nothing_plugin" not in sys.modules


@pytest.mark.parametrize("model", ["linear", "exported", "keywords"])
def test_lower_writes_a_file_and_says_what_is_in_it(model: str, cli: Any, tmp_path: Path) -> None:
    result = lower(cli, model)
    assert "wrote model.pte" in result.stdout
    assert "took nothing" not in result.stdout
    assert result.stderr == "warning: backend nothing took nothing: it takes nothing\n"
    assert (tmp_path / "model.pte").read_bytes()[4:8] == b"ET12"


def test_lower_takes_a_pt2_file(cli: Any, tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),))
    torch.export.save(program, tmp_path / "linear.pt2")
    assert "wrote" in cli("lower", "linear.pt2", "-b", "nothing", "-o", "model.pte").stdout


def test_lower_shows_the_planned_memory_and_takes_a_planner(cli: Any) -> None:
    default = lower(cli, "linear", "--memory-report").stdout
    assert "space arena (memory_id 1): 64 bytes for 2 values, least possible 56" in default
    assert "float32[2,4], step 0 until step" in default and "written by input" in default
    (found,) = json.loads(lower(cli, "linear", "--planner", "best-fit", "--alignment", "64", "--json").stdout)[
        "methods"
    ][0]["arenas"]
    assert found["space"] == "arena" and found["size"] == 128 and found["alignment_waste"] == 128 - found["bound"]
    wrong = cli("lower", "models:linear", "-b", "nothing", "-o", "m.pte", "--planner", "quick", code=2)
    assert "planners: best, greedy, best-fit" in wrong.stderr


def test_the_report_as_json_is_all_of_stdout(cli: Any) -> None:
    report = json.loads(lower(cli, "linear", "--json").stdout)
    (method,) = report["methods"]
    assert method["name"] == "forward" and not method["delegates"]
    assert report["idle"] == {"nothing": "it takes nothing"}
    assert sum(method["fallback"].values()) >= 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["lower", "models:linear", "-b", "absent", "-o", "m.pte"],
            2,
            "`delegatekit backends` lists what is installed",
        ),
        (["lower", "models:linear", "-b", "nothing", "-o", "absent/m.pte"], 2, "the folder does not exist"),
        (["lower", "models:unsupported", "-b", "nothing", "-o", "m.pte"], 1, "return torch.linalg.svd(x)[1]"),
        (["lower", "models:linear", "-b", "nothing", "-o", "m.pte", "--option", "depth=1"], 2, "known options: level"),
        (
            ["lower", "models:linear", "-b", "nothing", "-o", "m.pte", "--option", "level=high"],
            2,
            "is not a whole number",
        ),
        (["lower", "models:linear", "-b", "nothing", "-o", "m.pte", "--option", "level"], 2, "NAME.KEY=VALUE"),
        (["lower", "models:nothing", "-b", "nothing", "-o", "m.pte"], 2, "returned an int"),
        (["lower", "models:absent", "-b", "nothing", "-o", "m.pte"], 2, "cannot be imported"),
        (["lower", "absent:linear", "-b", "nothing", "-o", "m.pte"], 2, "cannot be imported"),
        (["lower", "models", "-b", "nothing", "-o", "m.pte"], 2, "neither a .pt2 file nor"),
        (["lower", "absent.pt2", "-b", "nothing", "-o", "m.pte"], 2, "does not exist"),
        (["lower", "models:linear", "-o", "m.pte"], 2, "--backend"),
        (["inspect", "models.py"], 1, "not a .pte"),
        (["inspect", "absent.pte"], 2, "absent.pte: does not exist"),
        (["run", "absent.pte"], 2, "absent.pte: does not exist"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_a_wrong_call_gets_one_clear_message(arguments: list[str], code: int, message: str, cli: Any) -> None:
    result = cli(*arguments, code=code)
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "command", [["lower", "-o", "m.pte"], ["explain"], ["compare"], ["tune"], ["sweep"], ["quantize", "--random", "1"]]
)
def test_options_are_checked_before_a_model_is_loaded(command: list[str], cli: Any) -> None:
    name, *rest = command
    found = cli(name, "models:raises", "-b", "nothing", "--option", "nothing.depth=1", *rest, code=2)
    assert "unknown option 'depth'" in found.stderr and "known options: level" in found.stderr
    assert "the user's own fault" not in found.stderr


def test_a_file_that_is_no_exported_program_is_refused(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "odd.pt2").write_bytes(b"not a zip")
    assert "is no .pt2 file" in cli("lower", "odd.pt2", "-b", "nothing", "-o", "m.pte", code=1).stderr


def test_the_traceback_is_shown_with_debug_only(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "delegatekit", "inspect", "absent.pte"]
    plain, debug = (
        subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        for more in ((), ("--debug",))
    )
    assert plain.returncode == debug.returncode == 2
    assert plain.stderr.startswith("error:") and plain.stderr in debug.stderr and "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


def test_explain_names_operator_reason_and_source_line(cli: Any) -> None:
    result = cli("explain", "models:unsupported", "-b", "nothing")
    assert "aten._linalg_svd.default" in result.stdout
    assert "nothing: it takes nothing" in result.stdout
    assert "models.py:" in result.stdout and "return torch.linalg.svd(x)[1]" in result.stdout
    assert "0 of 1 operators run on nothing; 1 cannot run at all" in result.stdout
    (row,) = json.loads(cli("explain", "models:unsupported", "-b", "nothing", "--json").stdout)
    assert row["reasons"] == {"nothing": "it takes nothing", "runtime": "the runtime has no kernel for it"}
    assert row["backend"] is None and row["kernel"] is None


def test_inspect_shows_inputs_outputs_and_operators(cli: Any) -> None:
    lower(cli, "linear")
    found = json.loads(cli("inspect", "model.pte", "--json").stdout)
    (method,) = found["methods"]
    assert [value["text"] for value in method["inputs"]] == ["float32[2, 4]"]
    assert [value["text"] for value in method["outputs"]] == ["float32[2, 3]"]
    assert "method forward" in cli("inspect", "model.pte").stdout


def test_run_computes_what_eager_computes(cli: Any, tmp_path: Path) -> None:
    import numpy

    lower(cli, "linear")
    numpy.save(tmp_path / "x.npy", numpy.full((2, 4), 0.5, dtype="float32"))
    torch.save(torch.full((2, 4), 0.5), tmp_path / "x.pt")
    torch.manual_seed(0)
    eager = torch.nn.Linear(4, 3)(torch.full((2, 4), 0.5))
    for file in ("x.npy", "x.pt"):
        result = json.loads(cli("run", "model.pte", file, "--save", "y.pt", "--json", "--repeat", "3").stdout)
        assert result["runs"] == 3 and result["outputs"][0]["shape"] == [2, 3]
        (saved,) = torch.load(tmp_path / "y.pt", weights_only=True)
        torch.testing.assert_close(saved, eager)


def test_random_inputs_follow_the_seed(cli: Any) -> None:
    lower(cli, "linear")
    first, same, other = (
        json.loads(cli("run", "model.pte", "--json", "--seed", seed).stdout)["outputs"] for seed in ("1", "1", "2")
    )
    assert first == same != other


def test_an_image_is_resized_and_normalized(cli: Any, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    lower(cli, "image")
    image.new("RGB", (20, 10), (255, 0, 51)).save(tmp_path / "photo.png")
    cli("run", "model.pte", "photo.png", "--save", "y.pt")
    # The mean and standard deviation of ImageNet, as torchvision documents them.
    color = torch.tensor([(1 - 0.485) / 0.229, (0 - 0.456) / 0.224, (0.2 - 0.406) / 0.225])
    torch.manual_seed(0)
    eager = torch.nn.Conv2d(3, 2, 1)(color.reshape(1, 3, 1, 1).expand(1, 3, 4, 6))
    (saved,) = torch.load(tmp_path / "y.pt", weights_only=True)
    torch.testing.assert_close(saved, eager)


@pytest.mark.parametrize(
    ("inputs", "code", "message"),
    [
        (["x.pt", "x.pt"], 2, "takes 1 inputs, 2 files are given"),
        (["absent.npy"], 2, "does not exist"),
        (["short.pt"], 1, "input input: has shape"),
        (["odd.npy"], 1, "cannot be read"),
        (["models.py"], 1, "an image fits only"),
    ],
)
def test_run_says_what_is_wrong_with_inputs(
    inputs: list[str], code: int, message: str, cli: Any, tmp_path: Path
) -> None:
    lower(cli, "linear")
    torch.save(torch.ones(2, 4), tmp_path / "x.pt")
    torch.save(torch.ones(2, 3), tmp_path / "short.pt")
    (tmp_path / "odd.npy").write_bytes(b"not numpy")
    assert message in cli("run", "model.pte", *inputs, code=code).stderr


def test_an_unknown_method_is_told_with_those_that_exist(cli: Any) -> None:
    lower(cli, "linear")
    assert "methods: forward" in cli("run", "model.pte", "--method", "backward", code=2).stderr


def test_commands_of_other_distributions_are_added(cli: Any, install_plugin: Any) -> None:
    source = 'def greet(name: str) -> None:\n    """Say hello."""\n    print("hello", name)\n'
    folder = install_plugin("greet", source, group="delegatekit.commands", distribution="greeter")
    entry = folder / "greeter-1.2.dist-info" / "entry_points.txt"
    entry.write_text("[delegatekit.commands]\ngreet = greeter_plugin:greet\nrun = greeter_plugin:greet\n")
    assert cli("greet", "you").stdout == "hello you\n"
    result = cli("--help")
    assert "Say hello." in result.stdout
    assert "command run of greeter_plugin:greet (greeter 1.2) is ignored" in result.stderr


def test_a_call_leaves_nothing_of_other_distributions_behind(cli: Any, install_plugin: Any) -> None:
    from delegatekit.cli.command_line import app

    before = list(app.registered_commands), list(app.registered_groups)
    single = "import typer\ndef greet() -> None:\n    print('hello')\nways = typer.Typer()\nways.command()(greet)\n"
    folder = install_plugin("greet", single, group="delegatekit.commands", distribution="greeter")
    entry = folder / "greeter-1.2.dist-info" / "entry_points.txt"
    entry.write_text("[delegatekit.commands]\ngreet = greeter_plugin:greet\nways = greeter_plugin:ways\n")
    cli("greet")
    assert (app.registered_commands, app.registered_groups) == before


def test_a_group_of_commands_is_added_as_one(cli: Any, install_plugin: Any) -> None:
    source = (
        "import typer\n"
        "app = typer.Typer(help='Ways to greet.')\n"
        "@app.command()\ndef hello(name: str) -> None:\n    print('hello', name)\n"
        "@app.command()\ndef bye(name: str) -> None:\n    print('bye', name)\n"
    )
    folder = install_plugin("ways", source, group="delegatekit.commands", distribution="ways")
    entry = folder / "ways-1.2.dist-info" / "entry_points.txt"
    entry.write_text("[delegatekit.commands]\nways = ways_plugin:app\n")
    assert "Ways to greet." in cli("--help").stdout
    assert cli("ways", "bye", "you").stdout == "bye you\n"


def test_a_command_that_cannot_be_loaded_disturbs_no_other(cli: Any, install_plugin: Any) -> None:
    install_plugin("odd", "raise SystemExit(5)", group="delegatekit.commands", distribution="odd")
    assert "broken: odd_plugin cannot be loaded" in cli("--help").stdout
    assert "cannot be loaded: SystemExit: 5" in cli("odd", code=1).stderr
    cli("backends")


def test_a_command_that_is_not_allowed_is_not_imported(
    cli: Any, install_plugin: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = f"open({str(tmp_path / 'imported')!r}, 'w').close()\ndef greet() -> None:\n    print('hello')\n"
    folder = install_plugin("greet", source, group="delegatekit.commands", distribution="greeter")
    entry = folder / "greeter-1.2.dist-info" / "entry_points.txt"
    entry.write_text("[delegatekit.commands]\ngreet = greeter_plugin:greet\n")
    monkeypatch.setenv("DELEGATEKIT_BACKENDS", "nothing")
    assert "not allowed" in cli("--help").stdout
    assert "DELEGATEKIT_BACKENDS=nothing does not name it" in cli("greet", code=1).stderr
    assert not (tmp_path / "imported").exists()
    monkeypatch.setenv("DELEGATEKIT_BACKENDS", "nothing,greet")
    assert cli("greet").stdout == "hello\n" and (tmp_path / "imported").exists()


def test_weights_outside_are_written_listed_and_run(cli: Any, tmp_path: Path) -> None:
    text = lower(cli, "linear", "--external", "big=*weight", "--external", "*").stdout
    assert {path.name for path in tmp_path.glob("*.pt[de]")} == {"model.pte", "model.ptd", "big.ptd"}
    assert "wrote big.ptd (" in text and "data file big.ptd: 48 B" in text
    assert "outside: weight: float32[3, 4], 48 B" in cli("inspect", "model.pte").stdout
    assert cli("inspect", "model.ptd").stdout.splitlines()[1] == "bias: float32[3], 12 B"
    (key,) = json.loads(cli("inspect", "big.ptd", "--json").stdout)["keys"]
    assert key == {"key": "weight", "text": "float32[3, 4]", "size": 48}
    missing = cli("run", "model.pte", "--data", "big.ptd", code=1).stderr
    assert "tensor bias" in missing and "load(path, data=[...])" in missing
    outside = cli("run", "model.pte", "--data", "big.ptd", "--data", "model.ptd").stdout
    assert cli("run", "model.pte").stdout.splitlines()[0] == outside.splitlines()[0]  # both are beside it
    lower(cli, "linear")
    assert outside.splitlines()[0] == cli("run", "model.pte").stdout.splitlines()[0]
