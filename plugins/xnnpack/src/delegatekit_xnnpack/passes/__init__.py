"""Rewrites of the finished graph, one file for each; `optimize` runs them.

Each pass takes the graph, changes it in place, and is linear in its nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from delegatekit_toolkit.passes import run_passes

from ..ir.graph import Graph
from ..options import XnnpackOptions
from .between import split_between
from .channels import split_channels
from .clamps import fold_clamps
from .columns import batch_columns
from .conversions import fold_conversions
from .half_clamps import clamp_in_half_precision
from .pads import fold_pads
from .unread import drop_unread

#: Changes a graph in place.
Pass: TypeAlias = Callable[[Graph], None]


def passes_for(options: XnnpackOptions) -> tuple[Pass, ...]:
    """All passes, ordered so that each enables the next."""
    size = options.block_bytes
    return (
        fold_pads,
        drop_unread,
        # Clamps have not been folded yet: no product has one of its own.
        *((partial(split_between, block_bytes=size), partial(batch_columns, block_bytes=size)) if size else ()),
        drop_unread,
        # float16 clamps lose a NaN.
        *(() if options.exact_special_values else (clamp_in_half_precision,)),
        fold_clamps,
        # Clamps have been folded: every block has its own.
        *((partial(split_channels, block_bytes=size),) if size else ()),
        fold_conversions,
    )


def optimize(graph: Graph, options: XnnpackOptions) -> None:
    """Run the passes, with the checks of the graph in between if the stage borders are checked."""
    run_passes(graph, passes_for(options), verify=partial(Graph.verify, packed=False))
