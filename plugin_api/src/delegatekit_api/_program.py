"""A read-only view of a program's graph: what backends ask while they check and lower nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Graph, Node


def operator_name(node: Node) -> str:
    """The name of a call_function node's operator: "aten.add.Tensor", "getitem"; for other nodes the node kind."""
    if node.op != "call_function":
        return node.op
    target: Any = node.target
    # An OpOverload's str is its qualified name; a Python function has only __name__.
    return str(target) if hasattr(target, "_schema") else str(getattr(target, "__name__", target))


_MISSING: Final = object()


def argument(node: Node, name: str) -> Any:
    """The value of an operator's argument, by its name in the schema: positional, by keyword, or the default.

    Raises KeyError if the operator has no argument of that name.
    """
    position, default = _parameters(node.target)[name]
    if position is not None and position < len(node.args):
        return node.args[position]
    value = node.kwargs.get(name, default)
    if value is _MISSING:
        raise KeyError(f"{node.target} needs {name}")
    return value


def axes_of(dims: Any, rank: int) -> tuple[int, ...]:
    """Dimensions counted from the front, ascending; None, an empty list, and a single number are understood."""
    if isinstance(dims, int):
        dims = [dims]
    if rank == 0:  # PyTorch lets it have an axis 0
        return ()
    return tuple(sorted({dim % rank for dim in dims})) if dims else tuple(range(rank))


def per_axis(setting: Any, axes: int, default: int | None = None) -> tuple[int, ...]:
    """A window setting for each spatial axis: PyTorch allows one number for all, and nothing for the default."""
    values = [setting] if isinstance(setting, int) else list(setting or ())
    if not values and default is not None:
        values = [default]
    return tuple(values * axes if len(values) == 1 else values)


@cache
def _parameters(target: Any) -> dict[str, tuple[int | None, Any]]:
    """Argument name -> position (None for keyword-only) and default."""
    return {
        parameter.name: (
            None if parameter.kwarg_only else position,
            parameter.default_value if parameter.has_default_value() else _MISSING,
        )
        for position, parameter in enumerate(target._schema.arguments)
    }


@dataclass(frozen=True)
class MutableState:
    """A buffer that a program updates: its name in the module, its initial value and the node of its new value."""

    name: str
    initial: torch.Tensor
    updated: Node


@dataclass(frozen=True)
class ProgramView:
    """A graph in the edge dialect and where its inputs come from.

    The graph is functional: views are `*_copy`, nothing mutates, and each node's `meta["val"]` is a FakeTensor (or a
    number, or a tuple of these) of which only sizes and dtype count: every value is dense and contiguous.

    A size that changes from call to call is a torch.SymInt in a value's shape; where an operator gets such a size as
    an argument, the argument is a node (`aten.sym_size.int`, or arithmetic on these) whose value is the SymInt. Do not
    compare SymInts with Python's operators, which would fix them to the example's size: see `is_dynamic`.
    """

    graph: Graph
    #: Placeholders whose value is known at lowering time (parameters, buffers that nobody writes, lifted constants).
    constants: Mapping[Node, torch.Tensor]
    #: Placeholders that the caller fills, in calling order.
    inputs: tuple[Node, ...]
    #: The nodes returned, in order; None for an output that is not a node.
    outputs: tuple[Node | None, ...]
    #: Name of the method that the graph belongs to.
    method: str = "forward"
    #: Placeholders of buffers that the program updates, and the nodes of their new values. In a partition: the state
    #: that the delegate owns (see `BackendDescription.owns_state`).
    buffers: Mapping[Node, MutableState] = field(default_factory=dict)

    @classmethod
    def of(cls, program: ExportedProgram, method: str = "forward") -> ProgramView:
        """The view of an ExportedProgram whose parameters, buffers and constants are lifted to placeholders."""
        from torch.export.graph_signature import InputKind

        constants: dict[Node, torch.Tensor] = {}
        inputs: list[Node] = []
        mutated = set(program.graph_signature.buffers_to_mutate.values())
        placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
        for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
            target = spec.target
            if spec.kind == InputKind.USER_INPUT:
                inputs.append(node)
            elif target is not None and target not in mutated:
                state: Mapping[str, Any] = program.state_dict
                value = state[target] if target in state else program.constants[target]
                constants[node] = value
        output = next(node for node in reversed(program.graph.nodes) if node.op == "output")
        outputs = tuple(item if hasattr(item, "op") else None for item in output.args[0])
        return cls(program.graph, constants, tuple(inputs), outputs, method)

    def constant(self, node: Any) -> torch.Tensor | None:
        """The value of a constant placeholder (its own storage, not a copy); None for everything else."""
        return self.constants.get(node)

    def is_constant(self, node: Any) -> bool:
        """Whether the node is a placeholder with a value known at lowering time."""
        return node in self.constants


def is_dynamic(value: Any) -> bool:
    """Whether a value (a fake tensor, a number or a tuple of these) has a size that changes from call to call."""
    if isinstance(value, tuple | list):
        return any(map(is_dynamic, value))
    if hasattr(value, "shape"):
        return not all(isinstance(size, int) for size in value.shape)
    return not isinstance(value, bool | int | float | str | None)


def dynamic_operand(node: Node) -> str | None:
    """The first operand or result of `node` with a size that changes from call to call, in words; None if all stay."""
    for operand in (*node.all_input_nodes, node):
        value: Any = operand.meta.get("val")
        if is_dynamic(value):
            sizes = f" {tuple(value.shape)}" if hasattr(value, "shape") else ""
            return f"{operand.name}{sizes}"
    return None


def describe_node(node: Node) -> str:
    """ "aten.add.Tensor (add_3) in layers.0.mlp at model.py:12: `x = a + b`", as far as the export recorded it."""
    text = f"{operator_name(node)} ({node.name})"
    stack = node.meta.get("nn_module_stack")
    if stack:
        path = str(next(reversed(stack.values()))[0])
        text += f" in {path or 'the top module'}"
    location = source_line(node)
    return text if location is None else f"{text} at {location}"


def source_line(node: Node) -> str | None:
    """The user's innermost source line, "file.py:12: `code`", from the trace that torch.export recorded.

    Frames inside torch itself (nn.Linear.forward) and in generated code are passed over if there is any other.
    """
    frames = source_frames(node)
    if not frames:
        return None
    users = [frame for frame in frames if "/torch/" not in frame.path and not frame.path.startswith("<")]
    frame = (users or frames)[-1]
    return f"{frame.path}:{frame.line}" + (f": `{frame.code}`" if frame.code else "")


@dataclass(frozen=True)
class SourceFrame:
    """A place in the user's program: file, line (counted from 1), function and the line's text, as far as known."""

    path: str
    line: int
    function: str
    code: str


def source_frames(node: Node) -> tuple[SourceFrame, ...]:
    """The calls that led to the node, outermost first, from the trace that torch.export recorded."""
    trace = str(node.meta.get("stack_trace") or node.stack_trace or "")
    # A frame whose source is unknown has no second line.
    found = re.findall(r'^ *File "(.*?)", line (\d+)(?:, in (\S+))?.*\n?((?! *File ").*)$', trace, re.MULTILINE)
    return tuple(SourceFrame(path, int(line), function, code.strip()) for path, line, function, code in found)
