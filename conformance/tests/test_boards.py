"""Which result of a case counts where several boards try it, and which boards get cases."""

from __future__ import annotations

from typing import Any

from delegatekit_conformance.outcome import CaseResult, Outcome, Tally, Verdict
from delegatekit_conformance.runner.boards import Again, Attempt, Boards


class _Case:
    def __init__(self, name: str) -> None:
        self.name, self.tags = name, {"room": "operators"}


def boards(*names: str) -> Boards:
    return Boards({name: f"board-{name}" for name in names})


def said(verdict: Verdict, name: str = "one") -> CaseResult:
    tally = Tally(name, {"room": "operators"})
    tally.add(Outcome(verdict, "words" if verdict.is_fault else "", blame="backend" if verdict.is_fault else ""))
    return tally.result()


def take(known: Boards, board: str, verdict: Verdict, away: str = "", name: str = "one") -> Any:
    return known.take(_Case(name), Attempt(board, said(verdict, name), away))  # type: ignore[arg-type]


RIGHT, WRONG, HANG = Verdict.DELEGATED, Verdict.MISMATCH, Verdict.TIMEOUT


def test_a_right_result_counts_at_once() -> None:
    found = take(boards("a", "b"), "a", RIGHT)
    assert (found.verdict, found.boards) == (RIGHT, ("board-a: correct, delegated",))


def test_a_fault_counts_when_a_second_board_shows_it() -> None:
    known = boards("a", "b", "c")
    assert take(known, "a", WRONG) == Again(("b", "c"))
    found = take(known, "b", HANG)
    assert found.verdict is WRONG
    assert found.boards == ("board-a: wrong result", "board-b: timeout")
    assert known.trusted == ["a", "b", "c"]


def test_a_board_that_is_outvoted_gets_no_more_cases() -> None:
    known = boards("a", "b", "c")
    assert take(known, "a", WRONG) == Again(("b", "c"))
    assert take(known, "b", RIGHT) == Again(("c",))
    found = take(known, "c", RIGHT)
    assert found.verdict is RIGHT
    assert found.boards == ("board-b: correct, delegated", "board-a: wrong result", "board-c: correct, delegated")
    assert known.trusted == ["b", "c"]
    assert not known.absent
    told = known.told()["board board-a"]
    assert told == "1 cases; in quarantine: its result of one (wrong result) is not that of board-b and board-c"


def test_a_right_board_is_outvoted_by_two_that_show_the_fault() -> None:
    known = boards("a", "b", "c")
    take(known, "a", WRONG)
    take(known, "b", RIGHT)
    found = take(known, "c", WRONG)
    assert found.verdict is WRONG
    assert known.trusted == ["a", "c"]


def test_two_boards_that_disagree_stay_and_the_fault_says_so() -> None:
    known = boards("a", "b")
    assert take(known, "a", WRONG) == Again(("b",))
    found = take(known, "b", RIGHT)
    assert (found.verdict, found.detail) == (WRONG, "the boards disagree")
    assert found.faults
    assert known.trusted == ["a", "b"]


def test_a_single_board_is_believed() -> None:
    assert take(boards("a"), "a", WRONG).verdict is WRONG


def test_a_board_that_is_away_comes_back_twice() -> None:
    known = boards("a", "b")
    for number in range(3):
        found = take(known, "a", Verdict.RUN_ERROR, "unplugged", name=f"case-{number}")
        assert found == Again(("b",))
        assert known.absent == {"a"}
        assert take(known, "b", RIGHT, name=f"case-{number}").boards[1] == "board-a: unplugged"
        assert known.returned("a") is (number < 2)
    assert known.trusted == ["b"]
    assert "3 cases" in known.told()["board board-a"]


def test_a_case_that_takes_boards_down_is_a_crash() -> None:
    known = boards("a", "b", "c", "d")
    assert take(known, "a", Verdict.RUN_ERROR, "gone") == Again(("b", "c", "d"))
    assert take(known, "b", Verdict.RUN_ERROR, "gone") == Again(("c", "d"))
    found = take(known, "c", Verdict.RUN_ERROR, "gone")
    assert found.verdict is Verdict.CRASH
    assert found.faults[0].detail == "the boards that ran it were lost: board-a: gone; board-b: gone; board-c: gone"
    assert known.trusted == ["d"]


def test_a_fault_stays_when_no_other_board_can_try_the_case() -> None:
    known = boards("a", "b")
    assert take(known, "a", WRONG) == Again(("b",))
    case: Any = _Case("one")
    found = known.settle(case, final=True)
    assert isinstance(found, CaseResult)
    assert found.verdict is WRONG


def test_a_fault_waits_for_a_board_that_may_come_back() -> None:
    known = boards("a", "b")
    assert take(known, "b", Verdict.RUN_ERROR, "unplugged") == Again(("a",))
    assert take(known, "a", WRONG) == Again(("b",))
    known.returned("b")
    found = take(known, "b", RIGHT)
    assert (found.verdict, found.detail) == (WRONG, "the boards disagree")


def test_a_case_that_no_board_can_try_has_no_result() -> None:
    known = boards("a")
    case: Any = _Case("one")
    assert take(known, "a", Verdict.RUN_ERROR, "unplugged") == Again(("a",))
    assert known.settle(case, final=True) is None
