"""A pass over programs before they are partitioned: numbers beside tensors become constants, as in ExecuTorch's export.

XnnpackPartitioner leaves such constants outside of its delegates, which get them as inputs: inside, XNNPACK would give
a constant without dimensions one, and with it results that should have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from delegatekit_toolkit.passes import Pass, PassResult
from delegatekit_toolkit.rewriting import EditableProgram

from .ir.numbers import OF_TENSORS, fits

#: The types in which a tensor has exactly the number that the kernels of the runtime, and PyTorch's, compute with.
_EXACT: Final = frozenset({torch.float32, torch.float64, torch.int32, torch.int64})


@dataclass(frozen=True)
class NumbersAsConstants(Pass[EditableProgram]):
    """Numbers beside tensors in sums, differences, products and quotients become constants without dimensions."""

    def __call__(self, program: EditableProgram) -> PassResult[EditableProgram]:
        """The program with constants, and a change for each."""
        changes = []
        for call in program.calls(*map(str, OF_TENSORS)):
            tensor, number = call["self"], call["other"]
            dtype = tensor.dtype
            exact = dtype in _EXACT and dtype == call.result.dtype and fits(number, dtype)
            if not exact or call.get("alpha", 1) != 1:
                continue
            constant = program.constant(torch.tensor(number, dtype=dtype), "number")
            made = program.call(call, OF_TENSORS[call.node.target], tensor, constant)
            changes.append(program.replace(call, made, "its number is a constant"))
        return PassResult(program, tuple(changes))
