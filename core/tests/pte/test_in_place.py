"""Every kernel that may write over an operand does so correctly: in the Python engine and in the stock runtime."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from handmade import plan

import delegatekit
from delegatekit.pte import PteImage, schema, to_bytes
from delegatekit.pte.dtypes import scalar_type
from delegatekit.pte.kernels import IN_PLACE, runtime_operators
from delegatekit_api import FormatError

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")

SHAPE = (3, 37)
#: Shapes of the other operands: as large as the result, and broadcast along either side.
OTHERS = ((3, 37), (1, 37), (3, 1), ())
#: Values of arguments that are neither tensors nor numbers with a special meaning.
SETTINGS = {"alpha": 2, "rounding_mode": "floor", "approximate": "tanh", "min": -0.5, "max": 0.5, "eps": 0.25, "dim": 1}


def operator(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def literal(argument: Any, integers: bool) -> Any:
    if argument.name in SETTINGS:
        value = SETTINGS[argument.name]
        return int(value * 4) if integers and not isinstance(value, str) else value
    if argument.has_default_value():
        return argument.default_value
    if str(argument.type) == "bool":
        return False
    return 3 if integers or argument.name in ("n", "exponent") else 1.5


def table(value: Any) -> schema.EValue:
    if value is None:
        return schema.EValue(schema.Null())
    kinds = {bool: schema.Bool, int: schema.Int, float: schema.Double, str: schema.String}
    return schema.EValue(kinds[type(value)](value))


def planned(dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> schema.EValue:
    return schema.EValue(
        schema.Tensor(
            scalar_type=int(scalar_type(dtype)),
            sizes=list(shape),
            dim_order=bytes(range(len(shape))),
            allocation_info=schema.AllocationDetails(1, offset, 0),
        )
    )


def build(name: str, dtype: torch.dtype, target: int, other: tuple[int, ...], *, same: bool) -> tuple[bytes, Any, Any]:
    """A program of one call that writes its result over tensor operand `target`; its inputs, and eager's results.

    With `same`, all operands of the result's shape are one value.
    """
    torch.manual_seed(0)
    integers = not dtype.is_floating_point
    arguments = operator(name)._schema.arguments
    values: list[schema.EValue] = []
    inputs: list[torch.Tensor] = []
    places: list[int] = []
    given: dict[str, Any] = {}
    end, tensors, over = 0, 0, 0
    for argument in arguments:
        if argument.is_out:
            continue
        if "Tensor" not in str(argument.type):
            given[argument.name] = literal(argument, integers)
            if argument.name == "alpha" and target and not other:
                # The stock runtime (1.5.1) multiplies alpha with the wrong operand of add if the first has one
                # element, wherever the result is.
                given[argument.name] = 1
            values.append(table(given[argument.name]))
            places.append(len(values) - 1)
            continue
        condition = argument.name in ("condition", "mask")
        shape = SHAPE if tensors == target else other
        tensors += 1
        if same and not condition and inputs and inputs[-1].dtype == dtype:
            given[argument.name] = inputs[-1]
            places.append(places[-1])
            continue
        tensor = (torch.rand(shape) + 0.25) if not integers else torch.randint(1, 9, shape)
        tensor = (tensor > tensor.float().mean()) if condition else tensor.to(dtype)
        if tensors - 1 == target:
            over = end
        values.append(planned(tensor.dtype, shape, end))
        end += -(-tensor.nbytes // 16) * 16
        inputs.append(tensor)
        given[argument.name] = tensor
        places.append(len(values) - 1)
    values.append(planned(dtype, SHAPE, over))
    result = len(values) - 1
    packet, _, overload = name.partition(".")
    image = PteImage(
        (
            plan(
                values,
                [i for i, value in enumerate(values[:-1]) if isinstance(value.val, schema.Tensor)],
                [result],
                [schema.KernelCall(0, [*places, result, result])],
                operators=[schema.Operator(packet, overload)],
                non_const_buffer_sizes=[0, end],
            ),
        )
    )
    wanted = operator(name)(**given, out=torch.empty(SHAPE, dtype=dtype))
    return to_bytes(image), inputs, wanted


def variants(name: str) -> list[tuple[torch.dtype, int, tuple[int, ...], bool]]:
    """The variants of a kernel call: dtype, operand written over, shape of the others, one value for all."""
    tensors = [a for a in operator(name)._schema.arguments if "Tensor" in str(a.type) and not a.is_out]
    data = [i for i, a in enumerate(tensors) if a.name not in ("condition", "mask")]
    dtypes = [torch.int64, torch.bool] if "bitwise" in name else [torch.float32, torch.int64]
    if "softmax" in name:
        dtypes = [torch.float32]
    if "Scalar" in name and "bitwise" in name:
        dtypes = [torch.int64]
    others = OTHERS if len(tensors) > 1 else ((),)
    found = [(dtype, i, shape, False) for dtype, i, shape in itertools.product(dtypes, data, others)]
    return found + ([(dtypes[0], data[0], SHAPE, True)] if len(data) > 1 else [])


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_a_result_may_take_the_place_of_an_operand(name: str) -> None:
    assert name in runtime_operators()
    compared = 0
    for dtype, target, other, same in variants(name):
        try:
            data, inputs, wanted = build(name, dtype, target, other, same=same)
        except RuntimeError:  # PyTorch has no such operator for this dtype
            assert not dtype.is_floating_point
            continue
        ours = delegatekit.load(data)["forward"](*(tensor.clone() for tensor in inputs))
        stock = _C._load_program_from_buffer(data).load_method("forward")
        got = stock(tuple(tensor.clone() for tensor in inputs))[0]
        compared += 1
        for result in (ours, got):
            torch.testing.assert_close(result, wanted, atol=2e-6, rtol=2e-6, equal_nan=True)
    assert compared


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5,), (1, 3, 17, 17), (2, 3, 128, 128), (1000, 4), (3, 5000), (33, 65, 7)])
def test_softmax_in_place_along_each_dim_is_the_same_to_the_bit(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = (torch.randn(shape) * 3).to(dtype)

    def program(dim: int, offset: int) -> bytes:
        values = [planned(dtype, shape, 0), planned(dtype, shape, offset), table(dim), table(False)]
        call = schema.KernelCall(0, [0, 2, 3, 1, 1])
        operators = [schema.Operator("aten::_softmax", "out")]
        sizes = [0, offset + x.nbytes]
        return to_bytes(PteImage((plan(values, [0], [1], [call], operators=operators, non_const_buffer_sizes=sizes),)))

    for dim in range(len(shape)):
        apart, over = (program(dim, offset) for offset in (-(-x.nbytes // 16) * 16, 0))
        stock = [_C._load_program_from_buffer(data).load_method("forward")((x,))[0] for data in (apart, over)]
        assert torch.equal(*stock)
        assert torch.equal(delegatekit.load(over)["forward"](x), torch.softmax(x, dim))


def test_a_file_in_which_another_kernel_writes_over_its_operand_is_refused() -> None:
    values = [planned(torch.float32, (4, 4), 0), planned(torch.float32, (4, 4), 0), table(0), table(1)]
    call = schema.KernelCall(0, [0, 2, 3, 1, 1])
    method = plan(values, [0], [1], [call], operators=[schema.Operator("aten::transpose_copy", "int_out")])
    with pytest.raises(FormatError, match="overwrites value 0"):
        delegatekit.load(to_bytes(PteImage((method,))))


def test_a_kernel_may_not_write_over_a_part_of_another_operand() -> None:
    """The first row is broadcast, and would be changed before the others have been computed."""
    values = [planned(torch.float32, (4, 4), 0), planned(torch.float32, (1, 4), 0), table(1)]
    values += [planned(torch.float32, (4, 4), 0)]
    call = schema.KernelCall(0, [0, 1, 2, 3, 3])
    method = plan(values, [0], [3], [call], operators=[schema.Operator("aten::add", "out")])
    with pytest.raises(FormatError, match="overwrites value 0"):
        delegatekit.load(to_bytes(PteImage((method,))))
