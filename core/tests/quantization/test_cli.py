"""`delegatekit schemes` and `delegatekit quantize`."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy
import pytest
import torch

import delegatekit
from delegatekit_api import FormatError

pytest.importorskip("torchao")

MODELS = """
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), (torch.ones(2, 8),)

def exported():
    module, inputs = small()
    return torch.export.export(module, inputs, dynamic_shapes=({0: torch.export.Dim("n", max=8)},))

class Sum(nn.Module):
    def forward(self, x, *, y):
        return x + y

def keywords():
    return Sum().eval(), (torch.ones(2),), {"y": torch.ones(2)}
"""

BACKEND = """
from delegatekit_api import *
from delegatekit_api.schemes import *

INT8 = TensorQuantization("int8")
WEIGHT = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL)
TOKENS = TensorQuantization("int8", granularity=PER_TOKEN, dynamic=True)
FOUR = TensorQuantization("int4", symmetric=True, granularity=per_group(4))

class Layers:
    def keep_operators(self): return ()
    def check(self, call):
        layers = ("aten.linear.default", "aten.relu.default")
        return Verdict.yes() if call.operator in layers else Verdict.no("it is not a layer")
    def propose(self, program): return None

@hookimpl
def describe_backend():
    return BackendDescription(
        "nothing", "NothingBackend", "delegatekit-nothing", "1.2", "x", supports_dynamic_shapes=True
    )

@hookimpl
def create_partitioner(options):
    return Layers()

@hookimpl
def preprocess(partition, options):
    return PreprocessResult(b"layers")

@hookimpl
def quantization_schemes():
    return [
        QuantizationScheme("full", "all int8", rules=(
            QuantizationRule(("linear", "aten.add.Tensor"), INT8, WEIGHT, None, INT8, ("relu",)),
            QuantizationRule(("cat", *MOVING_OPERATORS), shares=True),
        ), qat=True),
        QuantizationScheme("twice", "", rules=(
            QuantizationRule(("tanh", "amax"), INT8, output=INT8, declines=(lambda call: call.operator,)),
            QuantizationRule(("amax", "cat"), shares=True),
            QuantizationRule(("sin", "amax"), INT8, output=INT8, declines=(lambda call: None, lambda call: "steep")),
            QuantizationRule(("cat",), INT8, output=INT8),
        )),
        QuantizationScheme("groups", "int4", "dynamic", (QuantizationRule(("linear",), TOKENS, FOUR),)),
        QuantizationScheme("own", "the plugin's"),
    ]
"""


@pytest.fixture
def cli(command_with, install_plugin):
    install_plugin("nothing", BACKEND)
    return command_with(MODELS)


def quantize(cli, model, *more, code=0):
    return cli("quantize", f"models:{model}", "-b", "nothing", "-o", "q.pt2", *more, code=code)


def test_schemes_lists_kinds_types_and_operators(cli):
    text = cli("schemes", "nothing").out
    assert "nothing: full (static, offers training)\n  all int8\n" in text
    assert (
        "* linear, add (+ relu): input int8 affine per tensor; weight int8 symmetric per channel; "
        "output int8 affine per tensor\n" in text
    )
    assert "* cat, operators that only move values: as its quantized input" in text
    assert "nothing: groups (dynamic)" in text and "the plugin's own quantizer" in text


def test_schemes_list_each_operator_once(cli):
    assert (
        """nothing: twice (static)

  * tanh, sin: input int8 affine per tensor; output int8 affine per tensor
  * amax: input int8 affine per tensor; output int8 affine per tensor, or as its quantized input
  * cat: as its quantized input, or input int8 affine per tensor; output int8 affine per tensor
  where the backend supports them: the report of `quantize` lists the exceptions, with reasons
"""
        in cli("schemes", "nothing").out
    )
    rules = json.loads(cli("schemes", "--json").out)["nothing"][1]["rules"]
    assert [rule["declines"] for rule in rules] == [1, 0, 2, 0]


def test_schemes_as_json(cli):
    found = json.loads(cli("schemes", "--json").out)["nothing"]
    assert [(scheme["name"], scheme["kind"], scheme["qat"]) for scheme in found] == [
        ("full", "static", True),
        ("twice", "static", False),
        ("groups", "dynamic", False),
        ("own", "static", False),
    ]
    assert found[2]["rules"][0]["weight"] == "int4 symmetric per group of 4"


def test_schemes_of_an_unknown_backend_are_refused(cli):
    assert "no backend 'absent'" in cli("schemes", "absent", code=2).err


def test_listing_schemes_imports_no_torch():
    code = (
        "import sys, delegatekit.quantization.listing as c; found = c.schemes_by_backend(None); "
        "print(c.schemes_text(found)); assert 'torch' not in sys.modules and 'torchao' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_quantize_writes_a_program_that_lower_takes(cli, tmp_path):
    text = quantize(cli, "small", "--random", "4", "--report", "--keep-float", "2").out
    assert "1 of 2 layers quantized (nothing, full); outputs" in text
    assert "float: kept by keep_float='2'" in text and "wrote q.pt2" in text
    program = torch.export.load(tmp_path / "q.pt2")
    assert any("quantize_per_tensor" in node.name for node in program.graph.nodes)
    assert "(100.0 %)" not in cli("lower", "q.pt2", "-b", "nothing", "-o", "q.pte").out
    assert (tmp_path / "q.pte").is_file()


@pytest.mark.slow
def test_a_program_with_other_operators_is_read_in_a_new_process(cli, tmp_path):
    quantize(cli, "small", "--random", "1", "--scheme", "groups")
    code = "import pathlib; from delegatekit.cli.model import load_exported as load; print(load(pathlib.Path('q.pt2')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "torchao.dequantize_affine" in done.stdout


def test_a_program_is_read_in_python_in_a_new_process(cli, tmp_path):
    quantize(cli, "small", "--random", "1")
    code = (
        "import torch, delegatekit; m = delegatekit.load_quantized('q.pt2').module(); print(m(torch.ones(2, 8)).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "torch.Size([2, 4])" in done.stdout, done.stderr
    with pytest.raises(FormatError, match=r"models\.py: is no \.pt2 file"):
        delegatekit.load_quantized(tmp_path / "models.py")


def test_an_exported_program_keeps_its_changing_sizes(cli, tmp_path):
    quantize(cli, "exported", "--random", "2")
    program = torch.export.load(tmp_path / "q.pt2")
    assert program.module()(torch.ones(5, 8)).shape == (5, 4)


@pytest.mark.parametrize("kind", ["list", "tensor", "npz"])
def test_calibration_is_read_from_files(kind, cli, tmp_path):
    samples = torch.linspace(-3.0, 5.0, 7 * 8).view(7, 8)
    path = tmp_path / ("c.npz" if kind == "npz" else "c.pt")
    if kind == "npz":
        numpy.savez(path, x=samples.numpy())
    else:
        torch.save([samples[:2], (samples[2:4],), samples[4:6]] if kind == "list" else samples, path)
    report = json.loads(quantize(cli, "small", "--calibration", str(path), "--json").out)
    if kind == "npz":  # NumPy's default is float64
        numpy.savez(tmp_path / "double.npz", x=samples.double().numpy())
        double = json.loads(quantize(cli, "small", "--calibration", str(tmp_path / "double.npz"), "--json").out)
        assert double == report
    assert report["samples"] == 3  # inputs of two rows; the seventh row fills none
    program = torch.export.load(tmp_path / "q.pt2")
    first = next(node for node in program.graph.nodes if str(node.target).startswith("quantized_decomposed.quantize"))
    low, high = samples[:6].min().item(), samples[:6].max().item()
    assert first.args[1] == pytest.approx((high - low) / 255)


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        ([], 2, "--random COUNT"),
        (["--random", "1", "--calibration", "c.pt"], 2, "are both given"),
        (["--calibration", "absent.pt"], 2, "absent.pt: does not exist"),
        (["--calibration", "models.py"], 1, "neither .pt nor .npz"),
        (["--calibration", "bad.npz"], 1, "bad.npz: cannot be read"),
        (["--calibration", "bad.pt"], 1, "bad.pt: cannot be read"),
        (["--calibration", "two.pt"], 1, "holds 2 tensors, the model takes 1 inputs"),
        (["--calibration", "few.pt"], 1, "fewer samples"),
        (["--calibration", "none.pt"], 1, "none.pt: holds no samples"),
        (["--calibration", "pairs.pt"], 1, "pairs.pt, sample 1: has 2 values, the model takes 1 inputs"),
        (["--calibration", "axes.pt"], 1, "axes.pt, sample 0: value 0 is torch.float32 [2], the model takes torch.fl"),
        (["--calibration", "whole.pt"], 1, "whole.pt, sample 0: value 0 is torch.int64 [2, 8]"),
        (["--calibration", "wide.pt"], 1, "wide.pt, sample 0: is torch.float32 [2, 9], and the model's example"),
        (["--calibration", "nan.pt"], 1, "infinities or NaNs"),
        (["--random", "1", "--scheme", "absent"], 2, "schemes: full, twice, groups, own"),
        (["--random", "1", "--group-size", "4"], 1, "has no groups"),
        (["--random", "1", "--keep-worst", "2"], 1, "leaves nothing of 2 layers"),
        (["--random", "1", "--scheme", "own"], 1, "does not implement create_quantizer"),
    ],
)
def test_a_wrong_call_gets_one_clear_message(arguments, code, message, cli, tmp_path):
    for name in ("bad.npz", "bad.pt"):
        (tmp_path / name).write_bytes(b"nothing of use")
    torch.save((torch.ones(4, 8), torch.ones(4, 8)), tmp_path / "two.pt")
    torch.save(torch.ones(1, 8), tmp_path / "few.pt")
    torch.save([], tmp_path / "none.pt")
    torch.save([torch.ones(2, 8), (torch.ones(2, 8), torch.ones(2, 8))], tmp_path / "pairs.pt")
    torch.save(torch.ones(4), tmp_path / "axes.pt")
    torch.save(torch.ones(4, 8, dtype=torch.int64), tmp_path / "whole.pt")
    torch.save(torch.ones(4, 9), tmp_path / "wide.pt")
    torch.save(torch.full((4, 8), float("nan")), tmp_path / "nan.pt")
    captured = quantize(cli, "small", *arguments, code=code)
    assert message in captured.err
    assert captured.out == "" and not (tmp_path / "q.pt2").exists()


@pytest.mark.parametrize(
    ("output", "message"),
    [("absent/q.pt2", "absent/q.pt2: the folder does not exist"), ("folder", "folder: is a folder, not a file")],
)
def test_a_place_that_cannot_have_a_file_is_one_clear_error_before_the_work(output, message, cli, tmp_path):
    (tmp_path / "folder").mkdir()
    captured = cli("quantize", "models:small", "-b", "nothing", "-o", output, "--calibration", "absent.pt", code=2)
    assert message in captured.err and "Traceback" not in captured.err


def test_a_model_with_keyword_arguments_is_refused(cli):
    assert "takes keyword arguments" in quantize(cli, "keywords", "--random", "1", code=1).err
