"""Tensors on temporary files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

from delegatekit_api import LoweringError, NamedData
from delegatekit_toolkit import spilling
from delegatekit_toolkit.later import Shelf
from delegatekit_toolkit.spilling import is_spilled, spilled, spilled_like


@pytest.fixture(autouse=True)
def least(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small tensors go to files, in a folder of the test."""
    monkeypatch.setattr(spilling, "_LEAST", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float32, torch.bfloat16, torch.bool])
def test_elements_are_the_same_and_no_file_stays(dtype: torch.dtype, tmp_path: Path) -> None:
    data = torch.arange(12).reshape(3, 4).t().to(dtype)
    found = spilled(data)
    assert torch.equal(found, data) and found.dtype is dtype and found.is_contiguous()
    assert is_spilled(found) and not is_spilled(data) and not any(tmp_path.iterdir())
    assert spilled(found) is found
    assert is_spilled(spilled_like(found, data)) and spilled_like(data, data) is data


def test_small_tensors_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling, "_LEAST", 17)
    data = torch.zeros(4)
    assert spilled(data) is data


def test_where_files_cannot_be_removed_tensors_stay_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spilling, "_REMOVES", False)
    data = torch.arange(4)
    assert spilled(data) is data
    (tmp_path / "data").write_bytes(bytes(range(8)))
    assert spilling.mapped(tmp_path / "data", 8).tolist() == list(range(8))


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(LoweringError, match=r"(?s)16 bytes of a constant cannot be written: No space left.*TMPDIR"):
        spilled(torch.zeros(4))


def test_what_is_on_a_file_is_not_made_again() -> None:
    items = [NamedData("file", spilled(torch.zeros(4))), NamedData("memory", torch.zeros(4))]
    found = Shelf(room=0).put_off(items, lambda: items, "here")
    assert found["file"] is items[0] and found["memory"].data.nbytes == 16
