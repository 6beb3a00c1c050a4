"""An operator call about to be written into the edge graph: the input of rules."""

from __future__ import annotations

from typing import Any, Final, final

from .arguments import has_argument, read_argument


@final
class Draft:
    """One operator call that is not a node yet: `call["dim"]` is an argument by its name in the schema.

    Arguments have their defaults filled in; several names give a tuple: `x, dim = call["self", "dim"]`. A tensor is a
    node of the edge graph, a size that changes from call to call a torch.SymInt. `args` and `kwargs` are the call as
    it was written, for rules that pass it on; `value` is its fake result, or None if not known yet.
    """

    __slots__ = ("args", "kwargs", "target", "value")

    def __init__(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> None:
        self.target: Final = target
        self.args: Final = args
        self.kwargs: Final = kwargs
        self.value: Final = value

    def __getitem__(self, name: str | tuple[str, ...]) -> Any:
        """The argument of this name, or those of these names. Raises KeyError if the operator has no such argument."""
        if isinstance(name, tuple):
            return tuple(read_argument(self, item) for item in name)
        return read_argument(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """The argument of this name, or `default` if the operator has none."""
        return read_argument(self, name) if has_argument(self, name) else default
