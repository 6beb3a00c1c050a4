"""A backend's verdicts about calls, and the partitioner protocols."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final, runtime_checkable

from ._program import Call, ProgramView

if TYPE_CHECKING:
    from torch.fx import Node


@final
@dataclass(frozen=True)
class Verdict:
    """A backend's answer about one node.

    A refusal always has a reason in words. A `passenger` is taken only together with a node that is not one: a
    reshape alone is not worth a delegate call. `group` names further nodes to take or refuse with this one (the
    quantize and dequantize around an operator).
    """

    supported: bool
    reason: str = ""
    passenger: bool = False
    group: tuple[Node, ...] = ()

    @classmethod
    def yes(cls, *, passenger: bool = False, group: Iterable[Node] = ()) -> Verdict:
        """The backend takes the node."""
        return cls(True, passenger=passenger, group=tuple(group))

    @classmethod
    def no(cls, reason: str) -> Verdict:
        """The backend leaves the node, because of `reason` (not empty)."""
        if not reason:
            raise ValueError("a refusal needs a reason")
        return cls(False, reason)


class Partitioner(Protocol):
    """Answers about nodes; core forms the partitions."""

    def keep_operators(self) -> Collection[str]:
        """Names of operators ("aten.gelu.default") that core should not decompose."""
        ...

    def check(self, call: Call) -> Verdict:
        """The verdict on a call of the edge program. Must not change anything."""
        ...

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]] | None:
        """Partitions of the backend's own choice, which core checks; None leaves the grouping to core.

        Of one that has nodes which the backend does not get (another takes them, or the user leaves them out), core
        groups the rest.
        """
        ...


@runtime_checkable
class StatePartitioner(Partitioner, Protocol):
    """A partitioner of a backend with `owns_state` that decides for each buffer whether a delegate keeps it.

    Optional: without it, delegates keep all buffers that they can.
    """

    def state_reason(self, program: ProgramView, buffer: Node) -> str | None:
        """The reason why a delegate cannot keep a buffer of `program.buffers`; None if it can.

        Asked about buffers that only one partition of the backend, and no other method, reads and updates.
        """
        ...


@runtime_checkable
class ConstantPartitioner(Partitioner, Protocol):
    """A partitioner of a backend whose delegates get some constants as inputs.

    Optional: without it, all constants that a partition reads are compiled into its delegate. Since API version 2.4.
    """

    def constant_is_input(self, program: ProgramView, constant: Node) -> bool:
        """True if delegates get a constant of `program.constants` at each call; False if it is compiled into them.

        In the partition's program it is an input then, whose elements are not known. Must be the same for equal
        programs.
        """
        ...


@runtime_checkable
class IntegerPartitioner(Partitioner, Protocol):
    """A partitioner of a backend that may compute some quantized layers in float.

    Optional: without it, what is taken between a dequantize and a quantize counts as computed on integers.
    """

    def float_reason(self, layer: Sequence[Call]) -> str | None:
        """The reason why a layer would be computed in float; None if it is computed on integers.

        `layer` are calls that the backend takes, in graph order: the dequantizes of the operands, operators, and the
        quantizes of the results. `quantize` asks this, and leaves the layer in float: quantizing it would gain nothing.
        """
        ...
