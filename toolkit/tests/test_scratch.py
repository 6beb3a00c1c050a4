"""Scratch folders: removed at the end, and those of killed processes at the next start; nothing else is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delegatekit_toolkit import scratch as scratches
from delegatekit_toolkit.processes import search_path
from delegatekit_toolkit.scratch import remove_abandoned, scratch

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs file locks")

#: Makes a folder with something in it, prints its path, and waits.
_OWNER = """
import pathlib, sys
from delegatekit_toolkit.scratch import scratch
with scratch() as folder:
    (folder / "inner").mkdir()
    (folder / "inner" / "weights").write_bytes(bytes(100))
    (folder / "inner" / "link").symlink_to(sys.argv[1])
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of temporary files that no process has searched yet."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setenv("TMPDIR", str(found))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(scratches, "_cleaned", set())
    return found


@contextmanager
def owned(target: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a scratch folder that contains a link to `target`."""
    command = [sys.executable, "-c", _OWNER, str(target)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=search_path(), text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_folder_is_removed_at_the_end_whatever_lies_in_it(top: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    with pytest.raises(ValueError, match="fault"), scratch() as folder:
        assert folder.parent == top and folder.stat().st_mode & 0o777 == 0o700
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "a" / "b" / "link").symlink_to(kept)
        (folder / "a" / "link").symlink_to(tmp_path)
        raise ValueError("fault")
    assert list(top.iterdir()) == [] and kept.read_text() == "kept"


def test_what_a_killed_process_left_is_removed_at_the_next_start(top: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    with owned(kept) as (process, folder):
        process.kill()
        process.wait()
        assert (folder / "inner" / "weights").exists()
        with scratch() as other:
            assert list(top.iterdir()) == [other]
    assert (kept / "file").read_text() == "kept"


def test_the_folder_of_a_living_process_stays(top: Path, tmp_path: Path) -> None:
    with owned(tmp_path) as (_, folder):
        with scratch():
            assert (folder / "inner" / "weights").exists()
        remove_abandoned(top)
        assert (folder / "inner" / "weights").exists()


def test_only_our_own_folders_are_removed(top: Path, tmp_path: Path) -> None:
    def made(name: str, where: Path = top) -> Path:
        folder = where / name
        folder.mkdir()
        (folder / "file").touch()
        return folder

    outside = made("delegatekit-outside1", tmp_path)
    (outside / scratches._OWNER).touch()
    made("delegatekit-12345678")
    other_name = made("delegatekit-results")
    (other_name / scratches._OWNER).touch()
    (top / "delegatekit-abcdefgh").symlink_to(outside)
    linked_owner = made("delegatekit-ijklmnop")
    (linked_owner / scratches._OWNER).symlink_to(outside / scratches._OWNER)
    hard_owner = made("delegatekit-qrstuvwx")
    os.link(outside / scratches._OWNER, hard_owner / scratches._OWNER)
    pipe = made("delegatekit-yz123456")
    os.mkfifo(pipe / scratches._OWNER)
    (top / "delegatekit-file1234").touch()
    before = sorted(top.rglob("*"))
    remove_abandoned(top)
    assert sorted(top.rglob("*")) == before
    assert (outside / "file").exists()
    ours = made("delegatekit-78901234")
    (ours / scratches._OWNER).touch()
    remove_abandoned(top)
    assert sorted(top.rglob("*")) == before


def test_a_folder_of_another_user_stays(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = top / "delegatekit-12345678"
    folder.mkdir()
    (folder / scratches._OWNER).touch()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    remove_abandoned(top)
    assert folder.exists()


def test_many_that_start_at_once_disturb_each_other_neither_in_making_nor_in_removing(top: Path) -> None:
    code = (
        "from delegatekit_toolkit import scratch as scratches\n"
        "import tempfile\n"
        "from pathlib import Path\n"
        "for _ in range(150):\n"
        "    scratches._cleaned.clear()\n"
        "    with scratches.scratch() as folder:\n"
        "        (folder / 'weights').write_bytes(b'1')\n"
        "        scratches.remove_abandoned(Path(tempfile.gettempdir()))\n"
        "        assert (folder / 'weights').read_bytes() == b'1'\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code], env=search_path()) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    remove_abandoned(top)
    assert list(top.iterdir()) == []
