"""The Python engine: loads a .pte, checks it, and runs its methods with ATen kernels and the plugins' runtimes."""

from __future__ import annotations

from ..pte.arguments import tensor_spec
from .calling import Inputs, inputs_of
from .instructions import Step
from .loaded import LoadedProgram, Session, load
from .method import Method
from .structure import read_input_structure

__all__ = [
    "Inputs",
    "LoadedProgram",
    "Method",
    "Session",
    "Step",
    "inputs_of",
    "load",
    "read_input_structure",
    "tensor_spec",
]
