"""Operators that plugins report of the blobs that they compile, and of damaged ones."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.plugins import LoadedBackend, get_backend
from delegatekit.pte import PteFile, read
from delegatekit_api import CompileSpec, FormatError
from delegatekit_api.blobs import BlobOperator


class Net(nn.Module):
    """A value that is read twice, a reduction, a layer, several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.conv(x).relu()
        x = x + torch.sigmoid(x)
        return torch.softmax(self.head(x.mean((2, 3))), -1), x


def telling(name: str) -> LoadedBackend:
    """The backend; skips a test of one that does not report operators, or cannot compile here."""
    backend = get_backend(name)
    if not backend.has("blob_operators"):
        pytest.skip(f"{name} does not list the operators in its blobs")
    if not backend.compiler_availability().available:
        pytest.skip(f"{name} cannot compile here")
    return backend


@pytest.fixture(scope="module", params=sorted(delegatekit.backends(check=False)))
def compiled(request: pytest.FixtureRequest) -> tuple[LoadedBackend, bytes]:
    """A backend, and the net for it: quantized where it takes nothing else."""
    backend = telling(request.param)
    torch.manual_seed(0)
    model: Any = Net().eval()
    inputs = (torch.randn(1, 3, 8, 8),)
    program = delegatekit.lower(model, inputs, backends=[backend.name])
    if not delegatekit.inspect(program.buffer).methods[0].delegates:
        model = delegatekit.quantize(model, [inputs], backend=backend.name)
        program = delegatekit.lower(model, inputs, backends=[backend.name])
    return backend, program.buffer


def delegates_of(file: PteFile) -> list[Any]:
    return [item for plan in file.program.execution_plan or () for item in plan.delegates or ()]


def check_flow(operators: tuple[BlobOperator, ...]) -> None:
    """Each value is made once, and reads are of earlier values or of inputs; most read others' results."""
    made = {value: number for number, operator in enumerate(operators) for value in operator.makes}
    assert len(made) == sum(len(operator.makes) for operator in operators)
    for number, operator in enumerate(operators):
        assert operator.name and operator.makes
        assert all(made.get(value, -1) < number for value in operator.reads)
    read = {value for operator in operators for value in operator.reads}
    # No computation is unused: a value without readers is returned.
    assert sum(read.isdisjoint(operator.makes) for operator in operators) <= 2
    chained = sum(any(value in made for value in operator.reads) for operator in operators)
    assert chained >= len(operators) // 2 > 0


def test_inspect_lists_the_operators(compiled: tuple[LoadedBackend, bytes]) -> None:
    backend, buffer = compiled
    delegates = delegatekit.inspect(buffer, operators=True).methods[0].delegates
    assert delegates
    for delegate in delegates:
        assert delegate.insides is not None and not delegate.insides.unknown
        assert delegate.distribution == backend.distribution
        check_flow(delegate.insides.operators)
    names = [operator.name.lower() for delegate in delegates for operator in delegate.insides.operators]  # type: ignore[union-attr]
    assert any("conv" in name for name in names) and any("add" in name for name in names)


def test_damaged_blobs_are_refused_with_a_format_error(compiled: tuple[LoadedBackend, bytes]) -> None:
    """Damage may go undetected where it changes only a number; then the answer is still complete."""
    backend, buffer = compiled
    file = read(buffer)
    delegate = delegates_of(file)[0]
    specs = [CompileSpec(str(spec.key), spec.value or b"") for spec in delegate.compile_specs or ()]
    whole = bytes(file.delegate_blob(delegate))
    generator, refused = random.Random(0), 0
    blobs = [whole[:size] for size in (0, 1, 7, len(whole) // 3, len(whole) // 2)]
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(generator.choice((1, 4, 40))):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        blobs.append(bytes(damaged))
    for blob in blobs:
        try:
            told = backend.blob_operators(memoryview(blob), specs, file.named_data, "forward")
        except FormatError:
            refused += 1
        else:
            assert told is not None
    assert refused >= 5
