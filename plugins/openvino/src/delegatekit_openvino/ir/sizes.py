"""Sizes that change from call to call: sympy's expressions while lowering, nodes that compute them in the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import sympy  # type: ignore[import-untyped]

from delegatekit_api import LoweringError
from delegatekit_toolkit import expressions
from delegatekit_toolkit.expressions import expression_of

#: A size: a number, sympy's expression if it changes from call to call, None where no call says what it is.
Size: TypeAlias = "int | sympy.Expr | None"

#: What joins two sizes -> OpenVINO's operation.
_OPERATIONS: Final = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "floor_div": "divide",
    "mod": "floor_mod",
    "maximum": "maximum",
    "minimum": "minimum",
}


def size_of(size: Any) -> Size:
    """A number or a torch.SymInt as a size."""
    return None if size is None else expression_of(size)


def sizes_of(shape: Sequence[Any]) -> tuple[Size, ...]:
    """The sizes of a shape."""
    return tuple(map(size_of, shape))


def is_fixed(size: Any) -> bool:
    """True if a size is the same in every call."""
    return isinstance(size_of(size), int)


class SizeWriter(expressions.SizeWriter[Any]):
    """Writes the nodes that compute sizes, as int64 tensors."""

    where = "OpenVINO lowering"

    def __init__(self, write: Callable[..., Any], constant: Callable[[Sequence[int]], Any]) -> None:
        super().__init__()
        self._write = write
        self._constant = constant

    def vector(self, shape: Iterable[Any]) -> Any:
        """Sizes as an operand (len(shape),). Raises LoweringError for a size that does not follow from those known."""
        sizes = tuple(shape)
        if any(size is None for size in sizes):
            raise LoweringError("a size is not known", where=self.where)
        return super().vector(sizes)

    def constant(self, numbers: Sequence[int]) -> Any:
        """Known numbers as a vector."""
        return self._constant(numbers)

    def measured(self, value: Any, axis: int) -> Any:
        """The size of a value along an axis."""
        shape = self._write("shape_of", value, output_type="i64")
        return self._write("gather", shape, self._constant([axis]), self._constant([0]))

    def joined(self, kind: str, left: Any, right: Any) -> Any:
        """Two sizes joined."""
        return self._write(_OPERATIONS[kind], left, right)

    def concatenated(self, parts: list[Any]) -> Any:
        """Sizes as a vector."""
        return self._write("concat", parts, axis=0)
