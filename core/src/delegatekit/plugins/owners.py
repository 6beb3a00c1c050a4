"""Selects the installed plugin that runs a delegate: the user's choice, the one that made it, or the only one."""

from __future__ import annotations

from collections.abc import Sequence

from delegatekit_api import PluginError

from .allowed import is_allowed
from .backend import BackendInfo, LoadedBackend
from .declared import normalized
from .discovery import backends, get_backend, look_up, of_id, of_owner


class OwnerError(PluginError):
    """The plugin that runs a delegate is ambiguous, or not allowed without the user's choice."""


def find_by_delegate_id(delegate_id: str, distribution: str | None = None, chosen: Sequence[str] = ()) -> LoadedBackend:
    """The backend that runs delegates of this id.

    This is the first of the backends `chosen` by the user whose delegates have the id. Otherwise it is the one of the
    `distribution` that made the file, or, if the file does not name its maker, the only one with this id and a runtime
    for any maker's blobs. If the owner can run it, no other plugin is imported, even one that claims its name.

    Raises OwnerError if the user's choice is needed or the owner is broken, PluginError if there is none.
    """
    preferred = [backend for backend in map(get_backend, chosen) if backend.description.delegate_id == delegate_id]
    if preferred:
        return preferred[0]
    owned = [] if distribution is None else of_owner(distribution)
    made = [item for item in owned if isinstance(item, LoadedBackend) and item.description.delegate_id == delegate_id]
    # Those of one distribution without a runtime of their own all borrow the same.
    able = [item for item in made if item.has("create_runtime")] or made[:1]
    if not able:
        able = of_id(delegate_id)
        if distribution is not None:
            _explain_owner(distribution, owned, delegate_id, able)
        if not able:
            found = [look_up(name) for name in backends(check=False)]
            raise PluginError(
                f"no installed backend runs delegates of id {delegate_id!r} ({_summary(found)})",
                hint="install the plugin that the file was made with: `delegatekit inspect FILE` names it",
            )
    if len(able) > 1:
        raise OwnerError(
            f"{_text(able)} all run delegates of id {delegate_id!r}, and the file does not say which of them made it",
            hint=f"choose one: {_how_to_choose(able[0].name)}",
        )
    return able[0]


def _explain_owner(
    distribution: str, owned: Sequence[LoadedBackend | BackendInfo], delegate_id: str, others: Sequence[LoadedBackend]
) -> None:
    """Raise OwnerError if the owner of a delegate is broken, or is missing but others could run it."""
    choice = f", or choose another: {_how_to_choose(others[0].name)}" if others else ""
    listed = (
        info for info in backends(check=False).values() if normalized(info.distribution) == normalized(distribution)
    )
    broken = [item for item in owned if isinstance(item, BackendInfo)]
    for info in broken or (info for info in listed if not is_allowed(info.name)):
        raise OwnerError(
            f"{distribution} made this, and its backend {info.name} is {info.status}: {info.reason}",
            hint=f"`delegatekit backends --check` tries it again{choice}",
        )
    if others:
        raise OwnerError(
            f"{distribution} made this, and it is not installed; {_text(others)} could run delegates of id "
            f"{delegate_id!r}, too",
            hint=f"pip install {distribution}{choice}",
        )


def _summary(found: Sequence[BackendInfo]) -> str:
    """The usable backends, and the reasons why others are not usable."""
    usable = ", ".join(f"{info.name} ({info.delegate_id})" for info in found if info.usable) or "none"
    unusable = (f"{info.name} is {info.status}: {info.reason}" for info in found if not info.usable)
    return "; ".join([f"usable: {usable}", *unusable])


def _text(found: Sequence[LoadedBackend]) -> str:
    return " and ".join(f"{backend.name} ({backend.distribution})" for backend in found)


def _how_to_choose(name: str) -> str:
    return f"`--backend {name}` on the command line, `load(..., backends=[{name!r}])` in Python"
