"""Files of ExecuTorch's own lowering: they validate, and the Python engine computes what the stock runtime does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import delegatekit
from delegatekit.pte import read
from delegatekit.pte.schema import Tensor
from delegatekit.pte.validation import validate

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")

#: Lowers each module with stock ExecuTorch; importing that takes long, so all files are written by one process.
SCRIPT = """
import logging, sys, warnings
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
import torch
from torch import nn
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass

class Views(nn.Module):
    def forward(self, x):
        y = x + 1
        view = y.view(2, 6)
        return (view * 2).reshape(3, 4) + y.reshape(3, 4), view.flatten()

class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.full((3,), 100.0))
    def forward(self, x):
        self.count.add_(x)
        return self.count * 1

class Branch(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a * 2, (x,))

class Several(nn.Module):
    def forward(self, x):
        values, places = torch.max(x, 1)
        left, right = torch.split(x, 2, 1)
        return {"max": (values, places), "parts": [left, right], "top": torch.topk(x, 2)[0]}

class Types(nn.Module):
    def forward(self, x, index):
        return x[:, index], x.to(torch.int64), x.half(), torch.where(x > 0, x, 0.0)

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    def forward(self, x):
        return self.layer(x)

class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
    def forward(self, x):
        return nn.functional.adaptive_avg_pool2d(torch.relu(self.norm(self.conv(x))), 1).flatten(1)

class Around(nn.Module):
    def forward(self, x):
        return nn.functional.pad(x, (1, 2, 1, 0), mode="circular")

unplanned = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
cases = {
    "views": (Views(), (torch.randn(3, 4),), {}),
    "counter": (Counter(), (torch.randn(3),), {}),
    "branch": (Branch(), (torch.randn(3),), {}),
    "several": (Several(), (torch.randn(3, 4),), {}),
    "types": (Types(), (torch.randn(3, 4), torch.tensor([1, 0])), {}),
    "encoder": (Encoder(), (torch.randn(2, 5, 16),), dict(emit_stacktrace=True)),
    "around": (Around(), (torch.randn(2, 4, 5, 6),), {}),
    "image": (Image(), (torch.randn(1, 3, 8, 8),), dict(memory_planning_pass=unplanned)),
}
for name, (module, inputs, config) in cases.items():
    torch.manual_seed(0)
    exported = torch.export.export(module.eval(), inputs)
    program = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    with open(f"{sys.argv[1]}/{name}.pte", "wb") as file:
        file.write(program.to_executorch(ExecutorchBackendConfig(**config)).buffer)
    torch.save(inputs, f"{sys.argv[1]}/{name}.pt")
"""
NAMES = ["views", "counter", "branch", "several", "types", "encoder", "around", "image"]


@pytest.fixture(scope="module")
def stock_files(once: Any, stock_process: Any) -> Path:
    files: Path = once("stock_files", lambda folder: stock_process.run(SCRIPT, folder))
    return files


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_computes_what_the_stock_runtime_computes(name: str, stock_files: Path) -> None:
    path = stock_files / f"{name}.pte"
    inputs: tuple[Any, ...] = torch.load(stock_files / f"{name}.pt")
    data = path.read_bytes()
    stock = _C._load_program_from_buffer(data).load_method("forward")
    method = delegatekit.load(path)["forward"]
    for sign in (1, -1):  # twice: state goes on, and branches take the other way
        given = tuple(sign * value if value.is_floating_point() else value for value in inputs)
        ours, theirs = tree_leaves(method(*given)), list(stock(given))
        assert len(ours) == len(theirs)
        for mine, expected in zip(ours, theirs, strict=True):
            assert mine.dtype == expected.dtype
            torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-5)


def test_stock_leaves_views_out_of_the_instructions(stock_files: Path) -> None:
    """The purpose of `dataflow`: values that share memory without a copy."""
    file = read(stock_files / "views.pte")
    validate(file)
    plan = file.program.execution_plan[0]  # type: ignore[index]
    tensors = [value.val for value in plan.values or () if isinstance(value.val, Tensor)]
    places = [tensor.allocation_info.offset for tensor in tensors if tensor.allocation_info is not None]
    assert len(set(places)) < len(places)


def test_outputs_come_in_the_modules_structure(stock_files: Path) -> None:
    (x,) = torch.load(stock_files / "several.pt")
    result = delegatekit.load(stock_files / "several.pte")["forward"](x)
    assert torch.equal(result["max"][0], x.max(1).values)
    assert [tuple(part.shape) for part in result["parts"]] == [(3, 2), (3, 2)]
