"""Texts stay texts: none of a blob, its compile specs or its data's keys becomes code, a file's name or a command."""

from __future__ import annotations

from ...context import Context
from ..base import Broken
from ..fresh import in_fresh_process
from ..specimens import runs, samples
from .rules import Rules

RULES = Rules()

#: CPU seconds for the texts of all programs together, by profile; and programs, at most.
_SECONDS = {"quick": 2.0, "default": 8.0, "thorough": 60.0}
_PROGRAMS = 8

_TEXTS = """
from delegatekit_conformance.cases import hostile
listener = hostile.Listener()
listener.install()  # before the plugin is imported
from delegatekit_conformance.cases import specimens

items = []
for name, recipe, data in given["programs"]:
    items += specimens.recorded(name, recipe, data, given["context"])

answer.update(hostile.heard(listener, items, given["context"], given["seconds"]))
"""


@RULES.costing(8.0)
def texts_are_only_text(context: Context) -> str:
    """Hostile text in a blob, its compile specs or its keys is not evaluated, unpickled, imported, opened or run."""
    runs(context)
    seen = {item.name: item for item in samples(context)}
    programs = [(item.name, item.recipe, item.data) for item in list(seen.values())[:_PROGRAMS]]
    seconds = min(_SECONDS.get(context.profile.name, 8.0), context.timeout / 3)
    given = {"programs": programs, "context": context, "seconds": seconds}
    answer = in_fresh_process(_TEXTS, context, given).answer
    if answer["found"]:
        raise Broken(answer["found"][0])
    return f"{answer['tried']} texts"
