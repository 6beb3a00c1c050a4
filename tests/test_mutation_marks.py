"""Marks of equivalent mutants: each is about a line that its plugin has today."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegatekit_conformance.mutants import equivalent
from delegatekit_conformance.mutants.sites import Plugin

MARKED = sorted(Path(__file__).parents[1].glob(f"plugins/*/src/*/{equivalent.FILE}"))


@pytest.mark.parametrize("file", MARKED, ids=lambda file: file.parent.name)
def test_marks_are_about_lines_that_are_there(file: Path) -> None:
    assert equivalent.read(Plugin(file.parts[-4], file.parent.name, file.parent))
