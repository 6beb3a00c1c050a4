"""Which calls are computed in float32 by the user's wish, where everything else is in float16."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from delegatekit_api import Call, OptionError, ProgramView
from delegatekit_toolkit.support import leavable_names

if TYPE_CHECKING:
    from ..options import CoreMLOptions

#: Modules that an error lists.
_SHOWN: Final = 8


def is_wide(call: Call, options: CoreMLOptions) -> bool:
    """Whether a call is; what reads unpacked constants is computed in their type."""
    if not options.float32_operators and not options.float32_modules:
        return False
    is_named = bool(options.float32_operators & leavable_names(call.operator)) or any(
        _is_inside(path, name) for path in _modules(call) for name in options.float32_modules
    )
    return is_named and all(operand.integers is None for operand in call.operands)


def check_modules(options: CoreMLOptions, programs: Iterable[ProgramView]) -> None:
    """Raise OptionError for a name that is none of a module with calls in these programs."""
    if not options.float32_modules:
        return
    found = {path for view in programs for call in view.calls() for path in _modules(call)}
    for name in sorted(options.float32_modules) if found else ():
        if not any(_is_inside(path, name) for path in found):
            known = sorted(path for path in found if path)
            raise OptionError(
                f"float32_modules names {name!r}, of which the backend takes nothing",
                where="option of backend coreml",
                hint=f"modules are {', '.join(known[:_SHOWN])}{' ...' if len(known) > _SHOWN else ''}",
            )


def _modules(call: Call) -> Iterator[str]:
    """The paths of the modules that a call is in, as far as the export recorded them."""
    for path, _ in (call.node.meta.get("nn_module_stack") or {}).values():
        # A module that is called again has a number after its name.
        yield str(path).partition("@")[0]


def _is_inside(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")
