"""docs/quantization.md, "Declaring a scheme", followed by a new vendor: its code makes a backend that knows int8.

The backend around that code runs its partitions with PyTorch, node by node, and records what it was told about
integers.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import delegatekit
from delegatekit.plugins import discovery
from delegatekit_api.nodes import operator_name
from delegatekit_api.schemes import PER_CHANNEL, Quantization

pytest.importorskip("torchao")

PAGE = Path(__file__).parents[1] / "docs" / "quantization.md"

#: What the page assumes: the rest of a backend, as docs/writing-a-backend.md has it.
AFTER = """
from delegatekit_api import *
from delegatekit_toolkit.support import SupportTable, TablePartitioner, row

PROGRAMS = []


@hookimpl
def describe_backend():
    return BackendDescription("mine", "MineBackend", "mine", "1.0", "int8", ApiVersion(2, 0))


@hookimpl
def create_partitioner(options):
    names = "convolution.default linear.default relu.default max_pool2d.default view_copy.default add.Tensor".split()
    keep = ("linear.default", "max_pool2d.default")
    rows = [row(name, print, keep=name in keep) for name in names]
    return TablePartitioner(SupportTable([*rows, *CONVERSIONS]))


@hookimpl
def preprocess(partition, options):
    PROGRAMS.append(partition.view)
    return PreprocessResult(bytes([len(PROGRAMS) - 1]))


class Runtime:
    def is_available(self):
        return Availability(True)

    def init(self, payload):
        return PROGRAMS[payload.blob[0]]

    def execute(self, view, inputs, outputs):
        values = dict(zip(view.inputs, inputs)) | dict(view.constants)
        for node in view.graph.nodes:
            if node.op == "call_function":
                arguments = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*arguments[0], **arguments[1])
        for node, output in zip(view.outputs, outputs):
            output.copy_(values[node])

    def destroy(self, view):
        pass


@hookimpl
def create_runtime():
    return Runtime()
"""


def blocks() -> list[str]:
    """The section's code in order: the scheme, the hook, the operators in between, reading them, a test."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Declaring a scheme\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The vendor's wheel, as an installer would lay it out."""
    folder = tmp_path_factory.mktemp("mine")
    *code, _ = blocks()
    (folder / "mine.py").write_text("\n\n".join((*code, AFTER)), encoding="utf-8")
    information = folder / "mine-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n", encoding="utf-8")
    (information / "entry_points.txt").write_text("[delegatekit.backends]\nmine = mine\n", encoding="utf-8")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    discovery.refresh()
    yield importlib.import_module("mine")
    sys.path.remove(str(folder))
    sys.modules.pop("mine", None)
    importlib.invalidate_caches()
    discovery.refresh()


def test_the_page_has_all_that_a_stranger_needs(plugin: ModuleType) -> None:
    assert len(blocks()) == 5
    assert discovery.backends()["mine"].usable, discovery.backends()["mine"]
    (scheme,) = discovery.get_backend("mine").quantization_schemes()
    assert scheme is plugin.SCHEME and scheme.rules[0].weight.granularity == PER_CHANNEL


def test_the_pages_test_passes(plugin: ModuleType) -> None:
    names: dict[str, object] = {}
    exec(blocks()[-1], names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()  # type: ignore[operator]


def test_the_backend_gets_integers_and_is_told_what_they_stand_for(plugin: ModuleType) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2)).eval()
    inputs = torch.randn(1, 3, 8, 8)
    quantized = delegatekit.quantize(model, [inputs], backend="mine")
    program = delegatekit.lower(quantized, (inputs,), backends=["mine"])
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1 and not method.fallback
    view = plugin.PROGRAMS[-1]
    names = Counter(operator_name(node) for node in view.graph.nodes if node.op == "call_function")
    assert names["quantized_decomposed.dequantize_per_channel.default"] == 1
    (weight,) = [node for node in view.graph.nodes if operator_name(node).endswith("dequantize_per_channel.default")]
    integers, told = plugin.weight_of(view.operand(weight))
    assert integers.dtype == torch.int8 and tuple(integers.shape) == (8, 3, 3, 3)
    assert isinstance(told, Quantization) and told.axis == 0 and told.scale.shape == (8,) and told.is_symmetric
    assert (integers.float() * told.scale.reshape(-1, 1, 1, 1) - model[0].weight).abs().max() <= told.scale.max() / 2


def test_other_integers_are_left_to_the_runtime(plugin: ModuleType) -> None:
    class Other(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            quantized = torch.ops.quantized_decomposed
            integers = quantized.quantize_per_tensor.default(x, 0.1, 0, 0, 255, torch.uint8)
            return torch.relu(quantized.dequantize_per_tensor.default(integers, 0.1, 0, 0, 255, torch.uint8))

    inputs = torch.randn(2, 3)
    program = delegatekit.lower(Other(), (inputs,), backends=["mine"])
    assert delegatekit.report(program).methods[0].fallback
    assert torch.equal(delegatekit.load(program.buffer)["forward"](inputs), Other()(inputs))
