"""The identity of exported programs: a digest of their graphs, constants and example inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from delegatekit_toolkit.content import content_key


def program_digest(programs: Mapping[str, ExportedProgram], *, values: bool = True) -> str:
    """The SHA-256 of programs by method name, in hexadecimal: the same in every process that exports the same.

    It depends on operators and shapes, with `values` on those of weights and example inputs, too, and on nothing that
    names source lines or folders.
    """
    found = hashlib.sha256()
    for name, program in programs.items():
        for text in (name, *_texts(program, values=values)):
            found.update(text.encode())
            found.update(b"\0")
    return found.hexdigest()


def values_digest(values: Any) -> str:
    """The SHA-256 of tensors and plain values in any nesting of tuples, lists and dicts."""
    found = hashlib.sha256()
    for leaf in tree_leaves(values):
        found.update(f"{_described(leaf, values=True)}\0".encode())
    return found.hexdigest()


def _texts(program: ExportedProgram, *, values: bool) -> Iterable[str]:
    for path, module in program.graph_module.named_modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        yield path
        for node in module.graph.nodes:
            value = node.meta.get("val")
            shapes = [f"{item.dtype}{tuple(item.shape)}" for item in tree_leaves(value) if hasattr(item, "dtype")]
            yield f"{node.format_node()} {shapes}"
            if node.op == "get_attr":
                yield _described(getattr(module, str(node.target)), values=values)
    yield str(program.graph_signature)
    yield str(sorted((str(key), str(value)) for key, value in program.range_constraints.items()))
    for name, value in (*program.state_dict.items(), *program.constants.items()):
        yield f"{name} {_described(value, values=values)}"
    for leaf in tree_leaves(program.example_inputs):
        yield _described(leaf, values=values)


def _described(value: Any, *, values: bool) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{tuple(value.shape)} {content_key(value) if values else ''}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, str | int | float | bool) else type(value).__name__
