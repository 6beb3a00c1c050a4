"""A backend that multiplies, into which a test seeds a fault."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
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
    def check(self, call):
        node = call.node
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


@pytest.fixture(scope="module")
def quick_garbage_collection() -> Iterator[None]:
    """Excludes present objects from garbage collection: torch has a million, and rules collect garbage."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def install_seeded(install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> InstallSeeded:
    """Installs the backend "seeded", for this process and for workers; the arguments are its faults."""

    def install(**faults: Any) -> None:
        folder = install_plugin("seeded", PLUGIN.format(**(_SOUND | faults)))
        monkeypatch.setenv("PYTHONPATH", _before_others(folder))

    return install


@pytest.fixture
def toy_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the module `toy_cases` importable, here and in workers; returns the folder that its cases write to."""
    folder = tmp_path / "toys"
    folder.mkdir()
    monkeypatch.setenv("TOYS", str(folder))
    monkeypatch.setenv("PYTHONPATH", _before_others(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return folder


def _before_others(folder: Path) -> str:
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))


@pytest.fixture(scope="session")
def watched() -> Callable[[Any], tuple[Any, list[str], list[str]]]:
    """watched(context): a new tab of a browser's context, what it complains of, and what it requests."""

    def opened(context: Any) -> tuple[Any, list[str], list[str]]:
        tab = context.new_page()
        complaints: list[str] = []
        requests: list[str] = []
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        return tab, complaints, requests

    return opened
