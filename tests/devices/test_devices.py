"""The programs of docs/devices: quoted verbatim; they compile, parse and run as far as possible here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from packages import plugins
from torch import nn

import delegatekit
from delegatekit.plugins import get_backend

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "devices"
PROGRAMS = ROOT / "examples" / "devices"
executorch = pytest.importorskip("executorch", reason="the stock runtime (executorch) is not installed")
WHEEL = Path(executorch.__path__[0])
RAMP = torch.arange(490) / 490
#: What the wheel's CMake package sets.
FLAGS = [
    *("-std=c++17", "-Wall", "-Wextra", "-Werror"),
    *("-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_EVENT_TRACER_ENABLED"),
    *("-isystem", str(WHEEL / "include")),
    *("-isystem", str(WHEEL / "include" / "executorch" / "runtime" / "core" / "portable_type" / "c10")),
]
LIBRARIES = ("executorch", "executorch_backend_xnnpack", "executorch_kernels_optimized", "executorch_threadpool")


class Keywords(nn.Module):
    """A network of the kind that runs on such devices; `cumsum` is left to the runtime's kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, (10, 4), 2), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU())
        self.head = nn.Linear(8, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3))).cumsum(1)


def needs(*commands: str, package: str) -> None:
    for command in commands:
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed (Debian: apt-get install {package})")


def call(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def link(main: Path, program: Path, *more: str) -> None:
    """Compile with the wheel's libraries."""
    paths = (f"-L{WHEEL / 'lib'}", f"-Wl,--no-as-needed,-rpath,{WHEEL / 'lib'}")
    call("g++", *FLAGS, *more, main, "-o", program, *paths, *(f"-l{name}" for name in LIBRARIES))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor]:
    """A folder with model.pte, input.f32 and model_pte.h, and what the model computes."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    module, x = Keywords().eval(), RAMP.reshape(1, 1, 49, 10)
    program = delegatekit.lower(module, (torch.randn(1, 1, 49, 10),), backends=["xnnpack"])
    assert len(delegatekit.report(program).methods[0].delegates) == 1
    program.save(folder / "model.pte")
    (folder / "input.f32").write_bytes(x.numpy().tobytes())
    header = call(sys.executable, PROGRAMS / "microcontroller" / "header.py", folder / "model.pte")
    (folder / "model_pte.h").write_text(header)
    with torch.no_grad():
        return folder, module(x).flatten()


def numbers(printed: str) -> torch.Tensor:
    return torch.tensor([float(line) for line in printed.splitlines()])


def test_the_python_program_runs(model: tuple[Path, torch.Tensor], stock_process: Any) -> None:
    folder, wanted = model
    printed = stock_process.run(PROGRAMS / "linux" / "run.py", folder / "model.pte", folder / "input.f32")
    torch.testing.assert_close(numbers(printed), wanted, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ program for Linux, built as its page says."""
    needs("cmake", "g++", package="cmake g++")
    folder = tmp_path_factory.mktemp("build")
    call("cmake", "-S", PROGRAMS / "linux", "-B", folder, f"-DCMAKE_PREFIX_PATH={WHEEL}")
    call("cmake", "--build", folder)
    return folder / "run"


def test_the_program_for_linux_runs(model: tuple[Path, torch.Tensor], program: Path) -> None:
    folder, wanted = model
    printed = call(program, folder / "model.pte", folder / "input.f32")
    torch.testing.assert_close(numbers(printed), wanted, rtol=1e-5, atol=1e-5)


def test_the_program_for_linux_says_what_it_cannot_load(model: tuple[Path, torch.Tensor], program: Path) -> None:
    folder, _ = model
    for arguments, code, told in (
        ([], 2, "usage: "),
        (["missing.pte", folder / "input.f32"], 1, "missing.pte: error 0x"),
        ([folder / "model.pte", folder / "missing.f32"], 1, "fewer than 1960 bytes"),
    ):
        command = [str(program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, told in done.stderr) == (code, True), done.stderr


def test_the_program_for_microcontrollers_runs_on_the_host(model: tuple[Path, torch.Tensor], tmp_path: Path) -> None:
    needs("g++", package="g++")
    folder, wanted = model
    link(PROGRAMS / "microcontroller" / "main.cpp", tmp_path / "run", f"-I{folder}")
    torch.testing.assert_close(numbers(call(tmp_path / "run")), wanted, rtol=1e-5, atol=1e-5)
    link(PROGRAMS / "microcontroller" / "main.cpp", tmp_path / "small", f"-I{folder}", "-DMETHOD_BYTES=64")
    done = subprocess.run([tmp_path / "small"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "METHOD_BYTES is too small" in done.stdout


def test_the_program_for_microcontrollers_compiles_for_one(model: tuple[Path, torch.Tensor], tmp_path: Path) -> None:
    needs("arm-none-eabi-g++", package="gcc-arm-none-eabi libnewlib-arm-none-eabi libstdc++-arm-none-eabi-dev")
    folder, _ = model
    processor = ("-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard", "-fno-exceptions", "-fno-rtti")
    main = PROGRAMS / "microcontroller" / "main.cpp"
    call("arm-none-eabi-g++", *processor, *FLAGS, f"-I{folder}", "-c", main, "-o", tmp_path / "main.o")


@pytest.mark.parametrize(
    "path, grammar",
    [
        ("android/Classifier.kt", "tree_sitter_kotlin"),
        ("android/build.gradle.kts", "tree_sitter_kotlin"),
        ("ios/Classifier.swift", "tree_sitter_swift"),
        ("ios/Package.swift", "tree_sitter_swift"),
    ],
)
def test_programs_for_phones_parse(path: str, grammar: str) -> None:
    tree_sitter = pytest.importorskip("tree_sitter", reason="tree-sitter is not installed")
    language = pytest.importorskip(grammar, reason=f"{grammar} is not installed")
    parser = tree_sitter.Parser(tree_sitter.Language(language.language()))
    text = (PROGRAMS / path).read_bytes()
    assert not parser.parse(text).root_node.has_error
    assert parser.parse(text.replace(b"(", b"((", 1)).root_node.has_error


def test_the_program_for_android_compiles(tmp_path: Path) -> None:
    needs("kotlinc", package="kotlin")
    declarations = Path(__file__).parent / "declarations"
    call("kotlinc", "-nowarn", "-d", tmp_path, declarations, PROGRAMS / "android" / "Classifier.kt")
    assert (tmp_path / "org" / "example" / "classifier" / "Classifier.class").is_file()


# -- the pages --------------------------------------------------------------------------------------------------------


def test_the_pages_quote_the_programs_verbatim() -> None:
    quotes = [
        quote
        for page in PAGES.glob("*.md")
        for quote in re.findall(
            r"^`(examples/devices/[^`]+)`:\n\n```\w+\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
    ]
    for path, quote in quotes:
        assert quote == (ROOT / path).read_text("utf-8"), f"{path} says it differently"
    every = {str(path.relative_to(ROOT)) for path in PROGRAMS.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {path for path, _ in quotes} == every


def test_every_backend_has_a_row_with_its_delegate() -> None:
    text = (PAGES / "README.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([a-z]+)` \| (.*?) \|", text, re.MULTILINE))
    names = {name for plugin in plugins() for name in plugin.backends if "." not in name}
    assert set(rows) == names
    for name, told in rows.items():
        backend = get_backend(name)
        delegate = backend.description.delegate_id
        assert told == (f"none: operators `{delegate}::...`" if backend.is_library else f"`{delegate}`")


def test_the_codes_of_errors_are_executorchs() -> None:
    text = (WHEEL / "include" / "executorch" / "runtime" / "core" / "error.h").read_text("utf-8")
    codes = dict(re.findall(r"^  (\w+) = (0x[0-9a-f]+),", text, re.MULTILINE))
    page = (PAGES / "README.md").read_text("utf-8")
    told = {codes[name] for name in ("NotFound", "OperatorMissing", "DelegateInvalidCompatibility")}
    assert told == set(re.findall(r"0x[0-9a-f]+", page))


def test_the_wheel_has_the_libraries_that_the_pages_name() -> None:
    named = re.findall(r"`executorch::(\w+)`", "".join(page.read_text("utf-8") for page in PAGES.glob("*.md")))
    libraries = {path.stem.removeprefix("libexecutorch_") for path in (WHEEL / "lib").glob("*.so")}
    assert named and set(named) <= libraries
    assert import_module("executorch.version").__version__.startswith("1.5.1")
