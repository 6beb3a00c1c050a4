"""The conformance suite finds faults that are seeded into a backend with native code, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance" / "tests"))

from seeded import FAULTS, find

pytest.importorskip("executorch", reason="the runtime of the XNNPACK backend (executorch) is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.native or fault.base])
def test_a_fault_of_native_code_is_found(name: str) -> None:
    assert find(FAULTS[name], "xnnpack") is not None, FAULTS[name].what
