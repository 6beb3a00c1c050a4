"""The sizes of operator calls: multiply-accumulates, which convolutions and matrix products consist of, and elements.

A size that changes from call to call counts at its upper bound, or as in the example where it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Final

from delegatekit_api import Call, Operand

from .symbols import most

#: Bounds from here on are those of integers, not of a model.
_ENDLESS: Final = 1 << 48


def macs(call: Call) -> int:
    """The number of multiply-accumulates of one call; 0 for operators that are no sums of products.

    Biases, additions and products element by element are not counted.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> image, kernel = torch.ones(1, 4, 8, 8), torch.ones(6, 2, 3, 3)
    >>> macs(call_of(lambda x, weight: torch.conv2d(x, weight, groups=2), image, kernel))  # 6 * 6 * 6 sums of 2 * 3 * 3
    3888
    """
    count = _COUNTS.get(call.operator.rpartition(".")[0].removeprefix("aten."))
    return 0 if count is None else count(call)


def elements(call: Call) -> int:
    """The number of elements of its results."""
    return sum(map(_numel, call.results))


def _product(left: str) -> Callable[[Call], int]:
    """Products of matrices and vectors: each element of the result is a sum along the last axis of `left`."""
    return lambda call: _numel(call.result) * _sizes(call[left])[-1]


def _batches(call: Call) -> int:
    return _product("batch1")(call) * _sizes(call["batch1"])[0]


def _convolution(call: Call) -> int:
    """Each element of the result, or of a transposed one's input, meets the kernel of its group."""
    weight = _sizes(call["weight"])
    transposed = "transpose" in call.operator or call.get("transposed", False)
    return _numel(call["input"] if transposed else call.result) * prod(weight[1:])


def _attention(call: Call) -> int:
    query, key, value = (_sizes(call[name]) for name in ("query", "key", "value"))
    return prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _recurrent(call: Call) -> int:
    """In each step, each matrix of each layer and direction is multiplied once."""
    weights = [_sizes(item) for item in call["params"]]
    steps = call["input" if call.has("input") else "data"]
    return prod(_sizes(steps)[:-1]) * sum(prod(sizes) for sizes in weights if len(sizes) == 2)


def _cell(call: Call) -> int:
    return prod(_sizes(call["input"])[:-1]) * (_numel(call["w_ih"]) + _numel(call["w_hh"]))


#: Operator, without "aten." and its overload -> the number of a call.
_COUNTS: Final[dict[str, Callable[[Call], int]]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "matmul", "dot", "vdot"), _product("self")),
    "linear": _product("input"),
    "addmm": _product("mat1"),
    "addmv": _product("mat"),
    "baddbmm": _product("batch1"),
    "addbmm": _batches,
    **dict.fromkeys(
        ("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        _convolution,
    ),
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _cell),
}


def _numel(operand: Operand) -> int:
    return prod(_sizes(operand))


def _sizes(operand: Operand) -> tuple[int, ...]:
    return tuple(_known(operand.value.shape))


def _known(shape: Iterable[Any]) -> Iterable[int]:
    for size in shape:
        bound = most(size)
        yield bound if bound is not None and bound < _ENDLESS else int(getattr(size.node, "hint", None) or 1)
