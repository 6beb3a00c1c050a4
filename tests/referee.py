"""Eager, the Python engine and the stock runtime on the same file, as the tests of this folder compare them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten

import delegatekit

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")


class StockProgram:
    """A file in the stock runtime, which does not keep the bytes alive by itself."""

    def __init__(self, buffer: bytes) -> None:
        self._buffer = buffer
        self._program = _C._load_program_from_buffer(buffer)
        self._methods: dict[str, Any] = {}

    def method(self, name: str = "forward") -> Any:
        """A method, loaded once."""
        if name not in self._methods:
            self._methods[name] = self._program.load_method(name)
        return self._methods[name]


def same(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    """Assert that flat results are equal: exactly, or for floats up to the tolerance (relative to values above 1)."""
    found, wanted = tree_flatten(got)[0], tree_flatten(want)[0]
    assert len(found) == len(wanted)
    for mine, yours in zip(found, wanted, strict=True):
        if not isinstance(yours, torch.Tensor):
            assert mine == yours and type(mine) is type(yours)
            continue
        assert mine.dtype == yours.dtype and mine.shape == yours.shape, (mine.shape, yours.shape)
        if yours.dtype.is_floating_point:
            torch.testing.assert_close(mine, yours.detach(), atol=tolerance, rtol=tolerance, equal_nan=True)
        else:
            assert torch.equal(mine, yours)


def check(
    module: torch.nn.Module,
    examples: Sequence[Any],
    calls: Iterable[Sequence[Any]],
    *,
    dynamic_shapes: Any = None,
    backends: Sequence[str] = (),
    tolerance: float = 1e-5,
    **options: Any,
) -> Any:
    """Lower the module and compare eager, engine and stock runtime on every call; returns the lowered program."""
    module = module.eval()
    exported = torch.export.export(copy.deepcopy(module), tuple(examples), dynamic_shapes=dynamic_shapes, strict=False)
    program = delegatekit.lower(exported, backends=list(backends), **options)
    buffer = program.buffer
    stock = StockProgram(buffer).method()
    engine = delegatekit.load(buffer)["forward"]
    for call in calls:
        with torch.no_grad():
            want = module(*copy.deepcopy(tuple(call)))
        same(engine(*call), want, tolerance)
        same(stock(tuple(tree_flatten(tuple(call))[0])), want, tolerance)
    return program
