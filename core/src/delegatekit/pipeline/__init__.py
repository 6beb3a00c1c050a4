"""From a model to a lowered program: arguments, the list of stages, and what `lower` and `to_backend` return."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .arguments import Lowering, Partitioning, Quantizing, Selecting, Source, Training, paragraphs, takes

if TYPE_CHECKING:
    from .module import LoweredModule
    from .program import Content, LoweredProgram
    from .stages import PlannedProgram, choose, compiled, lower, plan, to_backend

#: Name -> its module, which is loaded when the name is used: the command line reads the arguments without torch.
_HOMES: Final = {"LoweredModule": "module", "Content": "program", "LoweredProgram": "program"}

__all__ = [
    "Content",
    "LoweredModule",
    "LoweredProgram",
    "Lowering",
    "Partitioning",
    "PlannedProgram",
    "Quantizing",
    "Selecting",
    "Source",
    "Training",
    "choose",
    "compiled",
    "lower",
    "paragraphs",
    "plan",
    "takes",
    "to_backend",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES.get(name, 'stages')}", __name__), name)
