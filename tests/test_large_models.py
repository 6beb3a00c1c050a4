"""Models larger than memory: what lowering needs does not grow with the number of layers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("many_layers.py")


@pytest.mark.skipif(sys.platform != "linux", reason="the memory in use is read from /proc")
@pytest.mark.parametrize("backend", ["xnnpack", "vulkan", "coreml"])
def test_a_stack_of_many_layers_takes_the_memory_of_a_few(backend: str, tmp_path: Path) -> None:
    layers, size = 24, 2048
    command = [sys.executable, str(SCRIPT), backend, str(layers), str(size), str(tmp_path / "model.pte")]
    # What is freed goes back at once, scales of groups too: how much an allocator keeps depends on the order of things.
    environment = {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
        "DELEGATEKIT_COMPILED": "off",
    }
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert int(found) < 4 * 4 * size * size  # the float numbers of four layers; the integers of all would be more
    rows, groups = size // 2, size // 32 * 2
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) > layers * size * (rows + groups)
