"""Logs of PyTorch during export: none, because the error that follows gives the cause in one line."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch

import delegatekit
from delegatekit_api import LoweringError


class DataDependent(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Records(logging.Handler):
    """Records log messages."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    handler = Records()
    loggers = [logging.getLogger(name) for name in ("torch", "torch.fx.experimental.symbolic_shapes", "torch._dynamo")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.found
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (DataDependent(), torch.ones(3)),
        (torch.nn.Linear(2, 2), torch.ones(3)),
        (torch.nn.ReLU(), torch.eye(3).to_sparse()),
    ],
    ids=["a branch on data", "a wrong shape", "a sparse tensor"],
)
def test_a_model_that_is_refused_is_told_by_the_error_alone(
    model: torch.nn.Module, example: torch.Tensor, logged: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LoweringError):
        delegatekit.lower(model, (example,), backends=[])
    assert logged == []
    assert capfd.readouterr().err == ""
    logging.getLogger("torch").warning("afterwards logs are heard again")
    assert logged == ["afterwards logs are heard again"]
