"""Rewrites of a graph between lowering and blob: a file for each, and the list of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from delegatekit_toolkit.passes import run_passes

from ..ir.graph import Graph
from .clamps import fold_clamps
from .integers import fold_integers
from .layouts import choose_layouts
from .memory import share_memory
from .norms import fold_norms
from .pads import fold_pads
from .states import write_in_place

if TYPE_CHECKING:
    from ..options import VulkanOptions


def optimize(graph: Graph, options: VulkanOptions) -> Graph:
    """All passes, in order."""
    passes: tuple[Callable[[Graph], None], ...] = (
        *arithmetic(options),
        partial(choose_layouts, options=options),
        write_in_place,
        share_memory,
    )
    return run_passes(graph, passes, Graph.verify).graph


def arithmetic(options: VulkanOptions, *, any_scale: bool = False) -> tuple[Callable[[Graph], None], ...]:
    """The passes that change the computation; `any_scale` is for `fold_integers`."""
    return (
        fold_pads,
        fold_clamps,
        partial(fold_norms, half=options.fp16),
        partial(fold_integers, half=options.fp16, any_scale=any_scale),
    )
