"""Read-only views for checking and lowering: a program's graph, its operator calls, and their operands.

The same view serves the graph of an exported program and the edge dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, final, runtime_checkable

from ._nodes import argument, argument_names, describe_node, operator_name, source_line
from ._quantization import DEQUANTIZE, DEQUANTIZE_TABLES, QUANTIZE, Quantization, read_quantization

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Graph, Node


@dataclass(frozen=True)
class MutableState:
    """A buffer that a program updates: its name in the module, its initial value and the node of its new value."""

    name: str
    initial: torch.Tensor
    updated: Node


@runtime_checkable
class _Releasable(Protocol):
    """Constants, some of which are computed when they are first read."""

    def release(self, key: Node) -> bool: ...


@dataclass(frozen=True)
class ProgramView:
    """A graph in the edge dialect and the sources of its inputs.

    The graph is functional: views are `*_copy`, nothing mutates, and each node's `meta["val"]` is a FakeTensor (or a
    number, or a tuple of these) of which only sizes and dtype are valid: every value is dense and contiguous.

    A size that changes from call to call is a torch.SymInt in a value's shape; where an operator gets such a size as
    an argument, the argument is a node (`aten.sym_size.int`, or arithmetic on these) whose value is the SymInt: `Call`
    gives the SymInt. Do not compare SymInts with Python's operators, which would fix them to the example's size.

    `for call in view.calls():` walks over the operators; `Call(node, view)` reads one.
    """

    graph: Graph
    #: Placeholders with values known at lowering time (parameters, buffers that are not written, lifted constants).
    constants: Mapping[Node, torch.Tensor]
    #: Placeholders that the caller fills, in calling order.
    inputs: tuple[Node, ...]
    #: The nodes returned, in order; None for an output that is not a node. In a partition they are distinct nodes that
    #: it computes: never an input, a constant, or the same node twice.
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

    def release(self, node: Node) -> bool:
        """Declare that a constant was read and written elsewhere in another form: its memory may be reused.

        Returns whether it was computed for the partition (a weight with a batch norm folded into it) and is freed:
        from now on another tensor may have its address, and a later read gets a new tensor with the same
        elements. All other constants belong to the user's model and stay where they are. Calling this is never needed:
        what is not released stays in memory as long as the view.
        """
        constants = self.constants
        return isinstance(constants, _Releasable) and constants.release(node)

    def is_constant(self, node: Any) -> bool:
        """True if the node is a placeholder with a value known at lowering time."""
        return node in self.constants

    def calls(self) -> Iterator[Call]:
        """The operator calls in execution order.

        Nodes that only compute sizes, and `getitem` (which picks one of `Call.results`), are left out. An operator that
        reads a number out of a tensor (`aten._local_scalar_dense.default`) is a call without results.
        """
        for node in self.graph.nodes:
            if node.op == "call_function" and not _computes_size(node) and operator_name(node) != "getitem":
                yield Call(node, self)

    def operand(self, node: Node) -> Operand:
        """The operand of a node's tensor: an input, a constant, or a result."""
        return Operand(node, self)


@final
class Operand:
    """A tensor that a call reads or makes, with what is known at lowering time.

    Two operands are equal if they are the same value of the same graph: they may be keys of a dict.
    """

    __slots__ = ("_shape", "index", "node", "program")

    def __init__(self, node: Node, program: ProgramView, index: int | None = None) -> None:
        #: The node that has the value.
        self.node: Final = node
        self.program: Final = program
        #: The index among the node's results, if the node has several; else None.
        self.index: Final = index
        self._shape: tuple[Any, ...] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operand) and self.node is other.node and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.node, self.index))

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype_name}{list(self.shape)}"

    @property
    def name(self) -> str:
        """The node's name in the graph, for messages."""
        return self.node.name

    @property
    def description(self) -> str:
        """As `Call.description`, of the call that makes it; "placeholder (x)" for an input or a constant."""
        return describe_node(self.node)

    @property
    def value(self) -> Any:
        """The FakeTensor, of which only shape and dtype are valid."""
        found = self.node.meta["val"]
        return found if self.index is None else found[self.index]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes: an int each, or a torch.SymInt where it changes from call to call."""
        if self._shape is None:
            self._shape = tuple(self.value.shape)
        return self._shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the elements."""
        found: torch.dtype = self.value.dtype
        return found

    @property
    def dtype_name(self) -> str:
        """torch's name of the dtype: "float32"."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def is_dynamic(self) -> bool:
        """True if a size changes from call to call."""
        return any(not isinstance(size, int) for size in self.shape)

    @property
    def constant(self) -> torch.Tensor | None:
        """The elements, where they are known at lowering time (their own storage, not a copy); else None."""
        return self.program.constant(self.node)

    @property
    def is_constant(self) -> bool:
        """True if the elements are known at lowering time."""
        return self.program.is_constant(self.node)

    @property
    def is_known(self) -> bool:
        """True if it is a constant, or dequantized from constant integers, or looked up in constant tables."""
        integers, maker = self.integers, self.producer
        if maker is not None and maker.operator == DEQUANTIZE_TABLES:
            return all(operand.is_constant for operand in maker.operands)
        return self.is_constant or (integers is not None and integers.is_constant and self.quantization is not None)

    @property
    def producer(self) -> Call | None:
        """The call that makes it; None for an input or a constant."""
        return Call(self.node, self.program) if self.node.op == "call_function" else None

    @property
    def users(self) -> tuple[Call, ...]:
        """The calls that read it, in graph order; being returned by the program is not a call."""
        return tuple(Call(user, self.program) for user in self.node.users if user.op == "call_function")

    @property
    def integers(self) -> Operand | None:
        """The integers from which a static dequantize makes this operand; None if no dequantize makes it."""
        if operator_name(self.node) not in DEQUANTIZE:
            return None
        found = Call(self.node, self.program)["input"]
        return found if isinstance(found, Operand) else None

    @property
    def quantization(self) -> Quantization | None:
        """The quantization of its integers.

        That of the dequantize that makes it, or of the quantize calls that read it, if nothing else does and they
        agree. None where it is not quantized or where the parameters are computed while the program runs.
        """
        if operator_name(self.node) in DEQUANTIZE:
            return read_quantization(Call(self.node, self.program))
        users = tuple(self.node.users)
        if not users or any(operator_name(user) not in QUANTIZE for user in users):
            return None
        first = read_quantization(Call(users[0], self.program))
        same = all(read_quantization(Call(user, self.program)) == first for user in users[1:])
        return first if same else None


@final
class Call:
    """One operator call, read-only: `call["dilation"]` is an argument by its name in the schema.

    Arguments have their defaults filled in. A tensor is an `Operand`, a list of tensors a tuple of `Operand` (or None
    where an index is left out); a size that the program computes is a torch.SymInt; everything else is as
    written. Works on exported graphs and edge programs alike, and is evaluated lazily. Operands
    and results are looked up once: after a change of the graph, take a new Call.
    """

    __slots__ = ("_operands", "_results", "node", "program")

    def __init__(self, node: Node, program: ProgramView) -> None:
        #: The call_function node.
        self.node: Final = node
        self.program: Final = program
        self._operands: tuple[Operand, ...] | None = None
        self._results: tuple[Operand, ...] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self.node is other.node

    def __hash__(self) -> int:
        return hash(self.node)

    def __repr__(self) -> str:
        return self.description

    @property
    def operator(self) -> str:
        """The operator's name: "aten.add.Tensor"; "getitem" or "mul" for a Python function."""
        return operator_name(self.node)

    def __getitem__(self, name: str) -> Any:
        """The argument called `name` in the operator's schema. Raises KeyError if the operator has none."""
        return self._resolved(argument(self.node, name))

    def get(self, name: str, default: Any = None) -> Any:
        """The argument called `name`, or `default` if the operator has none of that name."""
        return self[name] if self.has(name) else default

    def has(self, name: str) -> bool:
        """True if the operator has an argument called `name`."""
        return name in argument_names(self.node)

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments by their names in the schema, in its order; empty for functions without a schema."""
        return {name: self[name] for name in argument_names(self.node)}

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The tensors that it reads, each once, in order of first use."""
        if self._operands is None:
            program = self.program
            self._operands = tuple(Operand(node, program) for node in self.node.all_input_nodes if not _is_number(node))
        return self._operands

    @property
    def sizes(self) -> tuple[Node, ...]:
        """The nodes among its arguments that compute numbers from sizes, each once."""
        return tuple(node for node in self.node.all_input_nodes if _is_number(node))

    @property
    def results(self) -> tuple[Operand, ...]:
        """The tensors that it makes: one, or one for each result of an operator with several."""
        if self._results is None:
            value: Any = self.node.meta.get("val")
            several = isinstance(value, tuple | list)
            self._results = tuple(
                Operand(self.node, self.program, index if several else None)
                for index, item in enumerate(value if several else (value,))
                if hasattr(item, "dtype")
            )
        return self._results

    @property
    def result(self) -> Operand:
        """The one tensor that it makes. Raises ValueError if it makes several, or none."""
        (found,) = self.results
        return found

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """All operands, followed by all results."""
        return (*self.operands, *self.results)

    @property
    def users(self) -> tuple[Call, ...]:
        """The calls that read a result, in graph order; `getitem` counts as one."""
        return tuple(Call(user, self.program) for user in self.node.users if user.op == "call_function")

    @property
    def is_dynamic(self) -> bool:
        """True if an operand or a result has a size that changes from call to call."""
        return any(operand.is_dynamic for operand in self.tensors) or bool(self.sizes)

    @property
    def quantization(self) -> Quantization | None:
        """The parameters of a static quantize or dequantize; None for other calls and for computed parameters."""
        return read_quantization(self)

    @property
    def debug_handle(self) -> int | None:
        """Position of the exported node that it comes from, counted from 1; None where it was not recorded."""
        return self.node.meta.get("debug_handle")

    @property
    def description(self) -> str:
        """ "aten.add.Tensor (add_3) in layers.0.mlp at model.py:12: `x = a + b`", as far as the export recorded it."""
        return describe_node(self.node)

    @property
    def source_line(self) -> str | None:
        """The user's innermost source line, "model.py:12: `x = a + b`"; None where it was not recorded."""
        return source_line(self.node)

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(self._resolved(item) for item in value)
        if not hasattr(value, "op"):
            return value
        return value.meta["val"] if _is_number(value) else Operand(value, self.program)


def _computes_size(node: Node) -> bool:
    """True if a call_function node computes a number from shapes or from such numbers."""
    return _is_number(node) and (not argument_names(node) or operator_name(node).startswith("aten.sym_"))


def _is_number(node: Node) -> bool:
    """True if a node's value is a number: a size, or arithmetic on sizes."""
    value = node.meta.get("val")
    return value is not None and not hasattr(value, "dtype") and not isinstance(value, tuple | list)
