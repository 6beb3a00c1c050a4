"""`delegatekit cache`: look at the compiled partitions that are kept, or throw them away."""

from __future__ import annotations

from typing import Annotated

import typer

from delegatekit import cli

_ACTIONS = ("info", "clear")


@cli.results_alone
def cache(
    action: Annotated[str, typer.Argument(metavar="info|clear", help="Show what is kept, or throw all of it away.")],
    as_json: cli.JsonOption = False,
) -> None:
    """Show or clear the cache of compiled partitions."""
    if action not in _ACTIONS:
        cli.usage(f"{action!r} is neither {' nor '.join(_ACTIONS)}")
    from delegatekit.compiling import Cache
    from delegatekit.plugins import COMPILED
    from delegatekit_toolkit.number_text import human_size

    kept = Cache.of_user()
    if kept is None:
        cli.usage(f"there is no cache: {COMPILED} or DELEGATEKIT_CACHE is off, or there is no folder for it")
    removed = kept.clear() if action == "clear" else 0
    found = kept.info()
    if as_json:
        cli.print_json({"cleared": removed, "cache": found})
    elif action == "clear":
        cli.say(f"deleted {removed} compiled partitions")
    else:
        filled = f"{human_size(found.bytes)} of {human_size(found.limit)}"
        cli.say(f"{found.results} compiled partitions, {filled}: {found.folder}")
