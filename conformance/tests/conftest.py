"""A backend that multiplies, into which a test seeds a fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

#: The test's fault goes where the braces are.
PLUGIN = """
import os, signal, sys, time
from delegatekit_api import *

@hookimpl
def describe_backend():
    return BackendDescription("seeded", "SeededBackend", "delegatekit-seeded", "1.2", "seeded fault", {description})

class Partitioner:
    def keep_operators(self):
        return ()
    def check(self, node, program):
        return Verdict.yes() if str(node.target) == "aten.mul.Tensor" else Verdict.no("only multiplies")
    def propose(self, program):
        return None

class Runtime:
    def is_available(self):
        return Availability({available})
    def init(self, payload):
        {init}
        return payload
    def execute(self, handle, inputs, outputs):
        {execute}
        outputs[0].copy_(inputs[0] * inputs[1])
    def destroy(self, handle):
        pass

@hookimpl
def create_partitioner(options):
    return Partitioner()

@hookimpl
def preprocess(partition, options):
    {preprocess}
    return PreprocessResult(b"blob")

@hookimpl
def create_runtime():
    return Runtime()
"""
_SOUND = {"init": "pass", "execute": "pass", "preprocess": "pass", "available": "True", "description": ""}

InstallSeeded = Callable[..., None]


@pytest.fixture
def install_seeded(install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> InstallSeeded:
    """Installs the backend "seeded", for this process and for workers; the arguments are its faults."""

    def install(**faults: Any) -> None:
        folder = install_plugin("seeded", PLUGIN.format(**(_SOUND | faults)))
        monkeypatch.setenv("PYTHONPATH", str(folder))

    return install
