"""`-b auto`: backends that measurements choose, for `tune` and `lower`."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..pipeline import Source
from ..plugins.discovery import AUTO
from .console import remark

if TYPE_CHECKING:
    from .. import Measurements


def without_auto(backends: Sequence[str]) -> list[str]:
    """The backends that are named; none for `-b auto` alone, which means all."""
    return [name for name in backends if name != AUTO]


def tuned(model: Source, backends: Sequence[str], **more: Any) -> Measurements:
    """Measurements by `delegatekit.tune` on the named backends; prints progress and duration to stderr.

    Raises MissingToolsError where the tools are not installed.
    """
    from .. import tune

    start = monotonic()
    found = tune(**vars(model), backends=without_auto(backends), say=lambda text: remark(text, "dim"), **more)
    remark(f"tuned in {monotonic() - start:.1f} s", "dim")
    return found
