"""Lets the tests of this folder import their helper modules and packages.py at the top; and their common fixture."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

_EXAMPLE = Path(__file__).parents[1] / "examples" / "minimal_backend" / "src" / "delegatekit_demo"


@pytest.fixture
def demo(install_plugin: Any) -> Iterator[str]:
    """The example backend, which adds and multiplies, under the name "demo"."""
    folder = install_plugin("demo", "from delegatekit_demo.plugin import *\n")
    shutil.copytree(_EXAMPLE, folder / "delegatekit_demo")
    yield "demo"
    for name in [name for name in sys.modules if name.partition(".")[0] == "delegatekit_demo"]:
        del sys.modules[name]
