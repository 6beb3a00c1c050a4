"""Damaged files: every known fault gives one clear error, and random damage gives nothing worse."""

from __future__ import annotations

import dataclasses
import gc
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import handmade
import pytest

from delegatekit.pte import read, to_bytes
from delegatekit.pte.schema import (
    Bool,
    Chain,
    CompileSpec,
    EValue,
    ExecutionPlan,
    Instruction,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Operator,
    String,
    Tensor,
    TensorList,
)
from delegatekit.pte.validation import validate
from delegatekit_api import FormatError

GOOD = handmade.add_program()
DELEGATE = handmade.delegate_program()


def check(data: bytes) -> None:
    validate(read(data))


def first(plan: ExecutionPlan) -> Any:
    return plan.chains[0].instructions[0].instr_args  # type: ignore[index]


def value(plan: ExecutionPlan, index: int) -> Any:
    return plan.values[index].val  # type: ignore[index]


def put(offset: int, form: str, *numbers: int) -> bytes:
    data = bytearray(GOOD)
    struct.pack_into("<" + form, data, offset, *numbers)
    return bytes(data)


def append(plan: ExecutionPlan, call: Any) -> None:
    plan.values.append(EValue(Bool(False)))  # type: ignore[union-attr]
    plan.chains[0].instructions.append(Instruction(call))  # type: ignore[index, union-attr]


BYTES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "too few"),
    "4 bytes": (GOOD[:4], "too few"),
    "40 bytes": (GOOD[:40], "too few"),
    "64 bytes": (GOOD[:64], "."),
    "half": (GOOD[: len(GOOD) // 2], "."),
    "last byte gone": (GOOD[:-1], "cut off"),
    "another magic": (GOOD[:4] + b"ET11" + GOOD[8:], "ET12"),
    "extended header gone": (GOOD[:8] + b"zzzz" + GOOD[12:], "extended header is missing"),
    "header length 8": (put(12, "I", 8), "extended header is 8"),
    "program size huge": (put(16, "Q", 1 << 40), "program has"),
    "program size 16": (put(16, "Q", 16), "program has"),
    "segment base huge": (put(24, "Q", 1 << 62), "segments start"),
    "segment base 0": (put(24, "Q", 0), "does not say where they start"),
    "segment data huge": (put(32, "Q", 1 << 40), "segments end"),
    "root offset huge": (put(0, "I", 1 << 30), "offset"),
    "root offset 4": (put(0, "I", 4), "."),
}


@pytest.mark.parametrize("name", BYTES)
def test_damaged_bytes_are_refused(name: str) -> None:
    data, words = BYTES[name]
    with pytest.raises(FormatError, match=words):
        check(data)


PLANS: dict[str, tuple[Callable[[ExecutionPlan], Any], str]] = {
    "operator unknown": (lambda p: setattr(p.operators[0], "name", "aten::nope"), "no operator aten::nope.out"),
    "operator without overload": (lambda p: setattr(p.operators[0], "overload", ""), "no operator aten::add"),
    "operator number too big": (lambda p: setattr(first(p), "op_index", 7), "operator 7 of 1"),
    "operator number negative": (lambda p: setattr(first(p), "op_index", -1), "operator -1"),
    "argument out of range": (lambda p: setattr(first(p), "args", [0, 1, 2, 3, 99]), "value 99"),
    "argument negative": (lambda p: setattr(first(p), "args", [0, 1, 2, 3, -1]), "value -1"),
    "too few arguments": (lambda p: setattr(first(p), "args", [0, 1, 2, 3]), "passes 4 arguments"),
    "an int where a tensor belongs": (lambda p: setattr(first(p), "args", [2, 1, 2, 3, 3]), "passes Int as argument 0"),
    "a tensor where a number belongs": (lambda p: setattr(first(p), "args", [0, 1, 0, 3, 3]), "argument 2"),
    "arguments absent": (lambda p: setattr(first(p), "args", None), "no arguments"),
    "output out of range": (lambda p: setattr(p, "outputs", [99]), "value 99"),
    "input out of range": (lambda p: setattr(p, "inputs", [99]), "value 99"),
    "memory id 0": (lambda p: setattr(value(p, 0).allocation_info, "memory_id", 0), "buffer 0"),
    "memory id too big": (lambda p: setattr(value(p, 0).allocation_info, "memory_id", 5), "buffer 5"),
    "offset beyond the buffer": (lambda p: setattr(value(p, 3).allocation_info, "memory_offset_low", 120), "bytes 120"),
    "offset unaligned": (lambda p: setattr(value(p, 3).allocation_info, "memory_offset_low", 61), "not aligned"),
    "offset's high half": (lambda p: setattr(value(p, 3).allocation_info, "memory_offset_high", 1), "planned at"),
    "buffer too small": (lambda p: setattr(p, "non_const_buffer_sizes", [0, 32]), "buffer of 32"),
    "buffer sizes empty": (lambda p: setattr(p, "non_const_buffer_sizes", []), "buffer sizes are missing"),
    "buffer sizes absent": (lambda p: setattr(p, "non_const_buffer_sizes", None), "missing"),
    "buffer size negative": (lambda p: setattr(p, "non_const_buffer_sizes", [0, -1]), "-1 bytes"),
    "buffer size enormous": (lambda p: setattr(p, "non_const_buffer_sizes", [0, 1 << 60]), "bytes"),
    "constant longer than its segment": (lambda p: setattr(value(p, 1), "sizes", [500]), "not in its segment"),
    "element type unknown": (lambda p: setattr(value(p, 1), "scalar_type", 99), "element type 99"),
    "element type complex": (lambda p: setattr(value(p, 1), "scalar_type", 8), "element type 8"),
    "size negative": (lambda p: setattr(value(p, 1), "sizes", [-5]), "negative size"),
    "rank 17": (
        lambda p: (setattr(value(p, 1), "sizes", [1] * 17), setattr(value(p, 1), "dim_order", bytes(range(17)))),
        "17 dimensions",
    ),
    "dim order too long": (lambda p: setattr(value(p, 1), "dim_order", b"\0\1"), "not a permutation"),
    "dim order no permutation": (lambda p: setattr(value(p, 1), "dim_order", b"\3"), "not a permutation"),
    "dim order absent": (lambda p: setattr(value(p, 1), "dim_order", None), "dim order"),
    "storage offset": (lambda p: setattr(value(p, 1), "storage_offset", 4), "storage offset 4"),
    "unbounded sizes": (lambda p: setattr(value(p, 0), "shape_dynamism", 2), "dynamism 2"),
    "no chains": (lambda p: setattr(p, "chains", []), "no instructions"),
    "chains absent": (lambda p: setattr(p, "chains", None), "chains are missing"),
    "chain without instructions": (lambda p: setattr(p, "chains", [Chain()]), "no instructions"),
    "delegates absent": (lambda p: setattr(p, "delegates", None), "delegates are missing"),
    "inputs absent": (lambda p: setattr(p, "inputs", None), "inputs are missing"),
    "values absent": (lambda p: setattr(p, "values", None), "values are missing"),
    "name absent": (lambda p: setattr(p, "name", None), "no name"),
    "value of no kind": (lambda p: setattr(p.values[2], "val", None), "of no kind"),
    "jump out of range": (lambda p: append(p, JumpFalseCall(4, 50)), "jumps to instruction 50"),
    "jump negative": (lambda p: append(p, JumpFalseCall(4, -1)), "jumps to instruction -1"),
    "jump on a list": (
        lambda p: (append(p, JumpFalseCall(5, 0)), p.values.append(EValue(IntList([2])))),
        "neither a bool nor a tensor of bools",
    ),
    "move out of range": (lambda p: append(p, MoveCall(50, 0)), "value 50"),
    "list item out of range": (lambda p: p.values.append(EValue(TensorList([7]))), "value 7"),
    "list item of the wrong kind": (lambda p: p.values.append(EValue(IntList([0]))), "wrong kind"),
    "a list without items": (lambda p: p.values.append(EValue(IntList())), "without items"),
    "an output in the memory of its argument": (
        lambda p: setattr(value(p, 3).allocation_info, "memory_offset_low", 8),
        "instruction 0: value 3 overwrites value 0, which is read until instruction 0",
    ),
    "a constant as output": (
        lambda p: setattr(first(p), "args", [0, 1, 2, 1, 1]),
        "instruction 0: value 1 is a constant, but is written",
    ),
    "a constant as input": (lambda p: setattr(p, "inputs", [1]), "inputs: value 1 is a constant, but is written"),
    "a constant updated in place": (
        lambda p: (append(p, KernelCall(1, [1, 0, 4, 1])), p.operators.append(Operator("aten::copy_", ""))),
        "instruction 1: value 1 is a constant, but is written",
    ),
    "a constant moved to where an output goes": (
        lambda p: p.chains[0].instructions.insert(0, Instruction(MoveCall(1, 3))),
        "instruction 1: value 3 is a constant, but is written",
    ),
    "inputs in the same memory": (
        lambda p: (p.values.append(handmade.tensor([5], 16)), p.inputs.append(4)),
        "inputs: value 4 overwrites value 0",
    ),
    "a tensor of 2 EiB": (
        lambda p: (p.values.append(handmade.tensor([1 << 30, 1 << 29])),),
        "has 2305843009213693952 bytes",
    ),
    "the runtime's own kernel with too few arguments": (
        lambda p: (setattr(p.operators[0], "name", "executorch_prim::et_view"), _overload(p, "default")),
        "passes 5 arguments to executorch_prim::et_view.default, which takes 3",
    ),
    "planned memory overlaps": (
        lambda p: (_add_again(p), setattr(value(p, 4).allocation_info, "memory_offset_low", 68)),
        "overwrites value 3",
    ),
}


def _overload(plan: ExecutionPlan, name: str) -> None:
    plan.operators[0].overload = name  # type: ignore[index]


def _add_again(plan: ExecutionPlan) -> None:
    """A second addition whose result is returned beside the first."""
    plan.values.append(handmade.tensor([5], 64))  # type: ignore[union-attr]
    plan.chains[0].instructions.append(Instruction(type(first(plan))(0, [0, 1, 2, 4, 4])))  # type: ignore[index, union-attr]
    plan.outputs.append(4)  # type: ignore[union-attr]
    plan.non_const_buffer_sizes = [0, 256]


@pytest.mark.parametrize("name", PLANS)
def test_meaningless_plans_are_refused(name: str) -> None:
    change, words = PLANS[name]
    with pytest.raises(FormatError, match=words):
        check(handmade.add_program(change))


def test_two_methods_of_one_name_are_refused() -> None:
    image = handmade.add_image()
    with pytest.raises(FormatError, match="method forward: appears twice"):
        check(to_bytes(dataclasses.replace(image, plans=image.plans * 2)))


DELEGATES: dict[str, tuple[Callable[[ExecutionPlan], Any], str]] = {
    "id absent": (lambda p: setattr(p.delegates[0], "id", None), "no backend id"),
    "blob's place absent": (lambda p: setattr(p.delegates[0], "processed", None), "no blob"),
    "inline blob out of range": (lambda p: setattr(p.delegates[0].processed, "location", 0), "inline data 0 of 0"),
    "location unknown": (lambda p: setattr(p.delegates[0].processed, "location", 7), "unknown location 7"),
    "call number out of range": (lambda p: setattr(first(p), "delegate_index", 3), "delegate 3 of 1"),
    "inputs behind outputs": (lambda p: setattr(first(p), "args", [1, 0]), "mixed up"),
    "a number for a delegate's output": (
        lambda p: (p.values.append(EValue(Bool(True))), setattr(first(p), "args", [0, 1, 2])),
        "an output, is not a tensor",
    ),
    "a text passed to a delegate": (
        lambda p: (p.values.append(EValue(String("x"))), setattr(first(p), "args", [0, 2, 1])),
        "neither tensor nor number",
    ),
    "no arguments": (lambda p: setattr(first(p), "args", []), "without arguments"),
    "compile spec without value": (
        lambda p: setattr(p.delegates[0], "compile_specs", [CompileSpec("key")]),
        "without key or value",
    ),
    "compile spec without key": (
        lambda p: setattr(p.delegates[0], "compile_specs", [CompileSpec(None, b"")]),
        "without key or value",
    ),
}


@pytest.mark.parametrize("name", DELEGATES)
def test_meaningless_delegates_are_refused(name: str) -> None:
    change, words = DELEGATES[name]
    with pytest.raises(FormatError, match=words):
        check(handmade.delegate_program(change))


def test_the_undamaged_programs_pass() -> None:
    check(GOOD)
    check(DELEGATE)
    check(GOOD + b"\1" * 1000)  # the runtime accepts a tail, too


def mutated(data: bytes, source: random.Random) -> bytes:
    """A copy with one to four bytes flipped, a word replaced by an extreme one, or an end cut off."""
    copy = bytearray(data)
    kind = source.randrange(4)
    if kind == 0:
        return bytes(copy[: source.randrange(len(copy))])
    if kind == 1:
        struct.pack_into(
            "<I", copy, source.randrange(len(copy) - 4), source.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 20])
        )
    else:
        for _ in range(source.randint(1, 4)):
            copy[source.randrange(len(copy))] = source.randrange(256)
    return bytes(copy)


@pytest.mark.parametrize("program", ["add", "delegate"])
def test_two_thousand_random_mutations_give_an_error_or_a_valid_file(program: str) -> None:
    data = GOOD if program == "add" else DELEGATE
    source = random.Random(20_000)
    refused = 0
    slowest = 0.0
    # Garbage collections walk the whole process: their cost depends on other tests, not on the file.
    gc.collect()
    gc.disable()
    tracemalloc.start()
    for _ in range(1000):
        start = time.thread_time()
        try:
            check(mutated(data, source))
        except FormatError:
            refused += 1
        slowest = max(slowest, time.thread_time() - start)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gc.enable()
    assert slowest < 1.0
    assert refused > 300  # many mutations hit data where any value is valid
    assert peak < 32 << 20


def test_shared_tables_that_unfold_without_end_are_refused() -> None:
    from delegatekit_toolkit import flatbuffer as fb

    class Node(fb.Table):
        children: list[Any] | None = fb.tables(lambda: Node)

    # One table whose vector points at the table itself, many times over.
    data = bytearray(4096)
    struct.pack_into("<I4s", data, 0, 16, b"TEST")
    struct.pack_into("<HHH", data, 8, 6, 8, 4)  # vtable: one field, at 4
    struct.pack_into("<iI", data, 16, 8, 4)  # table at 16: vtable 8 before, vector 4 after the field
    struct.pack_into("<I", data, 24, 200)
    for index in range(200):
        struct.pack_into("<i", data, 28 + 4 * index, 0)
    with pytest.raises(FormatError):
        fb.parse(Node, bytes(data), (b"TEST",))


def test_a_value_is_a_tensor_table() -> None:
    assert isinstance(value(read(GOOD).program.execution_plan[0], 0), Tensor)  # type: ignore[index]
