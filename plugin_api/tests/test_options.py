"""Options from Python values and from the command line's strings: conversions, and errors for bad values."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegatekit_api import BackendOptions, OptionError, option


def even(value: int | None) -> str | None:
    return "must be even" if value is not None and value % 2 else None


@dataclass(frozen=True)
class Options(BackendOptions):
    fast: bool = option(False, help="Be fast.")
    level: int = option(1, help="How hard to try.", choices=(0, 1, 2))
    ratio: float = option(0.5, help="A ratio.")
    target: str = option("cpu", help="Where to.")
    limit: int | None = option(None, help="An even number, or none.", check=even)
    leave_out: tuple[str, ...] = option((), help="Operators.")
    modes: frozenset[str] = option(frozenset({"a"}), help="Modes.", choices=("a", "b", "c"))
    sizes: tuple[int, ...] | None = option(None, help="Sizes.")
    old: Optional[float] = option(None, help="As older Python writes it.")  # noqa: UP045


def make(**values: Any) -> Options:
    return Options.from_mapping(values, backend="odd")


def test_without_values_the_defaults_hold() -> None:
    assert make() == Options()
    assert BackendOptions.from_mapping({}) == BackendOptions()


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("fast", "true", True),
        ("fast", "Yes", True),
        ("fast", "1", True),
        ("fast", "FALSE", False),
        ("fast", "no", False),
        ("fast", "0", False),
        ("fast", True, True),
        ("level", "2", 2),
        ("level", 0, 0),
        ("ratio", "0.25", 0.25),
        ("ratio", "1e-3", 0.001),
        ("ratio", 2, 2.0),
        ("target", "none", "none"),
        ("target", "", ""),
        ("limit", "4", 4),
        ("limit", "None", None),
        ("limit", None, None),
        ("leave_out", "add, aten.mul ,", ("add", "aten.mul")),
        ("leave_out", "", ()),
        ("leave_out", ["add", "mul"], ("add", "mul")),
        ("modes", "b,c,b", frozenset({"b", "c"})),
        ("modes", {"c"}, frozenset({"c"})),
        ("sizes", "3,4", (3, 4)),
        ("sizes", "none", None),
        ("old", "1.5", 1.5),
    ],
)
def test_a_value_becomes_one_of_the_fields_type(name: str, given: Any, expected: Any) -> None:
    found = getattr(make(**{name: given}), name)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("fast", "maybe", "fast = 'maybe' is not true or false"),
        ("fast", 1, "fast = 1 is not true or false"),
        ("fast", None, "is not true or false"),
        ("level", "high", "level = 'high' is not a whole number"),
        ("level", "1.0", "is not a whole number"),
        ("level", 1.0, "is not a whole number"),
        ("level", True, "is not a whole number"),
        ("level", None, "is not a whole number"),
        ("level", [1], "is not a whole number"),
        ("level", "7", "level = 7 is not one of the choices"),
        ("ratio", "half", "is not a number"),
        ("ratio", True, "is not a number"),
        ("ratio", 10**400, "is not a number"),
        ("target", 3, "is not a text"),
        ("target", b"cpu", "is not a text"),
        ("limit", "3", "limit = 3: must be even"),
        ("limit", "x", "is not a whole number, or none"),
        ("leave_out", 5, "is not a list, each item a text"),
        ("leave_out", ["add", 5], "is not a list, each item a text"),
        ("leave_out", {"add": 1}, "is not a list, each item a text"),
        ("modes", "a,z", "modes = 'z' is not one of the choices"),
        ("sizes", "3,x", "is not"),
    ],
)
def test_a_wrong_value_is_refused_with_the_option_and_what_is_wrong(name: str, given: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        make(**{name: given})
    assert caught.value.where == "option of backend odd"
    assert caught.value.hint


def test_a_refused_choice_lists_what_is_allowed() -> None:
    with pytest.raises(OptionError, match="-> 0, 1, 2"):
        make(level=3)


def test_an_unknown_option_lists_those_that_exist() -> None:
    with pytest.raises(OptionError, match=r"unknown option 'depth'\n  -> known options: fast, level, .*, old"):
        make(depth=1)
    with pytest.raises(OptionError, match="backend option: unknown option 'depth'\n  -> known options: none"):
        BackendOptions.from_mapping({"depth": 1})


@pytest.mark.parametrize("given", ["fast=true", None, ["fast"]])
def test_options_are_a_mapping(given: Any) -> None:
    with pytest.raises(OptionError, match=r"is not \{option: value\}\n  -> known options: none"):
        BackendOptions.from_mapping(given)


def test_options_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        make().level = 2  # type: ignore[misc]


def test_a_default_that_somebody_could_change_is_refused_where_it_is_declared() -> None:
    with pytest.raises(TypeError, match="immutable"):
        option([], help="A list.")


def test_the_documentation_has_a_row_for_each_option_in_order() -> None:
    rows = Options.describe()
    assert [row.name for row in rows] == [
        "fast",
        "level",
        "ratio",
        "target",
        "limit",
        "leave_out",
        "modes",
        "sizes",
        "old",
    ]
    level, limit, leave_out = rows[1], rows[4], rows[5]
    assert (level.type, level.default, level.help, level.choices) == ("int", 1, "How hard to try.", (0, 1, 2))
    assert (limit.type, limit.default, limit.choices) == ("int | None", None, None)
    assert leave_out.type == "tuple[str, ...]"


def test_only_what_differs_from_the_defaults_is_passed_on_in_canonical_form() -> None:
    assert make().to_json() == b"{}"
    assert make(level=1, target="cpu").to_mapping() == {}
    chosen = make(target="gpu", modes="c,b", leave_out="mul,add", fast="yes")
    assert chosen.to_json() == b'{"fast":true,"leave_out":["mul","add"],"modes":["b","c"],"target":"gpu"}'


words = st.text(st.characters(codec="utf-8", exclude_characters=","), min_size=1).filter(
    lambda text: text == text.strip()
)


@given(
    st.builds(
        Options,
        fast=st.booleans(),
        level=st.sampled_from([0, 1, 2]),
        ratio=st.floats(allow_nan=False),
        target=st.text(st.characters(codec="utf-8")),
        limit=st.none() | st.integers().map(lambda number: 2 * number),
        leave_out=st.lists(words).map(tuple),
        modes=st.frozensets(st.sampled_from("abc")),
        sizes=st.none() | st.lists(st.integers()).map(tuple),
        old=st.none() | st.floats(allow_nan=False),
    )
)
def test_options_survive_json_and_the_command_line(options: Options) -> None:
    values = json.loads(options.to_json())
    assert Options.from_mapping(values) == options
    texts = {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in values.items()
    }
    assert Options.from_mapping(texts) == options
