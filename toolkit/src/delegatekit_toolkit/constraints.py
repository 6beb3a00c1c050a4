"""Constraints that most backends need: each function here makes one, for a row or for a whole table.

    TABLE = SupportTable(ROWS, common=(dtypes("float32"), elements(), max_rank(4)))
    row("convolution.default", _convolution, constant("weight", "bias"))

A constraint takes a `Call` and returns the reason for refusing it, or None. The first line of its docstring documents
it in the generated tables; the constraints made here have one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from delegatekit_api import Call, Operand

from .support import Constraint

#: The largest float32 number.
FLOAT32_MAX = 3.4028234663852886e38


def dtypes(*allowed: str, constants: bool = True) -> Constraint:
    """All tensors, operands and results, have one of these dtypes ("float32"); with `constants=False` constants may
    have any.

    Where results have another one than operands (`isnan`, `argmax`, `topk`), say `operands(...)` and `results(...)`.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> dtypes("float32", "float16")(call_of(torch.neg, torch.ones(2, dtype=torch.int8)))
    'arguments_0 is int8: float32 or float16 are taken'
    """
    return _typed("Tensors", lambda call: call.tensors, allowed, constants)


def operands(*allowed: str, constants: bool = True) -> Constraint:
    """All operands have one of these dtypes; with `constants=False` constants may have any. Results may have another.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> operands("float32")(call_of(torch.isnan, torch.ones(2)))
    >>> operands("float32")(call_of(torch.isnan, torch.ones(2).double()))
    'arguments_0 is float64: float32 is taken'
    """
    return _typed("Operands", lambda call: call.operands, allowed, constants)


def results(*allowed: str) -> Constraint:
    """All results have one of these dtypes.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> results("int32")(call_of(torch.argmax, torch.ones(2)))
    'argmax is int64: int32 is taken'
    """
    return _typed("Results", lambda call: call.results, allowed, constants=True)


def _typed(
    what: str, tensors: Callable[[Call], Sequence[Operand]], allowed: tuple[str, ...], constants: bool
) -> Constraint:
    words = _listed(allowed)

    def check(call: Call) -> str | None:
        for item in tensors(call):
            if item.dtype_name not in allowed and (constants or not item.is_constant):
                return f"{item.name} is {item.dtype_name}: {words} {'is' if len(allowed) == 1 else 'are'} taken"
        return None

    return _documented(check, f"{what} are {words}.")


def same_dtypes() -> Constraint:
    """All tensors have the same dtype: PyTorch promotes operands of different ones, and so does the edge dialect.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> same_dtypes()(call_of(torch.mul, torch.ones(2), torch.ones(2).half()))
    'operands and results are float16 and float32: one dtype is taken'
    """

    def check(call: Call) -> str | None:
        found = sorted({item.dtype_name for item in call.tensors})
        return None if len(found) < 2 else f"operands and results are {_listed(found, 'and')}: one dtype is taken"

    return _documented(check, "All tensors have one dtype.")


def elements() -> Constraint:
    """No tensor is empty. Sizes that change are left to the runtime.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> elements()(call_of(torch.neg, torch.ones(2, 0)))
    'arguments_0 has no elements, (2, 0)'
    """

    def check(call: Call) -> str | None:
        for item in call.tensors:
            if any(isinstance(size, int) and size == 0 for size in item.shape):
                return f"{item.name} has no elements, {item.shape}"
        return None

    return _documented(check, "Tensors have elements.")


def max_rank(most: int) -> Constraint:
    """No tensor has more axes than `most`.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> max_rank(4)(call_of(torch.neg, torch.ones(1, 2, 3, 4, 5)))
    'arguments_0 has 5 axes: 4 is the maximum'
    """

    def check(call: Call) -> str | None:
        for item in call.tensors:
            if item.rank > most:
                return f"{item.name} has {item.rank} axes: {most} is the maximum"
        return None

    return _documented(check, f"At most {most} axes.")


def min_rank(least: int) -> Constraint:
    """No tensor has fewer axes than `least`.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> min_rank(1)(call_of(torch.neg, torch.tensor(1.0)))
    'arguments_0 has 0 axes: 1 is the least'
    """

    def check(call: Call) -> str | None:
        for item in call.tensors:
            if item.rank < least:
                return f"{item.name} has {item.rank} {'axis' if item.rank == 1 else 'axes'}: {least} is the least"
        return None

    return _documented(check, f"At least {least} {'axis' if least == 1 else 'axes'}.")


def rank(name: str, *allowed: int) -> Constraint:
    """A tensor argument has one of these numbers of axes; an omitted one passes.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> rank("self", 3, 4)(call_of(torch.neg, torch.ones(2)))
    'self has 1 axis: 3 or 4 are taken'
    """
    words = _listed(tuple(map(str, allowed)))

    def check(call: Call) -> str | None:
        operand = call[name]
        if not isinstance(operand, Operand) or operand.rank in allowed:
            return None
        verb = "is" if len(allowed) == 1 else "are"
        return f"{name} has {operand.rank} {'axis' if operand.rank == 1 else 'axes'}: {words} {verb} taken"

    return _documented(check, f"{name} has {words} {'axis' if allowed == (1,) else 'axes'}.")


def types_of(name: str, *allowed: str) -> Constraint:
    """The named operand, if it is a tensor, has one of these types.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> types_of("self", "float32")(call_of(torch.neg, torch.ones(2, dtype=torch.int32)))
    'self is int32: float32 is taken'
    """

    def check(call: Call) -> str | None:
        found = call[name]
        if not isinstance(found, Operand) or found.dtype_name in allowed:
            return None
        return f"{name} is {found.dtype_name}: {_listed(allowed)} is taken"

    return _documented(check, f"{name} is {_listed(allowed)}.")


def has_axes(name: str) -> Constraint:
    """The named tensor has axes.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> has_axes("self")(call_of(torch.neg, torch.tensor(1.0)))
    'self has no axes'
    """

    def check(call: Call) -> str | None:
        return None if call[name].rank else f"{name} has no axes"

    return _documented(check, f"{name} has axes.")


def static_sizes() -> Constraint:
    """No size changes from call to call.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> call = call_of(torch.nn.ReLU(), torch.ones(2, 3), dynamic_shapes=({0: torch.export.Dim("n", max=9)},))
    >>> static_sizes()(call)
    'input (..., 3) has sizes that change from call to call'
    """

    def check(call: Call) -> str | None:
        changing = next((item for item in call.tensors if item.is_dynamic), None)
        return None if changing is None else f"{changing.name} {changing.shape} has sizes that change from call to call"

    return _documented(check, "Sizes are fixed.")


def constant(*names: str) -> Constraint:
    """The named tensor arguments are constants, or dequantized from constant integers, or omitted.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> call = call_of(torch.nn.functional.linear, torch.ones(1, 3), torch.ones(2, 3))
    >>> constant("weight", "bias")(call)
    'weight is computed: a constant is taken'
    """

    def check(call: Call) -> str | None:
        for name in names:
            operand = call[name]
            if isinstance(operand, Operand) and not operand.is_known:
                return f"{name} is computed: a constant is taken"
        return None

    return _documented(check, f"{_listed(names, 'and')} {'is a constant' if len(names) == 1 else 'are constants'}.")


def absent(*names: str) -> Constraint:
    """The named arguments are None, or an empty list.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> absent("bias")(call_of(torch.nn.Linear(3, 2), torch.ones(1, 3)))
    'bias is given'
    """

    def check(call: Call) -> str | None:
        return next((f"{name} is given" for name in names if call[name] not in (None, ())), None)

    return _documented(check, f"{_listed(names, 'and')} {'is' if len(names) == 1 else 'are'} left out.")


def nonempty(name: str) -> Constraint:
    """The named list is not empty; an omitted one (None) passes.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> nonempty("dim")(call_of(lambda x: x.any(dim=()), torch.ones(2)))
    'dim is empty'
    """

    def check(call: Call) -> str | None:
        return f"{name} is empty" if call.get(name) == () else None

    return _documented(check, f"{name} is not empty.")


def equals(name: str, *allowed: Any) -> Constraint:
    """An argument has one of the allowed values.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> equals("alpha", 1)(call_of(lambda x: torch.add(x, x, alpha=2), torch.ones(2)))
    'alpha = 2: only 1 is taken'
    """
    words = _listed(tuple(map(str, allowed)))

    def check(call: Call) -> str | None:
        return None if call[name] in allowed else f"{name} = {call[name]}: only {words} is taken"

    return _documented(check, f"{name} is {words}.")


def finite(*names: str, largest: float = FLOAT32_MAX) -> Constraint:
    """The named arguments are finite numbers, not beyond `largest`; an omitted one (None) passes.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> finite("min", "max")(call_of(lambda x: x.clamp(max=float("inf")), torch.ones(2)))
    'max = inf is not a finite number'
    """

    def check(call: Call) -> str | None:
        for name in names:
            value = call[name]
            if value is not None and (not isinstance(value, int | float) or not abs(value) <= largest):
                return f"{name} = {value} is not a finite number"
        return None

    return _documented(check, f"{_listed(names, 'and')} {'is' if len(names) == 1 else 'are'} finite.")


def finite_constants() -> Constraint:
    """Constant operands contain neither NaN nor infinity.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> steps = torch.tensor([1.0, float("nan")])
    >>> finite_constants()(call_of(lambda x: x + steps, torch.ones(2)))
    'c_lifted_tensor_0 is a constant with NaN or infinity'
    """

    def check(call: Call) -> str | None:
        for item in call.operands:
            data = item.constant
            if data is not None and data.is_floating_point() and not bool(data.isfinite().all()):
                return f"{item.name} is a constant with NaN or infinity"
        return None

    return _documented(check, "Constants are finite.")


def no_nan() -> Constraint:
    """Numbers that are joined with the elements are not NaN.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> no_nan()(call_of(lambda x: x.clamp(max=float("nan")), torch.ones(2)))
    'max is NaN'
    """

    def check(call: Call) -> str | None:
        for name in ("other", "alpha", "min", "max", "min_val", "max_val", "exponent", "value"):
            found = call.get(name)
            if isinstance(found, float) and math.isnan(found):
                return f"{name} is NaN"
        return None

    return _documented(check, "Numbers are not NaN.")


def is_used(call: Call, result: int) -> bool:
    """True if something reads one result of a call that has several.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> call = call_of(lambda x: x.topk(1)[0], torch.ones(2))
    >>> is_used(call, 0), is_used(call, 1)
    (True, False)
    """
    return any(user.operator == "getitem" and user.node.args[1] == result and user.node.users for user in call.users)


def unused(result: int, words: str) -> Constraint:
    """One result of several is not used; `words` say what it is, in the plural.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> unused(1, "places")(call_of(lambda x: x.topk(1), torch.ones(2)))
    'the places are used'
    """

    def check(call: Call) -> str | None:
        return f"the {words} are used" if is_used(call, result) else None

    return _documented(check, f"The {words} are not used.")


def no_gaps() -> Constraint:
    """What is written to a part of a tensor is written without gaps.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> no_gaps()(call_of(lambda x: x.slice_scatter(torch.zeros(2), step=2), torch.ones(4)))
    'step = 2: 1 is taken'
    """

    def check(call: Call) -> str | None:
        return f"step = {call['step']}: 1 is taken" if call.get("step", 1) != 1 else None

    return _documented(check, "Without gaps.")


def padding_outwards(name: str = "padding") -> Constraint:
    """Padding, which an argument of this name has, is not negative; `constant_pad_nd` calls it "pad".

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> pad = torch.ops.aten.replication_pad1d.default
    >>> padding_outwards()(call_of(lambda x: pad(x, [1, -1]), torch.ones(1, 4)))
    'padding = [1, -1]: no negative numbers are taken'
    """

    def check(call: Call) -> str | None:
        flat = list(call[name])
        return f"{name} = {flat}: no negative numbers are taken" if min(flat, default=0) < 0 else None

    return _documented(check, "Padding is not negative.")


def matrix_weight() -> Constraint:
    """The weight of a linear layer is a matrix, its bias a vector, if it has one.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> linear = torch.nn.functional.linear
    >>> matrix_weight()(call_of(lambda x: linear(x, torch.ones(4)), torch.ones(2, 4)))
    'a weight of rank 1'
    """

    def check(call: Call) -> str | None:
        weight, bias = call["weight"], call["bias"]
        if weight.rank != 2:
            return f"a weight of rank {weight.rank}"
        return None if bias is None or bias.rank == 1 else f"a bias of rank {bias.rank}"

    return _documented(check, "The weight is a matrix, the bias a vector.")


def known_scales(integers: tuple[str, ...], numbers: tuple[str, ...], *, constants: bool = True) -> Constraint:
    """A quantize or dequantize has known scales and zero points, of a computed tensor one, between these dtypes; with
    `constants=False` the integers of constants may have any.

    >>> import torch.ao.quantization.fx._decomposed
    >>> from delegatekit_toolkit.testing import call_of
    >>> quantize = torch.ops.quantized_decomposed.quantize_per_tensor
    >>> call = call_of(lambda x: quantize(x, 0.5, 0, -128, 127, torch.int8), torch.ones(2))
    >>> known_scales(("int8",), ("float32",))(call)
    >>> known_scales(("uint8",), ("float32",))(call)
    'int8 and float32: uint8, and float32 are taken'
    """
    words = f"{_listed(integers)}, and {_listed(numbers)}"

    def check(call: Call) -> str | None:
        own, source, result = call.quantization, call["input"], call.result
        if own is None:
            return "scales or zero points are computed, or in blocks of an unusual form"
        stored, real = (result, source) if ".quantize" in call.operator else (source, result)
        if real.dtype_name not in numbers or (
            stored.dtype_name not in integers and (constants or not source.is_constant)
        ):
            return f"{stored.dtype_name} and {real.dtype_name}: {words} are taken"
        return None if own.is_per_tensor or source.is_constant else "several scales of a computed tensor"

    return _documented(
        check,
        f"Scales and zero points are known; integers are {_listed(integers)}, numbers {_listed(numbers)}; a computed "
        "tensor has one scale.",
    )


def nearest_pixels() -> Constraint:
    """Nearest-neighbor upsampling from static sizes selects the exact pixels.

    PyTorch computes positions in single precision: for a few sizes it selects the pixel before.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> upsample = torch.ops.aten.upsample_nearest2d.vec
    >>> nearest_pixels()(call_of(lambda x: upsample(x, [82, 4], None), torch.ones(1, 1, 2, 4)))
    "from (2, 4) to (82, 4) PyTorch's rounding selects other pixels"
    """

    def check(call: Call) -> str | None:
        before, after = tuple(call["input"].shape[2:]), tuple(call.result.shape[2:])
        for old, new in zip(before, after, strict=True):
            places = np.arange(new)
            found = np.floor(places.astype(np.float32) * np.float32(old / new)).clip(max=old - 1)
            if not np.array_equal(found, places * old // new):
                return f"from {before} to {after} PyTorch's rounding selects other pixels"
        return None

    return _documented(check, "PyTorch's rounding selects the exact pixels.")


def element_count(operand: Operand) -> int | None:
    """The number of elements of a tensor; None if it changes from call to call.

    >>> import torch
    >>> from delegatekit_toolkit.testing import call_of
    >>> element_count(call_of(torch.neg, torch.ones(2, 3)).result)
    6
    """
    return None if operand.is_dynamic else math.prod(operand.shape)


def _documented(check: Constraint, text: str) -> Constraint:
    check.__doc__ = text
    return check


def _listed(names: tuple[str, ...] | list[str], last: str = "or") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
