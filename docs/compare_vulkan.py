"""Writes docs/vulkan-stock.md: the Vulkan backend's blobs beside stock ExecuTorch's, call by call.

python docs/compare_vulkan.py            # all models: some three minutes
python docs/compare_vulkan.py NAME ...   # only these; prints, writes nothing
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from plugins.vulkan.tests.comparison import Comparison, compare
from plugins.vulkan.tests.stock_models import MODELS
from plugins.vulkan.tests.stock_reasons import reason

PAGE = Path(__file__).with_name("vulkan-stock.md")
HEAD = """# The Vulkan backend's blobs beside stock ExecuTorch's

Written by `make stock-blobs`. Do not edit.

Small models are lowered by the Vulkan backend and by stock ExecuTorch 1.5 (`VulkanPartitioner`), from the same exported
program, and both blobs are read by the backend's reader. ViT and BERT have attention in its parts
(`attn_implementation="eager"`).

A pair of calls is the same if operator, shapes, element types, numbers and contents of constants are equal. Copies
are calls that only copy a tensor into another layout (`aten.clone.default`); they are counted, not compared. Bytes of
memory are those of elements, without the padding of textures; tensors that share a block are counted once. Stock also
shares the blocks of inputs and outputs, and between tensors of different types and layouts.

| model | delegates | calls outside | calls | same | copies | constants | their KiB | blocks | their KiB |
|---|---|---|---|---|---|---|---|---|---|
"""
REST = """
Where a cell has two numbers, the first is stock's.

## What differs, and why

"sizes" are those of a call's tensors, "argument" and "constant" are counted from 0, "form" is where a result is kept.
The numbers say how often.
"""


def main(names: list[str]) -> int:
    """Compare; returns the exit code: 1 if a difference has no reason."""
    found = []
    for name in names or MODELS:
        found.append(compare(name))
        print(f"{name}: {found[-1].same} calls are the same, {len(found[-1].differences)} differences", flush=True)
    text = page(found)
    if names:
        print(text)
    else:
        PAGE.write_text(text, "utf-8")
    unexplained = [
        f"{item.model}: {line}" for item in found for line in item.differences if not reason(item.model, line)
    ]
    for line in unexplained:
        print(f"no reason: {line}")
    return bool(unexplained)


def page(comparisons: Iterable[Comparison]) -> str:
    """The page as Markdown."""
    rows: list[str] = []
    reasons: dict[str, dict[str, list[str]]] = {}
    for item in comparisons:
        rows.append(row(item))
        for line, times in item.differences.items():
            why = reason(item.model, line) or "No reason is known"
            reasons.setdefault(why, {}).setdefault(line, []).append(f"{item.model} {times}")
    text = HEAD + "\n".join(rows) + "\n" + REST
    for why, lines in reasons.items():
        text += f"\n{why}:\n\n"
        text += "".join(f"* `{line}`: {', '.join(models)}\n" for line, models in sorted(lines.items()))
    return text


def row(item: Comparison) -> str:
    """The row of a model."""
    stock, ours = item.stock, item.ours
    pairs = [
        (stock.delegates, ours.delegates),
        (stock.outside, ours.outside),
        (stock.calls, ours.calls),
        item.same,
        (stock.copies, ours.copies),
        (stock.constants, ours.constants),
        (stock.constant_bytes // 1024, ours.constant_bytes // 1024),
        (stock.objects, ours.objects),
        (stock.object_bytes // 1024, ours.object_bytes // 1024),
    ]
    cells = [f"{cell[0]:,}, {cell[1]:,}" if isinstance(cell, tuple) else str(cell) for cell in pairs]
    return f"| {item.model} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
