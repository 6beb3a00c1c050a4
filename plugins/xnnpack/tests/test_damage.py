"""Damaged files with XNNPACK delegates: an error or a result, never a crash or a hang of the process."""

from __future__ import annotations

import subprocess
import sys

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
        return self.linear(self.pool(torch.relu(self.conv(x))).mean((2, 3)).cumsum(1))

torch.manual_seed(0)
x = torch.randn(1, 3, 8, 8)
good = delegatekit.lower(Net().eval(), (x,), backends=["xnnpack"]).buffer
assert delegatekit.inspect(good).methods[0].delegates
blobs = [position for position in range(len(good)) if good.startswith(b"XH00", position)]
source, refused = random.Random(0), 0
for round in range(600):
    data = bytearray(good)
    # Within the blobs: that is what the runtime gets to see.
    start = source.choice(blobs) - 4
    for _ in range(source.randint(1, 3)):
        position = start + source.randrange(800)
        if round % 2:
            data[position] = source.randrange(256)
        else:
            struct.pack_into("<I", data, position & ~3, source.choice([0, 1, 7, 1 << 20, 0x7FFFFFFF, 0xFFFFFFFF]))
    print(round, flush=True)
    try:
        delegatekit.load(bytes(data))["forward"](x)
    except DelegateKitError:
        refused += 1
print("refused", refused)
"""


def test_random_damage_to_blobs_never_takes_the_process_down() -> None:
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    last = result.stdout.splitlines()[-1]
    assert result.returncode == 0, f"mutation {last}: {result.returncode}: {result.stderr[-2000:]}"
    assert int(last.split()[1]) > 200
