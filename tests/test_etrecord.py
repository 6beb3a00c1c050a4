"""ETRecords: the stock Inspector opens ours beside an ETDump of the stock runtime, and finds operators and lines."""

from __future__ import annotations

import operator
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit as dk

devtools: Any = pytest.importorskip("executorch.devtools", reason="ExecuTorch's developer tools are not installed")
stock: Any = pytest.importorskip("executorch.devtools.etrecord")
_C: Any = pytest.importorskip("executorch.extension.pybindings._C")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Output Buffer not found", "ignore:Unsupported kwarg", "ignore:.*deprecated")
]


class Net(nn.Module):
    """With XNNPACK two delegates around an operator that stays with the runtime."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.atan(self.stem(x)))


class Kinds(nn.Module):
    """Several results, literals as inputs and outputs, a weight that is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, x: torch.Tensor, count: int, shift: float, none: None) -> Any:
        left, right = torch.split(x * self.scale, [1, 3], 1)
        return (
            left * count,
            torch.topk(right, 2)[0] + shift,
            5,
            torch.cat([x, torch.ones(1, 4)]).clamp(max=float("inf")),
        )


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.full((3,), 10.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count * 2


class Sizes(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.reshape(-1, 2, 2).sum(0), torch.arange(x.shape[0]), torch.cat([x, x])[: x.shape[0]]


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin() * 2, lambda y: y.cos() + 1, (x,))


def saved(program: dk.LoweredProgram, folder: Path) -> str:
    program.save(folder / "net.pte", beside={folder / "net.etrecord": dk.etrecord(program)})
    return str(folder / "net.etrecord")


def inspected(program: dk.LoweredProgram, inputs: tuple[Any, ...], folder: Path) -> list[Any]:
    """The events of one call in the stock runtime, as the stock Inspector shows them."""
    record = saved(program, folder)
    data = (folder / "net.pte").read_bytes()  # the binding does not keep it
    loaded = _C._load_for_executorch_from_buffer(data, enable_etdump=True)
    loaded.run_method("forward", inputs)
    loaded.write_etdump_result_to_file(str(folder / "net.etdump"))
    inspector = devtools.Inspector(etdump_path=str(folder / "net.etdump"), etrecord=record)
    return [event for block in inspector.event_blocks if block.name == "Execute" for event in block.events]


@pytest.mark.parametrize("backends", [[], ["xnnpack"]])
def test_events_lead_to_operators_and_lines(backends: list[str], tmp_path: Path) -> None:
    inputs = (torch.randn(2, 8),)
    events = inspected(dk.lower(Net().eval(), inputs, backends=backends), inputs, tmp_path)
    calls = [event for event in events if event.name in ("OPERATOR_CALL", "DELEGATE_CALL")]
    assert [event.op_types for event in calls] == [
        ["aten.linear.default"], ["aten.atan.default"], ["aten.linear.default"]
    ]  # fmt: skip
    for event in calls:
        (trace,) = event.stack_traces.values()
        assert "test_etrecord.py" in trace and "self.head(torch.atan(self.stem(x)))" in trace
        (modules,) = event.module_hierarchy.values()
        assert next(iter(modules.values())) == ("", f"{__name__}.Net")
    assert [event.delegate_backend_name for event in calls] == (
        ["XnnpackBackend", None, "XnnpackBackend"] if backends else [None] * 3
    )


def test_operators_inside_a_delegate_are_never_led_to_another_one(tmp_path: Path) -> None:
    """The Inspector matches a key that is a substring of the event's name: "2" in "Transpose (ND, X32) #1"."""
    inputs = (torch.randn(1, 3, 8, 8),)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 1)).eval()
    events = inspected(dk.lower(module, inputs, backends=["xnnpack"]), inputs, tmp_path)
    inside = [event for event in events if event.is_delegated_op and event.name != "DELEGATE_CALL"]
    assert inside and all(not event.debug_handles for event in inside)


def test_branches_lead_to_their_lines(tmp_path: Path) -> None:
    inputs = (torch.ones(3),)
    events = inspected(dk.lower(torch.export.export(Branch(), inputs), backends=[]), inputs, tmp_path)
    (sine,) = (event for event in events if event.name == "native_call_sin.out")
    assert sine.op_types == ["aten.sin.default"] and "torch.cond" in next(iter(sine.stack_traces.values()))


ROWS = torch.export.Dim("rows", min=2, max=16)
PROGRAMS: dict[str, tuple[nn.Module, tuple[Any, ...], Any, tuple[Any, ...]]] = {
    "net": (Net(), (torch.randn(2, 8),), None, (torch.randn(2, 8),)),
    "kinds": (Kinds(), (torch.ones(2, 4), 3, 0.5, None), None, (torch.randn(2, 4), 3, 0.5, None)),
    "state": (Counter(), (torch.ones(3),), None, (torch.randn(3),)),
    "sizes": (Sizes(), (torch.ones(4, 4),), ({0: ROWS},), (torch.randn(6, 4),)),
    "attention": (nn.MultiheadAttention(8, 2), (torch.randn(3, 1, 8),) * 3, None, (torch.randn(3, 1, 8),) * 3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_in_a_record_computes_what_the_model_does(name: str, tmp_path: Path) -> None:
    module, example, shapes, inputs = PROGRAMS[name]
    exported = torch.export.export(module.eval(), example, dynamic_shapes=shapes)
    record = stock.parse_etrecord(saved(dk.lower(exported, backends=["reference"]), tmp_path))
    want, got = exported.module()(*inputs), record.edge_dialect_program.module()(*inputs)
    pairs = zip(*(torch.utils._pytree.tree_leaves(item) for item in (got, want)), strict=True)
    tensors = [(mine, yours) for mine, yours in pairs if isinstance(yours, torch.Tensor)]
    assert tensors
    for mine, yours in tensors:
        torch.testing.assert_close(mine, yours, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_handle_of_an_instruction_is_a_node_of_the_program(name: str, tmp_path: Path) -> None:
    module, example, shapes, _ = PROGRAMS[name]
    program = dk.lower(torch.export.export(module.eval(), example, dynamic_shapes=shapes), backends=["xnnpack"])
    record = stock.parse_etrecord(saved(program, tmp_path))
    nodes = {
        node.meta["debug_handle"]
        for node in record.edge_dialect_program.graph.nodes
        if node.op == "call_function" and node.target is not operator.getitem
    }
    calls = [item["calls"] for item in program.debug_map()["forward"]["instructions"]]
    handles = record._debug_handle_map["forward"]
    assert len(handles) == len(calls)
    assert all(set(found) <= nodes for found in handles.values())
    assert set(record._delegate_map["forward"]) == {
        str(index) for index, name in enumerate(calls) if name.startswith("delegate")
    }


def test_several_methods_are_in_one_record(tmp_path: Path) -> None:
    x = torch.ones(3)
    programs = {"second": torch.export.export(nn.ReLU(), (x,)), "forward": torch.export.export(nn.Tanh(), (x,))}
    record = stock.parse_etrecord(saved(dk.lower(programs, backends=[]), tmp_path))
    torch.testing.assert_close(record.edge_dialect_program.module()(x), x.tanh())
    torch.testing.assert_close(record.graph_map["methods/second"].module()(-x), torch.zeros(3))
    assert set(record._debug_handle_map) == {"forward", "second"}


def test_equal_programs_have_equal_records_that_no_compression_changes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, inputs = Net().eval(), (torch.randn(2, 8),)
    contents = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        path = Path(saved(dk.lower(module, inputs, backends=["xnnpack"]), tmp_path / name))
        contents.append(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
            assert archive.namelist()[0] == "ETRECORD_V0" and archive.testzip() is None
    assert contents[0] == contents[1]


def test_a_file_of_text_keys_ends_with_the_longest(tmp_path: Path) -> None:
    """Of several keys that are part of a name, the Inspector takes the last: that of the name itself."""
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
    record = stock.parse_etrecord(saved(dk.lower(module, (torch.randn(2, 8),), backends=["coreml"]), tmp_path))
    (delegate,) = record._delegate_map["forward"].values()
    lengths = [len(key) for key in delegate["delegate_map"]]
    assert lengths == sorted(lengths) and len(lengths) > 1 and delegate["name"] == "CoreMLBackend"
