"""Sizes that change stay so while a compiler looks at a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.export import ExportedProgram

from ..targets import System


def sizes_kept(program: ExportedProgram, system: System) -> AbstractContextManager[None]:
    """While a compiler looks at a program: asking for the number of a size that changes is an error there.

    Otherwise PyTorch answers with the example's, and the size has that number from then on, in our program, too.
    """
    values = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    sizes: Iterator[Any] = (size for value in values for size in getattr(value, "shape", ()))
    changing = next((size for size in sizes if isinstance(size, torch.SymInt)), None)
    if changing is None or not system.fixes_sizes:
        return nullcontext()
    kept: AbstractContextManager[None] = changing.node.shape_env.error_on_new_guards()
    return kept
