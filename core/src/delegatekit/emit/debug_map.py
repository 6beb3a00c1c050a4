"""The debug map: from an instruction of the file, or a part of a delegate, back to operators and source lines.

A debug handle is the position of a node in the exported program, counted from 1 (nodes of control flow count on
after the method's last one): it stays the same whatever the backends and options are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch.fx import Node

from delegatekit_api.nodes import operator_name, source_line

from ..edge import EdgeMethod
from ..lowering import Delegate, LoweredMethod
from ..pte import PteImage
from ..pte.dataflow import callee, calls
from ..pte.manifest import MANIFEST_KEY, key_of
from ..pte.writer import tables


def debug_map(
    methods: Mapping[str, LoweredMethod], image: PteImage, handles: Mapping[str, tuple[tuple[int, ...], ...]]
) -> dict[str, Any]:
    """The debug map of `LoweredProgram.debug_map`, ready for JSON.

    For each method: `file` (the key of the file's content), `nodes` (handle -> operators of the edge program derived
    from it, module path, source line), `instructions` (the callee of each, and the handles it computes) and `delegates`
    (backend, and for each id that the backend gave its own operators, their handles). The delegate of a lowered module
    has one handle here, that of the call; under `lowered_module` it has its own `nodes` and `operators`, with the
    handles of that module's program.
    """
    plans = {str(plan.name): plan for plan in image.plans}
    manifest = next(bytes(item.data) for item in image.named_data if item.key == MANIFEST_KEY)
    key = key_of(tables(image), manifest)
    return {
        name: {
            "file": key,
            "nodes": _nodes(_calls(method.edge)),
            "instructions": [
                {"instruction": index, "calls": callee(plans[name], call), "handles": list(found)}
                for index, (call, found) in enumerate(zip(calls(plans[name]), handles[name], strict=True))
            ],
            "delegates": [
                {"delegate": index, **_delegate(delegate)} for index, delegate in enumerate(method.delegates)
            ],
        }
        for name, method in methods.items()
    }


def _delegate(delegate: Delegate) -> dict[str, Any]:
    found: dict[str, Any] = {
        "backend": delegate.chosen.backend.name,
        "operators": {str(key): list(value) for key, value in delegate.debug_handle_map.items()},
    }
    if delegate.original is not None:
        inner = delegate.original
        found["lowered_module"] = {"nodes": _nodes(inner.partition.nodes), "operators": _delegate(inner)["operators"]}
    return found


def _nodes(nodes: Iterable[Node]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for node in nodes:
        stack = node.meta.get("nn_module_stack")
        entry = found.setdefault(
            str(node.meta["debug_handle"]),
            {
                "operators": [],
                "module": str(next(reversed(stack.values()))[0]) if stack else "",
                "source": source_line(node) or "",
            },
        )
        entry["operators"].append(operator_name(node))
    return dict(sorted(found.items(), key=lambda item: int(item[0])))


def _calls(edge: EdgeMethod) -> Iterator[Node]:
    for node in edge.graph.nodes:
        if node.op == "call_function":
            yield node
            for region in edge.regions.get(node, ()):
                yield from _calls(region)
