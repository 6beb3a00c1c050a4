"""Graphs in the worker process's format: JSON, and the constants' bytes in a file of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import IO, Any, Final

import numpy as np

from delegatekit_toolkit.content import content_key

from ..ir.graph import Array, Graph, Node, Parameter, Scalar, Tensor
from .starting import request

_ROLES: Final = {"input": "APP_WRITE", "output": "APP_READ", "": "NATIVE"}
_ALIGNMENT: Final = 64


class Constants:
    """The bytes of constants, each once."""

    def __init__(self) -> None:
        self.arrays: Final[list[Array]] = []
        self._offsets: dict[str, int] = {}
        self._end = 0

    def offset(self, data: Array) -> int:
        """The offset of a constant's bytes."""
        key = content_key(np.ascontiguousarray(data).data)
        if key not in self._offsets:
            self._offsets[key] = self._end
            self.arrays.append(data)
            self._end += -(-data.nbytes // _ALIGNMENT) * _ALIGNMENT
        return self._offsets[key]

    def write(self, file: IO[bytes]) -> None:
        """Write them, and at least one byte: a mapped file must not be empty."""
        for data in self.arrays:
            file.write(data.tobytes())
            file.write(bytes(-data.nbytes % _ALIGNMENT))
        file.write(bytes(_ALIGNMENT))


def describe(graph: Graph, offset: Callable[[Array], int] = lambda data: 0) -> dict[str, Any]:
    """A graph; `offset` gives the offset of a constant. Names that nothing reads are generated here."""
    tensors = graph.tensors
    places = {tensor: index for index, tensor in enumerate(tensors)}
    return {
        "name": graph.name,
        "tensors": [_tensor(tensor, index, offset) for tensor, index in places.items()],
        "nodes": [_node(node, places) for node in graph.nodes],
    }


def _tensor(tensor: Tensor, index: int, offset: Callable[[Array], int]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": tensor.name or f"t{index}",
        "role": _ROLES[tensor.role] if tensor.data is None else "STATIC",
        "type": tensor.datatype.value,
        "numpy": tensor.datatype.numpy.str,
        "shape": list(tensor.shape),
    }
    if tensor.encoding is not None:
        encoding = tensor.encoding
        found["encoding"] = {
            "scales": encoding.scales,
            "zero_points": encoding.zero_points,
            "axis": encoding.axis,
            "bits": encoding.bits,
        }
    if tensor.data is not None:
        found["offset"] = offset(_stored(tensor))
    return found


def _stored(tensor: Tensor) -> Array:
    """A constant's bytes: for 4-bit integers the high half is empty."""
    assert tensor.data is not None
    if tensor.encoding is not None and tensor.encoding.bits == 4:
        low: Array = np.bitwise_and(tensor.data, np.int8(0x0F))
        return low
    return tensor.data


def _node(node: Node, places: dict[Tensor, int]) -> dict[str, Any]:
    return {
        "name": node.name,
        "kind": node.kind,
        "inputs": [places[item] for item in node.inputs],
        "outputs": [places[item] for item in node.outputs],
        "scalars": [
            [name, item.datatype.value, item.value]
            for name, item in node.parameters.items()
            if isinstance(item, Scalar)
        ],
        "arrays": [_array(name, item) for name, item in node.parameters.items() if not isinstance(item, Scalar)],
    }


def _array(name: str, data: Parameter) -> list[Any]:
    assert isinstance(data, np.ndarray)
    kind = "UINT_32" if data.dtype == np.uint32 else "INT_32"
    return [name, kind, list(data.shape), data.reshape(-1).tolist()]


def graphs_request(options: bytes, graphs: Sequence[Graph], constants: Constants) -> dict[str, Any]:
    """A request to compile graphs into one context."""
    return request(options, graphs=[describe(graph, constants.offset) for graph in graphs])
