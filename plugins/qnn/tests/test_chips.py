"""Every chip of the table: compiled for, and run on the simulator of its processor."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit_qnn.targets import CHIPS

pytestmark = pytest.mark.usefixtures("library")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.Linear(8 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).flatten(1))


@pytest.fixture(scope="module")
def quantized() -> Any:
    torch.manual_seed(0)
    samples = [(torch.randn(1, 3, 8, 8),) for _ in range(8)]
    return delegatekit.quantize(Net().eval(), samples, backend="qnn", scheme="8a8w")


#: The oldest and the newest of phones, a car's and a laptop's; the others are slow tests.
QUICK = {"sm8350", "sm8850", "sa8255", "sc8380xp"}


@pytest.mark.parametrize(
    "chip", [pytest.param(chip, marks=() if chip in QUICK else pytest.mark.slow) for chip in CHIPS]
)
def test_a_quantized_network_for_every_chip(chip: str, quantized: Any) -> None:
    torch.manual_seed(1)
    inputs = (torch.randn(1, 3, 8, 8),)
    options = {"qnn": {"soc": chip, "precision": "quantized"}}
    program = delegatekit.lower(quantized, inputs, backends=["qnn"], options=options)
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1
    assert not method.fallback
    # The simulator is one chip at a time: the delegate is released at the end.
    loaded = delegatekit.load(program.buffer)
    wanted, found = quantized(*inputs), loaded["forward"](*inputs)
    del loaded
    gc.collect()
    step = torch.unique(wanted).diff().min()
    assert (found - wanted).abs().max() <= 2.01 * step
