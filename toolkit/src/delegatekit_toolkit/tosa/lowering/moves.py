"""Operations that only move elements: reshapes, permutations, blocks and joins, as few as possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from delegatekit_toolkit.layout import composed, merged, moves_elements, regroupings
from delegatekit_toolkit.tosa import Concat, Reshape, Slice, Tensor, Transpose

from .emission import Emission
from .limits import MAX_AXIS
from .values import Value
from .ways import Way, Ways

#: The maximum number of parts in which a tensor is moved.
_MOST_PARTS: Final = 64


class Moves(Emission):
    """An `Emission` that moves elements. `ways` chooses between several ways."""

    def __init__(self, name: str, ways: Ways) -> None:
        super().__init__(name)
        self.ways: Final = ways
        self._moved: Final[dict[tuple[int, tuple[int, ...]], Tensor]] = {}

    def cheapest(self, x: Tensor, ways: Sequence[Way], key: Hashable, otherwise: Sequence[Way] = ()) -> Tensor:
        """The result of the cheapest of several ways for a tensor: see `Ways.choose`."""
        return self.ways.choose(x, ways, key, otherwise)(self, x)

    def reshaped(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """The same elements, in the same order, in another shape."""
        if tuple(shape) == tensor.shape:
            return tensor
        if tensor.data is not None:
            return self.graph.constant(tensor.data.reshape(shape), tensor.dtype, tensor.name)
        made = self.producer(tensor)
        if made is not None and isinstance(made.operator, Reshape):
            return self.reshaped(made.inputs[0], shape)
        tensor = self.readable(tensor)
        return self.emit(Reshape(), (tensor, self.sizes(shape)), shape, tensor.dtype, "view")

    def transposed(self, tensor: Tensor, perms: Sequence[int]) -> Tensor:
        """The elements of a tensor moved, once for each order."""
        if not moves_elements(tensor.shape, perms):
            return self.reshaped(tensor, [tensor.shape[axis] for axis in perms])
        key = id(tensor), tuple(perms)
        if key not in self._moved:
            found = self._moved_once(tensor, perms)
            self._moved[key] = self._transposed(tensor, tuple(perms)) if found is None else found
        return self._moved[key]

    def _moved_once(self, tensor: Tensor, perms: Sequence[int]) -> Tensor | None:
        """A permutation of a permuted tensor, from its original; None if that is no easier."""
        made = self.origin_of(tensor, Reshape)
        if made is None or not isinstance(made.operator, Transpose):
            return None
        source = made.inputs[0]
        both = composed(source.shape, made.operator.perms, tensor.shape, perms)
        if both is None or len(both[0]) > len(merged(tensor.shape, perms)[0]):
            return None
        moved = self.transposed(self.reshaped(source, both[0]), both[1])
        return self.reshaped(moved, [tensor.shape[axis] for axis in perms])

    def _transposed(self, tensor: Tensor, perms: tuple[int, ...]) -> Tensor:
        shape = tuple(tensor.shape[axis] for axis in perms)
        if tensor.data is not None:
            return self.graph.constant(tensor.data.transpose(perms), tensor.dtype, tensor.name)
        sizes, axes = merged(tensor.shape, perms)
        # A compiler may consider the shape that a tensor had before, too: ways are tried from there.
        made = self.producer(tensor)
        source = made.inputs[0] if made is not None and isinstance(made.operator, Reshape) else tensor

        def joined(b: Moves, x: Tensor) -> Tensor:
            """Merge axes that stay neighbors: fewer steps, in most cases."""
            moved = b.emit(
                Transpose(axes), (b.reshaped(x, sizes),), [sizes[axis] for axis in axes], x.dtype, "transpose"
            )
            return b.reshaped(moved, shape)

        def plain(b: Moves, x: Tensor) -> Tensor:
            return b.emit(Transpose(perms), (b.reshaped(x, tensor.shape),), shape, x.dtype, "transpose")

        def in_parts(axis: int) -> Way:
            def way(b: Moves, x: Tensor) -> Tensor:
                """Concatenate along an axis: some compilers refuse moves over more than 65536 elements."""
                shape, size = tensor.shape, tensor.shape[axis]
                outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
                whole, parts = b.reshaped(x, (outer, size, inner)), []
                for place in range(size):
                    part = b.sliced(whole, (0, place, 0), (outer, 1, inner))
                    part = b.reshaped(part, (*shape[:axis], 1, *shape[axis + 1 :]))
                    parts.append(b.transposed(part, perms))
                return b.joined(parts, perms.index(axis), "transpose")

            return way

        ways = [plain] if sizes == tensor.shape else [joined, plain]
        cuts = sorted((size, axis) for axis, size in enumerate(tensor.shape) if 1 < size <= _MOST_PARTS)
        spare = [in_parts(axis) for _, axis in cuts] if tensor.size > MAX_AXIS else []
        return self.cheapest(source, ways, ("transpose", tensor.shape, perms), spare)

    def before_moves(self, tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """An elementwise change of values, placed before operators that only move them."""
        moves = []
        made = self.producer(tensor)
        while made is not None and isinstance(made.operator, Reshape | Transpose):
            moves.append(made)
            tensor = made.inputs[0]
            made = self.producer(tensor)
        tensor = change(tensor)
        for move in reversed(moves):
            operands, shape = (tensor, *move.inputs[1:]), move.output.shape
            tensor = self.emit(move.operator, operands, shape, tensor.dtype, "moved")
        return tensor

    def sliced(self, tensor: Tensor, start: Sequence[int], size: Sequence[int]) -> Tensor:
        """A block of a tensor."""
        if tuple(size) == tensor.shape:
            return tensor
        return self.emit(Slice(), (tensor, self.sizes(start), self.sizes(size)), size, tensor.dtype, "slice")

    def joined(self, parts: Sequence[Tensor], axis: int, name: str) -> Tensor:
        """Tensors concatenated along an axis; a single one is returned unchanged."""
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.emit(Concat(axis), parts, shape, parts[0].dtype, name)

    # -- values ------------------------------------------------------------------------------------------------------

    def stored(self, value: Value, order: Sequence[int]) -> Tensor:
        """The tensor of a value with its axes in this order."""
        return self.transposed(value.tensor, [value.order.index(axis) for axis in order])

    def contiguous(self, value: Value) -> Tensor:
        """The tensor of a value in the program's layout."""
        return self.stored(value, range(len(value.order)))

    def view(self, value: Value, shape: Sequence[int]) -> Value:
        """The value in another shape. Axes that are only kept, joined or split may have any order."""
        groups = regroupings(value.shape, shape, units=True)
        if all(_lies_together(value.order, left) for left, _ in groups):
            # In the storage order of the groups; those without old axes, of size 1, come last.
            found = sorted(groups, key=lambda group: value.order.index(group[0][0]) if group[0] else len(value.order))
            order = tuple(axis for _, right in found for axis in right)
            return Value(self.reshaped(value.tensor, [shape[axis] for axis in order]), order)
        return Value.dense(self.reshaped(self.contiguous(value), shape))


def _lies_together(order: tuple[int, ...], axes: Sequence[int]) -> bool:
    """True if neighboring axes of the program are neighbors in memory, too, in the same order."""
    if not axes:
        return True
    first = order.index(axes[0])
    return order[first : first + len(axes)] == tuple(axes)
