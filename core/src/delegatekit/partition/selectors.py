"""The selectors of `only` and `skip`: module paths, names of operators, functions, and the nodes that they match."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from torch.fx import Node

from delegatekit_api import LoweringError
from delegatekit_api.nodes import describe_node, operator_name

from ..errors.foreign import as_ours
from ..errors.misuse import WrongArgumentError

#: A module path with wildcards ("encoder.layers.*.attn": with everything inside), an operator ("aten.linear.default",
#: "aten.linear" or "linear"), or a predicate on nodes. "module:NAME" and "operator:NAME"
#: distinguish the two kinds of names. A function's attribute `reason` is what reports say of nodes that it
#: skips: such a function may select nothing.
Selector: TypeAlias = str | Callable[[Node], bool]


class Choice:
    """One selector of `only` or `skip`, and the nodes that it matched."""

    def __init__(self, what: str, selector: Selector) -> None:
        self.text = f"{what}={text_of(selector)}"
        reason = getattr(selector, "reason", None)
        self.may_miss, self.reason = reason is not None, reason or f"left out by {self.text}"
        self.selector = selector
        self.nodes: set[Node] = set()
        self._as_operator = self._as_module = self._different = False

    def look_at(self, nodes: Sequence[Node]) -> None:
        """Record which of these nodes match. A function is called once for each."""
        for node in nodes:
            as_operator, as_module = self._meanings(node)
            if as_operator or as_module:
                self.nodes.add(node)
            self._as_operator |= as_operator
            self._as_module |= as_module
            self._different |= as_operator != as_module

    def check(self, names: Collection[str]) -> None:
        """Raise LoweringError if nothing matched, or if the match is ambiguous."""
        if self._as_operator and self._as_module and self._different and isinstance(self.selector, str):
            raise WrongArgumentError(
                f"{self.text} is the name of operators and of a module",
                hint=f"write 'operator:{self.selector}' or 'module:{self.selector}'",
            )
        if self.nodes or self.may_miss:
            return
        wanted = self.selector.partition(":")[2] or self.selector if isinstance(self.selector, str) else ""
        near = difflib.get_close_matches(wanted, sorted(names), 3) if wanted else []
        raise WrongArgumentError(
            f"{self.text} selects no operator",
            hint=f"did you mean {', '.join(near)}?"
            if near
            else "`delegatekit explain --all` lists modules and operators: what became a constant, or was merged with "
            "an equal operator of another module, does not exist any more",
        )

    def _meanings(self, node: Node) -> tuple[bool, bool]:
        """Two flags: it matches the node by its operator, and by its module."""
        selector = self.selector
        if not isinstance(selector, str):
            with as_ours(
                lambda fault: LoweringError(f"selector {text_of(selector)} failed: {fault}", where=describe_node(node))
            ):
                meant = bool(selector(node))
            return meant, meant
        kind, _, name = selector.rpartition(":")
        as_operator = kind in ("", "operator") and name in operator_names(node)
        pattern = name.split(".")
        as_module = kind in ("", "module") and any(_matches(pattern, path.split(".")) for path in module_paths(node))
        return as_operator, as_module


def listed(what: str, selectors: Sequence[Selector]) -> tuple[Choice, ...]:
    """The selectors that the argument `what` lists. Raises LoweringError for anything but a list of selectors."""
    if isinstance(selectors, str) or callable(selectors):
        raise LoweringError(f"{what}={text_of(selectors)} is not a list", hint=f"write {what}=[{text_of(selectors)}]")
    for selector in selectors:
        if not callable(selector) and not (isinstance(selector, str) and selector):
            raise LoweringError(
                f"{what} holds {selector!r}", hint="give a module path, an operator's name or a function of a node"
            )
        if isinstance(selector, str) and selector.rpartition(":")[0] not in ("", "operator", "module"):
            raise LoweringError(f"{what} holds {selector!r}", hint="write operator: or module: before the colon")
    return tuple(Choice(what, selector) for selector in selectors)


def text_of(selector: Any) -> str:
    """A selector as text for messages."""
    return repr(selector) if isinstance(selector, str) else getattr(selector, "__name__", repr(selector))


def operator_names(node: Node) -> set[str]:
    """ "aten.linear.default", "aten.linear", "linear": of the node, and of the exported operator that it is part of."""
    found = set()
    for name in (operator_name(node), str(node.meta.get("source_operator", ""))):
        packet = name.rpartition(".")[0]
        found |= {name, packet, packet.partition(".")[2]}
    return found - {""}


def module_paths(node: Node) -> list[str]:
    """The paths of the node's module and its parents, including those that are never called (a ModuleList)."""
    found: dict[str, None] = {}
    for path, _ in (node.meta.get("nn_module_stack") or {}).values():
        parts = str(path).split(".")
        found.update(dict.fromkeys(".".join(parts[:count]) for count in range(1, len(parts) + 1)))
    found.pop("", None)
    return list(found)


def _matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """True if a path matches a pattern part by part; the part "**" matches any number of parts."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_matches(pattern[1:], path[start:]) for start in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _matches(pattern[1:], path[1:])
