"""`--pass`: passes that are named by module and name, for the commands that lower or explain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .console import usage
from .imported import attribute_of, module_of, run_users

if TYPE_CHECKING:
    from ..passes import ProgramPassLike


def read_passes(texts: Sequence[str]) -> list[ProgramPassLike] | None:
    """The passes that are named, in order; None if there are none. Ends the command for a name of none."""
    return [item for text in texts for item in _named(text)] or None


def _named(text: str) -> list[ProgramPassLike]:
    source, _, name = text.rpartition(":")
    is_module = source.endswith(".py") or re.fullmatch(r"\w+(\.\w+)*", source)
    if not is_module or not re.fullmatch(r"[\w.]+", name):
        usage(f"--pass {text!r} is not of the form MODULE:NAME", "give package.module:NAME or path/file.py:NAME")
    from ..passes import OwnedPass, check_form

    what = f"--pass {text}"
    found = attribute_of(what, module_of(what, source), name)
    if isinstance(found, type):
        found = run_users(what, found)
    several = list(found) if isinstance(found, list | tuple) else [found]
    for item in several:
        check_form(OwnedPass(item), what)
    return several
