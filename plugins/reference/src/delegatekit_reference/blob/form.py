"""The blob: the graph as JSON, sealed (`delegatekit_toolkit.blob.Seal`) with the magic "DKREFBLB" and version 1.

The JSON is an object with "inputs", "constants", "steps", "outputs" and "results", the fields of `graph.Graph`:

* a tensor is [dtype, [size, ...]], a size an int or [low, high, symbol]; a constant is [dtype, sizes, key];
* a step is [operator, [argument, ...], {name: argument, ...}];
* an argument is null, true, false, an int, a float (with a point or an exponent), a string, a list of arguments, or an
  object with one member: {"value": number}, {"float": "nan"}, {"float": "inf"}, {"float": "-inf"},
  {"dtype": "float32"}, {"layout": "strided"}, {"memory_format": "contiguous_format"} or {"device": "cpu"}.

The same graph gives the same bytes. Reading refuses every blob that was truncated or changed, operators that are not
listed in `ir.names`, and references to values that are not computed yet.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from delegatekit_api import FormatError
from delegatekit_toolkit.blob import Seal
from delegatekit_toolkit.json_text import parse
from delegatekit_toolkit.signature import Range, TensorType

from ..ir.functions import FUNCTIONS
from ..ir.graph import DTYPES, Argument, Constant, Graph, Named, Ref, Step, arguments_of, references
from ..ir.names import OPERATORS

SEAL: Final = Seal(b"DKREFBLB", version=1, name="reference blob")

#: Kinds of names -> the allowed names.
NAMES: Final[dict[str, tuple[str, ...]]] = {
    "dtype": DTYPES,
    "layout": ("strided",),
    "memory_format": ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"),
    "device": ("cpu",),
}
_FLOATS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
#: torch's sizes and integers have 64 bits.
_LARGEST: Final = (1 << 63) - 1

_Item = TypeVar("_Item")


def write_blob(graph: Graph) -> bytes:
    """The graph as a blob. Raises FormatError for a graph that `read_blob` would refuse."""
    _check(graph)
    data = {
        "inputs": [_tensor_data(item) for item in graph.inputs],
        "constants": [[item.dtype, list(item.shape), item.key] for item in graph.constants],
        "steps": [
            [step.operator, _argument_data(step.args), {k: _argument_data(v) for k, v in step.kwargs.items()}]
            for step in graph.steps
        ],
        "outputs": list(graph.outputs),
        "results": [_tensor_data(item) for item in graph.results],
    }
    try:
        body = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"cannot be written: {error}", where="reference graph") from error
    return SEAL.wrap(body)


def read_blob(blob: bytes | bytearray | memoryview) -> Graph:
    """The graph of a blob. Raises FormatError if any bit of it differs from what was written."""
    content = parse(SEAL.unwrap(blob), SEAL.name)
    try:
        graph = _graph(content)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"is not the JSON of a graph: {error}", where=SEAL.name) from error
    _check(graph)
    return graph


def _refuse(what: str) -> NoReturn:
    raise FormatError(what, where=SEAL.name)


# -- requirements of a graph ------------------------------------------------------------------------------------------


def _check(graph: Graph) -> None:
    """Raise FormatError for graphs that the interpreter could not trust."""
    known = graph.first_step
    for index, step in enumerate(graph.steps):
        if step.operator not in OPERATORS and step.operator not in FUNCTIONS:
            _refuse(f"step {index} calls {step.operator!r}, which is not among the backend's operators")
        for number in (number for argument in arguments_of(step) for number in references(argument)):
            if not 0 <= number < known:
                _refuse(f"step {index} reads value {number}, which is not computed before it")
        known += 1
    if len(graph.outputs) != len(graph.results):
        _refuse(f"{len(graph.outputs)} outputs, but {len(graph.results)} are described")
    for number in graph.outputs:
        if not 0 <= number < known:
            _refuse(f"returns value {number}, which does not exist")
    tensors: tuple[TensorType | Constant, ...] = (*graph.inputs, *graph.results, *graph.constants)
    for tensor in tensors:
        if tensor.dtype not in DTYPES:
            _refuse(f"dtype {tensor.dtype!r} is unknown")
        for size in tensor.shape:
            low, high = (size.low, size.high) if isinstance(size, Range) else (size, size)
            if not 0 <= low <= high <= _LARGEST:
                _refuse(f"a size of {low} to {high} is impossible")


# -- writing ---------------------------------------------------------------------------------------------------------


def _tensor_data(tensor: TensorType) -> list[Any]:
    sizes = [[size.low, size.high, size.symbol] if isinstance(size, Range) else size for size in tensor.shape]
    return [tensor.dtype, sizes]


def _argument_data(argument: Argument) -> Any:
    if isinstance(argument, Ref):
        return {"value": argument.value}
    if isinstance(argument, Named):
        if argument.name not in NAMES.get(argument.kind, ()):
            _refuse(f"{argument.kind} {argument.name!r} is not allowed")
        return {argument.kind: argument.name}
    if isinstance(argument, float) and not math.isfinite(argument):
        return {"float": str(argument)}
    if isinstance(argument, tuple):
        return [_argument_data(item) for item in argument]
    if isinstance(argument, bool | int | float | str | None):
        return argument
    _refuse(f"an argument is {type(argument).__name__}")


# -- reading ---------------------------------------------------------------------------------------------------------


def _graph(content: Any) -> Graph:
    fields = {"inputs", "constants", "steps", "outputs", "results"}
    if not isinstance(content, dict) or set(content) != fields:
        raise ValueError("the graph's fields are not those of this version")
    return Graph(
        inputs=_each(content["inputs"], _tensor),
        constants=_each(content["constants"], _constant),
        steps=_each(content["steps"], _step),
        outputs=_each(content["outputs"], _integer),
        results=_each(content["results"], _tensor),
    )


def _each(items: Any, read: Callable[[Any], _Item]) -> tuple[_Item, ...]:
    if not isinstance(items, list):
        raise ValueError(f"{items!r:.40} is not a list")
    return tuple(map(read, items))


def _fields(item: Any, count: int) -> list[Any]:
    if not isinstance(item, list) or len(item) != count:
        raise ValueError(f"{item!r:.40} is not a list of {count}")
    return item


def _integer(item: Any) -> int:
    if type(item) is not int or abs(item) > _LARGEST:
        raise ValueError(f"{item!r:.40} is not an integer of 64 bits")
    return item


def _string(item: Any) -> str:
    if not isinstance(item, str):
        raise ValueError(f"{item!r:.40} is not a string")
    return item


def _tensor(item: Any) -> TensorType:
    dtype, sizes = _fields(item, 2)
    return TensorType(_string(dtype), _each(sizes, _size))


def _size(item: Any) -> int | Range:
    return Range(*map(_integer, _fields(item, 3))) if isinstance(item, list) else _integer(item)


def _constant(item: Any) -> Constant:
    dtype, shape, key = _fields(item, 3)
    return Constant(_string(dtype), _each(shape, _integer), _string(key))


def _step(item: Any) -> Step:
    operator, args, kwargs = _fields(item, 3)
    if not isinstance(kwargs, dict):
        raise ValueError("a step's arguments by name are not an object")
    return Step(_string(operator), _each(args, _argument), {name: _argument(value) for name, value in kwargs.items()})


def _argument(item: Any) -> Argument:
    if isinstance(item, list):
        return tuple(map(_argument, item))
    if isinstance(item, dict):
        if len(item) != 1:
            raise ValueError(f"{item!r:.40} is not an argument")
        ((kind, content),) = item.items()
        if kind == "value":
            return Ref(_integer(content))
        if kind == "float":
            if _string(content) not in _FLOATS:
                raise ValueError(f"{content!r:.40} is not a float")
            return _FLOATS[content]
        if content not in NAMES.get(kind, ()):
            raise ValueError(f"{kind!r:.40} {content!r:.40} is not allowed")
        return Named(kind, content)
    if item is None or isinstance(item, bool | float | str):
        return item
    return _integer(item)
