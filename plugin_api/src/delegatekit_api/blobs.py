"""The content of delegates' blobs, for people and viewers: the answer of the hook `blob_operators`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["BlobOperator"]


@dataclass(frozen=True)
class BlobOperator:
    """One operator in a blob. Values have names, each made by one operator at most.

    A value that no operator makes is an input, a constant or a state of the delegate.
    """

    #: The backend's own name of the operator: "Conv2d".
    name: str
    #: The values that it reads, in the order of its arguments. None is made by itself or by a later operator.
    reads: tuple[str, ...]
    #: The values that it makes. An in-place update makes a new one: "cache, written by 3".
    makes: tuple[str, ...]
    #: Further attributes for people, in few words: {"result": "float32[1, 8, 8, 16]", "kernel": "3x3"}.
    facts: Mapping[str, str] = field(default_factory=dict)
