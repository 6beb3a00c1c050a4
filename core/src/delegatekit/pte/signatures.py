"""The arguments of each runtime kernel: their kinds in call order, and which of them it writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from delegatekit_toolkit.flatbuffer import Table

from . import schema

#: The possible types of one argument.
Kinds: TypeAlias = tuple[type[Table], ...]


@dataclass(frozen=True)
class Signature:
    """A call of a kernel passes `kinds`: the operator's arguments, then the return values (the runtime's convention).

    `outputs` are the positions of the values that are written whole, without being read first; `updates` of those
    that are read and written.
    """

    kinds: tuple[Kinds, ...]
    outputs: tuple[int, ...]
    updates: tuple[int, ...] = ()


_TENSOR: Final = (schema.Tensor,)
_NUMBER: Final = (schema.Int, schema.Double, schema.Bool)
_RESULT: Final = (*_NUMBER, schema.Null)
_DIM_ORDER: Final = (schema.IntList, schema.Null)

_UNARY: Final = Signature((_NUMBER, _RESULT), (1,))
_BINARY: Final = Signature((_NUMBER, _NUMBER, _RESULT), (2,))
_COPY: Final = Signature((_TENSOR, (schema.Bool,), _DIM_ORDER, _TENSOR, _TENSOR), (3, 4))
_TRANSFER: Final = Signature((_TENSOR, _TENSOR, _TENSOR), (1, 2))

#: Kernels unknown to PyTorch.
_OWN: Final[dict[str, Signature]] = {
    **{
        f"executorch_prim::{name}": _BINARY
        for name in (
            *("add.Scalar", "sub.Scalar", "mul.Scalar", "floordiv.Scalar", "floordiv.int", "truediv.Scalar"),
            *("mod.Scalar", "mod.int", "eq.Scalar", "gt.Scalar", "ge.Scalar", "lt.Scalar", "le.Scalar"),
            *("sym_max.Scalar", "sym_min.Scalar"),
        )
    },
    **{
        f"executorch_prim::{name}.Scalar": _UNARY
        for name in ("neg", "ceil", "round", "trunc", "sym_float", "sym_int", "sym_not")
    },
    "executorch_prim::sym_ite.Scalar": Signature((_NUMBER, _NUMBER, _NUMBER, _RESULT), (3,)),
    "executorch_prim::et_view.default": Signature((_TENSOR, (schema.IntList,), _TENSOR), (2,)),
    # The target keeps the results of earlier iterations.
    "executorch_prim::et_copy_index.tensor": Signature((_TENSOR, _TENSOR, (schema.Int,)), (), (0,)),
    "dim_order_ops::_to_dim_order_copy.out": _COPY,
    "dim_order_ops::_clone_dim_order.out": _COPY,
    "dim_order_ops::_empty_dim_order.out": Signature(((schema.IntList,), _DIM_ORDER, _TENSOR, _TENSOR), (2, 3)),
    "et_copy::_h2d_copy.out": _TRANSFER,
    "et_copy::_d2h_copy.out": _TRANSFER,
}


@cache
def signature(name: str) -> Signature | None:
    """The signature of "aten::add.out"; None for a kernel that neither the runtime nor PyTorch has."""
    if name in _OWN:
        return _OWN[name]
    operator = _aten_schema(name)
    return None if operator is None else _of_schema(operator)


def declared(schemas: Iterable[str]) -> dict[str, Signature]:
    """The signatures of operators by their full names, of schemas as texts. Raises RuntimeError for other texts."""
    import torch

    found = [torch._C.parse_schema(text) for text in schemas]
    return {f"{item.name}.{item.overload_name}": _of_schema(item) for item in found}


def written(call: schema.KernelCall, values: Sequence[Any]) -> tuple[int, ...]:
    """The positions of the results among a call's arguments, for a kernel of a library, whose schema is not known.

    By convention the return value follows the results: the result itself again, or the list of several.
    """
    *arguments, last = call.args or [-1]
    table = values[last]
    several = isinstance(table, schema.TensorList)
    results = [*(table.items or ())] if several else [last]
    count = len(results)
    if not count or arguments[-count:] != results:
        return ()
    return (*range(len(arguments) - count, len(arguments)), *(() if several else (len(arguments),)))


def _of_schema(operator: Any) -> Signature:
    kinds = [_kinds(str(argument.type)) for argument in operator.arguments]
    outputs = [position for position, argument in enumerate(operator.arguments) if argument.is_out]
    if len(outputs) > 1:
        kinds.append((schema.TensorList,))
    elif outputs or not operator.returns:
        kinds.append(kinds[-1])
    else:
        kinds.append(_TENSOR if str(operator.returns[0].type) == "Tensor" else _RESULT)
    updates = [
        position
        for position, argument in enumerate(operator.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write and not argument.is_out
    ]
    # In-place operators return their operand.
    (updates if updates else outputs).append(len(kinds) - 1)
    return Signature(tuple(kinds), tuple(outputs), tuple(updates))


def _aten_schema(name: str) -> Any:
    import torch

    namespace, _, rest = name.partition("::")
    if namespace != "aten":
        return None
    packet, _, overload = rest.partition(".")
    target = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    return None if target is None else target._schema


_ITEM_LISTS: Final[dict[str, Kinds]] = {
    "Tensor": (schema.TensorList,),
    "Optional[Tensor]": (schema.OptionalTensorList, schema.TensorList),
    "bool": (schema.BoolList,),
    "float": (schema.DoubleList,),
    "number": (schema.DoubleList, schema.IntList),
    "int": (schema.IntList,),
}
_ITEMS: Final[dict[str, Kinds]] = {
    "Tensor": _TENSOR,
    "number": _NUMBER,
    "float": (schema.Double, schema.Int),
    "bool": (schema.Bool,),
    "str": (schema.String,),
    "int": (schema.Int,),
}


def _kinds(text: str) -> Kinds:
    """The table types for PyTorch's type "Optional[List[int]]"; dtypes and layouts are ints there, too."""
    optional = text.startswith("Optional[")
    inner = text[len("Optional[") : -1] if optional else text
    if inner.startswith("List["):
        kinds = _ITEM_LISTS[inner[len("List[") : -1]]
    else:
        kinds = _ITEMS.get(inner, (schema.Int, schema.Null))
    return (*kinds, schema.Null) if optional else kinds
