"""The plan of a method as one backend sees it, and the protocol of partitioners that may refuse it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, final, runtime_checkable

from ._nodes import describe_node
from ._partitioner import Partitioner

if TYPE_CHECKING:
    from torch.fx import Node

#: The number of nodes that a message names.
_NAMED: Final = 5


@final
@dataclass(frozen=True)
class MethodPlan:
    """The partitioning of a method as one backend sees it, after every node is assigned."""

    method: str
    #: Number of the backend's delegates, those in graphs of control flow included.
    delegates: int
    #: The operators outside these delegates, in the order of execution -> reason.
    outside: Mapping[Node, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """True if the method is one delegate of the backend and nothing else."""
        return self.delegates == 1 and not self.outside

    @property
    def left(self) -> str:
        """The operators outside, as text: "2 operators: aten.sort.default (sort): it has no row; ..."; "" if none."""
        if not self.outside:
            return ""
        named = "; ".join(f"{describe_node(node)}: {why}" for node, why in list(self.outside.items())[:_NAMED])
        count = len(self.outside)
        more = f" (and {count - _NAMED} more)" if count > _NAMED else ""
        return f"{count} operator{'s' if count > 1 else ''}: {named}{more}"


@runtime_checkable
class PlanPartitioner(Partitioner, Protocol):
    """A partitioner of a backend that may refuse a method because of its plan.

    Optional: without it, every plan is lowered.
    """

    def plan_reason(self, plan: MethodPlan) -> str | None:
        """The reason why a method must not be lowered as planned; None if it may.

        Asked once for each method, before anything is compiled: `lower` raises the reason as an UnsupportedError,
        `explain` shows it.
        """
        ...
