"""Stock's lowering of the same quantized program, and stock's runtime with our files: both agree with ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers quantize and dequantize)

import delegatekit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("library"),
]
#: Quantizes with stock's quantizer and lowers with stock's code.
STOCK = """
import sys; sys.path[:] = {path!r}
from pathlib import Path
import torch
import qnn_stock
samples = torch.load({samples!r}, weights_only=True)
float_program = torch.export.load({module!r})
module = qnn_stock.quantized(float_program.module(), samples, {scheme!r})
program = torch.export.export(module, samples[0], strict=False)
torch.export.save(program, {program!r})
qnn_stock.lower(program, Path({file!r}))
"""
BENCHMARKS = Path(__file__).parents[4] / "benchmarks"


class Net(torch.nn.Module):
    """Convolutions, a clamp, a sum, a pool, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.deep = torch.nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.relu6(self.first(x))
        y = y + torch.relu(self.deep(y))
        return self.head(torch.nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


def _with_uint16(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The same program with 16 bits in 16: stock's quantizer writes them as int32 from 0 to 65535."""
    for node in program.graph.nodes:
        if node.op == "call_function" and node.args[-3:] == (0, 65535, torch.int32):
            node.args = (*node.args[:-1], torch.uint16)
    return program


@pytest.mark.parametrize("scheme", ["8a8w", "16a8w"])
def test_stock_computes_the_same(scheme: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    samples = [(torch.randn(1, 3, 16, 16),) for _ in range(8)]
    paths = {name: str(tmp_path / name) for name in ("samples", "module", "program", "file")}
    torch.save(samples, paths["samples"])
    torch.export.save(torch.export.export(Net().eval(), samples[0], strict=False), paths["module"])
    code = STOCK.format(path=[str(BENCHMARKS), *sys.path], scheme=scheme, **paths)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    stock = Path(paths["file"]).read_bytes()
    program = _with_uint16(torch.export.load(paths["program"]))
    quantized = program.module()
    ours = delegatekit.lower(program, backends=["qnn"], options={"qnn": {"soc": "sm8650"}}).buffer
    counts = [len(delegatekit.inspect(item).methods[0].delegates) for item in (ours, stock)]
    assert counts[0] == 1 <= counts[1]
    methods = [delegatekit.load(item)["forward"] for item in (ours, stock)]
    for (x,) in samples:
        wanted = quantized(x)
        results = [method(x) for method in methods]
        size = float(wanted.abs().max())
        # Steps of 8 bits over the network's four layers; of 16 bits the processor's sums are not exact.
        tolerance = {"8a8w": 4 * 2 * size / 255, "16a8w": 2e-3 * size}[scheme]
        assert (results[0] - wanted).abs().max() <= tolerance
        assert (results[0] - results[1]).abs().max() <= tolerance
        cosine = torch.nn.functional.cosine_similarity(results[0], wanted).item()
        assert cosine >= {"8a8w": 0.99, "16a8w": 0.999}[scheme]


def test_the_conformance_suite_judges_files_in_the_stock_runtime(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["conform", "qnn", "--quick", "--jobs", "1", "--select", "operators/aten.add.Tensor/float32"]
    code = f"import sys; sys.path[:] = {sys.path!r}; from delegatekit.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments, "--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (case,) = json.loads(report.read_text())["cases"]
    assert case["stock"] > 0
