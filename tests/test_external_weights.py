"""Weights of XNNPACK delegates outside the .pte: both engines run them from a data file."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit.pte import read, read_ptd
from delegatekit_api import FormatError

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")


class Net(nn.Module):
    """Two delegates (cumsum is between them) and a constant of the runtime's own operators."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)
        self.scale = nn.Parameter(torch.arange(1.0, 33.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.cumsum(torch.gather(self.scale, 0, torch.arange(32)) + self.first(x), 1))


X = torch.linspace(-1, 1, 48).reshape(3, 16)


@pytest.fixture(scope="module")
def eager() -> torch.Tensor:
    with torch.no_grad():
        return Net().eval()(X)


def save(folder: Path, external: Any) -> list[Path]:
    return list(dk.lower(Net().eval(), (X,), backends=["xnnpack"], external=external).save(folder / "model.pte"))


def test_both_engines_run_delegates_whose_weights_are_outside(eager: torch.Tensor, tmp_path: Path) -> None:
    data, path = save(tmp_path, True)
    stored = read_ptd(data)
    assert sum(item.layout is None for item in stored.values()) >= 4
    assert set(read(path).named_data) == {"delegatekit.manifest"}
    ours = dk.load(path, data=data)["forward"](X)
    stock = _C._load_program(str(path), data_path=str(data)).load_method("forward")((X,))[0]
    torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(stock, eager, rtol=1e-5, atol=1e-4)


def test_the_report_counts_data_that_is_tied_once(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lookup, self.head = nn.Embedding(64, 256), nn.Linear(256, 64, bias=False)
            self.head.weight = self.lookup.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.lookup(tokens))

    program = dk.lower(Tied().eval(), (torch.tensor([3, 1]),), backends=["xnnpack"], external=True)
    data, _ = program.save(tmp_path / "tied.pte")
    (told,) = dk.report(program).data_files.values()
    assert 64 * 256 * 4 == told < data.stat().st_size < 2 * told


def test_the_predicate_sees_the_data_of_backends_and_chooses_among_it(eager: torch.Tensor, tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    def choose(name: str, data: Any) -> bool:
        seen[name] = data.nbytes
        return bool(data.nbytes > 1000)

    data, path = save(tmp_path, choose)
    assert sorted(seen.values())[-2:] == [32 * 8 * 4, 16 * 32 * 4]
    assert sorted(len(item.data) for item in read_ptd(data).values()) == [32 * 8 * 4, 16 * 32 * 4]
    named = read(path).named_data
    assert len(named) >= 3 and not set(named) & set(read_ptd(data))
    stock = _C._load_program(str(path), data_path=str(data)).load_method("forward")((X,))[0]
    torch.testing.assert_close(dk.load(path, data=data)["forward"](X), eager, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(stock, eager, rtol=1e-5, atol=1e-4)


def test_our_engine_takes_several_data_files_and_the_stock_binding_one(eager: torch.Tensor, tmp_path: Path) -> None:
    *files, path = save(tmp_path, lambda name, data: "big" if data.nbytes > 1000 else True)
    assert sorted(file.name for file in files) == ["big.ptd", "model.ptd"]
    torch.testing.assert_close(dk.load(path, data=files)["forward"](X), eager, rtol=1e-5, atol=1e-4)
    # `_load_program(path, ..., data_path=None)`: one path. With half of the keys the method is refused.
    program = _C._load_program(str(path), data_path=str(tmp_path / "model.ptd"))
    with pytest.raises(RuntimeError, match="Failed to load method"):
        program.load_method("forward")


def test_missing_data_of_a_backend_is_refused_with_its_key_and_the_file_that_has_it(tmp_path: Path) -> None:
    data, path = save(tmp_path, lambda name, data: data.nbytes > 1000 and "big")
    keys = set(read_ptd(data))
    key = next(iter(read_ptd(data)))
    data.unlink()
    with pytest.raises(FormatError, match=rf"named data {key}: is outside the \.pte, in the data file big\.ptd"):
        dk.load(path)
    assert {item.key for item in dk.inspect(path).external} == keys


def test_without_the_data_file_the_stock_runtime_refuses_the_method(tmp_path: Path) -> None:
    """It has a map of named data, because our files have a manifest. A file without any crashes it: next test."""
    _, path = save(tmp_path, True)
    program = _C._load_program(str(path))
    with pytest.raises(RuntimeError, match="Failed to load method"):
        program.load_method("forward")


def test_a_stock_file_without_its_data_file_crashes_the_stock_runtime_and_is_refused_by_us(
    stock_external: Path,
) -> None:
    path = stock_external / "xnnpack.pte"
    script = (
        "import sys, torch\nfrom executorch.extension.pybindings import _C\n"
        "_C._load_program(sys.argv[1]).load_method('forward')\n"
    )
    result = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=False)
    assert result.returncode == -signal.SIGSEGV
    with pytest.raises(FormatError):
        dk.load(path)["forward"]


def test_the_engine_runs_a_delegate_of_stock_whose_weights_are_outside(stock_external: Path) -> None:
    x, expected, _ = torch.load(stock_external / "expected.pt")
    program = dk.load(stock_external / "xnnpack.pte", data=stock_external / "xnnpack.ptd")
    torch.testing.assert_close(program["forward"](x), expected)
