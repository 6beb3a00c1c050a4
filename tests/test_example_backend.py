"""The example of docs/writing-a-backend.md as a built wheel: found by its entry point, beside other backends."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import delegatekit
from delegatekit.plugins import discovery

EXAMPLE = Path(__file__).parents[1] / "examples" / "minimal_backend"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example's wheel, unpacked into a folder on sys.path, as by an installer."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "build", "--quiet", "--no-isolation", "--wheel", "--outdir", str(folder)]
    subprocess.run([*command, str(EXAMPLE)], check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    sys.path.insert(0, str(folder / "site"))
    importlib.invalidate_caches()
    discovery.refresh()
    yield
    sys.path.remove(str(folder / "site"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "delegatekit_demo"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    discovery.refresh()


def test_the_wheel_is_found_by_its_entry_point() -> None:
    found = delegatekit.backends()["demo"]
    assert (found.status, found.distribution, found.version) == ("ready", "delegatekit-demo", "0.1.0")


def test_the_wheel_can_be_listed_without_importing_torch() -> None:
    code = (
        f"import sys; sys.path.insert(0, {sys.path[0]!r}); import delegatekit; found = delegatekit.backends()['demo']; "
        "print(found.usable, 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.split() == ["True", "False"]


def test_it_shares_a_program_with_another_backend() -> None:
    pytest.importorskip("executorch")

    class Gate(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(x + y) * y

    arguments = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)), torch.ones(1, 3)
    program = delegatekit.lower(Gate(), arguments, backends=["demo", "xnnpack"])
    assert [delegate.backend for delegate in delegatekit.report(program).methods[0].delegates] == [
        "demo",
        "xnnpack",
        "demo",
    ]
    result = delegatekit.load(program.buffer)["forward"](*arguments)
    # sigmoid is XNNPACK's: equal to PyTorch's up to rounding.
    torch.testing.assert_close(result, Gate()(*arguments), rtol=1e-6, atol=1e-6)
