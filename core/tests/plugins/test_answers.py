"""Checks of plugins' answers: faults are reported, and valid answers cost nothing."""

from __future__ import annotations

import pytest

from delegatekit.plugins.answers import wrong


class Loud:
    """Counts how often its repr is taken."""

    shown = 0

    def __repr__(self) -> str:
        Loud.shown += 1
        return "Loud()"


def test_what_is_one_of_several_types_is_not_shown() -> None:
    assert wrong([Loud(), b"", None], list[bytes | Loud | None], "it") is None
    assert Loud.shown == 0
    assert wrong(Loud(), bytes | str, "it") == "it is Loud(), not a bytes or a str"


@pytest.mark.parametrize(
    ("value", "kind", "fault"),
    [
        (3, float | None, None),
        ([1, 2], tuple[int, ...] | None, None),
        (True, int | str, "it is True, not an int or a str"),
        ([1, "2"], list[int] | None, "it[1] is '2', not an int"),
        (float("nan"), float | None, "it is nan, not a float or None"),
    ],
)
def test_an_answer_of_one_of_several_types(value: object, kind: object, fault: str | None) -> None:
    assert wrong(value, kind, "it") == fault
