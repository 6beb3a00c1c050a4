"""Reading fx nodes: operator, arguments by name, sizes, and source location."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch.fx import Node


_MISSING: Final = object()


class _Target:
    """The name and the parameters of a call_function node's target."""

    __slots__ = ("name", "parameters", "target")

    def __init__(self, target: Any) -> None:
        has_schema = hasattr(target, "_schema")
        #: Kept alive, so that its id stays unique.
        self.target = target
        # An OpOverload's str is its qualified name; a Python function has only __name__.
        self.name = str(target) if has_schema else str(getattr(target, "__name__", target))
        #: Argument name -> position (None for keyword-only) and default, in the order of the schema.
        self.parameters: dict[str, tuple[int | None, Any]] = _parameters(target._schema) if has_schema else {}


def _parameters(schema: Any) -> dict[str, tuple[int | None, Any]]:
    return {
        parameter.name: (
            None if parameter.kwarg_only else position,
            parameter.default_value if parameter.has_default_value() else _MISSING,
        )
        for position, parameter in enumerate(schema.arguments)
    }


#: By the target's id: to hash an OpOverload takes longer than to look it up.
_TARGETS: Final[dict[int, _Target]] = {}


def _known(target: Any) -> _Target:
    found = _TARGETS.get(id(target))
    if found is None:
        found = _TARGETS[id(target)] = _Target(target)
    return found


def operator_name(node: Node) -> str:
    """The name of a call_function node's operator: "aten.add.Tensor", "getitem"; for other nodes the node kind."""
    return _known(node.target).name if node.op == "call_function" else node.op


def argument_names(node: Node) -> tuple[str, ...]:
    """The names of an operator's arguments in the order of its schema; none for functions without a schema."""
    return tuple(_known(node.target).parameters)


def argument(node: Node, name: str) -> Any:
    """The value of an operator's argument, by its name in the schema: positional, by keyword, or the default.

    Raises KeyError if the operator has no argument of that name.
    """
    found = _known(node.target).parameters.get(name)
    if found is None:
        raise KeyError(f"{operator_name(node)} has no argument {name!r}")
    position, default = found
    if position is not None and position < len(node.args):
        return node.args[position]
    value = node.kwargs.get(name, default)
    if value is _MISSING:
        raise KeyError(f"{node.target} needs {name}")
    return value


def is_dynamic(value: Any) -> bool:
    """True if a value (a fake tensor, a number or a tuple of these) has a size that changes from call to call."""
    if isinstance(value, tuple | list):
        return any(map(is_dynamic, value))
    if hasattr(value, "shape"):
        return any(not isinstance(size, int) for size in value.shape)
    return not isinstance(value, bool | int | float | str | None)


def dynamic_operand(node: Node) -> str | None:
    """The first operand or result of `node` with a size that changes from call to call, in words; None if none has."""
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

    Frames inside torch itself (nn.Linear.forward) and in generated code are skipped if there is any other.
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
