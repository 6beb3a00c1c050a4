"""Mutable buffers of a method: their location, those that are updated in place, and the write-back of others."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from ..edge.arguments import read_argument
from ..fallback import in_place_refusal, row_updates
from ..lowering import LoweredMethod
from ..pte import schema
from .operators import SAME_BYTES
from .shared import Shared
from .storage import FOREVER
from .writer import Writer


class State:
    """The buffers that a method updates outside delegates."""

    def __init__(self, method: LoweredMethod, writer: Writer) -> None:
        owned = method.plan.owned_buffers
        self._buffers = {node: buffer for node, buffer in method.edge.buffers.items() if node not in owned}
        self._writer = writer
        #: New value of a buffer -> the buffer, where the runtime's kernel may write it in place.
        self.in_place = _in_place_updates(method)

    def write_inputs(self, shared: Shared) -> None:
        """Write the buffers' values, as they are before the first step."""
        values = self._writer.values
        for node, buffer in self._buffers.items():
            tensor = values.tensor(values.planned(node, node.meta["val"]))
            tensor.data_buffer_idx = shared.state(buffer.initial)
            tensor.extra_tensor_info = schema.ExtraTensorInfo(fully_qualified_name=buffer.name)
            home = values.storage(node)
            assert home is not None
            home.name, home.last, home.rewritten, home.state = buffer.name, FOREVER, True, True

    def updates(self) -> dict[Node, Any]:
        """Buffer -> key of its new value, for those that are not updated in place; kept from changing before."""
        return {
            node: self.before_write_back(buffer.updated)
            for node, buffer in self._buffers.items()
            if buffer.updated not in self.in_place
        }

    def before_write_back(self, item: Any) -> Any:
        """The key of a value that keeps the current value of `item` when buffers change.

        A buffer itself, returned or copied into another buffer, is the only value that would change.
        """
        values = self._writer.values
        home = values.storage(item) if isinstance(item, Node) else None
        if home is None or item in self.in_place or home not in [values.storage(node) for node in self._buffers]:
            return item
        key = (item, "kept")
        if key not in values:
            self._writer.begin()
            source = values.used(item)
            self._writer.copy(source, values.planned(key, item.meta["val"]))
        return key

    def write_back(self, updates: dict[Node, Any]) -> None:
        """Copy the new values of buffers into them, after everything that reads the old ones."""
        values = self._writer.values
        for node, updated in updates.items():
            self._writer.begin()
            target = values.used(node)
            arguments = [target, values.used(updated), values.literal(False), target]
            self._writer.code.kernel("aten::copy_", "", arguments)


def _in_place_updates(method: LoweredMethod) -> dict[Node, Node]:
    """New value of a buffer -> the buffer, where the runtime's kernel may write it in place.

    This applies to a cache with some rows replaced, if the kernel supports it, the rows are not in the cache's own
    memory, and the old ones are not needed after that.
    """
    edge = method.edge
    found: dict[Node, Node] = {}
    position = {step: number for number, step in enumerate(method.steps) if isinstance(step, Node)}
    for new, node in row_updates(edge).items():
        if new not in position or in_place_refusal(new, edge.constants) is not None:
            continue
        after = method.steps[position[new] + 1 :]
        seen = _seen_through_views(node)
        taken = [item for item in new.all_input_nodes if item is not node]
        if node in (read_argument(new, "values"), *read_argument(new, "indices")) or not seen.isdisjoint(taken):
            continue
        used = any(
            not seen.isdisjoint(step.all_input_nodes if isinstance(step, Node) else step.partition.inputs)
            for step in after
        )
        kept = not seen.isdisjoint(item for item in edge.outputs if isinstance(item, Node)) or any(
            other.updated in seen for other in edge.buffers.values()
        )
        if not used and not kept:
            found[new] = node
    return found


def _seen_through_views(node: Node) -> set[Node]:
    """The node, and the nodes whose values may share its memory."""
    seen = {node}
    waiting = [node]
    while waiting:
        for user in waiting.pop().users:
            if user.target in SAME_BYTES and user not in seen:
                seen.add(user)
                waiting.append(user)
    return seen
