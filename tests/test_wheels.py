"""The promise of the plugin system, with real wheels in clean environments: install a backend and it is there."""

from __future__ import annotations

import json
import os
import re
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packages import Package, packages

import delegatekit

pytestmark = pytest.mark.wheels

OURS = ("delegatekit", "_editable", "__editable__")


PACKAGES = {package.distribution: package for package in packages()}

#: Distribution -> its wheel.
Wheels = Mapping[str, Path]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """The wheels of the packages, built from the sources."""
    pytest.importorskip("build", reason="the build package is not installed")
    folder = tmp_path_factory.mktemp("wheels")
    for package in PACKAGES.values():
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
        subprocess.run([*command, str(package.folder)], check=True, capture_output=True)
    return {name: next(folder.glob(f"{package.module}-*.whl")) for name, package in PACKAGES.items()}


def with_needs(*distributions: str) -> list[str]:
    """These of our distributions after their dependencies."""
    found: list[str] = []
    for name in distributions:
        needs = sorted(PACKAGES[name].needs & PACKAGES.keys())
        found += [need for need in [*with_needs(*needs), name] if need not in found]
    return found


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to the installed packages, less our own packages: torch is too big to install again."""
    folder = tmp_path_factory.mktemp("libraries")
    for source in {*site.getsitepackages(), sysconfig.get_paths()["platlib"]}:
        if not Path(source).is_dir():  # Debian's Python names a folder that a virtual environment does not have
            continue
        for path in Path(source).iterdir():
            link = folder / path.name
            if not path.name.startswith(OURS) and path.suffix != ".pth" and not link.exists():
                link.symlink_to(path)
    return folder


class Environment:
    """A virtual environment that sees the libraries, but of ours only those installed into it."""

    def __init__(self, folder: Path, libraries: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        self.packages = next((folder / "lib").glob("python*/site-packages"))
        (self.packages / "libraries.pth").write_text(f"{libraries}\n")

    def install(self, *wheels: Path) -> None:
        self._pip("install", "--no-deps", "--no-index", *map(str, wheels))

    def uninstall(self, name: str) -> None:
        self._pip("uninstall", "--yes", name)

    def _pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *arguments]
        subprocess.run(command, check=True, capture_output=True)

    def run(self, code: str, **variables: str) -> Any:
        """The JSON that the code prints as its last line."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | variables
        result = subprocess.run(
            [str(self.python), "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    def command(self, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """The command `delegatekit` with these words, run in a folder."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        line = [str(self.python), "-m", "delegatekit", *words]
        return subprocess.run(line, capture_output=True, text=True, env=environment, check=False, cwd=folder)

    def backends(self, **variables: str) -> dict[str, list[str]]:
        """Backend -> status and reason."""
        code = (
            "import json, delegatekit\n"
            "found = delegatekit.backends()\n"
            "print(json.dumps({name: [info.status, info.reason] for name, info in found.items()}))"
        )
        return self.run(code, **variables)  # type: ignore[no-any-return]


LOWER = (
    "import json, torch, delegatekit\n"
    "module, x = torch.nn.Linear(4, 3), torch.ones(2, 4)\n"
    "program = delegatekit.lower(module, (x,), backends=['xnnpack'])\n"
    "result = delegatekit.load(program.buffer)['forward'](x)\n"
    "print(json.dumps([len(program.methods['forward'].delegates), bool(torch.allclose(result, module(x)))]))"
)


#: Prints how many names of the tools are missing; each such error has the remedy.
TOOLS = (
    "import delegatekit, delegatekit_api\n"
    "missing = 0\n"
    "for name in delegatekit.TOOLS:\n"
    "    try:\n"
    "        getattr(delegatekit, name)\n"
    "    except delegatekit_api.DelegateKitError as error:\n"
    "        assert f'delegatekit.{name} is part of delegatekit-tools' in str(error), error\n"
    "        assert \"pip install 'delegatekit[tools]'\" in str(error), error\n"
    "        missing += 1\n"
    "print(missing)"
)


NET = """
import torch

def make():
    return torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),)
"""


QUANTIZE = (
    "import json, torch, delegatekit\n"
    "module, x = torch.nn.Linear(4, 3).eval(), torch.ones(2, 4)\n"
    "quantized = delegatekit.quantize(module, [x], backend='ethosu')\n"
    "program = delegatekit.lower(quantized, (x,), backends=['ethosu'])\n"
    "result = delegatekit.load(program.buffer)['forward'](x)\n"
    "print(json.dumps([len(program.methods['forward'].delegates), bool(torch.equal(result, quantized(x)))]))"
)


def make_wheel(folder: Path, name: str, source: str) -> Path:
    """A wheel of a one-module plugin whose backend is called `name`."""
    module = f"plugin_{name}"
    info = f"delegatekit_{name}-0.1.0.dist-info"
    files = {
        f"{module}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: delegatekit-{name}\nVersion: 0.1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[delegatekit.backends]\n{name} = {module}\n",
    }
    path = folder / f"delegatekit_{name}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"]))
    return path


TOO_NEW = """
from delegatekit_api import ApiVersion, BackendDescription, hookimpl
from delegatekit_api.versions import API_VERSION

@hookimpl
def describe_backend():
    version = ApiVersion(API_VERSION.major, 99)
    return BackendDescription("toonew", "TooNew", "delegatekit-toonew", "0.1.0", "", api_version=version)
"""


def test_backends_come_and_go_with_their_wheels(wheels: Wheels, libraries: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", libraries)
    environment.install(*(wheels[name] for name in with_needs("delegatekit")))
    assert environment.backends() == {}

    environment.install(*(wheels[name] for name in with_needs("delegatekit-xnnpack")))
    assert environment.backends() == {"xnnpack": ["ready", ""]}
    assert environment.run(LOWER) == [1, True]
    assert environment.run(TOOLS) == len(delegatekit.TOOLS)  # and none of these is there
    (tmp_path / "net.py").write_text(NET)
    lowered = environment.command("lower", "net.py:make", "-b", "xnnpack", folder=tmp_path)
    assert (lowered.returncode, lowered.stdout.splitlines()[0]) == (
        0,
        "xnnpack runs 1 of 1 operators (100.0 %) and 100.0 % of 24 MACs",
    )
    assert environment.command("run", "net.pte", folder=tmp_path).returncode == 0
    for words in (
        ["compare", "net.py:make", "-b", "xnnpack"],
        ["lower", "net.py:make", "-b", "xnnpack", "--html", "x.html"],
        ["lower", "net.py:make", "-b", "xnnpack", "--repartition"],
    ):
        refused = environment.command(*words, folder=tmp_path)
        assert refused.returncode == 2 and not refused.stdout and not (tmp_path / "x.html").exists()
        assert refused.stderr.startswith("error: ") and "pip install 'delegatekit[tools]'" in refused.stderr
    told = json.loads(environment.command("inspect", "net.pte", "--json", folder=tmp_path).stdout)
    assert told["error"]["hint"] == "pip install 'delegatekit[tools]'"
    environment.install(*(wheels[name] for name in with_needs("delegatekit-tools")))
    assert environment.run(TOOLS) == 0

    environment.install(make_wheel(tmp_path, "broken", "raise SystemExit('no licence server')"))
    environment.install(make_wheel(tmp_path, "toonew", TOO_NEW))
    found = environment.backends()
    assert found["xnnpack"] == ["ready", ""]
    assert found["broken"][0] == "broken"
    assert "no licence server" in found["broken"][1]
    assert found["toonew"][0] == "incompatible"
    assert "upgrade delegatekit" in found["toonew"][1]
    assert environment.run(LOWER) == [1, True]

    allowed = environment.backends(DELEGATEKIT_BACKENDS="broken")
    assert allowed["xnnpack"][0] == "not allowed"

    environment.uninstall("delegatekit-xnnpack")
    environment.uninstall("delegatekit-broken")
    assert set(environment.backends()) == {"toonew"}


@pytest.mark.slow
def test_a_quantized_program_is_lowered_by_the_ethosu_wheel(wheels: Wheels, libraries: Path, tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    pytest.importorskip("ethosu.regor", reason="Vela is not installed")
    environment = Environment(tmp_path / "venv", libraries)
    environment.install(*(wheels[name] for name in with_needs("delegatekit", "delegatekit-ethosu")))
    assert environment.backends() == {"ethosu": ["ready", ""]}
    assert environment.run(QUANTIZE) == [1, True]


@pytest.mark.slow
def test_the_conformance_suite_runs_from_wheels(wheels: Wheels, libraries: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", libraries)
    environment.install(*wheels.values())
    assert environment.backends() == {name: ["ready", ""] for package in PACKAGES.values() for name in package.backends}
    command = [str(environment.python), "-m", "pytest", "--pyargs", "delegatekit_conformance", "--backend", "xnnpack"]
    command += ["--conformance-profile", "quick", "-q", "-k", "aten.linear.default or aten.amax.default"]
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run(command, capture_output=True, text=True, env=variables, check=False, cwd=tmp_path)
    # Of these, amax is wrong for NaN, as the wheel's own conformance.toml says.
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout


def test_wheels_carry_their_types_and_data(wheels: Wheels) -> None:
    for name, path in wheels.items():
        files = set(zipfile.ZipFile(path).namelist())
        package: Package = PACKAGES[name]
        assert f"{package.module}/py.typed" in files
        # But those that a new project is made of.
        assert not [
            file
            for file in files
            if re.match(r"(?!delegatekit_tools/project/(common|device|library)/)(.*/)?tests/", file)
        ]
        sources = [path for path in package.source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert {path.relative_to(package.source).as_posix() for path in sources} <= files
