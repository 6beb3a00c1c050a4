"""Imported by the server process that workers are forked from: loads and uses once everything but backends.

A worker that is forked has it at once and shares the memory. The server has one thread only: a fork has no others, and
locks that they held would never be free again. Importing this module never fails; what cannot be loaded here is loaded
by each worker, which then reports what is wrong.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def _warm_up() -> None:
    import torch

    torch.set_num_threads(1)
    _load_suite()
    # The first use of each loads far more than its import: tables, caches, and modules inside functions.
    _draw()
    for module in (torch.nn.Linear(2, 2), torch.nn.LayerNorm(2)):
        _lower(module.eval(), torch.zeros(1, 2))
    # These objects stay: garbage collection need not scan them, and pages stay shared.
    gc.collect()
    gc.freeze()


def _load_suite() -> None:
    import delegatekit
    from delegatekit_conformance import cases
    from delegatekit_conformance.strategies import load_operators

    for name in delegatekit.__all__:
        getattr(delegatekit, name)
    list(cases.rooms())
    load_operators()


def _draw() -> None:
    from delegatekit_conformance.drawing import draw
    from delegatekit_conformance.strategies.graphs import graphs

    draw(graphs(), 2, 0)


def _lower(module: object, example: object) -> None:
    """Export and translate a module: the steps that ask no plugin."""
    import torch

    from delegatekit.edge import build_edge

    with torch.no_grad():
        build_edge(torch.export.export(module, (example,), strict=False))  # type: ignore[arg-type]


@contextmanager
def _silent() -> Iterator[None]:
    """Discards output within the block: nothing is under test here."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, before in enumerate(kept, 1):
            os.dup2(before, descriptor)
            os.close(before)
        os.close(nowhere)


# Read when the libraries of torch are loaded: with more, they would start threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
with _silent(), suppress(Exception):
    _warm_up()
