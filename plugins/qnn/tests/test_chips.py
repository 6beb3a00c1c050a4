"""Every chip of the table: compiled for, and run on the simulator of its processor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit_qnn.blob.installation import Missing, find_installation
from delegatekit_qnn.targets import CHIPS

LIBRARY = find_installation()
pytestmark = pytest.mark.skipif(isinstance(LIBRARY, Missing), reason=getattr(LIBRARY, "reason", ""))

#: Runs a file on the inputs beside it, in a process of its own: the simulator stays what the first file made it.
RUN = """
import sys; sys.path[:] = {path!r}
import torch, delegatekit
inputs = torch.load({inputs!r}, weights_only=True)
torch.save(delegatekit.load({file!r})["forward"](*inputs), {results!r})
"""


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


@pytest.mark.parametrize("chip", CHIPS)
def test_a_quantized_network_for_every_chip(chip: str, quantized: Any, tmp_path: Path) -> None:
    torch.manual_seed(1)
    inputs = (torch.randn(1, 3, 8, 8),)
    options = {"qnn": {"soc": chip, "precision": "quantized"}}
    program = delegatekit.lower(quantized, inputs, backends=["qnn"], options=options)
    (method,) = program.report().methods
    assert len(method.delegates) == 1
    assert not method.fallback
    file, given, results = (tmp_path / name for name in ("model.pte", "inputs", "results"))
    program.save(file)
    torch.save(inputs, given)
    code = RUN.format(path=sys.path, inputs=str(given), file=str(file), results=str(results))
    subprocess.run([sys.executable, "-c", code], check=True)
    wanted, found = quantized(*inputs), torch.load(results, weights_only=True)
    step = wanted.abs().max() / 100
    assert (found - wanted).abs().max() <= 2 * step
