"""Keys and signatures: minisign's own program is the referee, of what we sign and of what we accept."""

from __future__ import annotations

import base64
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from delegatekit_api import FormatError
from delegatekit_conformance.errors import InputError
from delegatekit_conformance.records import minisign

pytest.importorskip("cryptography", reason="cryptography is not installed")
DATA = b"hello\n"
#: Written by minisign 0.11: a key, its signatures of DATA, and that of older versions.
PUBLIC = """untrusted comment: minisign public key B6A919C245746A3B
RWQ7anRFwhmptnb8OJR5K22qU8YO1cbgkrz5nXZHptU51JrjdjpnOmHe
"""
SIGNED = """untrusted comment: signature from minisign secret key
RUQ7anRFwhmptmF0I5Tge3hEpQsutXgNE8F0tfqaB9EAAk/dDXuT6d4JTEC6BMOneDe0u/AvuoYGAZuel1YVhL38x45QNAldrgs=
trusted comment: as minisign 0.11 signs
j/6U4fdH3OoRbKUWkKuP7yiqMWP7JGM3/NEzG8G1P3lyh9nZT0SnWrNnI0XqtrbEzpX+3PgvVLB4PGNq6vYJDw==
"""
SIGNED_AS_OLDER_ONES = """untrusted comment: signature from minisign secret key
RWQ7anRFwhmptoJxTWHti+yt/GMAsw7Ox/LFI6WB+7Z42KLzV0K/0892mmtVRaFWx6bhG/MaY8+a14hOmkVMUXM8rb7ywbcYBAY=
trusted comment: as older ones sign
dWoiT5yP+0uHbbwc6fK4pqyah0zM8Swd18yH8+WakE5/GSLe2/+FQ0LiD59AWj0S0BW6FwRjXwkQebcgKue8Bw==
"""

Program = Callable[..., "subprocess.CompletedProcess[str]"]


def no_password() -> str:
    raise AssertionError("this key has no password")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Runs minisign in the test's folder."""
    found = shutil.which("minisign")
    if found is None:
        pytest.skip("minisign is not installed (Debian: apt-get install minisign)")

    def run(*arguments: str, answers: str = "") -> subprocess.CompletedProcess[str]:
        command = [found, *arguments]
        return subprocess.run(command, cwd=tmp_path, input=answers, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def key(tmp_path: Path) -> minisign.SecretKey:
    minisign.write_key(tmp_path / "lab.key")
    return minisign.read_secret_key(tmp_path / "lab.key", no_password)


def fault(folder: Path, signature: str, data: bytes = DATA, public: str = PUBLIC) -> str:
    """What is wrong with the content of a signature's file."""
    (folder / "x.pub").write_text(public)
    (folder / "x.minisig").write_text(signature)
    return minisign.read_signature(folder / "x.minisig").fault(data, minisign.read_public_key(folder / "x.pub"))


@pytest.mark.parametrize("signed", [SIGNED, SIGNED_AS_OLDER_ONES])
def test_what_minisign_signed_is_verified(tmp_path: Path, signed: str) -> None:
    assert fault(tmp_path, signed) == ""
    assert fault(tmp_path, signed.replace("\n", "\r\n")) == ""
    assert "does not fit the file" in fault(tmp_path, signed, DATA + b" ")
    assert "trusted comment was changed" in fault(tmp_path, signed.replace("comment: as", "comment: As"))
    assert minisign.read_public_key(tmp_path / "x.pub").number == "B6A919C245746A3B"


def test_minisign_verifies_what_we_sign(program: Program, tmp_path: Path, key: minisign.SecretKey) -> None:
    (tmp_path / "a.json").write_bytes(DATA)
    (tmp_path / "a.json.minisig").write_text(minisign.sign(DATA, key, "a.json"))
    told = program("-V", "-p", "lab.pub", "-m", "a.json")
    assert told.returncode == 0, told.stderr
    assert "file:a.json" in told.stdout
    (tmp_path / "a.json").write_bytes(DATA + b" ")
    assert program("-V", "-p", "lab.pub", "-m", "a.json").returncode != 0


def test_minisign_signs_with_our_key_and_we_with_its(program: Program, tmp_path: Path, key: minisign.SecretKey) -> None:
    (tmp_path / "a.json").write_bytes(DATA)
    told = program("-S", "-s", "lab.key", "-m", "a.json", "-t", "by the program")
    assert told.returncode == 0, told.stderr
    signature = minisign.read_signature(tmp_path / "a.json.minisig")
    assert (signature.fault(DATA, key.public), signature.comment) == ("", "by the program")
    assert program("-G", "-W", "-p", "its.pub", "-s", "its.key").returncode == 0
    theirs = minisign.read_secret_key(tmp_path / "its.key", no_password)
    assert theirs.public == minisign.PublicKey(theirs.id, minisign.read_public_key(tmp_path / "its.pub").key), (
        "the two halves"
    )
    (tmp_path / "a.json.minisig").write_text(minisign.sign(DATA, theirs, "a.json"))
    assert program("-V", "-p", "its.pub", "-m", "a.json").returncode == 0


@pytest.mark.slow
def test_a_password_is_that_of_minisign(program: Program, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(DATA)
    minisign.write_key(tmp_path / "safe.key", "one two")
    assert program("-S", "-s", "safe.key", "-m", "a.json", answers="one two\n").returncode == 0
    assert program("-V", "-p", "safe.pub", "-m", "a.json").returncode == 0
    assert program("-S", "-s", "safe.key", "-m", "a.json", answers="one too\n").returncode != 0
    assert program("-G", "-p", "its.pub", "-s", "its.key", answers="three\nthree\n").returncode == 0
    found = minisign.read_secret_key(tmp_path / "its.key", lambda: "three")
    assert found.public.key == minisign.read_public_key(tmp_path / "its.pub").key
    with pytest.raises(FormatError, match="password is wrong"):
        minisign.read_secret_key(tmp_path / "its.key", lambda: "four")


def test_a_key_is_for_its_owner_and_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lab.key"
    before = os.umask(0)
    try:
        public = minisign.write_key(path)
    finally:
        os.umask(before)
    assert public == tmp_path / "lab.pub"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    with pytest.raises(InputError, match=r"lab\.key: exists"):
        minisign.write_key(path)
    assert path.read_bytes() == content
    path.unlink()
    with pytest.raises(InputError, match=r"lab\.pub: exists"):
        minisign.write_key(path)
    assert not path.exists()
    with pytest.raises(InputError, match="name of a public key"):
        minisign.write_key(tmp_path / "other.pub")
    with pytest.raises(InputError, match="cannot be written"):
        minisign.write_key(tmp_path / "nowhere" / "lab.key")
    assert repr(content) not in repr(minisign.new_key())


def test_the_seed_is_in_no_message(key: minisign.SecretKey) -> None:
    assert repr(key.seed)[2:-1] not in repr(key)


def test_another_key_is_named(tmp_path: Path, key: minisign.SecretKey) -> None:
    assert key.public.number in fault(tmp_path, SIGNED, public=key.public.text)
    disguised = minisign.PublicKey(base64.b64decode(PUBLIC.splitlines()[1])[2:10], key.public.key)
    assert "does not fit" in fault(tmp_path, SIGNED, public=disguised.text), "a number is no proof"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "hello",
        "untrusted comment: x",
        "untrusted comment: x\n",
        "untrusted comment: x\n!!!\n",
        "untrusted comment: x\nRUQ7\n",
        "untrusted comment: x\nРУС\n",
        "untrusted comment: x\n" + "A" * 20_000,
        "\n".join(SIGNED.splitlines()[:2]),
        "\n".join(SIGNED.splitlines()[:3]),
        SIGNED.replace("trusted comment: as", "comment: as"),
        SIGNED[:-20],
        SIGNED.replace("RUQ7", "RUM7"),
        PUBLIC,
    ],
)
def test_a_damaged_signature_is_refused_with_its_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.minisig"
    path.write_text(content, "utf-8")
    with pytest.raises(FormatError, match=r"x\.minisig: is (no signature|cut off)"):
        minisign.read_signature(path)


def test_bytes_that_are_no_text_and_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.pub").write_bytes(b"untrusted comment: \xff\n")
    with pytest.raises(FormatError, match="is no public key"):
        minisign.read_public_key(tmp_path / "x.pub")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FormatError, match="FIFO"):
        minisign.read_signature(tmp_path / "fifo")


def test_keys_that_are_taken_for_each_other_are_told(tmp_path: Path, key: minisign.SecretKey) -> None:
    with pytest.raises(FormatError, match=r"give the \.pub file"):
        minisign.read_public_key(tmp_path / "lab.key")
    with pytest.raises(FormatError, match="give the secret one"):
        minisign.read_secret_key(tmp_path / "lab.pub", no_password)


def secret(path: Path, change: Callable[[bytearray], object]) -> None:
    """Change the bytes of a secret key's file."""
    comment, text = path.read_text().splitlines()
    data = bytearray(base64.b64decode(text))
    change(data)
    path.write_text(f"{comment}\n{base64.b64encode(data).decode()}\n")


def test_a_damaged_secret_key_is_refused(tmp_path: Path, key: minisign.SecretKey) -> None:
    path = tmp_path / "lab.key"
    whole = path.read_text()
    for place, match in ((70, "two halves"), (0, "is no secret key"), (3, "in a way that is not known")):
        path.write_text(whole)
        secret(path, lambda data, place=place: data.__setitem__(place, data[place] ^ 1))  # type: ignore[misc]
        with pytest.raises(FormatError, match=match):
            minisign.read_secret_key(path, no_password)


@pytest.mark.parametrize("limits", [(1 << 40, 1 << 30), (1 << 25, 1 << 40), (0, 0)])
def test_a_key_that_asks_for_too_much_memory_is_refused(
    tmp_path: Path, key: minisign.SecretKey, limits: tuple[int, int]
) -> None:
    def ask(data: bytearray) -> None:
        data[2:4] = b"Sc"
        data[38:54] = b"".join(limit.to_bytes(8, "little") for limit in limits)

    secret(tmp_path / "lab.key", ask)
    with pytest.raises(FormatError, match="are the most"):
        minisign.read_secret_key(tmp_path / "lab.key", lambda: "x")


def test_without_the_library_the_error_has_the_line_that_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(InputError, match=r"cryptography[\s\S]*pip install 'delegatekit-conformance\[records\]'"):
        minisign.write_key(tmp_path / "lab.key")
    assert list(tmp_path.iterdir()) == []
