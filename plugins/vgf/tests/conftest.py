"""The tests need the model converter and Arm's reference model; without one they are skipped, with the reason."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the tests' helper modules, beside this file

import pytest

from delegatekit_toolkit.tosa import reference
from delegatekit_vgf.compiler import availability


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = next((known.reason for known in (availability(), reference.availability()) if not known.available), None)
    for item in items:
        if missing and "plugins/vgf/tests" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason=missing))
