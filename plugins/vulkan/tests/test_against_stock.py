"""Every difference between our blobs and stock's has a reason, and docs/vulkan-stock.md has all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .comparison import compare
from .stock_models import MODELS
from .stock_reasons import reason

PAGE = Path(__file__).parents[3] / "docs" / "vulkan-stock.md"


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_difference_from_stock_is_explained(name: str) -> None:
    pytest.importorskip("executorch.backends.vulkan", reason="executorch is not installed")
    pytest.importorskip("transformers")
    found = compare(name)
    assert found.same > 0
    assert [line for line in found.differences if reason(name, line) is None] == []
    assert found.ours.delegates <= found.stock.delegates and found.ours.outside <= found.stock.outside
    text = PAGE.read_text("utf-8")
    missing = [line for line, times in found.differences.items() if f"{name} {times}" not in entry(text, line)]
    assert missing == [], "run make stock-blobs"


def entry(text: str, difference: str) -> list[str]:
    """The models of a difference on the page, each with the number of times; there may be a reason for each model."""
    start = f"* `{difference}`: "
    lines = [line.removeprefix(start) for line in text.splitlines() if line.startswith(start)]
    return [model for line in lines for model in line.split(", ")]
