"""Causal attention over a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from delegatekit_api import Call, TensorSpec
from delegatekit_api.operators import RuntimeNumber, RuntimeTensor
from delegatekit_toolkit.operator_programs import OperatorCalls, spec_of
from delegatekit_toolkit.support import Row, row

from ..ir import attention as _attention  # noqa: F401  (registers the operator)
from ..ir.schemas import SDPA

#: A function that writes the calls of an operator; it is given the tensors among the arguments by their names.
LowerCall: TypeAlias = Callable[[OperatorCalls, Call, Mapping[str, RuntimeTensor]], RuntimeTensor]
Rows: TypeAlias = tuple[Row[LowerCall], ...]

_DTYPES: Final = {"query": "float32", "keys": "float32", "values": "float32", "start": "int64"}


def single_precision(call: Call) -> str | None:
    """Queries, keys and values are float32; the start is int64."""
    for name, taken in _DTYPES.items():
        if call[name].dtype_name != taken:
            return f"{name} is {call[name].dtype_name}: {taken} is taken"
    return None


def one_text(call: Call) -> str | None:
    """Queries (1, n, heads, size) over keys and values (places, groups, size), all of one size of head."""
    query, keys, values = (call[name].shape for name in ("query", "keys", "values"))
    shapes = f"queries {query} over keys {keys} and values {values}"
    if (len(query), len(keys)) != (4, 3) or query[0] != 1 or keys != values:
        return f"{shapes}: (1, n, heads, size) over twice (places, groups, size) is taken"
    if query[3] != keys[2] or query[2] % keys[1]:
        return f"{shapes}: heads of one size, a multiple of the groups, are taken"
    return None


def _lower(calls: OperatorCalls, call: Call, given: Mapping[str, RuntimeTensor]) -> RuntimeTensor:
    cached = []
    for name in ("keys", "values"):
        spec = given[name].spec
        cached.append(calls.view(given[name], TensorSpec(spec.dtype, (1, *spec.shape))))
    start = RuntimeNumber(given["start"])
    arguments = (given["query"], *cached, start, None, 0.0, True, call["scale"])
    return calls.call(SDPA, *arguments, result=spec_of(call.node))


ROWS: Final[Rows] = (row("delegatekit_llama.attention.default", _lower, single_precision, one_text),)
