"""Methods of a program that take nothing and return a constant: what a runner asks a file about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from delegatekit_api import LoweringError


class _Constant(torch.nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self) -> Any:
        return self.value


def with_constants(
    programs: Mapping[str, ExportedProgram], values: Mapping[str, Any] | None
) -> dict[str, ExportedProgram]:
    """The programs, and one for each value, by the method's name: a bool, int, float, str, or a sequence of these.

    Raises LoweringError for a value of another kind, and for a name that a program has.

    >>> list(with_constants({}, {"get_vocab_size": 512, "get_eos_ids": [1, 2]}))
    ['get_vocab_size', 'get_eos_ids']
    """
    found = dict(programs)
    for name, value in (values or {}).items():
        held = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for item in held if isinstance(held, list) else [held]:
            if not isinstance(item, bool | int | float | str):
                raise LoweringError(
                    f"the constant that it returns is a {type(item).__name__}",
                    where=f"method {name}",
                    hint="bool, int, float, str, or a sequence of these",
                )
        if name in programs:
            raise LoweringError("is a constant method, and a method of the model, too", where=f"method {name}")
        found[name] = torch.export.export(_Constant(held), (), strict=False)
    return found
