"""Arguments and values of a graph in the JSON by which ExecuTorch 1.5 stores exported programs (its schema 5.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Node

from delegatekit.edge import expression, is_size

#: Version of the schema.
SCHEMA_VERSION: Final = (5, 4)

#: Codes of element types. The last ones have none: they are shown as types of the same size.
_DTYPES: Final[Mapping[torch.dtype, int]] = {
    torch.uint8: 1,
    torch.int8: 2,
    torch.int16: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.float16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.complex32: 9,
    torch.complex64: 10,
    torch.complex128: 11,
    torch.bool: 12,
    torch.bfloat16: 13,
    torch.uint16: 14,
    torch.float8_e5m2: 15,
    torch.float8_e4m3fn: 16,
    torch.float8_e5m2fnuz: 15,
    torch.float8_e4m3fnuz: 16,
    torch.uint32: 4,
    torch.uint64: 5,
}
_MEMORY_FORMATS: Final[Mapping[torch.memory_format, int]] = {
    torch.contiguous_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
    torch.preserve_format: 4,
}
_STRIDED: Final = 7
_CPU: Final[Mapping[str, Any]] = {"type": "cpu", "index": None}


class Argument:
    """Turns arguments of calls into JSON; `names` are those of nodes that are values of the stored graph."""

    def __init__(self, names: Mapping[Node, str]) -> None:
        self._names = names

    def of(self, item: Any) -> dict[str, Any]:
        """One argument: a node, a literal, or a list of these."""
        if isinstance(item, Node):
            return self._node(item)
        if isinstance(item, list | tuple):
            return self._list(item)
        return _literal(item)

    def _node(self, node: Node) -> dict[str, Any]:
        value = node.meta["val"]
        if node not in self._names:  # a number that the schema has no kind of value for
            return _literal(_example(value))
        name = self._names[node]
        if isinstance(value, torch.SymBool):
            return {"as_sym_bool": {"as_name": name}}
        return {"as_sym_int": {"as_name": name}} if isinstance(value, torch.SymInt) else {"as_tensor": {"name": name}}

    def _list(self, items: Sequence[Any]) -> dict[str, Any]:
        found = [self.of(item) for item in items]
        kinds = {next(iter(item)) for item in found}
        if kinds == {"as_tensor"}:
            return {"as_tensors": [item["as_tensor"] for item in found]}
        if kinds == {"as_tensor", "as_none"}:
            return {"as_optional_tensors": found}
        if "as_sym_int" in kinds and kinds <= {"as_int", "as_sym_int"}:
            return {"as_sym_ints": [item.get("as_sym_int", item) for item in found]}
        if kinds <= {"as_int", "as_float"} and "as_float" in kinds:
            return {"as_floats": [float(next(iter(item.values()))) for item in found]}
        for kind in ("as_int", "as_bool", "as_string"):
            if kinds <= {kind}:
                return {f"{kind}s": [item[kind] for item in found]}
        return {"as_string": str(list(items))}


def tensor_meta(value: torch.Tensor) -> dict[str, Any]:
    """Element type, sizes and strides of a value; all values are contiguous."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(value.shape):
        strides.insert(0, step)
        step = step * size
    return {
        "dtype": _DTYPES[value.dtype],
        "sizes": [size_of(size) for size in value.shape],
        "requires_grad": False,
        "device": _CPU,
        "strides": [size_of(stride) for stride in strides],
        "storage_offset": {"as_int": 0},
        "layout": _STRIDED,
    }


def size_of(size: Any) -> dict[str, Any]:
    """A size, which may change from call to call."""
    if isinstance(size, int):
        return {"as_int": size}
    hint = _example(size)
    return {"as_expr": {"expr_str": str(expression(size)), "hint": None if hint is None else {"as_int": hint}}}


def truth_of(value: Any) -> dict[str, Any]:
    """A boolean that is computed from sizes."""
    return {"as_expr": {"expr_str": str(expression(value)), "hint": None}}


def _literal(item: Any) -> dict[str, Any]:
    if item is None:
        return {"as_none": []}
    if isinstance(item, bool):
        return {"as_bool": item}
    if isinstance(item, int):
        return {"as_int": item}
    if isinstance(item, float):
        return {"as_float": item}
    if isinstance(item, torch.dtype):
        return {"as_scalar_type": _DTYPES[item]}
    if isinstance(item, torch.memory_format):
        return {"as_memory_format": _MEMORY_FORMATS[item]}
    if isinstance(item, torch.layout):
        return {"as_layout": _STRIDED}
    if isinstance(item, torch.device):
        return {"as_device": dict(_CPU)}
    if is_size(item):
        return _literal(_example(item))
    return {"as_string": str(item)}


def _example(value: Any) -> Any:
    """The value of a size in the example that the program was exported with; None if there is none."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value.node.hint
    return value if isinstance(value, bool | int | float) else None
