"""Faults visible in a backend's description alone: its facts and its options."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

from .fault import fault


@fault("describe", "contract/*")
def _slow_import(sound: Any) -> Any:
    """Describing the backend takes seconds of work."""
    end = time.process_time() + 6
    while time.process_time() < end:
        pass
    return sound


@fault("describe", "contract/*")
def _another_version_than_the_wheel(sound: Any) -> Any:
    """The description states a version that is not the installed distribution's."""
    return dataclasses.replace(sound, version="99.9")


@fault("describe", "contract/*", "operators/aten.add.Tensor/*")
def _unknown_precision(sound: Any) -> Any:
    """The description names an unknown precision."""
    return dataclasses.replace(sound, compute_precision="float24")


@functools.cache
def _with_a_level(sound: Any) -> Any:
    field = ("level", int, dataclasses.field(default=1))
    return dataclasses.make_dataclass("Options", [field], bases=(sound,), frozen=True)


@fault("options", "contract/*")
def _options_without_words(sound: Any) -> Any:
    """An option has no documentation."""
    return _with_a_level(sound)
