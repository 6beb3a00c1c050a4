"""A plugin that is a library of two runtime operators, as a text, for tests of plugins that make no delegates."""

from __future__ import annotations

#: Sums and products of float32 tensors by operators of a library: a sum is scaled, which takes scratch memory.
LIBRARY = """
import torch
from delegatekit_api import *
from delegatekit_api.operators import *

@hookimpl
def describe_backend():
    return BackendDescription("acme", "acme", "delegatekit-acme", "1.2", "a library", ApiVersion(2, 4))

class Sums:
    def keep_operators(self):
        return ()
    def propose(self, program):
        return None
    def check(self, call):
        if call.operator not in ("aten.add.Tensor", "aten.mul.Tensor", "aten.view_copy.default"):
            return Verdict.no("not in the library")
        return Verdict.yes()

@hookimpl
def create_partitioner(options):
    return Sums()

@hookimpl
def runtime_operators():
    return SCHEMAS

def spec(node):
    value = node.meta["val"]
    return TensorSpec("float32", tuple(value.shape))

@hookimpl
def replace_operators(partition, options):
    view = partition.view
    made = {node: RuntimeTensor(spec(node)) for node in view.inputs}
    inputs = tuple(made.values())
    made.update({node: RuntimeTensor(spec(node), data) for node, data in view.constants.items()})
    calls = []
    for call in view.calls():
        handles = (call.debug_handle,)
        if call.operator == "aten.view_copy.default" and call.node not in view.outputs:
            made[call.node] = RuntimeTensor(spec(call.node), view_of=made[call["self"].node])
            continue
        result = made[call.node] = RuntimeTensor(spec(call.node))
        if call.operator == "aten.view_copy.default":
            shape = tuple(call.result.shape)
            calls.append(OperatorCall("aten::view_copy.out", (made[call["self"].node], shape), (result,), (), handles))
            continue
        operands = made[call["self"].node], made[call["other"].node]
        if call.operator == "aten.mul.Tensor":
            calls.append(OperatorCall("acme::mul.out", operands, (result,), (), handles))
            continue
        scratch = RuntimeTensor(TensorSpec("uint8", (40,)))
        arguments = (*operands, 1.0, (1, 2), None, scratch)
        calls.append(OperatorCall("acme::add.out", arguments, (result,), (scratch,), handles))
    return PROGRAM

class Kernels:
    def is_available(self):
        return Availability(AVAILABLE, "its library is not here")
    def kernel(self, operator):
        if operator == "acme::mul.out":
            return lambda a, b, out: out.copy_(a * b)
        if operator != "acme::add.out":
            raise FormatError(f"acme has no {operator}")
        def add(a, b, factor, numbers, nothing, scratch, out):
            assert (factor, numbers, nothing) == (1.0, [1, 2], None)
            scratch.fill_(255)
            out.copy_(a + b)
        return add

@hookimpl
def create_runtime():
    return Kernels()
"""
ADD = (
    "acme::add.out(Tensor a, Tensor b, float factor, int[] numbers, Tensor? nothing, Tensor scratch, "
    "*, Tensor(a!) out) -> Tensor(a!)"
)
MUL = "acme::mul.out(Tensor a, Tensor b, *, Tensor(a!) out) -> Tensor(a!)"
GOOD = "OperatorProgram(inputs, tuple(calls), tuple(made[node] for node in view.outputs))"


def library(program: str = GOOD, schemas: tuple[str, ...] = (ADD, MUL), available: bool = True) -> str:
    text = LIBRARY.replace("PROGRAM", program).replace("SCHEMAS", repr(list(schemas)))
    return text.replace("AVAILABLE", str(available))
