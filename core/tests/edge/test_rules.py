"""The table of edge rules: families are merged explicitly, and rules read arguments by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from delegatekit.edge.draft import Draft
from delegatekit.edge.rules import RULES, Family, RuleTable

aten = torch.ops.aten


def nothing(b: Any, call: Draft) -> Any:
    return NotImplemented


def family(name: str, *targets: Any, replaces: bool = False) -> Family:
    made = Family(name)
    made.rule(*targets, replaces=replaces)(nothing)
    return made


def test_a_rule_that_overwrites_another_must_say_so() -> None:
    first = family("first", aten.sin.default)
    with pytest.raises(ValueError, match=r"families first and second both have a rule for aten\.sin\.default"):
        RuleTable((first, family("second", aten.sin.default)))
    second = Family("second")
    other = second.rule(aten.sin.default, replaces=True)(lambda b, call: None)
    assert RuleTable((first, second)).rule(aten.sin.default) is other


def test_a_rule_that_replaces_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"late replaces a rule for aten\.sin\.default, but there is none"):
        RuleTable((family("late", aten.sin.default, replaces=True),))


def test_a_family_has_one_rule_and_one_check_for_an_operator() -> None:
    made = family("made", aten.sin.default)
    with pytest.raises(ValueError, match=r"made has two functions for aten\.sin\.default"):
        made.rule(aten.cos.default, aten.sin.default)(nothing)
    made.check(aten.sin.default)(nothing)
    with pytest.raises(ValueError, match="two functions"):
        made.check(aten.sin.default)(nothing)
    with pytest.raises(ValueError, match=r"second check for aten\.sin\.default"):
        checked = Family("checked")
        checked.check(aten.sin.default)(nothing)
        RuleTable((made, checked))


def test_extending_a_table_leaves_it_as_it_was() -> None:
    assert RULES.rule(aten.sin.default) is None
    assert RULES.extended(family("more", aten.sin.default)).rule(aten.sin.default) is nothing
    assert RULES.rule(aten.sin.default) is None


def test_a_rule_may_be_for_an_operator_that_is_registered_later() -> None:
    table = RuleTable((family("late", "delegatekit_rule_test.later.default"),))
    library = torch.library.Library("delegatekit_rule_test", "DEF")
    library.define("later(Tensor self) -> Tensor")
    assert table.rule(torch.ops.delegatekit_rule_test.later.default) is nothing
    assert table.rule(aten.sin.default) is None


def test_every_family_is_a_file_of_the_same_name() -> None:
    from importlib import import_module

    for item in RULES.families:
        module = import_module(f"delegatekit.edge.rules.{item.name}")
        functions = {rule.__module__ for rule in item.rules.values()}
        assert functions == {module.__name__}, item.name


def test_arguments_are_read_by_name_with_defaults_filled_in() -> None:
    call = Draft(aten.slice.Tensor, ("x", 1), {"end": 5}, None)
    assert call["self", "dim", "start", "end", "step"] == ("x", 1, None, 5, 1)
    assert call["dim"] == 1 and call.get("end") == 5
    assert call.get("absent") is None and call.get("absent", 3) == 3
    with pytest.raises(KeyError, match="absent"):
        call["absent"]
    with pytest.raises(KeyError, match=r"aten\.slice\.Tensor needs self"):
        Draft(aten.slice.Tensor, (), {}, None)["self"]


def test_arguments_that_are_given_by_keyword_only_are_read_by_name() -> None:
    call = Draft(aten.add.Tensor, ("x", "y"), {"alpha": 2}, None)
    assert call["self", "other", "alpha"] == ("x", "y", 2)
    assert Draft(aten.add.Tensor, ("x", "y"), {}, None)["alpha"] == 1
