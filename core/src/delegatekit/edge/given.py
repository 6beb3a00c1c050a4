"""Checks the tensors of an exported program: parameters, buffers, constants and example inputs."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

from delegatekit_api import UnsupportedError
from delegatekit_api.nodes import describe_node, source_line

#: The fault of a tensor, and the remedy.
_Fault = tuple[str, str]

_TRANSFORMED: Final = (
    "was not recorded by torch.export: it is a value inside torch.func.grad or another transform of functions",
    "compute gradients outside of the model that is lowered",
)


def check_tensors(program: ExportedProgram) -> None:
    """Raise UnsupportedError, with the source line of the first use, for a tensor that a file cannot hold."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        node = placeholders[spec.arg.name]
        given: Any = node.meta.get("val")
        if spec.kind != InputKind.USER_INPUT and spec.target is not None:
            state = program.state_dict
            given = state[spec.target] if spec.target in state else program.constants.get(spec.target)
        fault = _fault(given, known=spec.kind != InputKind.USER_INPUT) if isinstance(given, torch.Tensor) else None
        if fault is not None:
            what, hint = fault
            raise UnsupportedError(f"{spec.target or node.name} {what}", where=_first_use(node), hint=hint)


def _fault(tensor: torch.Tensor, *, known: bool) -> _Fault | None:
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or (known and isinstance(tensor, FakeTensor)):
        return _TRANSFORMED
    if tensor.is_nested:
        return "is a nested tensor, whose rows have different sizes", "pad the rows to one size"
    if tensor.layout != torch.strided:
        return f"is a sparse tensor ({tensor.layout})", "pass a dense tensor: x.to_dense()"
    if tensor.is_quantized:
        return "is a quantized tensor of PyTorch's eager mode", "quantize the float model with delegatekit.quantize"
    if not known and tensor.is_complex():
        return "is complex, and a .pte file has no complex inputs", "pass torch.view_as_real(x), and view it as complex"
    if tensor.device.type != "cpu":
        return f"is on device {tensor.device}", "export on the CPU"
    return None


def _first_use(node: Node) -> str:
    """The node's first user, or the first operator inside it that has a source line."""
    user = next((user for user in node.users if user.op != "output"), node)
    modules = [getattr(user.graph.owning_module, str(item.target), None) for item in user.all_input_nodes]
    inner = [item for module in modules if isinstance(module, GraphModule) for item in module.graph.nodes]
    return describe_node(next((item for item in (user, *inner) if source_line(item) is not None), user))
