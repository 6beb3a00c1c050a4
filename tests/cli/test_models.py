"""The MODEL argument, `--dynamic`, `--external`, several backends, and where the result is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from delegatekit.cli.dynamic import with_dynamic_shapes
from delegatekit.cli.places import default_place
from delegatekit.pipeline import Source


def test_a_file_with_its_path_is_a_model(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "my-net.py").write_text((tmp_path / "models.py").read_text())
    cli("lower", "inner/my-net.py:linear", "-b", "nothing")
    assert (tmp_path / "linear.pte").read_bytes()[4:8] == b"ET12"
    assert "0 of 1 operators" in cli("explain", "./models.py:linear", "-b", "nothing").stdout


def test_a_file_named_as_a_module_that_is_loaded_disturbs_neither(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text((tmp_path / "models.py").read_text())
    assert "0 of 1 operators" in cli("explain", "json.py:linear", "-b", "nothing").stdout
    assert json.loads("1") == 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("models.py", "does not say which function"),
        ("absent.py:make", "absent.py does not exist"),
        ("models:", "neither a .pt2 file nor"),
        (":linear", "neither a .pt2 file nor"),
        ("models:linear()", "neither a .pt2 file nor"),
        ("models:liner", "could be: linear, keywords, exported"),
        ("models.py:liner", "could be: linear, keywords, exported"),
        ("net.pte", "is lowered already"),
        ("net.pt", "not weights alone"),
        ("net.onnx", "not weights alone"),
        ("models:Sum", "returned a Sum"),
        ("broken.py:make", "raised SyntaxError"),
        ("leaves.py:make", "raised SystemExit: 3"),
        ("models:raises", "(models.py:"),
        ("models:needs", "cannot be called without arguments"),
        ("lacks.py:make", "No module named 'absent_package'"),
    ],
)
def test_a_model_that_is_none_is_explained(model: str, message: str, cli: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def make(:\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "lacks.py").write_text("import absent_package\n")
    code = 1 if "raised" in message or "models.py:" in message else 2
    result = cli("explain", model, "-b", "nothing", code=code)
    assert message in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("net:make", "net.pte"),
        ("a.b.net:make", "net.pte"),
        ("x/net.py:make", "net.pte"),
        ("models.py:unet", "unet.pte"),
        ("zoo:Nets.unet", "unet.pte"),
        ("x/net.v2.pt2", "net.v2.pte"),
    ],
)
def test_the_result_is_named_as_the_model(model: str, name: str) -> None:
    assert default_place(model, ".pte") == Path(name)


def test_quantize_does_not_replace_the_program_it_reads() -> None:
    assert default_place("net.pt2", "-quantized.pt2") == Path("net-quantized.pt2")


def test_another_suffix_is_questioned(cli: Any, tmp_path: Path) -> None:
    model = "models:linear", "-b", "nothing"
    assert "is not named so (model.pte)" in cli("lower", *model, "-o", "model.bin").stderr
    cli("lower", *model, "-o", "model.bin")  # it holds such a file already
    (tmp_path / "source.py").write_text("precious")
    for name, reason in (("source.py", "exists, and is not a .pte file"), ("models.py", "is an input of this command")):
        source = (tmp_path / name).read_text()
        message = cli("lower", *model, "-o", name, code=2).stderr
        assert name in message and reason in message
        assert (tmp_path / name).read_text() == source


def test_backends_are_separated_by_commas_or_options(cli: Any, install_idle: Any) -> None:
    install_idle("other")
    for given in (["-b", "nothing,other"], ["-b", "nothing", "-b", "other"], ["-b", " nothing , other ,nothing"]):
        (row,) = json.loads(cli("explain", "models:linear", *given, "--json").stdout)
        assert list(row["reasons"]) == ["nothing", "other"]
    assert "leaves out a name" in cli("explain", "models:linear", "-b", "nothing,", code=2).stderr
    wrong = cli("quantize", "models:linear", "-b", "nothing,other", "--random", "1", code=2).stderr
    assert "a model is quantized for one" in wrong


def test_a_pattern_that_matches_no_weight_is_refused(cli: Any, tmp_path: Path) -> None:
    external = "--external", "*bias", "--external", "wieght"
    result = cli("lower", "models:linear", "-b", "nothing", *external, code=2)
    assert "--external 'wieght' matches no weight\n  -> the weights: weight" in result.stderr
    assert not list(tmp_path.glob("*.pt?"))


def test_sizes_may_change_from_the_command_line(cli: Any) -> None:
    size = "--dynamic", "input:0=batch:1..8"
    cli("lower", "models:linear", "-b", "nothing", *size)
    (method,) = json.loads(cli("inspect", "linear.pte", "--json").stdout)["methods"]
    assert method["inputs"][0]["text"] == "float32[<=8, 4]"
    torch.save(torch.ones(5, 4), "x.pt")
    (output,) = json.loads(cli("run", "linear.pte", "x.pt", "--json").stdout)["outputs"]
    assert output["shape"] == [5, 3]


class Two(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return (x + y) * scale


def two(**more: Any) -> Source:
    return Source(Two(), (torch.ones(1, 4), torch.ones(1, 4)), **more)


def test_an_example_of_one_becomes_two() -> None:
    """torch.export takes a size of one for a constant."""
    found = with_dynamic_shapes(two(), ["x:0=n:1..8", "y:-2=n:1..8"])
    assert [tuple(value.shape) for value in found.inputs or ()] == [(2, 4), (2, 4)]
    assert {name: sorted(axes) for name, axes in dict(found.dynamic_shapes or {}).items()} == {"x": [0], "y": [0]}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["x"], "not of the form"),
        (["x:0=n:1-8"], "not of the form"),
        (["x:0=1..8"], "not of the form"),
        (["z:0=n:1..8"], "no input 'z'"),
        (["x:2=n:1..8"], "has 2 axes"),
        (["x:-3=n:1..8"], "has 2 axes"),
        (["x:0=n:8..1"], "no range"),
        (["x:0=n:2..8"], "has 1 elements there"),
        (["x:0=n:1..8", "y:0=n:1..9"], "two ranges"),
        (["scale:0=n:1..8"], "not a tensor"),
    ],
)
def test_a_size_that_cannot_be_is_explained(texts: list[str], message: str) -> None:
    from delegatekit.cli.console import UsageError

    with pytest.raises(UsageError, match=message):
        with_dynamic_shapes(two(kwargs={"scale": 2.0}), texts)


def test_sizes_of_an_exported_program_are_settled(cli: Any) -> None:
    size = "--dynamic", "input:0=batch:1..8"
    assert "exported already" in cli("explain", "models:exported", "-b", "nothing", *size, code=2).stderr
