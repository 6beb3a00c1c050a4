"""Passes to copy from: permutations and conversions that meet, and operators that models write out, fused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.fusion import Fusion
from delegatekit_toolkit.passes import Pass, PassResult, Property
from delegatekit_toolkit.rewriting import EditableProgram

aten = torch.ops.aten
PERMUTE = "aten.permute_copy.default"
QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
#: Operators that compute each element by itself, whatever the order of the axes.
ELEMENTWISE = frozenset(
    f"aten.{name}"
    for name in (
        *(
            "relu.default",
            "sigmoid.default",
            "tanh.default",
            "neg.default",
            "abs.default",
            "exp.default",
            "silu.default",
        ),
        *("add.Tensor", "sub.Tensor", "mul.Tensor", "maximum.default", "minimum.default"),
        *("add.Scalar", "sub.Scalar", "mul.Scalar", "hardtanh.default", "clamp.default"),
    )
)


@dataclass(frozen=True)
class SinkPermutes(Pass[EditableProgram]):
    """Lets permutations wait until after elementwise operators, where they meet the next one and both are one, or none.

    A backend that wants channels last gets `permute, operator, permute back` around each operator; between two
    operators both permutations go. ExecuTorch's example backend does this to its copies between memory formats.
    """

    def __call__(self, program: EditableProgram) -> PassResult[EditableProgram]:
        changes = []
        for call in program.calls(*ELEMENTWISE):
            # Taken anew: this loop may just have replaced an operand.
            now = Call(call.node, program.view)
            before = [operand.producer for operand in now.operands]
            permutes = [item for item in before if item is not None and item.operator == PERMUTE]
            orders = {tuple(item["dims"]) for item in permutes}
            if len(permutes) != len(before) or len(orders) != 1 or any(len(item.users) > 1 for item in permutes):
                continue
            if any(_operator_before(item) == PERMUTE for item in permutes):
                continue  # the two become one, or none, when the program is written in the dialect again
            inner = {item.node: item["self"].node for item in permutes}
            args = torch.fx.map_arg(now.node.args, lambda node, inner=inner: inner[node])
            computed = program.call(now, now.node.target, *args, **now.node.kwargs)
            moved = program.call(now, aten.permute_copy.default, computed, list(orders.pop()))
            changes.append(program.replace(now, moved, "its permutation comes after it"))
        return PassResult(program, tuple(changes))


def _operator_before(call: Call) -> str | None:
    producer = call["self"].producer
    return None if producer is None else producer.operator


def _undone(program: EditableProgram) -> str | None:
    return next((f"{call} undoes a dequantize" for call in program.calls(QUANTIZE) if _integers(call)), None)


def _integers(call: Call) -> Operand | None:
    """The integers that a quantize gives back as they were before a dequantize of equal parameters."""
    found: Operand | None = call["input"].integers
    producer = call["input"].producer
    if found is None or producer is None or producer.quantization != call.quantization:
        return None
    return found if found.dtype == call.result.dtype else None


@dataclass(frozen=True)
class MergeQuantize(Pass[EditableProgram]):
    """Removes a dequantize and the quantize after it that have equal parameters: the integers were there before."""

    ensures: ClassVar = (Property("has no quantize that undoes a dequantize", _undone),)

    def __call__(self, program: EditableProgram) -> PassResult[EditableProgram]:
        return PassResult(
            program,
            tuple(
                program.replace(call, integers, "the integers before its dequantize are the same")
                for call in program.calls(QUANTIZE)
                if (integers := _integers(call)) is not None
            ),
        )


# -- operators that models write out ---------------------------------------------------------------------------------


def _norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, eps)


#: A layer norm of values with three axes that is written in parts, with any epsilon.
LAYER_NORM = Fusion(_norm, _layer_norm, (torch.ones(2, 3, 4), torch.ones(4), torch.ones(4), 1e-3), name="layer norm")

#: x * sigmoid(x).
SILU = Fusion(lambda x: x * torch.sigmoid(x), torch.nn.functional.silu, (torch.ones(2),), name="silu")

#: All of them: `delegatekit lower ... --pass examples/passes.py:ALL`.
ALL = (SinkPermutes(), MergeQuantize(), LAYER_NORM, SILU)
