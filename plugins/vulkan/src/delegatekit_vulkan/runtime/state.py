"""Values that a delegate keeps from call to call, and numbers in a call's inputs.

State is a constant that is uploaded once and then is the result of another call. ExecuTorch's lowering also leaves key
and value caches in the blob as constants that an operator overwrites, and the position in them as a number that is read
from an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from delegatekit_api import FormatError

from ..ir.graph import PREPACK, Graph, Node, SymInt, Tensor
from .memory import Block, Kept

if TYPE_CHECKING:
    import torch

#: Operator -> positions of the arguments that it overwrites.
_OVERWRITES: Final = {"sdpa_with_kv_cache.default": (3, 4)}
#: Reads a number from a tensor.
READS_NUMBER: Final = "et_vk.select_as_symint.default"


def states_of(graph: Graph) -> dict[Tensor, Tensor]:
    """The tensors that calls overwrite for the next call -> the constant with their first value.

    Raises FormatError for one whose declaration differs from the constant's.
    """
    found = graph.kept()
    for tensor, source in found.items():
        if (tensor.sizes, tensor.datatype) != (source.sizes, source.datatype):
            raise FormatError(f"keeps {tensor!r}, which begins as {source!r}", where="Vulkan blob")
    for node in graph.nodes:
        for cache in _overwritten_by(node):
            if cache.data is not None:
                found[cache] = cache
    return found


def kept_by(graph: Graph, blocks: Mapping[Tensor, Block]) -> Kept:
    """The calls of a graph that read and overwrite the kept values in these blocks."""
    overwritten: dict[Block, int] = {}
    last_reads: dict[Tensor | SymInt, int] = {}
    for index, node in enumerate(graph.nodes):
        last_reads.update(dict.fromkeys(node.reads, index))
        for item in (*node.results, *_overwritten_by(node)):
            if isinstance(item, Tensor) and item in blocks and node.operator != PREPACK:
                overwritten[blocks[item]] = index
    last_reads.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    return Kept(blocks, overwritten, last_reads)


def _overwritten_by(node: Node) -> list[Tensor]:
    """The operands that a call overwrites."""
    positions = _OVERWRITES.get(node.operator, ())
    found = [node.arguments[position] for position in positions if position < len(node.arguments)]
    return [item for item in found if isinstance(item, Tensor)]


def numbers_in(graph: Graph, inputs: Sequence[torch.Tensor]) -> dict[SymInt, int]:
    """The numbers in a call's inputs. The graph's calls were checked when it was loaded."""
    found = {}
    for node in graph.nodes:
        if node.operator == READS_NUMBER and isinstance(node.result, SymInt):
            tensor, axis, index = node.arguments[:3]
            value = inputs[graph.inputs.index(tensor)]  # type: ignore[arg-type]
            found[node.result] = int(value.select(axis, index).item())  # type: ignore[arg-type]
    return found
