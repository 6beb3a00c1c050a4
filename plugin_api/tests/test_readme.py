"""The README lists every hook that a backend may implement, with the arguments of the hook."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from delegatekit_api import BackendSpec
from delegatekit_api.observers import ObserverSpec, SuiteSpec

PAGE = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_page_has_every_hook_with_its_arguments() -> None:
    hooks = {
        name: [argument for argument in inspect.signature(hook).parameters if argument != "self"]
        for name, hook in vars(BackendSpec).items()
        if not name.startswith("_")
    }
    rows = re.findall(r"^\| `(\w+)\(([^)]*)\)` \|", PAGE, re.MULTILINE)
    assert {name: [part for part in arguments.split(", ") if part] for name, arguments in rows} == hooks


def test_the_page_names_what_observers_hear() -> None:
    assert all(f"`{spec.__name__}`" in PAGE for spec in (ObserverSpec, SuiteSpec))
