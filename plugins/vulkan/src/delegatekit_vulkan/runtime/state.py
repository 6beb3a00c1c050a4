"""What the next call of a delegate needs to know: caches that calls write into, and numbers that stand in inputs.

ExecuTorch's lowering leaves key and value caches in the blob as constants that an operator overwrites, and the position
in them as a number that is read out of an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ..ir.graph import Graph, SymInt, Tensor
from .transfer import constant_array, words_of

if TYPE_CHECKING:
    import numpy as np
    import torch

#: Operator -> positions of the arguments that it overwrites.
_OVERWRITTEN: Final = {"sdpa_with_kv_cache.default": (3, 4)}
#: Reads a number out of a tensor.
READS_NUMBER: Final = "et_vk.select_as_symint.default"


def caches_of(graph: Graph) -> tuple[Tensor, ...]:
    """The constants that calls overwrite."""
    found: dict[Tensor, None] = {}
    for node in graph.nodes:
        for position in _OVERWRITTEN.get(node.operator, ()):
            tensor = node.arguments[position] if position < len(node.arguments) else None
            if isinstance(tensor, Tensor) and tensor.data is not None:
                found[tensor] = None
    return tuple(found)


def first_words(cache: Tensor) -> np.ndarray[Any, Any]:
    """What a cache holds before the first call."""
    assert cache.data is not None
    found: np.ndarray[Any, Any] = words_of(constant_array(cache.data)).copy()
    return found


def numbers_in(graph: Graph, inputs: Sequence[torch.Tensor]) -> dict[SymInt, int]:
    """The numbers that a call's inputs hold. The graph's calls were checked when it was loaded."""
    found = {}
    for node in graph.nodes:
        if node.operator == READS_NUMBER and isinstance(node.result, SymInt):
            tensor, axis, index = node.arguments[:3]
            value = inputs[graph.inputs.index(tensor)]  # type: ignore[arg-type]
            found[node.result] = int(value.select(axis, index).item())  # type: ignore[arg-type]
    return found
