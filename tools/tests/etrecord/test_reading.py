"""ETRecords, ours and ExecuTorch's own, tell where the times of a profile come from."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit_api import DelegateKitError
from delegatekit_tools.etrecord import read_etrecord


class Net(nn.Module):
    """Two delegates around an operator that XNNPACK does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.atan(self.first(x)))


INPUTS = (torch.randn(2, 8),)


def rezipped(path: Path, target: Path, **members: bytes | None) -> Path:
    """The archive with other members; None leaves one out."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = members.get(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return target


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("etrecord")
    program = dk.lower(Net().eval(), INPUTS, backends=["reference"], skip=["aten.atan.default"])
    program.save(path / "net.pte", beside={path / "net.etrecord": dk.etrecord(program)})
    return path


def test_our_own_record_tells_what_the_debug_map_tells(folder: Path) -> None:
    method = dk.load(folder / "net.pte")["forward"]
    found = dk.profile(method, INPUTS, runs=2, debug_map=read_etrecord(folder / "net.etrecord"))
    assert [item.origin.modules for item in found.instructions] == [("first",), (), ("second",)]
    assert all("test_reading.py" in item.origin.sources[0] for item in found.instructions)
    assert found.instructions[1].origin.operators == ("aten.atan.default",)
    assert {part.name for part in found.parts("module").parts} == {"first", "second"}


def test_the_record_of_stock_executorch_tells_modules_and_lines(tmp_path: Path) -> None:
    exir: Any = pytest.importorskip("executorch.exir", reason="ExecuTorch is not installed")
    xnnpack: Any = pytest.importorskip("executorch.backends.xnnpack.partition.xnnpack_partitioner")
    exported = torch.export.export(Net().eval(), INPUTS)
    edge = exir.to_edge_transform_and_lower(
        exported, partitioner=[xnnpack.XnnpackPartitioner()], generate_etrecord=True
    )
    program = edge.to_executorch()
    program.get_etrecord().save(str(tmp_path / "net.etrecord"))
    method = dk.load(program.buffer)["forward"]
    found = dk.profile(method, INPUTS, runs=2, debug_map=read_etrecord(tmp_path / "net.etrecord"))
    assert [item.origin.modules for item in found.instructions] == [("first",), (), ("second",)]
    assert all("test_reading.py" in item.origin.sources[0] for item in found.instructions)


def test_a_record_of_another_file_is_refused(folder: Path) -> None:
    record = read_etrecord(folder / "net.etrecord")
    whole = dk.load(dk.lower(Net().eval(), INPUTS, backends=["reference"]).buffer)["forward"]
    with pytest.raises(DelegateKitError, match=r"is of another file: it has an instruction 2"):
        dk.profile(whole, INPUTS, debug_map=record)
    alone = dk.load(dk.lower(Net().eval(), INPUTS, backends=[]).buffer)["forward"]
    with pytest.raises(DelegateKitError, match=r"instruction 0 calls a delegate there, aten::.* in the file"):
        dk.profile(alone, INPUTS, debug_map=record)
    other = dk.lower(torch.export.export(Net().eval(), INPUTS), backends=["reference"])
    with pytest.raises(DelegateKitError, match="has no method 'train'"):
        record.of("train", other.methods)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"ETRECORD_V0": None}, "is no ETRecord"),
        ({"debug_handle_map": None}, "has no member debug_handle_map"),
        ({"debug_handle_map": b"[1]"}, "holds a list, not an object"),
        ({"debug_handle_map": b'{"forward": {"0": "x"}}'}, "is no part of an ETRecord"),
        ({"delegate_map": b'{"forward": {"0": {"name": "x"}}}'}, "is no part of an ETRecord"),
        ({"edge_dialect_exported_program/forward": b"{"}, "is not JSON"),
    ],
)
def test_damaged_records_are_refused(
    members: dict[str, bytes | None], words: str, folder: Path, tmp_path: Path
) -> None:
    path = rezipped(folder / "net.etrecord", tmp_path / "damaged.etrecord", **members)
    with pytest.raises(DelegateKitError, match=words):
        read_etrecord(path)


def test_positions_that_are_no_numbers_are_refused(folder: Path, tmp_path: Path) -> None:
    path = rezipped(folder / "net.etrecord", tmp_path / "a.etrecord", debug_handle_map=b'{"forward": {"x": [1]}}')
    with pytest.raises(DelegateKitError, match="names an instruction 'x'"):
        read_etrecord(path).of("forward", ["aten::add.out"])
