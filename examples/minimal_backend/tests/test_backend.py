"""It does what a backend does: lowers, computes what eager computes, explains, and refuses damaged blobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit.plugins import get_backend
from delegatekit_api import DelegatePayload, ExecutionError, FormatError, TensorSpec
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_toolkit.blob import Seal
from delegatekit_toolkit.content import content_key
from delegatekit_toolkit.testing import payload_of


class TestPlugin(PluginTests):
    backend, delegate_id = "demo", "DemoBackend"
    wrong_options = ({"leave_out": "sub"}, {"leave_in": "add"})


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


def test_a_lowered_program_computes_what_eager_computes(tmp_path: Path) -> None:
    module, arguments = Sums().eval(), inputs()
    program = delegatekit.lower(module, arguments, backends=["demo"])
    (report,) = delegatekit.report(program).methods
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
        (lambda x: x * x, torch.float64, "x is float64: float32 is taken"),
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
    assert dict(delegatekit.report(program).methods[0].fallback) == {"aten::mul.out": 2, "aten::atan.out": 1}


GOOD: dict[str, Any] = {"inputs": 1, "constants": [], "steps": [["mul", 0, 0]], "outputs": [1]}


SHORT, OTHER = "demo_" + content_key(b"1234"), "demo_" + content_key(b"5678")


def payload(blob: bytes) -> DelegatePayload:
    spec = TensorSpec("float32", (2,))
    return payload_of(blob, [spec], [spec], named_data={SHORT: b"1234", OTHER: b"5679"})


def sealed(fields: Any) -> bytes:
    from delegatekit_demo.blob import SEAL

    return SEAL.wrap(json.dumps(fields).encode())


def runtime() -> Any:
    return get_backend("demo").create_runtime()


def test_a_blob_written_by_hand_runs_until_it_is_destroyed() -> None:
    machine, result = runtime(), torch.empty(2)
    handle = machine.init(payload(sealed(GOOD)))
    machine.execute(handle, [torch.tensor([2.0, 3.0])], [result])
    assert result.tolist() == [4.0, 9.0]
    machine.destroy(handle)
    machine.destroy(handle)
    with pytest.raises(ExecutionError, match="destroyed"):
        machine.execute(handle, [torch.ones(2)], [result])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": 2}, "inputs and outputs"),
        ({"sizes": [[3]]}, r"input 0 is float32 \(3\), in the program float32 \(2,\)"),
        ({"sizes": [[2], [2]]}, "sizes of each input"),
        ({"sizes": [[-2]]}, "-2 is not a number"),
        ({"inputs": True}, "not a number"),
        ({"outputs": [2]}, "does not compute"),
        ({"outputs": 1}, "damaged field"),
        ({"steps": [["mul", 0, 1]]}, "step 0"),
        ({"steps": [["mul", 0, -1]]}, "-1 is not a number"),
        ({"steps": [["div", 0, 0]]}, "step 0"),
        ({"constants": [["absent", [1]]]}, "the file has no data 'absent'"),
        ({"constants": [[SHORT, [2]]]}, "has 4 bytes instead of 8"),
        ({"constants": [[OTHER, [1]]]}, "is damaged: the checksum is wrong"),
    ],
)
def test_a_damaged_blob_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        runtime().init(payload(sealed(GOOD | change)))


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000])
def test_bytes_that_are_no_blob_are_refused(body: bytes) -> None:
    from delegatekit_demo.blob import SEAL

    for blob in (body, SEAL.wrap(body)):
        with pytest.raises(FormatError, match="DemoBackend blob"):
            runtime().init(payload(blob))


def test_a_blob_of_another_version_is_refused() -> None:
    from delegatekit_demo.blob import SEAL

    newer = Seal(SEAL.magic, SEAL.version + 1, SEAL.name)
    with pytest.raises(FormatError, match=r"has version 2 of the format(.|\n)*install the delegatekit-demo that made"):
        runtime().init(payload(newer.wrap(b"")))


def test_every_damaged_bit_is_noticed() -> None:
    blob = sealed(GOOD)
    for place in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(FormatError):
            runtime().init(payload(bytes(damaged)))


def test_a_call_that_does_not_fit_is_refused() -> None:
    machine = runtime()
    handle = machine.init(payload(sealed(GOOD)))
    for given in ([], [torch.ones(3)], [torch.ones(2).double()]):
        with pytest.raises(ExecutionError, match="input"):
            machine.execute(handle, given, [torch.empty(2)])
    with pytest.raises(ExecutionError, match="output 0 is float32"):
        machine.execute(handle, [torch.ones(2)], [torch.empty(3)])


def test_sizes_for_which_the_blob_was_not_made_are_refused() -> None:
    """The program's inputs and outputs have other sizes than those of the steps: they come from a file, too."""
    two, three = TensorSpec("float32", (2,)), TensorSpec("float32", (3,))
    machine, program = runtime(), sealed(GOOD | {"inputs": 2, "steps": [["mul", 0, 1]], "outputs": [2]})
    handle = machine.init(payload_of(program, [two, three], [two]))
    with pytest.raises(ExecutionError, match="cannot mul"):
        machine.execute(handle, [torch.ones(2), torch.ones(3)], [torch.empty(2)])
    handle = machine.init(payload_of(program, [three, three], [two]))
    with pytest.raises(ExecutionError, match="result 0 is float32"):
        machine.execute(handle, [torch.ones(3), torch.ones(3)], [torch.empty(2)])
