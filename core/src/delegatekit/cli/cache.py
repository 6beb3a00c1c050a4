"""`delegatekit cache`: look at the compiled partitions that are kept, or throw them away."""

from __future__ import annotations

from typing import Annotated

import typer

from .arguments import JsonOption
from .console import print_json, say, usage

_ACTIONS = ("info", "clear")


def cache(
    action: Annotated[str, typer.Argument(metavar="info|clear", help="Show what is kept, or throw all of it away.")],
    as_json: JsonOption = False,
) -> None:
    """Show or clear the cache of compiled partitions."""
    if action not in _ACTIONS:
        usage(f"{action!r} is neither {' nor '.join(_ACTIONS)}")
    from delegatekit_toolkit.number_text import human_size

    from ..compiling.cache import Cache
    from ..plugins import COMPILED

    kept = Cache.of_user()
    if kept is None:
        usage(f"there is no cache: {COMPILED} or DELEGATEKIT_CACHE is off, or there is no folder for it")
    removed = kept.clear() if action == "clear" else 0
    found = kept.info()
    if as_json:
        print_json({"cleared": removed, "cache": found})
    elif action == "clear":
        say(f"deleted {removed} compiled partitions")
    else:
        filled = f"{human_size(found.bytes)} of {human_size(found.limit)}"
        say(f"{found.results} compiled partitions, {filled}: {found.folder}")
