"""The command line for tests: called in a folder with models, and with a backend that takes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from delegatekit.cli import console

#: Models for `package.module:callable`. The runtime's own operators run all of them: no backend is needed.
MODELS = """
import torch
from torch import nn

def linear():
    torch.manual_seed(0)
    return nn.Linear(4, 3).eval(), (torch.ones(2, 4),)

class Sum(nn.Module):
    def forward(self, x, *, y):
        return x + torch.atan(y)

def keywords():
    return Sum(), (torch.ones(2),), {"y": torch.ones(2)}

def exported():
    return torch.export.export(*linear())

class Svd(nn.Module):
    def forward(self, x):
        return torch.linalg.svd(x)[1]

def unsupported():
    return Svd(), (torch.ones(3, 3),)

def image():
    torch.manual_seed(0)
    return nn.Conv2d(3, 2, 1).eval(), (torch.ones(1, 3, 4, 6),)

def nothing():
    return 7

def needs(size):
    return nn.Linear(size, size), (torch.ones(1, size),)

def raises():
    raise RuntimeError("the user's own fault")
"""

#: A backend that takes nothing.
BACKEND = """
from delegatekit_api import *
from dataclasses import dataclass

class Nothing:
    def keep_operators(self): return ()
    def check(self, call): return Verdict.no("it takes nothing")
    def propose(self, program): return None

@dataclass(frozen=True)
class Options(BackendOptions):
    level: int = option(1, help="How hard to try.")

@hookimpl
def describe_backend():
    return BackendDescription("NAME", "NAMEBackend", "delegatekit-NAME", "1.2", "x", options=Options)

@hookimpl
def create_partitioner(options):
    return Nothing()
"""


@dataclass(frozen=True)
class Result:
    stdout: str
    stderr: str


@pytest.fixture
def install_idle(install_plugin: Any) -> Callable[[str], None]:
    """Installs a backend of this name that takes nothing."""
    return lambda name: install_plugin(
        name, BACKEND.replace("NAMEBackend", f"{name.title()}Backend").replace("NAME", name)
    )


@pytest.fixture
def cli(
    command_with: Callable[[str], Callable[..., Any]],
    install_idle: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Result]:
    """Calls the command in a folder with `models.py`, the backend "nothing" installed."""
    install_idle("nothing")
    command = command_with(MODELS)
    for printer in (console.out, console.err):
        monkeypatch.setattr(printer, "_width", 200)

    def call(*arguments: str, code: int = 0) -> Result:
        captured = command(*arguments, code=code)
        return Result(captured.out, captured.err)

    return call
