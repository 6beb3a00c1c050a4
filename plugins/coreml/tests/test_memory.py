"""Memory use while the backend lowers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit.edge.constants import Constants
from delegatekit_api import LoweringError


def test_of_layers_with_norms_one_lies_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:

    layers = [layer for _ in range(6) for layer in (torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.BatchNorm2d(16))]
    model, x = torch.nn.Sequential(*layers).eval(), torch.randn(1, 16, 8, 8)
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = [0]
    plain = Constants.compute

    def compute(self: Constants[Any], key: Any, function: Callable[[], torch.Tensor]) -> None:
        def watched() -> torch.Tensor:
            made = function()
            alive.add(made)
            most[0] = max(most[0], len(alive))
            return made

        plain(self, key, watched)

    monkeypatch.setattr(Constants, "compute", compute)
    lowered = delegatekit.lower(model, (x,), backends=["coreml"])
    assert len(delegatekit.report(lowered).methods[0].delegates) == 1
    assert most[0] == 1


def test_a_model_beyond_protobufs_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATEKIT_COMPILED", "off")
    monkeypatch.setattr("delegatekit_coreml.compiler._MOST_MODEL", 100)
    with pytest.raises(LoweringError, match=r"(?s)the description of the model has \d+ bytes: 100 are the most.*ios18"):
        delegatekit.lower(torch.nn.Linear(4, 4).eval(), (torch.randn(1, 4),), backends=["coreml"])
