"""Damaged files with XNNPACK delegates: an error or a result, never a crash or a hang of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import random, struct, sys
import torch
import delegatekit
from delegatekit_api import DelegateKitError

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool, self.linear = torch.nn.Conv2d(3, 8, 3), torch.nn.MaxPool2d(2), torch.nn.Linear(8, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv(x)))
        return self.linear(x.transpose(1, 2).reshape(x.shape[0], -1, 8, 3)[:, :1].mean((1, 3)).cumsum(1))

torch.manual_seed(0)
x = torch.randn(2, 3, 8, 8)
dynamic = sys.argv[1] == "dynamic"
sizes = {"x": {0: torch.export.Dim("b", max=3), 2: 2 * torch.export.Dim("h", max=5)}} if dynamic else None
exported = torch.export.export(Net().eval(), (x,), dynamic_shapes=sizes)
good = delegatekit.lower(exported, backends=["xnnpack"]).buffer
calls = [torch.randn(b, 3, h, 8) for b, h in ((2, 8), (3, 10), (1, 4), (3, 6))] if dynamic else [x]
assert delegatekit.inspect(good).methods[0].delegates
blobs = [position for position in range(len(good)) if good.startswith(b"XH00", position)]
source, refused = random.Random(0), 0
for round in range(600):
    data = bytearray(good)
    # Within the blobs, which the runtime reads.
    start = source.choice(blobs) - 4
    for _ in range(source.randint(1, 3)):
        position = start + source.randrange(800)
        if round % 2:
            data[position] = source.randrange(256)
        else:
            struct.pack_into("<I", data, position & ~3, source.choice([0, 1, 7, 1 << 20, 0x7FFFFFFF, 0xFFFFFFFF]))
    print(round, flush=True)
    try:
        method = delegatekit.load(bytes(data))["forward"]
        for call in calls:
            method(call)
    except DelegateKitError:
        refused += 1
print("refused", refused)
"""


@pytest.mark.parametrize("sizes", [pytest.param("static", marks=pytest.mark.slow), "dynamic"])
def test_random_damage_to_blobs_never_takes_the_process_down(sizes: str) -> None:
    command = [sys.executable, "-c", SCRIPT, sizes]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    last = result.stdout.splitlines()[-1]
    assert result.returncode == 0, f"mutation {last}: {result.returncode}: {result.stderr[-2000:]}"
    assert int(last.split()[1]) > 200
