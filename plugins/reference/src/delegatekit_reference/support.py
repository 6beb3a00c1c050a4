"""Which nodes the backend takes: listed operators on dense CPU tensors of the usual dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from delegatekit_api import Call, OperatorSupport, ProgramView, SupportTable, TablePartitioner, Verdict, operator_name

from .graph import DTYPES
from .operators import PLAIN, UNDEFINED, VIEWS, WHOLE

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch.fx import Node

    from delegatekit_api import Constraint

    from .options import ReferenceOptions

_DTYPES: Final = frozenset(getattr(torch, name) for name in DTYPES)


def usual_tensors(node: Node, program: ProgramView) -> str | None:
    """Values are dense CPU tensors of floats, integers of at most 64 bits, or bools; not complex, not quantized."""
    for operand in (*node.all_input_nodes, node):
        value = operand.meta.get("val")
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, torch.Tensor):
                if item.dtype not in _DTYPES:
                    return f"{operand.name} is {item.dtype}: floats, signed integers, uint8 and bool are taken"
                if item.device.type not in ("cpu", "meta") or item.layout != torch.strided:
                    return f"{operand.name} is {item.layout} on {item.device}: dense CPU tensors are taken"
    return None


def tensor_results(node: Node, program: ProgramView) -> str | None:
    """All results are tensors."""
    value = node.meta.get("val")
    for item in value if isinstance(value, tuple | list) else (value,):
        if not isinstance(item, torch.Tensor) and item is not None:
            return f"its result is a {type(item).__name__}: a delegate returns tensors"
    return None


def plain_arguments(node: Node, program: ProgramView) -> str | None:
    """Arguments are tensors, numbers, strings, dtypes, lists of these; the device is the CPU, the layout strided."""
    return next(filter(None, map(_unwritable, (*node.args, *node.kwargs.values()))), None)


def _unwritable(argument: Any) -> str | None:
    """Why an argument cannot be written down; None if it can."""
    if isinstance(argument, list | tuple):
        return next(filter(None, map(_unwritable, argument)), None)
    if isinstance(argument, torch.device):
        return None if argument.type == "cpu" else f"is asked for on device {argument}"
    if isinstance(argument, torch.layout):
        return None if argument == torch.strided else f"is asked for as {argument}"
    if isinstance(argument, torch.dtype):
        return None if argument in _DTYPES else f"an argument is {argument}: floats, signed integers, uint8 and bool"
    written = (bool, int, float, str, torch.memory_format, torch.fx.Node)
    return None if argument is None or isinstance(argument, written) else f"an argument is {argument!r:.60}"


def _argument(node: Node, name: str) -> Any:
    """The value of an argument of the operator's schema, its default if it is not given."""
    for position, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.name == name:
            if position < len(node.args):
                return node.args[position]
            return node.kwargs.get(name, argument.default_value)
    raise KeyError(name)


def not_training(node: Node, program: ProgramView) -> str | None:
    """In evaluation mode: in training it updates its statistics."""
    return "in training mode it updates its statistics: call model.eval()" if _argument(node, "training") else None


def no_running_statistics(node: Node, program: ProgramView) -> str | None:
    """Either from the statistics of its input, or from given ones; not both, which would update them."""
    if _argument(node, "use_input_stats") and _argument(node, "running_mean") is not None:
        return "it updates its running statistics: call model.eval()"
    return None


def no_dropout(node: Node, program: ProgramView) -> str | None:
    """Without dropout."""
    return "dropout is random: call model.eval()" if _argument(node, "dropout_p") else None


def no_recurrent_dropout(node: Node, program: ProgramView) -> str | None:
    """Without dropout between layers, or in evaluation mode."""
    return "dropout is random: call model.eval()" if _argument(node, "train") and _argument(node, "dropout") else None


def no_masks(node: Node, program: ProgramView) -> str | None:
    """Indices are numbers: how many elements a mask selects depends on its values."""
    for index in _argument(node, "indices"):
        if index is not None and index.meta["val"].dtype in (torch.bool, torch.uint8):
            return f"{index.name} is a mask: the size of the result depends on its values"
    return None


_CONSTRAINTS: Final[dict[str, tuple[Constraint, ...]]] = {
    "aten.index.Tensor": (no_masks,),
    "aten._unsafe_index.Tensor": (no_masks,),
    "aten.batch_norm.default": (not_training,),
    "aten.native_batch_norm.default": (not_training,),
    "aten.instance_norm.default": (no_running_statistics,),
    "aten.scaled_dot_product_attention.default": (no_dropout,),
    "aten.lstm.input": (no_recurrent_dropout,),
    "aten.gru.input": (no_recurrent_dropout,),
    "aten.rnn_tanh.input": (no_recurrent_dropout,),
    "aten.rnn_relu.input": (no_recurrent_dropout,),
}

#: All operators that the backend takes.
TABLE: Final = SupportTable(
    [
        OperatorSupport(name, _CONSTRAINTS.get(name, ()), keep=name in WHOLE, passenger=name in VIEWS)
        for name in sorted(VIEWS | WHOLE | PLAIN)
    ],
    common=(usual_tensors, tensor_results, plain_arguments),
)


class ReferencePartitioner(TablePartitioner):
    """The table's verdicts; of operators that are not in it, the schema says why."""

    def __init__(self, options: ReferenceOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out)
        self._decompose: Final = options.decompose

    def keep_operators(self) -> Collection[str]:
        """The operators that PyTorch computes in one piece; none if the user wants pieces."""
        return frozenset() if self._decompose else super().keep_operators()

    def check(self, call: Call) -> Verdict:
        """Whether the backend takes the node."""
        node, program = call.node, call.program
        if call.operator not in TABLE:
            return Verdict.no(usual_tensors(node, program) or _why_not(node))
        return super().check(call)


def _why_not(node: Node) -> str:
    """Why an operator that is not in the table is not."""
    name, target = operator_name(node), node.target
    if name in UNDEFINED:
        return f"{name}: its elements are not defined"
    if not isinstance(target, torch._ops.OpOverload):
        return f"{name} is no operator"
    if target.namespace != "aten":
        return f"{name} is not an ATen operator"
    schema = target._schema
    if torch.Tag.nondeterministic_seeded in target.tags:
        return f"{name} is random"
    if schema.is_mutable:
        return f"{name} writes into its input"
    if any(result.alias_info is not None for result in schema.returns):
        return f"{name} returns a view of its input: only its copying form is taken"
    if {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(target.tags):
        return f"what {name} returns depends on the values in its input"
    return f"{name} is not in the backend's list of operators"
