"""Input files: regular files only, refused at once without blocking; mapped, or copied on request."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import handmade
import pytest
import torch

import delegatekit
from delegatekit.files import check_file, open_file, open_view
from delegatekit.pte import read_ptd
from delegatekit.quantization.samples import read_calibration
from delegatekit_api import DelegateKitError, FormatError

X = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0])


@pytest.fixture(params=["folder", "FIFO", "device", "socket", "link to a FIFO"])
def odd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A path that is no regular file, and its name in the error."""
    path, kind = tmp_path / "odd.pt", str(request.param)
    if kind == "folder":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/null")
    elif kind == "link to a FIFO":
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to("fifo")
    else:
        monkeypatch.chdir(tmp_path)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
            yield path, kind
        return
    yield path, kind.removeprefix("link to a ")


READERS: dict[str, Callable[[Path], object]] = {
    "load": delegatekit.load,
    "inspect": delegatekit.inspect,
    "inspect_data": delegatekit.inspect_data,
    "data files": lambda path: delegatekit.load(handmade.add_program(), data=path),
    "read_ptd": read_ptd,
    "load_quantized": delegatekit.load_quantized,
    "calibration": lambda path: read_calibration(path, ()) if path.suffix else open_file(path),
    "open_view": open_view,
    "open_file": open_file,
    "check_file": check_file,
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(reader: str, odd: tuple[Path, str]) -> None:
    path, kind = odd
    with pytest.raises(DelegateKitError, match=f"is a {kind}, not a file"):
        READERS[reader](path)


def test_a_fifo_that_takes_the_files_place_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "x")
    monkeypatch.setattr("delegatekit.files.sources.check_file", Path)
    with pytest.raises(FormatError, match="is a FIFO"):
        open_file(tmp_path / "x")


@pytest.mark.parametrize(
    ("path", "fault"), [("nowhere.pte", "nowhere.pte: does not exist"), ("a\0b", "cannot be read")]
)
def test_a_path_that_leads_nowhere_is_named(path: str, fault: str) -> None:
    with pytest.raises(FormatError, match=fault):
        open_view(path)


def test_a_program_that_is_copied_survives_what_happens_to_its_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(handmade.add_program())
    program = delegatekit.load(path, copy=True)
    path.write_bytes(b"")
    assert torch.equal(program["forward"](X), X + handmade.WEIGHT)


def test_data_files_and_bytes_are_copied_too(tmp_path: Path) -> None:
    content = bytearray(b"12345678")
    view = open_view(content, copy=True)
    (tmp_path / "x").write_bytes(content)
    of_file = open_view(tmp_path / "x", copy=True)
    content[0] = 0
    (tmp_path / "x").write_bytes(b"")
    assert bytes(view) == bytes(of_file) == b"12345678"
