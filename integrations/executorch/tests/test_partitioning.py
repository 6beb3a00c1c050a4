"""Partitioners of DelegateKit's backends in ExecuTorch's pipeline."""

from __future__ import annotations

import importlib
import json
import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import get_lowered_submodules
from pipelines import close, exported, lowered, run
from referee import StockProgram
from torch import nn
from torch.export import Dim

import delegatekit
from delegatekit_api import LoweringError, OptionError, PluginError, UnsupportedError
from delegatekit_executorch import DelegateKitPartitioner, partitioner


class Net(nn.Module):
    """Convolution, batch norm, attention, linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.convolution(x))).permute(0, 2, 3, 1).flatten(1, 2)
        y = self.attention(y, y, y, need_weights=False)[0]
        return self.last(y).transpose(1, 2).softmax(-1)


class Broken(nn.Module):
    """An operator in the middle that no backend takes: an eigenvalue is not for delegates."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        return self.second(torch.cumsum(y, 1)) + y


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


IMAGE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("backend", "changing"),
    [
        *(("xnnpack", False), ("xnnpack", True), ("vulkan", True)),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (
                ("vulkan", False),
                ("coreml", False),
                ("coreml", True),
                ("reference", False),
                ("reference", True),
            )
        ),
    ],
)
def test_a_program_is_delegated_as_lower_does(net: Net, backend: str, changing: bool) -> None:
    shapes = {"x": {0: Dim("batch", min=1, max=8)}} if changing else None
    program = exported(net, (IMAGE,), shapes)
    found = lowered(program, backend)
    ours = delegatekit.lower(program, backends=[backend])
    assert len(found.delegates()) == len(ours.methods["forward"].delegates)
    for count in (2, 5, 1) if changing else (2,):
        image = torch.randn(count, 3, 8, 8)
        close(run(found.buffer, backend, (image,)), net(image), backend, program)


@pytest.mark.parametrize("backend", ["qnn", "ethosu"])
def test_the_delegate_of_a_compiler_without_runtime_here_is_that_of_lower(backend: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    scheme = {"qnn": "8a8w", "ethosu": "int8"}[backend]
    quantized = delegatekit.quantize(model, [(torch.randn(1, 3, 8, 8),)], backend=backend, scheme=scheme)
    program = torch.export.export(quantized, (torch.randn(1, 3, 8, 8),))
    found = lowered(program, backend)
    (delegate,) = found.delegates()
    (ours,) = delegatekit.lower(program, backends=[backend]).methods["forward"].delegates
    assert delegate.processed_bytes == b"".join(ours.blob)
    assert [(spec.key, spec.value) for spec in delegate.compile_specs] == [
        (spec.key, spec.value) for spec in ours.compile_specs
    ]


def test_the_example_backend_is_used_like_any_other(demo: str) -> None:
    model = nn.Sequential(nn.Identity())
    model.forward = lambda x: (x + x) * x  # type: ignore[method-assign]
    x = torch.randn(3, 4)
    program = exported(model, (x,))
    found = lowered(program, demo)
    assert found.delegates()
    close(run(found.buffer, demo, (x,)), (x + x) * x, demo, program)


def test_delegates_with_equal_blobs_may_be_called_with_other_sizes(
    demo: str, run_hosted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiling = importlib.import_module("delegatekit_demo.compile")
    # A blob without sizes, as the backend's older releases wrote it.
    write_blob = compiling.write_blob
    monkeypatch.setattr(compiling, "write_blob", lambda program: write_blob(replace(program, sizes=())))

    class Same(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            part = ((x + x) * x)[:, 1:3]
            return (part + part) * part

    x = torch.randn(3, 4)
    found = lowered(exported(Same(), (x,)), demo)
    first, second = found.delegates()
    assert first.processed_bytes == second.processed_bytes
    assert torch.equal(delegatekit.load(found.buffer)["forward"](x), Same()(x))
    assert torch.equal(run_hosted(found.buffer, [(x,)])[0][0], Same()(x))


ORDERS: dict[str, Any] = {
    "ours first": lambda: [partitioner("vulkan"), XnnpackPartitioner()],
    "ours last": lambda: [XnnpackPartitioner(), partitioner("reference")],
    "ours twice": lambda: [partitioner("xnnpack"), partitioner("reference")],
    "the same twice": lambda: [partitioner("xnnpack"), partitioner("xnnpack")],
}


@pytest.mark.parametrize("order", ORDERS)
def test_several_partitioners_share_a_program(order: str) -> None:
    torch.manual_seed(0)
    model = Broken().eval()
    x = torch.randn(3, 4)
    program = exported(model, (x,))
    edge = to_edge_transform_and_lower(program, partitioner=ORDERS[order]())
    buffer = edge.to_executorch().buffer
    close(delegatekit.load(buffer)["forward"](x), model(x), "xnnpack", program)


def test_partitioners_are_applied_in_turn(net: Net) -> None:
    program = exported(net, (IMAGE,))
    edge = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    for each in (partitioner("xnnpack"), XnnpackPartitioner(), partitioner("reference")):
        edge = edge.to_backend(each)
    close(delegatekit.load(edge.to_executorch().buffer)["forward"](IMAGE), net(IMAGE), "xnnpack", program)


def test_a_refusal_has_the_reason_and_the_line(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(3, 4)
    with caplog.at_level(logging.WARNING, logger="delegatekit_executorch"):
        found = lowered(exported(Broken(), (x,)), "xnnpack")
    (refused,) = found.partitioner.refused
    assert refused.operator == "aten.cumsum.default"
    assert refused.reason == "aten.cumsum.default is not in the backend's operator table"
    assert f"{Path(__file__).name}:" in refused.source and "torch.cumsum" in refused.source
    assert "leaves 1: 1 x aten.cumsum.default" in caplog.text


class Lacking(nn.Module):
    """Operators that XNNPACK leaves, and that the runtime has no kernel for, or a wrong one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, indices = torch.nn.functional.adaptive_max_pool3d(torch.relu(x), 2, return_indices=True)
        return (
            values,
            indices,
            torch.nn.functional.adaptive_avg_pool3d(x, 3),
            torch.div(x, x + 9, rounding_mode="floor"),
        )


@pytest.mark.parametrize("backend", ["xnnpack", pytest.param("reference", marks=pytest.mark.slow)])
def test_operators_that_the_runtime_lacks_are_decomposed_as_lower_does(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.randn(1, 2, 4, 4, 4)
    program = exported(Lacking(), (x,))
    found = lowered(program, backend)
    assert [refused.runtime for refused in found.partitioner.refused if refused.runtime] == []
    assert "cannot run" not in caplog.text
    ours = delegatekit.lower(program, backends=[backend])
    if backend == "xnnpack":
        results, wanted = (StockProgram(buffer).method()((x,)) for buffer in (found.buffer, ours.buffer))
    else:
        results, wanted = (delegatekit.load(buffer)["forward"](x) for buffer in (found.buffer, ours.buffer))
    for result, want, eager in zip(results, wanted, Lacking()(x), strict=True):
        assert torch.equal(result, want)
        torch.testing.assert_close(result, eager)


@pytest.mark.parametrize("decompose", [False, True])
def test_what_is_left_stays_whole_for_the_next_partitioner_if_it_should(decompose: bool) -> None:
    x = torch.randn(1, 2, 4, 4, 4)
    first = DelegateKitPartitioner("xnnpack", decompose=decompose)
    edge = to_edge_transform_and_lower(
        exported(Lacking(), (x,)),
        partitioner=[first, partitioner("reference")],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    modules = [module for _, module, _ in get_lowered_submodules(edge.exported_program().graph_module)]
    inside = {str(node.target) for each in modules for node in each.original_module.graph.nodes}
    assert any("adaptive_max_pool3d" in target for target in inside) is not decompose
    results = delegatekit.load(edge.to_executorch().buffer)["forward"](x)
    for result, eager in zip(results, Lacking()(x), strict=True):
        torch.testing.assert_close(result, eager)


def test_an_operator_that_nothing_runs_is_named_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    class Nothing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eigvalsh(torch.relu(x))

    program = exported(Nothing(), (torch.randn(3, 3),))
    with pytest.raises(UnsupportedError, match="the runtime has no kernel for it") as refusal:
        delegatekit.lower(program, backends=["xnnpack"])
    edge = EdgeCompileConfig(_check_ir_validity=False)
    ours = partitioner("xnnpack")
    with caplog.at_level(logging.WARNING, logger="delegatekit_executorch"):
        to_edge_transform_and_lower(program, partitioner=[ours], compile_config=edge)
    (line,) = [line for line in caplog.text.splitlines() if "cannot run what xnnpack leaves" in line]
    (refused,) = [refused for refused in ours.refused if refused.runtime]
    assert refused.runtime == "the runtime has no kernel for it" and "eigvalsh" in refused.source
    assert refused.source in line and refused.reason in line
    assert refused.source.split(":")[0] in str(refusal.value)


def test_what_is_wrong_with_a_partitioner_is_said_at_once() -> None:
    with pytest.raises(PluginError, match="vulcan"):
        partitioner("vulcan")
    with pytest.raises(OptionError, match="colour"):
        partitioner("xnnpack", colour="red")


def test_a_missing_compiler_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    from delegatekit.plugins import LoadedBackend
    from delegatekit_api import Availability

    monkeypatch.setattr(LoadedBackend, "compiler_availability", lambda *_: Availability(False, "no such tool"))
    with pytest.raises(LoweringError, match="cannot compile here: no such tool"):
        partitioner("xnnpack")


class Two(nn.Module):
    """Two methods on one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.weight(x))


def test_methods_store_a_weight_once() -> None:
    model = Two().eval()
    programs = {"one": exported(model, (torch.randn(1, 64),)), "two": exported(model, (torch.randn(7, 64),))}
    edge = to_edge_transform_and_lower(programs, partitioner=[partitioner("xnnpack")])
    buffer = bytes(edge.to_executorch().buffer)
    assert len(buffer) < 2 * 64 * 64 * 4
    stock = StockProgram(buffer)
    for name, count in (("one", 1), ("two", 7)):
        x = torch.randn(count, 64)
        close(stock.method(name)((x,))[0], model(x), "xnnpack", programs[name])


def test_named_data_may_be_external(tmp_path: Path) -> None:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    from delegatekit_executorch import DelegateKitPartitioner

    model, x = Two().eval(), torch.randn(2, 64)
    ours = DelegateKitPartitioner("xnnpack", external=lambda key, data: "weights")
    program = exported(model, (x,))
    executorch = to_edge_transform_and_lower(program, partitioner=[ours]).to_executorch()
    executorch.save(str(tmp_path / "model.pte"))
    executorch.write_tensor_data_to_file(str(tmp_path))
    assert (tmp_path / "model.pte").stat().st_size < 64 * 64 * 4 < (tmp_path / "weights.ptd").stat().st_size
    loaded = _load_for_executorch(str(tmp_path / "model.pte"), str(tmp_path / "weights.ptd"))
    close(loaded.forward((x,))[0], model(x), "xnnpack", program)


class Counter(nn.Module):
    """A buffer that each call updates."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x * 2)
        return torch.sigmoid(self.total) + x


@pytest.mark.parametrize("backend", ["xnnpack", "vulkan"])
def test_buffers_keep_their_values_between_calls(backend: str) -> None:
    model = Counter().eval()
    program = exported(model, (torch.randn(2, 3),))
    found = lowered(program, backend)
    assert found.delegates()
    # Vulkan's delegate keeps the buffer itself; stock's file says nothing of the buffer that XNNPACK gets.
    call: Any = (
        StockProgram(found.buffer).method() if backend == "xnnpack" else delegatekit.load(found.buffer)["forward"]
    )
    for _ in range(3):
        x = torch.randn(2, 3)
        close(call((x,))[0] if backend == "xnnpack" else call(x), model(x), backend, program)


class Returned(nn.Module):
    """A buffer whose new value is a result, too."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("mean", torch.zeros(2, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(self.linear(x) * 0.1)
        return self.mean.clone()


def test_a_buffer_whose_new_value_is_a_result_is_not_kept_in_a_delegate(run_hosted: Any) -> None:
    with torch.no_grad():
        model = Returned().eval()
        program = exported(model, (torch.randn(2, 6),))
        calls = [(torch.randn(2, 6),) for _ in range(3)]
        found = lowered(program, "vulkan")
        assert found.delegates()
        for call, results in zip(calls, run_hosted(found.buffer, calls), strict=True):
            close(results[0], model(*call), "vulkan", program)


class Attending(nn.Module):
    """Attention whose result is turned, and joined by a view that its strides allow."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.projection = nn.LayerNorm(16), nn.Linear(16, 48)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        parts = self.projection(self.norm(x)).view(2, -1, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask[:, None])
        return x + y.transpose(1, 2).reshape(x.shape)


def test_what_a_backend_leaves_is_decomposed_before_views_of_it() -> None:
    torch.manual_seed(0)
    model = Attending().eval()
    length = torch.export.Dim("length", min=2, max=32)
    shapes = ({1: length}, {1: length, 2: length})
    given = (torch.randn(2, 6, 16), torch.ones(2, 6, 6, dtype=torch.bool))
    program = torch.export.export(model, given, dynamic_shapes=shapes)
    found = lowered(program, "qnn")
    assert not found.delegates()
    method = StockProgram(found.buffer).method()
    for size in (6, 3, 32):
        call = (torch.randn(2, size, 16), torch.rand(2, size, size) > 0.3)
        close(method(call)[0], model(*call), "xnnpack", program)


class Branches(nn.Module):
    """Control flow whose branches have operators for delegates."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return torch.cond(y.sum() > 0, lambda t: torch.sigmoid(t) * 3, lambda t: torch.tanh(t) - t, (y,))


def test_branches_have_delegates_of_their_own() -> None:
    torch.manual_seed(0)
    model = Branches().eval()
    program = exported(model, (torch.randn(2, 4),))
    found = lowered(program, "xnnpack")
    from executorch.exir.graph_module import get_control_flow_submodules

    inner = get_control_flow_submodules(found.edge.exported_program().graph_module)
    assert [len(get_lowered(module)) for _, module, _ in inner] == [1, 1]
    method = StockProgram(found.buffer).method()
    for sign in (1, -1):
        x = sign * torch.ones(2, 4)
        close(method((x,))[0], model(x), "xnnpack", program)


def get_lowered(module: Any) -> list[Any]:
    from executorch.exir.lowered_backend_module import get_lowered_submodules

    return list(get_lowered_submodules(module))


@pytest.mark.parametrize(
    "case",
    {
        "an input that is returned": lambda x: (torch.relu(x), x),
        "a result twice": lambda x: (torch.relu(x), torch.relu(x) + 1, torch.relu(x)),
        "a copy": lambda x: (torch.sigmoid(x).clone(), torch.tanh(x.clone())),
        "a constant": lambda x: (torch.relu(x) + torch.ones(3), torch.zeros(2) + 1),
        "a value like another": lambda x: torch.relu(x) * torch.full_like(x, 2.0),
        "channels last": lambda x: torch.relu(x.repeat(1, 2, 1, 1).to(memory_format=torch.channels_last)),
        "a view inside": lambda x: torch.relu(x.view(-1)).view(3, 3).t().contiguous() + 1,
        "several results": lambda x: torch.topk(torch.relu(x), 2)[0] + torch.max(x, 1, keepdim=True)[0],
    }.items(),
    ids=lambda case: case[0],
)
@pytest.mark.parametrize("backend", ["xnnpack", pytest.param("reference", marks=pytest.mark.slow)])
def test_what_crosses_the_border_of_a_delegate_is_what_stock_calls_it_with(case: Any, backend: str) -> None:
    class Case(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return case[1](x)

    x = torch.randn(3, 3)
    found = lowered(exported(Case(), (x,)), backend)
    wanted = Case()(x)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    if backend == "xnnpack":
        results: Any = StockProgram(found.buffer).method()((x,))
    else:
        results = delegatekit.load(found.buffer)["forward"](x)
        results = results if isinstance(results, tuple | list) else (results,)
    for result, want in zip(results, wanted, strict=True):
        torch.testing.assert_close(result, want)


SIDE_BY_SIDE = """
import json, sys, torch
sys.path[:0] = json.loads(sys.argv[2])
steps = json.loads(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
x = torch.randn(2, 4)
def stock():
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    return XnnpackPartitioner()
def ours():
    from delegatekit_executorch import DelegateKitPartitioner, partitioner
    return partitioner("xnnpack")
import executorch.extension.pybindings._C as runtime
from executorch.exir import to_edge, to_edge_transform_and_lower, EdgeCompileConfig
from executorch.exir.backend.backend_api import to_backend
made = {name: {"stock": stock, "ours": ours}[name]() for name in steps}
from delegatekit_executorch import DelegateKitPartitioner, details
asked, compiled = [], details._compiled
details._compiled = lambda given: asked.extend(given) or compiled(given)
for name, each in made.items():
    first = to_edge_transform_and_lower(torch.export.export(model, (x,)), partitioner=[each])
    edge = to_edge(torch.export.export(model, (x,)), compile_config=EdgeCompileConfig(_check_ir_validity=False))
    from executorch.exir import EdgeProgramManager
    second = EdgeProgramManager(to_backend(edge.exported_program(), each))  # looks the class up in another way
    for lowered in (first, second):
        buffer = lowered.to_executorch().buffer
        loaded = runtime._load_program_from_buffer(buffer)
        torch.testing.assert_close(loaded.load_method("forward")((x,))[0], model(x))
    print(name, len(asked))
    asked.clear()
"""


@pytest.mark.parametrize(
    "order", [("stock", "ours"), pytest.param(("ours", "stock"), marks=pytest.mark.slow)], ids="-".join
)
def test_stocks_class_and_ours_work_side_by_side(order: tuple[str, ...]) -> None:
    arguments = [json.dumps(order), json.dumps(sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", SIDE_BY_SIDE, *arguments], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # What our compiler was asked for, in both ways in which ExecuTorch looks a class up.
    assert dict(line.split() for line in done.stdout.splitlines()) == {"stock": "0", "ours": "2"}
