"""Rules by operator: a family for each file, and the table that merges the families explicitly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from torch._ops import OpOverload

from ..builder import Check, Rule

#: An operator, or the name of one that another package registers ("quantized_decomposed.quantize_per_tensor.default").
Key: TypeAlias = OpOverload | str

_Function = TypeVar("_Function", Rule, Check)


class Family:
    """The rules and checks of one file.

    `@FAMILY.rule(aten.t.default)` adds a function for operators. Raises ValueError for an operator that has one
    already. Nothing else happens when the file is imported: a table is made of families by naming them.
    """

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.rules: Final[dict[Key, Rule]] = {}
        self.checks: Final[dict[Key, Check]] = {}
        #: The operators whose rule in an earlier family this one replaces.
        self.replaces: Final[set[Key]] = set()

    def rule(self, *targets: Key, replaces: bool = False) -> Callable[[Rule], Rule]:
        """Add a rewrite rule for operators; `replaces` declares that an earlier family has one for each of them."""

        def register(function: Rule) -> Rule:
            for target in targets:
                self._add(self.rules, target, function)
                if replaces:
                    self.replaces.add(target)
            return function

        return register

    def check(self, *targets: Key) -> Callable[[Check], Check]:
        """Add a check, which runs before rules and may refuse the call."""

        def register(function: Check) -> Check:
            for target in targets:
                self._add(self.checks, target, function)
            return function

        return register

    def _add(self, known: dict[Key, _Function], target: Key, function: _Function) -> None:
        if target in known:
            raise ValueError(f"the family {self.name} has two functions for {target}")
        known[target] = function


class RuleTable:
    """The rules of several families, and of those for operators on complex numbers, which take precedence.

    Raises ValueError if two families have a rule for the same operator and the later one does not declare that it
    replaces the other, or if it declares so and there is nothing to replace.
    """

    def __init__(self, families: Iterable[Family], complex_numbers: Iterable[Family] = ()) -> None:
        self.families: Final = tuple(families)
        self.complex_numbers: Final = tuple(complex_numbers)
        self._complex_rules = {target: rule for family in self.complex_numbers for target, rule in family.rules.items()}
        self._rules: dict[Key, Rule] = {}
        self._checks: dict[Key, Check] = {}
        self._by_name: dict[OpOverload, Rule | None] = {}
        home: dict[Key, str] = {}
        for family in self.families:
            for target, rule in family.rules.items():
                if target in self._rules and target not in family.replaces:
                    raise ValueError(f"the families {home[target]} and {family.name} both have a rule for {target}")
                if target in family.replaces and target not in self._rules:
                    raise ValueError(f"the family {family.name} replaces a rule for {target}, but there is none")
                self._rules[target], home[target] = rule, family.name
            for target, check in family.checks.items():
                if target in self._checks:
                    raise ValueError(f"the family {family.name} has a second check for {target}")
                self._checks[target] = check

    def rule(self, target: OpOverload) -> Rule | None:
        """The rule for an operator; None if it has none."""
        found = self._rules.get(target)
        if found is not None:
            return found
        if target not in self._by_name:
            self._by_name[target] = self._rules.get(str(target))
        return self._by_name[target]

    def check(self, target: OpOverload) -> Check | None:
        """The check for an operator; None if it has none."""
        return self._checks.get(target) or self._checks.get(str(target))

    def complex_rule(self, target: OpOverload) -> Rule | None:
        """The rule for an operator on complex numbers, or one that makes them; None if it has none."""
        return self._complex_rules.get(target)

    def extended(self, *families: Family) -> RuleTable:
        """The table with further families."""
        return RuleTable((*self.families, *families), self.complex_numbers)
