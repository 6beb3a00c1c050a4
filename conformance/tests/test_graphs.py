"""Random graphs: they are well conditioned and shrink, and the rules of partitioning find faults."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.partition import Partition, PartitionPlan
from delegatekit.plugins import discovery
from delegatekit_conformance.cases import graphs as room
from delegatekit_conformance.cases.graphs import ARRANGEMENTS, GraphCase, GraphExample, check_plan, fingerprint
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.drawing import draw
from delegatekit_conformance.outcome import Verdict
from delegatekit_conformance.recipe import Recipe, Ref
from delegatekit_conformance.strategies.graphs import graphs

#: Without a fault: a second backend beside the partner.
CONTEXT = Context("faulty", replace(PROFILES["quick"], graphs=60))


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("DELEGATEKIT_FAULT", raising=False)
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "faulty"))
    discovery.refresh()
    yield
    monkeypatch.undo()
    discovery.refresh()


@pytest.fixture(scope="module")
def drawn() -> list[Recipe]:
    return draw(graphs(), 300, seed=3)


def test_graphs_are_the_same_in_every_process() -> None:
    some = draw(graphs(), 40, seed=3)
    assert some == draw(graphs(), 40, seed=3)
    assert pickle.loads(pickle.dumps(some)) == some


def test_graphs_have_what_composition_is_about(drawn: list[Recipe]) -> None:
    seen: Counter[str] = Counter()
    for recipe in drawn:
        tensors = dict(recipe.tensors)
        read = Counter(ref for step in recipe.steps for ref in step.references())
        seen["long"] += len(recipe.steps) >= 15
        seen["branch"] += any(count > 1 for ref, count in read.items() if ref.name.startswith("y"))
        seen["several results"] += any(ref.index for ref in read)
        seen["shared constant"] += any(count > 1 for ref, count in read.items() if ref.name in tensors)
        seen["input returned"] += any(ref.name in tensors and not tensors[ref.name].constant for ref in recipe.outputs)
        seen["constant returned"] += any(ref.name in tensors and tensors[ref.name].constant for ref in recipe.outputs)
        seen["value returned twice"] += len(set(recipe.outputs)) < len(recipe.outputs)
        inputs = {name for name, tensor in recipe.tensors if not tensor.constant}
        seen["unused input"] += bool(inputs - {ref.name for ref in read} - {ref.name for ref in recipe.outputs})
        seen["half"] += any(tensor.dtype == "float16" for tensor in tensors.values())
        seen["integers"] += any(tensor.dtype.startswith("int") for tensor in tensors.values())
    assert min(seen.values()) >= 3, seen
    assert len({step.target for recipe in drawn for step in recipe.steps}) > 60


def test_values_are_tame(drawn: list[Recipe]) -> None:
    for recipe in drawn[:100]:
        module = recipe.module().double()
        inputs = [value.double() if value.is_floating_point() else value for value in recipe.inputs()]
        results = module(*inputs)
        for result in results if isinstance(results, tuple) else (results,):
            assert result.isfinite().all() and result.double().abs().max() < 1e4


@pytest.mark.parametrize("part", [slice(15), pytest.param(slice(15, 150), marks=pytest.mark.slow)], ids=str)
def test_roundings_move_outputs_no_further_than_the_depth_says(drawn: list[Recipe], part: slice) -> None:
    """Eager in float32 is one way of rounding: it stays within what the oracle allows."""
    for recipe in drawn[part]:
        if any(tensor.dtype == "float16" for _, tensor in recipe.tensors):
            continue
        subject = room.try_recipe(recipe, CONTEXT, backends=[])
        assert not subject.verdict.is_fault, (subject.detail, recipe.describe())


def test_an_output_that_cancels_is_not_returned() -> None:
    """1 - softmax summed up is rounding noise alone."""
    from delegatekit_conformance.recipe import Step, TensorRecipe
    from delegatekit_conformance.strategies.graphs import enlarged

    recipe = Recipe(
        (("x", TensorRecipe((4,))),),
        (
            Step("s", "aten.softmax.int", (Ref("x"), 0)),
            Step("t", "aten.sum.dim_IntList", (Ref("s"), (0,))),
            Step("r", "aten.rsub.Scalar", (Ref("t"), 1.0)),
        ),
        (Ref("s"), Ref("r")),
    )
    good, bad = enlarged(recipe)
    assert good < 20
    assert bad > 1e6


@pytest.mark.parametrize("arrangement", ARRANGEMENTS, ids=lambda arrangement: arrangement.name)
def test_graphs_agree_with_eager(arrangement: room.Arrangement) -> None:
    case = GraphCase(arrangement, 0)
    outcomes = [case.run(example, CONTEXT) for example in case.examples(CONTEXT)]
    assert outcomes
    if arrangement.partner and room.why_not(["reference"]):
        assert {outcome.verdict for outcome in outcomes} == {Verdict.NOT_APPLICABLE}
        assert "reference" in outcomes[0].detail
        return
    for outcome in outcomes:
        assert not outcome.verdict.is_fault, (outcome.detail, outcome.snippet)
        assert not outcome.core, outcome.core
    assert any(outcome.delegates for outcome in outcomes)


def test_pins_leave_some_nodes_to_others() -> None:
    module = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(4, 4), nn.Tanh())))
    inputs = (torch.randn(2, 4),)
    for name, (low, high) in {"pinned": (2, 12), "torn": (12, 13)}.items():
        arrangement = next(arrangement for arrangement in ARRANGEMENTS if arrangement.name == name)
        lowering = arrangement.lowering(["faulty"], 5)
        program = delegatekit.lower(module.eval(), inputs, backends=["faulty"], **lowering)
        method = delegatekit.report(program).methods[0]
        assert low <= len(method.delegates) < high or name == "pinned"
        assert (method.fallback_calls > 0) == (name == "pinned")


def test_a_fault_shrinks_to_few_steps() -> None:
    """Any graph with a tanh counts as a fault."""
    case = GraphCase(ARRANGEMENTS[0], 0)
    context = replace(CONTEXT, profile=replace(PROFILES["quick"], graphs=1200))

    def fails(example: GraphExample) -> bool:
        return any(step.target == "aten.tanh.default" for step in example.recipe.steps)

    found = [example for example in case.examples(context) if fails(example)]
    large = max(found, key=lambda example: len(example.recipe.steps))
    assert len(large.recipe.steps) > 8
    # The search begins with the first that fails, which is the one that a run would report.
    small = case.shrink(found[0], fails, context)
    assert fails(small)
    assert len(small.recipe.steps) <= 2


def test_a_large_graph_shrinks_to_the_two_operators_of_its_fault_in_few_tries() -> None:
    """Any graph that rectifies another operator's result counts as a fault."""
    case = GraphCase(ARRANGEMENTS[0], 0)
    context = replace(CONTEXT, profile=replace(PROFILES["quick"], graphs=1200))
    tries = 0

    def fails(example: GraphExample) -> bool:
        nonlocal tries
        tries += 1
        made = {step.name for step in example.recipe.steps}
        return any(
            step.target == "aten.relu.default" and any(ref.name in made for ref in step.references())
            for step in example.recipe.steps
        )

    found = [example for example in case.examples(context) if fails(example)]
    large = max(found, key=lambda example: len(example.recipe.steps))
    assert len(large.recipe.steps) > 10
    tries = 0
    small = case.shrink(large, fails, context)
    assert fails(small) and len(small.recipe.steps) == 2 and len(small.recipe.outputs) == 1
    assert tries < 40
    small.recipe.export()


def test_snippets_run(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for arrangement in ARRANGEMENTS[:3]:
        case = GraphCase(arrangement, 0)
        example = case.examples(CONTEXT)[0]
        code = case.snippet(example, CONTEXT)
        exec(compile(code, "snippet", "exec"), {})
        assert "largest error" in capsys.readouterr().out


# -- the rules ---------------------------------------------------------------------------------------------------------


class Diamond(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x.relu()
        return first.tanh() + first.exp() * 2


def plan_of(module: nn.Module) -> PartitionPlan:
    program = delegatekit.lower(module.eval(), (torch.randn(3),), backends=["faulty"], skip=["exp"])
    return program.methods["forward"].plan


def test_a_sound_plan_passes() -> None:
    plan = plan_of(Diamond())
    assert plan.partitions and plan.fallback
    assert check_plan(plan) == ""


def test_what_is_wrong_with_a_plan_is_seen() -> None:
    plan = plan_of(Diamond())
    first, *_ = plan.partitions
    everything = [node for step in plan.steps for node in (step.nodes if isinstance(step, Partition) else (step,))]
    (exp,) = plan.fallback
    others = tuple(node for node in everything[0].graph.nodes if node in everything and node is not exp)
    outputs = tuple(node for node in others if any(user not in others for user in node.users))
    hollow = Partition("faulty", others, first.inputs, first.constants, outputs)
    assert "depends on itself" in check_plan(replace(plan, steps=(hollow,))) or "comes before" in check_plan(
        replace(plan, steps=(hollow, exp))
    )
    assert "comes before" in check_plan(replace(plan, steps=tuple(reversed(plan.steps))))
    assert "no step runs" in check_plan(replace(plan, steps=plan.steps[:-1]))
    assert "in two steps" in check_plan(replace(plan, steps=(*plan.steps, plan.steps[0])))
    silent = replace(first, outputs=())
    assert "does not return" in check_plan(replace(plan, steps=(silent, *plan.steps[1:])))
    blind = replace(first, inputs=(), constants=())
    assert "not among its inputs" in check_plan(replace(plan, steps=(blind, *plan.steps[1:])))


def test_convexity_is_checked_by_itself() -> None:
    plan = plan_of(Diamond())
    (exp,) = plan.fallback
    graph = exp.graph
    others = tuple(node for node in graph.nodes if node.op == "call_function" and node is not exp)
    outputs = tuple(node for node in others if any(user not in others for user in node.users))
    inputs = tuple(node for node in graph.nodes if node.op == "placeholder")
    hollow = Partition("faulty", others, (*inputs, exp), (), outputs)
    assert "depends on itself through nodes outside" in room._check_partition(hollow)


def test_any_change_of_the_exported_program_is_seen() -> None:
    def export() -> torch.export.ExportedProgram:
        torch.manual_seed(0)
        return torch.export.export(nn.Sequential(nn.Linear(3, 2), nn.ReLU()).eval(), (torch.randn(1, 3),))

    original = export()
    assert fingerprint(original) == fingerprint(export())
    weight = export()
    next(iter(weight.state_dict.values())).data[0] += 1
    node = export()
    last = [item for item in node.graph.nodes if item.op == "call_function"][-1]
    last.target = torch.ops.aten.tanh.default
    meta = export()
    next(iter(meta.graph.nodes)).meta["strange"] = 1
    assert len({fingerprint(program) for program in (original, weight, node, meta)}) == 4


def test_a_lowering_that_changes_the_program_or_its_bytes_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    case = GraphCase(ARRANGEMENTS[0], 0)
    example = case.examples(CONTEXT)[1]
    lower = delegatekit.lower

    def mutating(exported: Any, **settings: Any) -> Any:
        program = lower(copy.deepcopy(exported), **settings)
        next(iter(exported.graph.nodes)).meta["touched"] = True
        return program

    monkeypatch.setattr(room.delegatekit, "lower", mutating)
    outcome = case.run(example, CONTEXT)
    assert outcome.verdict is Verdict.VIOLATION
    assert outcome.detail == "lowering changed the exported program"
    assert outcome.blame == "backend"

    calls = iter(range(100))

    class Unstable:
        def __init__(self, program: Any) -> None:
            self.program, self.buffer, self.count = program, program.buffer, next(calls)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.program, name)

    def unstable(exported: Any, **settings: Any) -> Any:
        made = Unstable(lower(exported, **settings))
        made.buffer += bytes(made.count)
        return made

    monkeypatch.setattr(room.delegatekit, "lower", unstable)
    outcome = case.run(example, CONTEXT)
    assert outcome.detail == "two lowerings give different bytes"


def test_a_missing_partner_is_not_applicable() -> None:
    arrangement = replace(ARRANGEMENTS[0], partner="after")
    monkey = GraphCase(arrangement, 0)
    context = replace(CONTEXT, backend="reference")
    outcome = monkey.run(monkey.examples(context)[0], context)
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert "nobody is not installed" in room.why_not(["nobody"])
