"""Sizes that change from call to call: operations that compute them from the sizes of values at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from delegatekit_toolkit import expressions


class SizeWriter(expressions.SizeWriter[Any]):
    """Writes the operations that compute sizes."""

    where = "Core ML lowering"

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call
        self._shapes: dict[str, Any] = {}

    def constant(self, numbers: Sequence[int]) -> Any:
        """Known numbers, as an argument of an operation."""
        return np.array(numbers, dtype=np.int32)

    def measured(self, value: Any, axis: int) -> Any:
        """The size of a value along an axis."""
        shape = self._shapes.get(value.name)
        if shape is None:
            shape = self._shapes[value.name] = self._call("shape", x=value)
            # MIL's builder would compute with expressions from here on, and solve equations at each reshape.
            shape._sym_val = None
        return self._call("gather", x=shape, indices=self.constant([axis]))

    def joined(self, kind: str, left: Any, right: Any) -> Any:
        """Two sizes joined: MIL's operations have these names."""
        if not hasattr(left, "op"):
            left = self._call("const", val=left)
        return self._call(kind, x=left, y=right)

    def concatenated(self, parts: list[Any]) -> Any:
        """Sizes as a vector."""
        return self._call("concat", values=parts, axis=np.int32(0))
