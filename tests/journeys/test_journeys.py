"""User journeys: the pages beside this file, followed word by word on every backend that they name.

A page has a table of backends. The text in braces elsewhere on the page stands for the columns of that table. Blocks
`console` are commands with what they must print, in which `...` is any text, and `exit code 1` as the last line the
code that the command must end with. Blocks `python` are run in one namespace. Names of backends after the block's
language restrict it to these.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from delegatekit.plugins import get_backend

pytest.importorskip("transformers", reason="transformers is not installed")

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
PAGES = sorted(FOLDER.glob("*.md"))
#: Beside XNNPACK's, the cases that run without the slow ones: each backend once, each page once more.
QUICK = {
    ("decoder", "coreml"),
    ("detector", "vulkan"),
    ("mobilenet-int8", "ethosu"),
    ("mobilenet-int8", "cortexm"),
    ("unet", "qnn"),
    ("whisper", "reference"),
}


@dataclass(frozen=True)
class Block:
    """A block of a page, and the backends that it is for: all if there are none."""

    language: str
    backends: tuple[str, ...]
    text: str


def table(page: str) -> dict[str, dict[str, str]]:
    """Backend -> the other columns of the page's table."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("|") and not line.startswith("|--")
    ]
    return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}


def blocks(page: str) -> Iterator[Block]:
    for info, text in re.findall(r"^```([^\n]*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        language, *backends = info.split()
        yield Block(language, tuple(backends), text)


def cases() -> Iterator[Any]:
    for path in PAGES:
        for backend in table(path.read_text("utf-8")):
            marks = [] if backend == "xnnpack" or (path.stem, backend) in QUICK else [pytest.mark.slow]
            yield pytest.param(path.stem, backend, id=f"{path.stem}-{backend}", marks=marks)


def commands(text: str) -> Iterator[tuple[str, str, int]]:
    """Command, what it must print, and the code that it ends with."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        found = re.search(r"^exit code (\d+)\n?\Z", printed, re.MULTILINE)
        yield command, printed[: found.start()] if found else printed, int(found[1]) if found else 0


def prints(wanted: str, printed: str) -> bool:
    """True if a text agrees with what is wanted, in which `...` stands for any text."""
    pattern = ".*?".join(re.escape(part) for part in wanted.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.fixture
def run(
    command_with: Callable[[str], Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, int], tuple[str, str]]:
    """Calls a command in a folder with the gallery's models, made tiny: what it printed, and its errors."""
    from delegatekit.cli import console

    monkeypatch.setenv("DELEGATEKIT_GALLERY", "tiny")
    call = command_with((ROOT / "examples" / "gallery" / "models.py").read_text("utf-8"))
    monkeypatch.syspath_prepend(str(Path.cwd()))
    for printer in (console.out, console.err):
        monkeypatch.setattr(printer, "_width", 200)

    def called(command: str, code: int) -> tuple[str, str]:
        name, *arguments = shlex.split(command)
        assert name == "delegatekit"
        captured = call(*arguments, code=code)
        return captured.out, captured.err

    return called


@pytest.mark.parametrize("page, backend", cases())
def test_the_journey_goes_as_told(page: str, backend: str, run: Callable[[str, int], tuple[str, str]]) -> None:
    for answer in (get_backend(backend).compiler_availability(), get_backend(backend).runtime_availability()):
        if not answer.available:
            pytest.skip(f"{backend}: {answer.reason}")
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    values = table(text)[backend]
    namespace: dict[str, Any] = {"BACKEND": backend, "VALUES": values}
    for block in blocks(text):
        if block.backends and backend not in block.backends:
            continue
        if block.language == "python":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(block.text, f"{page}.md", "exec"), namespace)
            continue
        for command, wanted, code in commands(block.text.format(**values)):
            out, err = run(command, code)
            assert prints(wanted, out if code == 0 else err), f"$ {command}\n{out}{err}\nshould have been\n{wanted}"


def test_every_backend_and_model_has_a_quick_journey() -> None:
    tables = {path.stem: table(path.read_text("utf-8")) for path in PAGES}
    assert {page for page, backends in tables.items() if "xnnpack" in backends} == set(tables)
    every = {backend for backends in tables.values() for backend in backends}
    assert every - {backend for _, backend in QUICK} == {"xnnpack"}
    assert all(backend in tables[page] for page, backend in QUICK)


@pytest.mark.parametrize(
    "wanted, printed, agrees",
    [
        ("a ... c", "a b c\n", True),
        ("a\n...\nc", "a\nb\nb\nc", True),
        ("a", "a\nb", False),
        ("a ... c", "a b d", False),
        ("(100.0 %)", "(99.0 %)", False),
    ],
)
def test_what_is_printed_is_compared(wanted: str, printed: str, agrees: bool) -> None:
    assert prints(wanted, printed) == agrees
