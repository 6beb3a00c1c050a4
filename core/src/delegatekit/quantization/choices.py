"""The layers that the user keeps in float."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch.fx import Node

from delegatekit_api import LoweringError, QuantizationError

from ..partition.selectors import Choice, listed, module_paths, operator_names


@dataclass
class KeptInFloat:
    """Returns the reason why a node stays in float, or None. Called once with each node of the graph."""

    selectors: Sequence[str | Callable[[Node], bool]]
    nodes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self._choices: tuple[Choice, ...] = listed("keep_float", self.selectors)
        except LoweringError as error:
            raise QuantizationError(error.what, hint=error.hint) from None
        self._seen: set[Node] = set()
        self._names: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._choices or self.nodes)

    def __call__(self, node: Node) -> str | None:
        """The reason why the node stays in float."""
        if node not in self._seen:
            self._seen.add(node)
            self._names.update((*operator_names(node), *module_paths(node)))
            for choice in self._choices:
                choice.look_at([node])
        for choice in self._choices:
            if node in choice.nodes:
                return choice.reason if choice.may_miss else f"kept by {choice.text}"
        return self.nodes.get(node.name)

    def with_nodes(self, reasons: Mapping[str, str]) -> KeptInFloat:
        """The same choices, and nodes by name with their reasons."""
        return KeptInFloat(self.selectors, {**self.nodes, **reasons})

    def check(self) -> None:
        """Raise QuantizationError for a selector that matches nothing, or both modules and operators."""
        try:
            for choice in self._choices:
                choice.check(self._names)
        except LoweringError as error:
            hint = error.hint if error.hint and "explain" not in error.hint else "see the layers in the report"
            raise QuantizationError(error.what, hint=hint) from None
