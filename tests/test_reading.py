"""The reading API: a file's content, and a third-party tool that uses it alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from packages import ROOT
from torch import nn
from torch.export import Dim

import delegatekit
from delegatekit.reading import open_program
from delegatekit_api import DelegateKitError, FormatError

TOOL = ROOT / "examples" / "delegates_by_size.py"


class Net(nn.Module):
    """Two delegates, with an operator of the runtime's own between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 64), nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.cumsum(torch.relu(self.one(x)), 1))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reading") / "net.pte"
    shapes = ({0: Dim("batch", max=8)},)
    program = delegatekit.lower(Net().eval(), (torch.randn(2, 16),), dynamic_shapes=shapes, backends=["xnnpack"])
    program.save(path)
    return path


def test_a_file_is_read_as_its_methods(saved: Path) -> None:
    program = open_program(saved)
    (method,) = program.methods.values()
    assert program.producer.startswith("delegatekit ") and program.size == saved.stat().st_size
    assert [str(method.values[index]) for index in method.inputs] == ["float32[<=8, 16]"]
    assert [str(method.values[index]) for index in method.outputs] == ["float32[<=8, <=4]"]
    assert [item.calls for item in method.instructions] == ["delegate 0", "aten::cumsum.out", "delegate 1"]
    assert [item.is_kernel for item in method.instructions] == [False, True, False]
    for delegate in method.delegates:
        assert delegate.owner.distribution == "delegatekit-xnnpack" and delegate.made_by.startswith(
            "delegatekit-xnnpack "
        )
        assert delegate.id == "XnnpackBackend" and len(delegate.blob) > 100
    first, between, last = method.instructions
    assert set(first.writes) & set(between.reads) and set(between.writes) & set(last.reads)
    assert set(first.reads) == set(method.inputs) and set(last.writes) == set(method.outputs)


def test_bytes_are_read_as_a_path_is(saved: Path) -> None:
    of_bytes, of_path = (open_program(source).methods["forward"] for source in (saved.read_bytes(), saved))
    assert (of_bytes.values, of_bytes.instructions) == (of_path.values, of_path.instructions)


def test_a_damaged_file_and_a_missing_one_are_refused(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.pte").write_bytes(saved.read_bytes()[:-200])
    with pytest.raises(FormatError, match=r"cut\.pte"):
        open_program(tmp_path / "cut.pte")
    with pytest.raises(DelegateKitError, match="absent"):
        open_program(tmp_path / "absent.pte")


class Cells(HTMLParser):
    """The texts of a table, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1] and data.strip():
            self.rows[-1][-1] += data


def test_a_tool_of_somebody_else_lists_delegates_by_size(saved: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), str(saved), "--output", str(tmp_path / "x.html")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"wrote {tmp_path / 'x.html'}\n"
    head, *rows = Cells((tmp_path / "x.html").read_text()).rows
    assert head[:5] == ["file", "method", "delegate", "made by", "blob"]
    blobs = {f"{item.index}: {item.id}": len(item.blob) for item in open_program(saved).methods["forward"].delegates}
    assert [row[2] for row in rows] == sorted(blobs, key=lambda name: -blobs[name])
    assert all(row[0] == "net.pte" and row[3].startswith("delegatekit-xnnpack ") for row in rows)


def test_it_is_small_and_imports_published_modules_only() -> None:
    text = TOOL.read_text()
    assert len(text.splitlines()) <= 60
    modules = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    ours = {module for module in modules if module and module.startswith("delegatekit")}
    named = (ROOT / "docs" / "reading.md").read_text()
    assert ours and all(f"`{module}`" in named for module in ours)
