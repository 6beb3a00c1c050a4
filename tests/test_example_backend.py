"""The example of docs/writing-a-backend.md as a built wheel: found by its entry point, it does what a backend does."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit.plugins import discovery
from delegatekit_api import DelegatePayload, ExecutionError, FormatError, TensorSpec

EXAMPLE = Path(__file__).parents[1] / "examples" / "minimal_backend"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example's wheel, unpacked into a folder on sys.path: what an installer would do."""
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


class Sums(torch.nn.Module):
    """Sums and products around one operator that the backend does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x * self.weight + y
        z = torch.atan(z)
        return z * z + self.weight, z


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, generator=generator), torch.randn(1, 3, generator=generator)


def test_the_wheel_is_found_by_its_entry_point() -> None:
    found = delegatekit.backends()["demo"]
    assert (found.status, found.distribution, found.version, found.api_version) == (
        "ready",
        "delegatekit-demo",
        "0.1.0",
        "1.0",
    )


def test_the_wheel_can_be_listed_without_importing_torch() -> None:
    code = (
        f"import sys; sys.path.insert(0, {sys.path[0]!r}); import delegatekit; found = delegatekit.backends()['demo']; "
        "print(found.usable, 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.split() == ["True", "False"]


def test_a_lowered_program_computes_what_eager_computes(tmp_path: Path) -> None:
    module, arguments = Sums().eval(), inputs()
    program = delegatekit.lower(module, arguments, backends=["demo"])
    (report,) = program.report().methods
    assert [delegate.nodes for delegate in report.delegates] == [2, 2]
    assert dict(report.fallback) == {"aten::atan.out": 1}
    program.save(tmp_path / "sums.pte")
    method = delegatekit.load(tmp_path / "sums.pte")["forward"]
    for _ in range(2):  # a handle can be used again
        results = method(*arguments)
        for result, eager in zip(results, module(*arguments), strict=True):
            # The same PyTorch functions on the same numbers.
            torch.testing.assert_close(result, eager, rtol=0, atol=0)


def test_equal_constants_of_two_delegates_are_stored_once() -> None:
    program = delegatekit.lower(Sums().eval(), inputs(), backends=["demo"])
    named = delegatekit.inspect(program.buffer).named_data
    assert [size for key, size in named.items() if key.startswith("demo_")] == [12]


def test_the_file_names_the_owner_of_its_delegates() -> None:
    program = delegatekit.lower(Sums().eval(), inputs(), backends=["demo"])
    for delegate in delegatekit.inspect(program.buffer).methods[0].delegates:
        assert (delegate.id, delegate.distribution, delegate.version) == ("DemoBackend", "delegatekit-demo", "0.1.0")


@pytest.mark.parametrize(
    ("function", "dtype", "reason"),
    [
        (lambda x: torch.add(x, x * x, alpha=2), torch.float32, "alpha = 2: only 1 is taken"),
        (lambda x: x * x, torch.float64, "x is torch.float64: only float32 is taken"),
        (torch.atan, torch.float32, "aten.atan.default is not in the backend's operator table"),
    ],
)
def test_what_it_leaves_is_explained(function: Any, dtype: torch.dtype, reason: str) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    explanation = delegatekit.explain(Module(), (torch.ones(2, dtype=dtype),), backends=["demo"])
    left = [row for row in explanation.rows if row.backend is None]
    assert [row.reasons["demo"] for row in left] == [reason]


def test_an_operator_can_be_left_out() -> None:
    program = delegatekit.lower(Sums().eval(), inputs(), backends=["demo"], options={"demo": {"leave_out": "mul"}})
    assert dict(program.report().methods[0].fallback) == {"aten::mul.out": 2, "aten::atan.out": 1}


def test_it_shares_a_program_with_another_backend() -> None:
    pytest.importorskip("executorch")

    class Gate(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(x + y) * y

    arguments = inputs()
    program = delegatekit.lower(Gate(), arguments, backends=["demo", "xnnpack"])
    assert [delegate.backend for delegate in program.report().methods[0].delegates] == ["demo", "xnnpack", "demo"]
    result = delegatekit.load(program.buffer)["forward"](*arguments)
    # sigmoid is XNNPACK's: equal to PyTorch's up to rounding.
    torch.testing.assert_close(result, Gate()(*arguments), rtol=1e-6, atol=1e-6)


GOOD: dict[str, Any] = {"version": 1, "inputs": 1, "constants": [], "steps": [["mul", 0, 0]], "outputs": [1]}


def payload(blob: bytes) -> DelegatePayload:
    spec = TensorSpec("float32", (2,))
    named = {"short": memoryview(b"1234")}
    return DelegatePayload("DemoBackend", memoryview(blob), (), (spec,), (spec,), named, lambda keys: b"")


def runtime() -> Any:
    return discovery.get_backend("demo").create_runtime()


def test_a_blob_written_by_hand_runs_until_it_is_destroyed() -> None:
    machine, result = runtime(), torch.empty(2)
    handle = machine.init(payload(json.dumps(GOOD).encode()))
    machine.execute(handle, [torch.tensor([2.0, 3.0])], [result])
    assert result.tolist() == [4.0, 9.0]
    machine.destroy(handle)
    machine.destroy(handle)
    with pytest.raises(ExecutionError, match="destroyed"):
        machine.execute(handle, [torch.ones(2)], [result])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2"),
        ({"inputs": 2}, "inputs and outputs"),
        ({"inputs": True}, "not a number"),
        ({"outputs": [2]}, "does not compute"),
        ({"outputs": 1}, "damaged field"),
        ({"steps": [["mul", 0, 1]]}, "step 0"),
        ({"steps": [["mul", 0, -1]]}, "-1 is not a number"),
        ({"steps": [["div", 0, 0]]}, "step 0"),
        ({"constants": [["absent", [1]]]}, "not in the file"),
        ({"constants": [["short", [2]]]}, "not in the file"),
    ],
)
def test_a_damaged_blob_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        runtime().init(payload(json.dumps(GOOD | change).encode()))


@pytest.mark.parametrize("blob", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000])
def test_bytes_that_are_no_blob_are_refused(blob: bytes) -> None:
    with pytest.raises(FormatError, match="not a DemoBackend blob"):
        runtime().init(payload(blob))
