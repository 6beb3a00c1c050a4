"""Observers: hear the stages of lowering and add conformance cases. One that fails is reported, then left alone."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from typing import Any, Final

import importlib_metadata as metadata
import pluggy

from delegatekit_api.observers import ObserverSpec, StageEvent
from delegatekit_api.versions import PROJECT

OBSERVER_GROUP: Final = f"{PROJECT}.observers"


def notify(event: StageEvent) -> None:
    """Tell all observers about a stage. An observer that fails is reported once and never called again."""
    _ask_observers("on_stage", event=event)


def extra_conformance_cases(backend: str) -> tuple[Any, ...]:
    """The conformance cases that observers add for a backend, all in one."""
    return tuple(case for cases in _ask_observers("conformance_cases", backend=backend) for case in cases or ())


def _ask_observers(hook: str, **arguments: Any) -> list[Any]:
    manager = _observers()
    answers = []
    # pluggy's own call would stop at the first observer that fails.
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        # An observer may leave out arguments that it does not need.
        given = {name: value for name, value in arguments.items() if name in implementation.argnames}
        try:
            with redirect_stdout(sys.stderr):
                answers.append(implementation.function(**given))
        except (Exception, SystemExit) as error:
            manager.unregister(implementation.plugin)
            warnings.warn(f"observer {implementation.plugin_name} failed and is ignored: {error!r}", stacklevel=2)
    return answers


def add_observer(observer: object) -> Callable[[], None]:
    """Register an observer of this process; returns the function that removes it."""
    manager = _observers()
    manager.register(observer)

    def remove() -> None:
        if manager.is_registered(observer):
            manager.unregister(observer)

    return remove


def refresh() -> None:
    """Forget the observers that were found, so that packages installed since are seen."""
    _observers.cache_clear()


@cache
def _observers() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ObserverSpec)
    for entry_point in metadata.entry_points(group=OBSERVER_GROUP):
        try:
            with redirect_stdout(sys.stderr):
                manager.register(entry_point.load(), name=entry_point.name)
        except (Exception, SystemExit) as error:
            warnings.warn(f"observer {entry_point.name} could not be loaded: {error!r}", stacklevel=2)
    return manager
