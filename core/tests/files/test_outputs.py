"""Several files are written all or none: whatever fails, the folder is as it was before."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import handmade
import pytest
import torch

from delegatekit.files import check_outputs, shielded, write_files
from delegatekit.pte import Datum, PtdImage, PteImage, read_ptd, write
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
    """The first, second, ... step fails: three files, of which two replace old ones, take five."""
    (tmp_path / "a").write_bytes(b"old a")
    (tmp_path / "c").write_bytes(b"old c")
    calls = 0
    replace, link = Path.replace, os.link

    def count() -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise OSError("no more names")

    def replace_once_badly(self: Path, target: Path) -> Path:
        count()
        return replace(self, target)

    def link_once_badly(source: Path, target: Path) -> None:
        count()
        link(source, target)

    def never_copy(*_: object) -> None:
        raise OSError("no more names, nor space")

    monkeypatch.setattr(Path, "replace", replace_once_badly)
    monkeypatch.setattr(os, "link", link_once_badly)
    monkeypatch.setattr(shutil, "copy2", never_copy)
    with pytest.raises(FormatError, match="no more names"):
        write_files({tmp_path / name: writes(b"new") for name in "abc"})
    assert folder_content(tmp_path) == {"a": b"old a", "c": b"old c"}


def test_old_files_are_copied_where_a_file_has_one_name_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    for name in "ab":
        (tmp_path / name).write_bytes(b"old")
    monkeypatch.setattr(os, "link", refuse)
    write_files({tmp_path / name: writes(b"new") for name in "ab"})
    assert folder_content(tmp_path) == {"a": b"new", "b": b"new"}


def test_several_files_are_never_missing_while_they_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"old")
    replace = Path.replace

    def look(self: Path, target: Path) -> Path:
        assert all((tmp_path / name).exists() for name in "ab")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", look)
    write_files({tmp_path / name: writes(b"new") for name in "ab"})
    assert folder_content(tmp_path) == {"a": b"new", "b": b"new"}


# -- allowed paths -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["folder", "FIFO", "device", "link to a device"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A path that is no regular file, and its name in the error."""
    path, kind = tmp_path / "odd", str(request.param)
    if kind == "folder":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/null")
    else:
        path.symlink_to("/dev/null")
    return path, kind.removeprefix("link to a ")


def test_only_regular_files_are_replaced(odd: tuple[Path, str], tmp_path: Path) -> None:
    path, kind = odd
    before = path.stat()
    with pytest.raises(FormatError, match=f"{path}: is a {kind}, not a file"):
        check_outputs(path)
    with pytest.raises(FormatError, match=f"{path}: is a {kind}, not a file"):
        write_files({tmp_path / "first": writes(b"1"), path: writes(b"2")})
    assert os.path.samestat(before, path.stat())
    assert not (tmp_path / "first").exists()


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_is_followed(exists: bool, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    if exists:
        (tmp_path / "sub" / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("sub/target")
    write_files({tmp_path / "link": writes(b"new")})
    assert (tmp_path / "link").is_symlink()
    assert folder_content(tmp_path / "sub") == {"target": b"new"}


def test_a_link_to_itself_and_impossible_names_are_errors(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "loop", tmp_path / "a\0b", tmp_path / ("n" * 300)):
        with pytest.raises(FormatError):
            check_outputs(path)


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o666])
def test_the_mode_of_an_existing_file_is_kept(mode: int, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    write_files({tmp_path / "a": writes(b"1"), tmp_path / "b": writes(b"2")})
    assert [(tmp_path / name).stat().st_mode & 0o7777 for name in "ab"] == [mode, mode]


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_files({tmp_path / "a": writes(b"1")})
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_write_protection_is_honored_also_by_root(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o444)
    with pytest.raises(FormatError, match=r"a: is write-protected\n  -> .*chmod"):
        check_outputs(tmp_path / "a")
    with pytest.raises(FormatError, match=r"a: is write-protected\n  -> .*chmod"):
        write_files({tmp_path / "a": writes(b"new")})
    assert folder_content(tmp_path) == {"a": b"old"}


@pytest.mark.parametrize("how", ["name", "symbolic link", "hard link", "dots"])
def test_one_file_for_two_contents_is_refused(how: str, tmp_path: Path) -> None:
    first = second = tmp_path / "a"
    first.write_bytes(b"old")
    if how != "name":
        second = tmp_path / "b"
    if how == "symbolic link":
        second.symlink_to("a")
    elif how == "hard link":
        second.hardlink_to(first)
    elif how == "dots":
        second = tmp_path / ".." / tmp_path.name / "a"
    with pytest.raises(FormatError, match=f"is the same file as {first}"):
        check_outputs(first, None, second)
    assert first.read_bytes() == b"old"


def test_what_is_tried_leaves_no_trace(tmp_path: Path) -> None:
    check_outputs(tmp_path / "new", None)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_takes_no_files_is_found_before_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(FormatError, match="a: cannot be written: Read-only file system"):
        check_outputs(tmp_path / "a")


# -- full disks and killed writers -------------------------------------------------------------------------------------


@contextmanager
def small_files() -> Iterator[None]:
    """No file may be longer than 4096 bytes: simulates a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("writer", ["bytes", "archive"])
def test_a_full_disk_is_an_error_and_the_old_file_stays(writer: str, tmp_path: Path) -> None:
    """PyTorch's archive writer would end the process (SIGABRT) if the file raised."""
    (tmp_path / "a").write_bytes(b"old")
    write = writes(b"x" * 100_000) if writer == "bytes" else shielded(lambda file: torch.save(torch.ones(10_000), file))
    with small_files(), pytest.raises(FormatError, match="a: cannot be written: File too large"):
        write_files({tmp_path / "a": write})
    assert folder_content(tmp_path) == {"a": b"old"}


def test_a_shielded_writer_may_fail_by_itself_and_may_succeed(tmp_path: Path) -> None:
    def fails_itself(file: BinaryIO) -> None:
        raise RuntimeError("not serializable")

    with pytest.raises(RuntimeError, match="not serializable"):
        write_files({tmp_path / "a": shielded(fails_itself)})
    write_files({tmp_path / "a": shielded(lambda file: torch.save(torch.ones(2), file))})
    assert torch.equal(torch.load(tmp_path / "a", weights_only=True), torch.ones(2))


def test_leftovers_of_a_killed_writer_are_removed_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom delegatekit.files import write_files\n"
        "write_files({Path(sys.argv[1]): lambda file: (file.write(b'half'), os.kill(os.getpid(), 9))})"
    )
    path = tmp_path / ("model" * 40)
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=60).returncode == -9
    (left,) = tmp_path.iterdir()
    (tmp_path / ".other.0123abcd.part").touch()
    write_files({path: writes(b"whole")})
    assert folder_content(tmp_path) == {path.name: b"whole", ".other.0123abcd.part": b""}
    assert left.name.startswith(".model")


def test_files_of_a_writer_that_still_runs_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "model"

    def meanwhile(file: BinaryIO) -> None:
        write_files({path: writes(b"second")})
        file.write(b"first")

    write_files({path: meanwhile})
    assert folder_content(tmp_path) == {"model": b"first"}


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
