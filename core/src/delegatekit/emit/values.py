"""The values of a method's plan: tensors, numbers and lists, their indices, and the memory of planned tensors."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Node

from delegatekit_api import LoweringError, UnsupportedError
from delegatekit_api.nodes import describe_node
from delegatekit_toolkit.flatbuffer import Table

from ..edge.constants import Constants
from ..edge.sizes import is_static, upper_shape
from ..pte import schema
from ..pte.dtypes import scalar_type
from .shared import Shared
from .storage import Storage


class Values:
    """The value table under construction.

    A key identifies a value: a node, (node, result number), or another tuple for intermediate values. `step` is
    the number of the instruction that is being written, counted from 1; 0 is before all.
    """

    def __init__(self, constants: Mapping[Node, torch.Tensor], shared: Shared) -> None:
        self.table: list[schema.EValue] = []
        self.step = 0
        self._index: dict[Hashable, int] = {}
        self._storage: dict[Hashable, Storage] = {}
        #: Value index -> memory, for values with several keys.
        self._homes: dict[int, Storage] = {}
        self._constants = Constants(constants)
        self._shared = shared
        #: Memory used by the loops around the current step, innermost last.
        self._loops: list[set[Storage]] = []

    # -- lookup --------------------------------------------------------------------------------------------------

    def __contains__(self, key: Hashable) -> bool:
        return key in self._index

    def index(self, key: Hashable) -> int | None:
        """The index of a value that was written already; None if it was not. This is not a use of the value."""
        return self._index.get(key)

    def storage(self, key: Hashable) -> Storage | None:
        """The planned memory of a value; None if it has none."""
        return self._storage.get(key)

    def home(self, index: int) -> Storage | None:
        """The planned memory of the value with this index; None if it has none."""
        return self._homes.get(index)

    def is_constant(self, node: object) -> bool:
        """True if a node is a constant of the method, or of a graph that was entered."""
        return node in self._constants

    @property
    def storages(self) -> list[Storage]:
        """All planned memory, each piece once."""
        return list(dict.fromkeys(self._storage.values()))

    def homes(self, indices: Iterable[int]) -> set[Storage]:
        """The planned memory of some values."""
        wanted = set(indices)
        return {home for index, home in self._homes.items() if index in wanted}

    def tensor(self, index: int) -> schema.Tensor:
        """The tensor with this index."""
        tensor = self.table[index].val
        assert isinstance(tensor, schema.Tensor)
        return tensor

    # -- creation ------------------------------------------------------------------------------------------------

    def planned(self, key: Any, value: torch.Tensor, shares: Storage | None = None) -> int:
        """A tensor in the arena: in memory of its own, or in `shares`."""
        tensor = _tensor_table(value, key)
        index = self._index[key] = self._add(tensor)
        if shares is None:
            size = math.prod(tensor.sizes or ()) * value.element_size()
            shares = Storage(size, self.step, self.step, [], name=str(key if isinstance(key, Node) else key[0]))
        shares.tensors.append(tensor)
        self._storage[key] = self._homes[index] = shares
        return index

    def used(self, key: Any) -> int:
        """The index of a value that is in use at the current step. Raises LoweringError if it is not written yet."""
        storage = self._storage.get(key)
        if storage is not None:
            storage.last = max(storage.last, self.step)
            storage.reads.append(self.step)
            self.touch(storage)
        known = self._index.get(key)
        if known is not None:
            return known
        constant = self._constants.get(key)
        if constant is None:
            raise LoweringError(
                "is used before it is computed: this is a fault of DelegateKit", where=describe_node(key)
            )
        return self.constant(key, constant, key.meta.get("fqn"))

    def constant(self, key: Any, data: torch.Tensor, name: str | None = None) -> int:
        """The index of a constant, of this name in the module if it is one of the user's."""
        if key not in self._index:
            tensor = _tensor_table(data, key)
            self._shared.place(tensor, data, name)
            self._index[key] = self._add(tensor)
        return self._index[key]

    def literal(self, value: Any) -> int:
        """The index of an immutable number, string or None; equal ones of one type share a value."""
        key = ("literal", type(value), repr(value))
        if key not in self._index:
            self._index[key] = self._add(_literal_table(value))
        return self._index[key]

    def list(self, kind: type, items: list[Any]) -> int:
        """The index of a list; equal ones share a value."""
        key = ("list", kind, repr(items))
        if key not in self._index:
            self._index[key] = self._add(kind(items))
        return self._index[key]

    def number(self, value: Any, key: Hashable = None) -> int:
        """The index of a number that instructions change; registered under `key`, if given."""
        index = self._add(_literal_table(value))
        if key is not None:
            self._index[key] = index
        return index

    def same(self, key: Hashable, other: Hashable) -> None:
        """Make a key an alias of another key's planned value."""
        self._index[key], self._storage[key] = self._index[other], self._storage[other]

    def enter(self, inputs: Iterable[Node], indices: Iterable[int], constants: Mapping[Node, torch.Tensor]) -> None:
        """Bind a graph's inputs to existing values, and add its constants."""
        self._constants.update(constants)
        for node, index in zip(inputs, indices, strict=True):
            self._index[node] = index
            home = self._homes.get(index)
            if home is not None:
                self._storage[node] = home

    # -- loops ---------------------------------------------------------------------------------------------------

    def touch(self, storage: Storage) -> None:
        """Note that the loops around the current step use a piece of memory."""
        for touched in self._loops:
            touched.add(storage)

    @contextmanager
    def loop(self) -> Iterator[set[Storage]]:
        """While it is entered, the memory that is used is collected in the set that it yields."""
        self._loops.append(set())
        yield self._loops[-1]
        self._loops.pop()

    def _add(self, value: Table) -> int:
        self.table.append(schema.EValue(value))
        return len(self.table) - 1


def _tensor_table(value: torch.Tensor, key: Any) -> schema.Tensor:
    static = is_static(value.shape)
    node = key if isinstance(key, Node) else key[0]
    if value.dim() > schema.LARGEST_RANK:
        raise UnsupportedError(
            f"a value with {value.dim()} dimensions cannot be stored in the file, whose tensors have at most "
            f"{schema.LARGEST_RANK}",
            where=describe_node(node),
            hint="join dimensions by view or flatten",
        )
    return schema.Tensor(
        scalar_type=int(scalar_type(value.dtype)),
        sizes=list(value.shape) if static else list(upper_shape(value.shape, describe_node(node))),
        dim_order=bytes(range(value.dim())),
        shape_dynamism=schema.TensorShapeDynamism.STATIC if static else schema.TensorShapeDynamism.DYNAMIC_BOUND,
    )


def _literal_table(value: object) -> Table:
    if value is None:
        return schema.Null()
    if isinstance(value, bool):
        return schema.Bool(value)
    if isinstance(value, int):
        return schema.Int(value)
    if isinstance(value, float):
        return schema.Double(value)
    if isinstance(value, str):
        return schema.String(value)
    raise UnsupportedError(
        f"{value!r:.60}, a value of type {type(value).__name__}, cannot be stored in the file",
        where="a number or text among the arguments or results",
    )
