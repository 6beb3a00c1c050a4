"""Runs the examples of faults of ExecuTorch's backends in its own pipeline, without any of our lowering.

python docs/stock_pipeline.py NAME.json NAME.own.json    # the faults of a run, and what became of each there

An example is exported, lowered by `to_edge_transform_and_lower` with ExecuTorch's partitioner, and run by ExecuTorch's
runtime; delegates that it does not have on this host run in our engine, as in the suite's own run.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

#: Verdicts: the same kind of fault, another one, none, or no delegate to judge.
ALIKE: Final = "alike"
OTHER: Final = "another"
RIGHT: Final = "right"
LEFT: Final = "left"
#: What a run of the suite calls failures, in the order of the stages.
_STAGES: Final[Mapping[str, str]] = {
    "lowering error": "lower",
    "load error": "run",
    "run error": "run",
    "crash": "crash",
    "timeout": "crash",
    "wrong result": "wrong",
}
_BOUND: Final = re.compile(r"^bound = (.+)$", re.MULTILINE)


class _CapturedError(Exception):
    """Ends a snippet where it would call our lowering; carries what it would lower."""


def faults(report: Any) -> Iterator[tuple[str, Any]]:
    """A key for each fault whose snippet lowers a module, and the fault."""
    for case in report["cases"]:
        for number, fault in enumerate(case["faults"]):
            if "delegatekit.lower(" in (fault.get("snippet") or ""):
                yield f"{case['case']} {number}", fault


def main(arguments: list[str]) -> None:
    """Judge all faults of a report; a process that ends goes on after the example that ended it."""
    source, made = map(Path, arguments[:2])
    report = json.loads(source.read_text("utf-8"))
    known: dict[str, str] = json.loads(made.read_text("utf-8")) if made.exists() else {}
    if arguments[2:] == ["--here"]:
        for key, fault in faults(report):
            if key not in known:
                made.write_text(json.dumps({**known, key: "crash"}), "utf-8")
                known[key] = _stage(fault, report["backend"]["name"])
                made.write_text(json.dumps(known, indent=1), "utf-8")
        return
    if not known:
        made.write_text("{}", "utf-8")
    while any(key not in known for key, _ in faults(report)):
        before = len(known)
        subprocess.run([sys.executable, __file__, str(source), str(made), "--here"], check=False, timeout=3600)
        known = json.loads(made.read_text("utf-8"))
        if len(known) == before:
            raise SystemExit(f"{source}: no example was judged")


def verdict(fault: Any, stage: str) -> str:
    """What became of a fault whose example ended so in ExecuTorch's own pipeline."""
    if stage in (RIGHT, LEFT):
        return stage
    return ALIKE if stage == _STAGES.get(fault["verdict"]) else OTHER


def _stage(fault: Any, backend: str) -> str:
    """The stage at which the example fails in ExecuTorch's own pipeline: RIGHT at none, LEFT without a delegate."""
    import torch
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    from delegatekit.plugins import get_backend
    from delegatekit_executorch_backends.compiler.loading import quietly
    from delegatekit_executorch_backends.compiler.partitioners import stock_compiler
    from delegatekit_executorch_backends.targets import SYSTEMS

    module, inputs, kwargs = _captured(fault["snippet"])
    options = (kwargs.pop("options", None) or {}).get(backend, {})
    system = SYSTEMS[backend]
    partitioner = stock_compiler(system, get_backend(backend).make_options(options)).partitioner
    quantized = "delegatekit.quantize(" in fault["snippet"]
    try:
        with quietly():
            is_exported = isinstance(module, torch.export.ExportedProgram)
            exported = module if is_exported else torch.export.export(module, tuple(inputs), strict=False, **kwargs)
            module = exported.module() if is_exported else module
            edge = to_edge_transform_and_lower(
                exported, partitioner=[partitioner], compile_config=EdgeCompileConfig(_check_ir_validity=False)
            )
            delegated = any("call_delegate" in str(node.target) for node in edge.exported_program().graph.nodes)
            file = bytes(edge.to_executorch().buffer)
    except Exception:  # whatever export and a vendor's compiler raise
        return "lower"
    if not delegated:
        return LEFT
    try:
        with quietly():
            found = _run(file, inputs, stock=system.runs_in_stock)
    except Exception:  # whatever a runtime raises
        return "run"
    with torch.no_grad():
        if quantized:
            return RIGHT if _near(found, module(*inputs)) else "wrong"
        try:
            wide = torch.utils._pytree.tree_map(_double, inputs)
            expected = copy.deepcopy(module).double()(*wide)
        except Exception:  # some operators have no kernel for float64
            expected = module(*inputs)
    bound = _BOUND.search(fault["snippet"])
    limit = 1e-2 if bound is None or bound[1] == "None" else float(bound[1])
    return RIGHT if _same(found, expected, limit) else "wrong"


def _captured(snippet: str) -> tuple[Any, list[Any], dict[str, Any]]:
    """What a snippet would lower: the module, its inputs, the sizes that change, and the backend's options."""

    def lower(module: Any, inputs: Any = None, **kwargs: Any) -> Any:
        kept = {name: value for name, value in kwargs.items() if name in ("dynamic_shapes", "options")}
        raise _CapturedError(module, list(names["calls"][0] if inputs is None else inputs), kept)

    import delegatekit

    text = snippet.replace("import delegatekit\n", "")
    names: dict[str, Any] = {"delegatekit": SimpleNamespace(lower=lower, quantize=delegatekit.quantize)}
    try:
        exec(compile(text, "snippet", "exec"), names)
    except _CapturedError as captured:
        module, inputs, kwargs = captured.args
        return module, inputs, kwargs
    raise ValueError("the snippet lowers nothing")


def _run(file: bytes, inputs: list[Any], *, stock: bool) -> Any:
    if stock:
        from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

        return _load_for_executorch_from_buffer(file).forward(list(inputs))
    import delegatekit

    return delegatekit.load(file)["forward"](*inputs)


def _double(item: Any) -> Any:
    import torch

    return item.double() if isinstance(item, torch.Tensor) and item.is_floating_point() else item


def _near(found: Any, expected: Any) -> bool:
    """True if results are those of a quantized module, by the suite's ratio of signal to noise."""
    import torch

    from delegatekit_conformance.cases.quantized import judge

    pairs = zip(*(torch.utils._pytree.tree_leaves(values) for values in (found, expected)), strict=True)
    return all(judge(torch.as_tensor(result), right, None).agrees for result, right in pairs)


def _same(found: Any, expected: Any, limit: float) -> bool:
    """True if results are those of the reference, by the rule of the suite's snippets."""
    import torch

    leaves = [[x for x in torch.utils._pytree.tree_leaves(values) if x is not None] for values in (found, expected)]
    for pair in zip(*leaves, strict=True):
        result, right = (torch.as_tensor(item).double() for item in pair)
        if result.shape != right.shape:
            return False
        finite = result.isfinite() & right.isfinite()
        if bool((~finite & (result != right) & ~(result.isnan() & right.isnan())).any()):
            return False
        error, scale = (float(x[finite].abs().max()) if bool(finite.any()) else 0.0 for x in (result - right, right))
        if error > limit * scale:
            return False
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
