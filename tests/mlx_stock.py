"""What ExecuTorch's own MLX compiler makes: files for our runtime, and the nodes in the delegates of any file."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch


def stock_file(model: torch.nn.Module, inputs: tuple[Any, ...], dynamic_shapes: Any = None) -> bytes:
    """The `.pte` of ExecuTorch's own pipeline. Skips where that cannot compile for MLX."""
    partitioner, quietly = _stock()
    from executorch.exir import to_edge_transform_and_lower

    with torch.no_grad(), quietly():
        exported = torch.export.export(model.eval(), inputs, dynamic_shapes=dynamic_shapes, strict=False)
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
        return bytes(edge.to_executorch().buffer)


def nodes(file: bytes) -> Counter[str]:
    """The kinds of nodes in all MLX delegates of a file, as ExecuTorch's inspector reads them."""
    _stock()
    from executorch.backends.mlx.pte_inspector import extract_delegate_payload, parse_mlx_payload
    from executorch.exir._serialize._program import deserialize_pte_binary

    plans = deserialize_pte_binary(file).program.execution_plan
    count = sum(delegate.id == "MLXBackend" for plan in plans for delegate in plan.delegates)
    found: Counter[str] = Counter()
    for index in range(count):
        payload = extract_delegate_payload(file, "MLXBackend", delegate_index=index)
        chains = parse_mlx_payload(payload)["graph"]["instruction_chains"]
        found.update(node["op_name"].removesuffix("Node") for chain in chains for node in chain["instructions"])
    return found


def operator_tests() -> Mapping[str, Any]:
    """ExecuTorch's tests of single operators by name, each a class of cases, which are in its wheel."""
    _stock()
    import executorch.extension.llm as package

    # (Its `modules` import torchtune, of which the tests need nothing.)
    name = f"{package.__name__}.modules"
    modules = ModuleType(name)
    modules.__path__ = [str(Path(next(iter(package.__path__))) / "modules")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, modules)
        from executorch.backends.mlx.test import test_ops
    tests: Mapping[str, Any] = sys.modules[test_ops.register_test.__module__]._TEST_REGISTRY
    return tests


def _stock() -> tuple[Any, Any]:
    """ExecuTorch's partitioner, and what keeps its words from the user."""
    targets = pytest.importorskip("delegatekit_executorch_backends.targets")
    system = targets.SYSTEMS["executorch.mlx"]
    if (reason := system.reason()) is not None:
        pytest.skip(reason)
    from delegatekit_executorch_backends.compiler.loading import quietly
    from delegatekit_executorch_backends.compiler.partitioners import stock_compiler

    return stock_compiler(system, system.options()).partitioner, quietly
