"""Calls of PyTorch's operators, by the fastest path.

The functions of the module `torch` take half the time of an operator called by its overload, but choose the overload
by themselves. So their choice for such arguments is checked once, before they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass
class BoundCall:
    """A kernel call that is ready to run: `function(*positional, **keywords)`.

    Values that change between calls are put into the containers, at the positions of the file's arguments.
    """

    function: Callable[..., Any]
    positional: list[Any]
    keywords: dict[str, Any] = field(default_factory=dict)
    #: The position of each argument of the file's call; those after the last are return values, which are not passed.
    places: list[tuple[Any, Any]] = field(default_factory=list)

    def bound(self) -> Callable[[], Any]:
        """The call with its present arguments, for good."""
        return partial(self.function, *self.positional, **self.keywords)

    def __call__(self) -> Any:
        """Make the call with the arguments as they are now."""
        return self.function(*self.positional, **self.keywords)


_aten = torch.ops.aten

#: Operators on a number, whose out-variants compute into a temporary -> those with the number as a tensor.
_WITH_TENSOR: Final = {
    _aten.add.Scalar_out: _aten.add.out,
    _aten.sub.Scalar_out: _aten.sub.out,
    _aten.mul.Scalar_out: _aten.mul.out,
    _aten.div.Scalar_out: _aten.div.out,
    _aten.div.Scalar_mode_out: _aten.div.out_mode,
}

#: Overload and kinds of arguments -> True if the function of the same name calls that overload with these arguments.
_KNOWN: dict[tuple[Any, ...], bool] = {}


def faster(target: OpOverload, call: BoundCall) -> BoundCall:
    """The call by PyTorch's function of the operator's name, if that is equivalent; else the call itself.

    Only for calls with constant arguments.
    """
    given = call
    function = getattr(torch._C._VariableFunctions, target._schema.name.rpartition("::")[2], None)
    if function is None or "out" not in call.keywords:
        return call
    if target in _WITH_TENSOR:
        tensor, number, *factor = call.positional
        if torch.result_type(tensor, number) != call.keywords["out"].dtype:
            return call
        target = _WITH_TENSOR[target]
        # `alpha` is keyword-only there.
        call = BoundCall(call.function, [tensor, number], {**call.keywords, **({"alpha": factor[0]} if factor else {})})
    key = (target, *map(_kind, call.positional), *((name, _kind(value)) for name, value in call.keywords.items()))
    known = _KNOWN.get(key)
    if known is None:
        known = _KNOWN[key] = _means_the_same(function, target, call)
    return BoundCall(function, call.positional, call.keywords, call.places) if known else given


def _kind(value: Any) -> Any:
    """The properties by which PyTorch chooses an overload."""
    if isinstance(value, torch.Tensor):
        return torch.Tensor, value.dim() == 0, value.dtype
    if isinstance(value, list):
        return list, *sorted({str(_kind(item)) for item in value})
    return type(value)


def _means_the_same(function: Callable[..., Any], target: OpOverload, call: BoundCall) -> bool:
    with _Recorder() as recorder:
        try:
            function(*call.positional, **call.keywords)
        except Exception:  # it has no such parameters, or does more than call one operator
            return False
    if len(recorder.calls) != 1 or recorder.calls[0][0] is not target:
        return False
    _, args, kwargs = recorder.calls[0]
    wanted, found = _complete(target, call.positional, call.keywords), _complete(target, args, kwargs)
    return len(wanted) == len(found) and all(map(_equal, wanted, found))


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators that are called, and computes nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, Sequence[Any], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args, kwargs or {}))
        return (kwargs or {})["out"]


def _complete(target: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """A value for each parameter; PyTorch omits those with the default value."""
    return [
        args[position] if position < len(args) else kwargs.get(parameter.name, parameter.default_value)
        for position, parameter in enumerate(target._schema.arguments)
    ]


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, torch.Tensor):
        return first is second
    return type(first) is type(second) and bool(first == second)
