"""Operators that are taken out of a backend's delegates, and the identity of an operator in several plannings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from torch.fx import Node

from delegatekit_api.nodes import describe_node, operator_name

#: An operator, the same in each planning of a program: its node's name, exported node, and kind.
Identity: TypeAlias = tuple[str, object, str]


def identity(node: Node) -> Identity:
    """The operator that a node is."""
    return node.name, node.meta.get("debug_handle"), operator_name(node)


@dataclass(frozen=True)
class TakenOut:
    """An operator that a backend's partitioner takes and its compiler does not compile."""

    backend: str
    method: str
    #: The operator, its name in the edge program, module and source line, as far as the export recorded them.
    operator: str
    #: The compiler's error.
    error: str
    #: True if the compiler's error named it; otherwise it was found by compiling parts.
    named: bool
    #: The operator without which it compiles, if there is one: the compiler fails at both together.
    beside: str = ""

    @property
    def reason(self) -> str:
        """The reason, as reports have it."""
        at = f" together with {self.beside}" if self.beside else ""
        return f"taken out: its compiler {'names it' if self.named else f'fails at it{at}'}: {self.error}"

    def __str__(self) -> str:
        return f"{self.operator} of method {self.method} is not on {self.backend}: {self.reason}"


class Skipping:
    """A selector of operators for `skip`, with the reason that reports give."""

    def __init__(self, operators: Collection[Identity], reason: str) -> None:
        self.reason = reason
        self._operators = frozenset(operators)

    def __call__(self, node: Node) -> bool:
        """True if a node is one of them."""
        return identity(node) in self._operators

    def __repr__(self) -> str:
        return f"{len(self._operators)} operators"


def place(node: Node) -> str:
    """An operator in messages."""
    return describe_node(node)
