"""Files as graphs: every instruction is a box, its edges are the file's, and delegates expand."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit.pte.estimates import Estimates
from delegatekit_api import FormatError
from delegatekit_api.devices import Estimate, LayerEstimate
from delegatekit_tools.model_explorer import Drawing, drawings


class Net(nn.Module):
    """Two delegates around an operator that the reference is not given; the input is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.atan(self.first(x).relu()) + x)


@pytest.fixture(scope="module")
def lowered() -> dk.LoweredProgram:
    return dk.lower(Net().eval(), (torch.randn(2, 8),), backends=["reference"], skip=["aten.atan.default"])


def drawn(lowered: dk.LoweredProgram, folder: Path, *, record: bool) -> list[Drawing]:
    lowered.save(folder / "net.pte", beside={folder / "net.etrecord": dk.etrecord(lowered)} if record else {})
    return drawings(folder / "net.pte")


def test_instructions_are_boxes_with_the_edges_of_the_file(lowered: dk.LoweredProgram, tmp_path: Path) -> None:
    method, *_ = drawn(lowered, tmp_path, record=False)
    boxes = {box.label: box for box in method.boxes}
    assert list(boxes) == [
        "input 0", "delegate 0: ReferenceBackend", "aten::atan.out", "delegate 1: ReferenceBackend", "outputs"
    ]  # fmt: skip
    assert boxes["aten::atan.out"].reads == ("0",) and set(boxes["delegate 1: ReferenceBackend"].reads) == {
        "1",
        "input 0",
    }
    assert boxes["outputs"].reads == ("2",) and boxes["input 0"].facts == {"value": "float32[2, 8]"}
    assert boxes["aten::atan.out"].inside is None
    assert boxes["delegate 0: ReferenceBackend"].facts["made by"].startswith("delegatekit-reference")


def test_a_record_opens_the_delegates(lowered: dk.LoweredProgram, tmp_path: Path) -> None:
    method, first, second = drawn(lowered, tmp_path, record=True)
    assert [box.inside for box in method.boxes if box.inside] == [first.id, second.id]
    linear, relu = first.boxes
    assert (linear.label, linear.group) == ("aten.linear.default", "first")
    assert relu.label == "aten.relu.default" and relu.reads == (linear.id,)
    assert "test_graphs.py" in relu.facts["source"]
    assert [box.label for box in second.boxes] == ["aten.add.Tensor", "aten.linear.default"]


def test_without_a_record_the_plugin_tells_what_is_inside(lowered: dk.LoweredProgram, tmp_path: Path) -> None:
    method, first, second = drawn(lowered, tmp_path, record=False)
    assert [box.inside for box in method.boxes if box.inside] == [first.id, second.id]
    linear, relu = first.boxes
    assert (linear.label, relu.label, relu.reads) == ("aten.linear.default", "aten.relu.default", (linear.id,))
    assert linear.facts["reads from outside"] == "input 0, constant 0, constant 1"


def test_a_bundle_is_drawn_as_its_program(lowered: dk.LoweredProgram, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    plain = drawn(lowered, tmp_path / "one", record=False)
    dk.bundle(lowered.buffer, {}).save(tmp_path / "x.bpte")
    assert drawings(tmp_path / "x.bpte") == plain


def test_a_record_of_another_program_or_a_damaged_one_is_refused(lowered: dk.LoweredProgram, tmp_path: Path) -> None:
    other = dk.lower(Net().eval(), (torch.randn(2, 8),), backends=[])
    other.save(tmp_path / "o.pte", beside={tmp_path / "net.etrecord": dk.etrecord(other)})
    with pytest.raises(FormatError, match=r"net\.etrecord: is of another program: method forward differs"):
        drawn(lowered, tmp_path, record=False)
    (tmp_path / "net.etrecord").write_bytes(b"PK nothing")
    with pytest.raises(FormatError, match="is no ETRecord"):
        drawings(tmp_path / "net.pte")
    for content in ('{"forward": 1', "[]", '{"forward": {"0": {}}}'):
        with zipfile.ZipFile(tmp_path / "net.etrecord", "w") as archive:
            archive.writestr("debug_handle_map", content)
            archive.writestr("delegate_map", content)
        with pytest.raises(FormatError, match=r"is no ETRecord|is not JSON|not an object|another program"):
            drawings(tmp_path / "net.pte")


def test_without_a_record_and_the_plugin_the_layers_of_an_estimate_are_inside(
    lowered: dk.LoweredProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = (LayerEstimate("conv1", "Conv2D", 2e-6), LayerEstimate("pool", "MaxPool", 1e-6))
    estimates = Estimates({"forward": (Estimate("a compiler", layers=layers), None)})
    monkeypatch.setattr("delegatekit.reading.read_estimates", lambda file: estimates)
    monkeypatch.setenv("DELEGATEKIT_BACKENDS", "another")
    method, inside = drawn(lowered, tmp_path, record=False)
    assert [box.inside for box in method.boxes if box.inside] == [inside.id]
    assert [(box.label, box.reads, box.facts["estimate"]) for box in inside.boxes] == [
        ("conv1", (), "2.000 us"), ("pool", ("0",), "1.000 us")
    ]  # fmt: skip
