"""The modules of the user's model that a call comes from, and patterns that name modules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from delegatekit_api import Call, OptionError

#: The maximum number of modules that an error lists.
_SHOWN = 8


def module_paths(call: Call) -> tuple[str, ...]:
    """The paths of the modules that contain a call, the outermost first, as far as the export recorded them.

    >>> from delegatekit_toolkit.testing import call_of
    >>> import torch
    >>> module_paths(call_of(torch.nn.Sequential(torch.nn.ReLU()), torch.ones(2)))
    ('', '0')
    """
    stack = call.node.meta.get("nn_module_stack") or {}
    # A module that is called again has a number after its name.
    return tuple(dict.fromkeys(str(path).partition("@")[0] for path, _ in stack.values()))


def is_inside(path: str, pattern: str) -> bool:
    """True if a pattern names the module or one that contains it. In a part of a pattern "*" matches any text; the part
    "**" matches any number of parts.

    >>> is_inside("encoder.layers.3.norm", "encoder.layers"), is_inside("encoder.layers.3.norm", "**.norm")
    (True, True)
    >>> is_inside("encoder.layers.3", "encoder.layers.*.norm"), is_inside("encoder.norms", "encoder.norm")
    (False, False)
    """
    return _begins(pattern.split("."), path.split("."))


def check_modules(what: str, patterns: Iterable[str], calls: Iterable[Call], backend: str) -> None:
    """Raise OptionError for a pattern of the option `what` that names no module of any of the calls.

    >>> check_modules("wide", ["head"], [], "mine")
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.OptionError: option of backend mine: wide names 'head', of which the backend takes...
    """
    known: dict[str, None] = {}
    if patterns := sorted(patterns):
        known = {path: None for call in calls for path in module_paths(call) if path}
    for pattern in patterns:
        if not any(is_inside(path, pattern) for path in known):
            listed = f"{', '.join(list(known)[:_SHOWN])}{' ...' if len(known) > _SHOWN else ''}"
            raise OptionError(
                f"{what} names {pattern!r}, of which the backend takes nothing",
                where=f"option of backend {backend}",
                hint=f"modules are {listed}" if known else "the program has no modules",
            )


def _begins(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """True if the first parts of a path match a pattern."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_begins(pattern[1:], path[start:]) for start in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _begins(pattern[1:], path[1:])
