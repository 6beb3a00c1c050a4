"""Delegates that were compiled before the program that they are part of: lowered modules inside other modules.

Exported programs call them by the operator `delegatekit::call_delegate(inputs, key)`, which runs the delegate in eager
PyTorch, and which lowering replaces by the delegate itself. The key is made from the delegate's content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Node

from delegatekit_api import LoweringError, UnsupportedError, describe_node


@dataclass(frozen=True)
class Precompiled:
    """A compiled delegate: how it runs here, what shapes it returns, and what lowering made of it."""

    #: Flat inputs -> flat outputs.
    run: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
    #: The same for fake tensors: shapes and dtypes.
    infer: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
    #: The `lowering.Delegate`.
    delegate: Any


#: Key -> delegate. They stay for the life of the process: an exported program holds nothing but the key.
_KNOWN: Final[dict[str, Precompiled]] = {}


def register(key: str, precompiled: Precompiled) -> None:
    """Make a delegate callable under a key."""
    _KNOWN[key] = precompiled


def _find(key: str, where: str | None = None) -> Precompiled:
    if key not in _KNOWN:
        raise LoweringError(
            f"the lowered module {key} is not known in this process",
            where=where,
            hint="make it with to_backend here, from the same model and options, before the program is used",
        )
    return _KNOWN[key]


@torch.library.custom_op("delegatekit::call_delegate", mutates_args=())
def call_delegate(inputs: Sequence[torch.Tensor], key: str) -> list[torch.Tensor]:
    """Run a lowered module's delegate."""
    return _find(key).run(inputs)


@call_delegate.register_fake
def _(inputs: Sequence[torch.Tensor], key: str) -> list[torch.Tensor]:
    return _find(key).infer(inputs)


CALL: Final = torch.ops.delegatekit.call_delegate.default


def is_precompiled(node: Any) -> bool:
    """Whether a node calls a lowered module."""
    return isinstance(node, Node) and node.target is CALL


def precompiled(node: Node) -> Precompiled:
    """The lowered module that a node calls. Raises LoweringError in a process that did not make it."""
    inputs, key = node.args
    if any(not isinstance(item, Node) for item in inputs):  # type: ignore[union-attr]
        raise UnsupportedError("gets an input that is no tensor", where=describe_node(node))
    return _find(str(key), describe_node(node))
