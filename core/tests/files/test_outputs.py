"""Several files are written all or none: whatever fails, the folder is as it was before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import handmade
import pytest

from delegatekit.pte import Datum, PtdImage, PteImage, read_ptd, write
from delegatekit.files import write_files
from delegatekit_api import FormatError, LoweringError


def writes(content: bytes) -> Callable[[BinaryIO], None]:
    def writer(file: BinaryIO) -> None:
        file.write(content)

    return writer


def fails(file: BinaryIO) -> None:
    file.write(b"half")
    raise RuntimeError("disk on fire")


def folder_content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_all_files_appear_and_replace_old_ones(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    write_files({tmp_path / "a": writes(b"1"), tmp_path / "b": writes(b"2")})
    assert folder_content(tmp_path) == {"a": b"1", "b": b"2"}


def test_nothing_changes_if_the_second_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(RuntimeError, match="disk on fire"):
        write_files({tmp_path / "a": writes(b"1"), tmp_path / "b": fails})
    assert folder_content(tmp_path) == {"a": b"old"}


@pytest.mark.parametrize("at", range(1, 6))
def test_the_old_files_come_back_if_a_new_one_cannot_take_its_place(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renaming fails at the first, second, ... step: three files, of which two replace old ones, take five."""
    (tmp_path / "a").write_bytes(b"old a")
    (tmp_path / "c").write_bytes(b"old c")
    calls = 0
    replace = Path.replace

    def replace_once_badly(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == at:
            raise OSError("no more names")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_once_badly)
    with pytest.raises(OSError, match="no more names"):
        write_files({tmp_path / name: writes(b"new") for name in "abc"})
    assert folder_content(tmp_path) == {"a": b"old a", "c": b"old c"}


def test_a_folder_in_the_way_is_named_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "model.ptd").mkdir()
    image = PteImage(handmade.add_image().plans, (handmade.WEIGHT,), data_files={"": PtdImage((Datum("a", b"1"),))})
    with pytest.raises(FormatError, match=r"model\.ptd: is a folder"):
        write(image, tmp_path / "model.pte")
    assert [path.name for path in tmp_path.iterdir()] == ["model.ptd"]


@pytest.mark.parametrize(("path", "names"), [("model.pte", ["model.ptd", "model.pte"]), ("v1.5", ["v1.5.ptd", "v1.5"])])
def test_the_data_file_is_named_as_the_program(path: str, names: list[str], tmp_path: Path) -> None:
    image = PteImage(handmade.add_image().plans, (handmade.WEIGHT,), data_files={"": PtdImage((Datum("a", b"1"),))})
    assert [written.name for written in write(image, tmp_path / path)] == names
    assert sorted(folder_content(tmp_path)) == sorted(names)
    assert bytes(read_ptd(tmp_path / names[0])["a"].data) == b"1"


@pytest.mark.parametrize(("path", "files"), [("model.pte", ["", "model"]), ("model.ptd", ["model"])])
def test_two_files_of_one_name_are_refused(path: str, files: list[str], tmp_path: Path) -> None:
    data = {name: PtdImage((Datum("a", b"1"),)) for name in files}
    image = PteImage(handmade.add_image().plans, (handmade.WEIGHT,), data_files=data)
    with pytest.raises(LoweringError, match="two files of this program have this name"):
        write(image, tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_a_faulty_data_file_keeps_the_program_from_being_written(tmp_path: Path) -> None:
    data = PtdImage((Datum("a", b"1"), Datum("a", b"2")))
    image = PteImage(handmade.add_image().plans, (handmade.WEIGHT,), data_files={"": data})
    with pytest.raises(LoweringError, match="two different"):
        write(image, tmp_path / "model.pte")
    assert not list(tmp_path.iterdir())
