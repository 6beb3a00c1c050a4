"""The arguments that a delegate is called with, in words of a file's manifest.

ExecuTorch's runtime hands a delegate its blob without them, so whoever loads it by its blob alone finds them here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegatekit_api import TensorSpec

#: The word for an argument that is a number.
_NUMBER: Final = "number"
_WORD: Final = re.compile(r"([a-z][a-z0-9_]*)(\??)\[([0-9,]*)\](?:@([0-9,]+))?")


@dataclass(frozen=True)
class Arguments:
    """The tensors that a delegate is called with; None stands for a number among the inputs."""

    #: `digest` of its blob.
    blob: str
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec, ...]

    def to_json(self) -> dict[str, Any]:
        """Items of the manifest."""
        return {"blob": self.blob, "arguments": [_word(spec) for spec in (*self.inputs, *self.outputs)]}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Arguments | None:
        """The arguments in a delegate's item of the manifest; None if they are missing or damaged."""
        blob, words, outputs = item.get("blob"), item.get("arguments"), item.get("outputs")
        if not isinstance(blob, str) or not isinstance(words, list) or not isinstance(outputs, int):
            return None
        try:
            specs = [_spec(str(word)) for word in words]
        except ValueError:
            return None
        first = len(specs) - outputs
        results = tuple(spec for spec in specs[first:] if spec is not None)
        if not 0 <= first <= len(specs) or len(results) != outputs:
            return None
        return cls(blob, tuple(specs[:first]), results)


def digest(blob: Iterable[bytes | bytearray | memoryview]) -> str:
    """The name of a blob, whose parts are given: 128 bits of its SHA-256 in hexadecimal."""
    found = hashlib.sha256()
    for part in blob:
        found.update(part)
    return found.hexdigest()[:32]


def _word(spec: TensorSpec | None) -> str:
    """A spec in the manifest's form.

    >>> _word(TensorSpec("float32", (1, 3, 8, 8), dynamic=True, dim_order=(0, 2, 3, 1)))
    'float32?[1,3,8,8]@0,2,3,1'
    """
    if spec is None:
        return _NUMBER
    sizes, order = (",".join(map(str, numbers)) for numbers in (spec.shape, spec.dim_order))
    return f"{spec.dtype}{'?' * spec.dynamic}[{sizes}]{'@' * bool(order)}{order}"


def _spec(word: str) -> TensorSpec | None:
    """A spec from the manifest. Raises ValueError.

    >>> _spec("int64[2]"), _spec("number")
    (TensorSpec(dtype='int64', shape=(2,), dynamic=False), None)
    """
    if word == _NUMBER:
        return None
    found = _WORD.fullmatch(word)
    if found is None:
        raise ValueError(word)
    dtype, dynamic, sizes, order = found.groups(default="")
    shape, axes = (tuple(map(int, text.split(","))) if text else () for text in (sizes, order))
    if axes and sorted(axes) != list(range(len(shape))):
        raise ValueError(word)
    return TensorSpec(dtype, shape, bool(dynamic), axes)
