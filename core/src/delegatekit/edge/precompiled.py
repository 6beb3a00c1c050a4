"""Delegates compiled earlier than the surrounding program: lowered modules inside other modules.

Exported programs call them by the operator `delegatekit::call_delegate(inputs, key)`, which runs the delegate in eager
PyTorch, and which lowering replaces by the delegate itself. The key is a digest of the whole delegate: equal keys
mean equal delegates, in any process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

import torch
from torch.fx import Node
from torch.utils.weak import WeakTensorKeyDictionary

from delegatekit_api import LoweringError, UnsupportedError
from delegatekit_api.nodes import describe_node


@dataclass(frozen=True, eq=False)
class Precompiled:
    """A compiled delegate: its execution here, its output shapes, and its lowered form."""

    #: The delegate's inputs -> its outputs.
    run: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
    #: The same for fake tensors: shapes and dtypes. Raises ExecutionError for inputs that the delegate does not accept.
    infer: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
    #: The `lowering.Delegate`.
    delegate: Any


#: Key -> delegate, weakly: delegates live as long as a module, or a program that was exported from one.
_KNOWN: Final[WeakValueDictionary[str, Precompiled]] = WeakValueDictionary()
#: A tensor held by modules and the programs exported from them -> the delegate, which lives as long as it.
_HELD: Final[Any] = WeakTensorKeyDictionary()


def register(key: str, precompiled: Precompiled) -> Precompiled:
    """Make a delegate callable under a key; returns the existing one of that key, if any."""
    return _KNOWN.setdefault(key, precompiled)


def hold(token: torch.Tensor, precompiled: Precompiled) -> None:
    """Keep a delegate alive as long as the tensor."""
    _HELD[token] = precompiled


def _find(key: str, where: str | None = None) -> Precompiled:
    found = _KNOWN.get(key)
    if found is None:
        raise LoweringError(
            f"the lowered module {key} is not known in this process",
            where=where,
            hint="make it here, with to_backend from the same model and options, and keep it while the program is used",
        )
    return found


@torch.library.custom_op("delegatekit::call_delegate", mutates_args=())
def call_delegate(inputs: Sequence[torch.Tensor], key: str) -> list[torch.Tensor]:
    """Run a lowered module's delegate."""
    return _find(key).run(inputs)


@call_delegate.register_fake
def _(inputs: Sequence[torch.Tensor], key: str) -> list[torch.Tensor]:
    return _find(key).infer(inputs)


CALL: Final = torch.ops.delegatekit.call_delegate.default


def is_precompiled(node: Any) -> bool:
    """True if a node calls a lowered module."""
    return isinstance(node, Node) and node.target is CALL


def called_module(node: Node) -> Precompiled:
    """The lowered module that a node calls. Raises LoweringError in a process that does not have it."""
    inputs, key = node.args
    if any(not isinstance(item, Node) for item in inputs):  # type: ignore[union-attr]
        raise UnsupportedError("gets an input that is not a tensor", where=describe_node(node))
    return _find(str(key), describe_node(node))
