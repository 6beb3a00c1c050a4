"""Observers: receive the stages of lowering and add conformance cases. One that fails is reported, then ignored."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from typing import Any

import pluggy

from delegatekit_api import PluginError
from delegatekit_api.observers import ObserverSpec, StageEvent, SuiteSpec
from delegatekit_api.versions import PROJECT

from . import first_import
from .allowed import forbidden
from .blame import fault, warn
from .declared import OBSERVER_GROUP, entry_points, owner


def notify(event: StageEvent) -> None:
    """Tell all observers about a stage. An observer that fails is reported once and never called again."""
    ask_observers("on_stage", event=event)


def ask_observers(hook: str, read: Callable[[Any], Any] = lambda answer: answer, **arguments: Any) -> list[Any]:
    """The answer of each observer, converted by `read`; one that raises, or whose answer is invalid, is ignored."""
    manager = _observers()
    answers = []
    # pluggy's own call would stop at the first observer that fails.
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        # An observer may omit arguments that it does not need.
        given = {name: value for name, value in arguments.items() if name in implementation.argnames}
        try:
            with redirect_stdout(sys.stderr):
                answers.append(read(implementation.function(**given)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            manager.unregister(implementation.plugin)
            warn(f"observer {implementation.plugin_name} failed and is ignored: {fault(error)}")
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
    """Clear the observers that were found, so that packages installed since are seen."""
    _observers.cache_clear()


@cache
def _observers() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ObserverSpec)
    manager.add_hookspecs(SuiteSpec)
    for entry_point in entry_points(OBSERVER_GROUP):
        if forbidden(entry_point) is not None:
            continue
        try:
            died = first_import.refusal(entry_point)
            if died is not None:
                raise PluginError(f"importing it {died}")
            with redirect_stdout(sys.stderr):
                manager.register(entry_point.load(), name=entry_point.name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            manager.unregister(name=entry_point.name)
            made_by = " ".join(owner(entry_point))
            warn(f"observer {entry_point.name} could not be loaded and is ignored ({made_by}): {fault(error)}")
    return manager
