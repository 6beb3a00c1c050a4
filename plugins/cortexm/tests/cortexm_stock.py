"""ExecuTorch's own lowering of quantized programs for Cortex-M, in files as our reader shows them."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from delegatekit.reading import FileMethod, open_program


def stock_file(program: torch.export.ExportedProgram, cpu: str = "M55") -> bytes:
    """The file that stock's passes write for a quantized program: operators of the library, no delegate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.backends.cortex_m.passes.cortex_m_pass_manager import CortexMPassManager
        from executorch.backends.cortex_m.target_config import CortexM, CortexMTargetConfig
        from executorch.exir import EdgeCompileConfig, to_edge

        kept = [torch.ops.aten.linear.default, torch.ops.aten.hardsigmoid.default]
        edge: Any = to_edge(program, compile_config=EdgeCompileConfig(preserve_ops=kept, _check_ir_validity=False))
        exported = edge.exported_program()
        for node in list(exported.graph.nodes):
            if node.op == "call_module":  # guards of the export, which the passes do not know
                exported.graph.erase_node(node)
        exported.graph_module.recompile()
        config = CortexMTargetConfig(cpu=getattr(CortexM, cpu))
        edge._edge_programs["forward"] = CortexMPassManager(exported, target_config=config).transform()
        return bytes(edge.to_executorch().buffer)


def calls(data: bytes) -> list[tuple[str, list[Any]]]:
    """The calls of the library in a file: operator, and its arguments as plain data; constants by their elements."""
    from delegatekit import pte

    file = pte.read(data)
    method = open_program(data).methods["forward"]
    (plan,) = list(file.program.execution_plan or ())
    (chain,) = list(plan.chains or ())
    found = []
    for instruction in chain.instructions or ():
        call: Any = instruction.instr_args
        operator = (plan.operators or [])[call.op_index]
        name = f"{operator.name}.{operator.overload}"
        if name.startswith("cortex_m::"):
            found.append((name, [_plain(file, method, plan, index) for index in call.args]))
    return found


def _plain(file: Any, method: FileMethod, plan: Any, index: int) -> Any:
    value, table = method.values[index], plan.values[index].val
    if value.kind == "Tensor":
        data = bytes(file.constant(table.data_buffer_idx, table.nbytes)) if value.constant else b""
        return value.dtype, value.shape, bytes(table.dim_order or b""), data
    if value.kind == "IntList":
        return [method.values[item].content for item in value.content]
    return value.content
