"""Sequences over sessions: faults found, sound behavior, shrinking, and their scripts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit_conformance.cases.sessions import cases
from delegatekit_conformance.cases.sessions.compiling import _mixed
from delegatekit_conformance.cases.sessions.machine import Machine
from delegatekit_conformance.cases.sessions.orders import Order
from delegatekit_conformance.cases.sessions.pairs import SIZES, Pair, export, tensors
from delegatekit_conformance.cases.sessions.programs import KINDS
from delegatekit_conformance.cases.sessions.steps import (
    Call,
    Close,
    Load,
    Lower,
    Open,
    Probe,
    Reset,
    Step,
    Steps,
    Threads,
    shorter,
)
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Verdict

CONTEXT = Context("reference", replace(PROFILES["quick"], sequences=2))
CASES = {case.name.partition("/")[2]: case for case in cases()}
RIGHT = (Verdict.DELEGATED, Verdict.PARTLY)


def tried(name: str, *steps: Step, first: int = 0) -> Any:
    return CASES[name].run(Steps(first, steps), CONTEXT)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("kept-state", "orders")])
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    for example in CASES[name].examples(CONTEXT):
        outcome = CASES[name].run(example, CONTEXT)
        assert outcome.verdict in RIGHT, outcome


@pytest.mark.parametrize("name", CASES)
def test_examples_are_the_same_each_time_and_say_what_they_are(name: str) -> None:
    first, again = (CASES[name].examples(CONTEXT) for _ in range(2))
    assert first == again and first
    assert all(example.describe() for example in first)


def test_one_element_in_the_middle_changes_and_no_other() -> None:
    for kind in KINDS.values():
        for given in kind.build(0)[1].values():
            before, after = tensors(given, 3)[0], tensors(given, 3, changed=1)[0]
            (places,) = torch.nonzero((before != after).flatten(), as_tuple=True)
            assert places.tolist() == [before.numel() // 2], kind.name


@pytest.mark.parametrize("name", KINDS)
def test_every_element_of_an_input_changes_a_result(name: str) -> None:
    build = KINDS[name].build
    for method, given in build(0)[1].items():
        results = [build(0)[0][method](*tensors(given, 3, changed=changed)) for changed in (0, 1)]
        one, other = ((result if isinstance(result, tuple) else (result,))[0] for result in results)
        assert not torch.equal(one, other)


def test_weights_of_another_seed_are_others() -> None:
    for kind in KINDS.values():
        if "weights" in kind.traits:
            one, other = (kind.build(seed)[0] for seed in (0, 1))
            values = [[*module.state_dict().values()] for module in (*one.values(), *other.values())]
            assert not all(map(torch.equal, values[0], values[len(one)])), kind.name


def test_exchanged_data_replace_the_weights_outside_of_the_program_alone() -> None:
    """Delegates have theirs inside: eager with both kinds of weights computes what such a session does."""
    build, programs = KINDS["embedding"].build, []
    for seed in (0, 1):
        made = delegatekit.lower(export(build, seed), backends=[], external=lambda name, _: name == "0.weight")
        programs.append(
            SimpleNamespace(kind=KINDS["embedding"], seed=seed, data=list(made.data_files.values()), made=made)
        )
    one, two = programs
    mixed = Pair(delegatekit.load(one.made.buffer, data=two.data), lambda _: _mixed(one, two), 0)
    result, _, eager = mixed.call("forward", 0, 4, 0)
    torch.testing.assert_close(result, eager)
    assert not torch.allclose(result, Pair(None, build, 0).model("forward", tensors(mixed.given["forward"], 0))[1])


def test_state_that_a_reset_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (Load(), Call(), Reset(), Probe())
    assert tried("state", *steps).verdict in RIGHT
    monkeypatch.setattr(delegatekit.engine.Method, "reset", lambda self: None)
    outcome = tried("state", *steps)
    assert outcome.verdict is Verdict.MISMATCH
    assert outcome.blame == "core"  # the same goes wrong without the backend


def test_a_profile_as_the_first_call_changes_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (Load(profiled=True), Open(profiled=True), Probe())
    assert tried("state", *steps).verdict in RIGHT
    assert any(getattr(step, "profiled", False) for step in CASES["state"].examples(CONTEXT)[0].steps[:4])
    monkeypatch.setattr(delegatekit.engine.Method, "record_operators", lambda self, inputs: None)
    assert tried("state", *steps).verdict is Verdict.MISMATCH


def test_a_closed_session_that_answers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (Load(), Open(), Call(session=1), Close(1))
    assert tried("calls", *steps).verdict in RIGHT
    monkeypatch.setattr(delegatekit.engine.Method, "close", lambda self: None)
    assert tried("calls", *steps).verdict is Verdict.VIOLATION


def test_steps_without_sessions_do_nothing() -> None:
    assert tried("state", Call(), Reset(), Close(), Open(), Threads(), Probe(), Load()).verdict in RIGHT


def test_a_sequence_becomes_as_short_as_can_be() -> None:
    steps: list[Step] = [Load(1, 1, True), *(Call(seed=number % 3) for number in range(9)), Reset(2, 1), Probe(3)]

    def fails(example: Steps) -> bool:
        kinds = [type(step) for step in example.steps]
        return Load in kinds and Reset in kinds and kinds.index(Load) < kinds.index(Reset)

    assert shorter(Steps(0, tuple(steps)), fails).steps == (Load(), Reset())


def test_the_search_ends_with_the_best_so_far_when_time_is_over() -> None:
    tries: list[int] = []

    def fails(example: Steps) -> bool:
        tries.append(len(example.steps))
        if len(tries) > 3:
            raise TimeoutError
        return True

    steps = tuple(Call() for _ in range(32))
    assert 1 <= len(shorter(Steps(0, steps), fails).steps) < 32


def test_a_script_runs_by_itself(tmp_path: Path) -> None:
    machine = CASES["state"]
    assert isinstance(machine, Machine)
    steps = (Load(), Open(), Call(), Threads(), Reset(), Lower(), Close(1), Probe(1))
    script = tmp_path / "script.py"
    script.write_text(machine.snippet(Steps(0, steps), CONTEXT), "utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("output ")]
    assert len(lines) >= 10
    assert all(float(line.split("largest value ")[1].split()[0]) < 1e-5 for line in lines)


def test_what_differs_between_two_orders_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from delegatekit_conformance.cases.sessions import orders

    order = Order(((0, 10, False, -1), (0, 11, False, -1)))

    def fresh(script: str, context: Context, given: Any) -> Any:
        return SimpleNamespace(answer={"digests": back(orders.digests(*given))})

    def back(found: Sequence[str]) -> list[str]:
        return list(found) if sound else ["another", *found[1:]]

    monkeypatch.setattr(orders, "in_fresh_process", fresh)
    sound = True
    assert CASES["orders"].run(order, CONTEXT).verdict is Verdict.PASSED
    sound = False
    outcome = CASES["orders"].run(order, CONTEXT)
    assert outcome.verdict is Verdict.VIOLATION and "elementwise" in outcome.detail


def test_sizes_go_up_and_down() -> None:
    pair = Pair(
        delegatekit.load(delegatekit.lower(export(KINDS["rows"].build, 0), backends=[]).buffer), KINDS["rows"].build, 0
    )
    assert {pair.call("forward", 0, size, 0)[0].shape[0] for size in SIZES} == set(SIZES)
