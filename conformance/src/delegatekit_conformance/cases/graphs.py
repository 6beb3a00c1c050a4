"""Random graphs: the backend alone, with nodes taken away from it, each node in a delegate of its own, and together
with a second backend. Apart from the numbers, partitions are checked by rules that do not use the partitioner's code.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis.strategies import SearchStrategy
from torch.export import ExportedProgram
from torch.fx import Node

import delegatekit
from delegatekit import LoweredProgram
from delegatekit.partition import Partition, PartitionPlan
from delegatekit.plugins import discovery
from delegatekit_api import DelegateKitError

from ..context import Context
from ..drawing import draw, shrink
from ..outcome import Outcome, Verdict
from ..recipe import Recipe
from ..strategies.graphs import graphs
from ..strategies.smaller import shrink_graph
from ..trial import try_recipe, words
from .base import Case

#: Cases of each kind: the examples are divided among them.
_SHARDS = 10
#: The backend that works together with the one under test.
PARTNER = "reference"


@dataclass(frozen=True)
class Arrangement:
    """An arrangement of backends for a graph: their priority order, and nodes that they may not take."""

    name: str
    meaning: str
    #: "" for no pins, "skip" for a random third of the nodes per backend, "torn" for each node in its own delegate.
    pins: str = ""
    #: "" for the backend alone; else the partner's place, "after" or "before" it in priority.
    partner: str = ""
    #: Part of the profile's number of graphs that is tried.
    share: float = 1.0

    def backends(self, context: Context) -> list[str]:
        """In priority order."""
        if not self.partner:
            return [context.backend]
        return [context.backend, PARTNER] if self.partner == "after" else [PARTNER, context.backend]

    def lowering(self, backends: Sequence[str], pin: int) -> dict[str, Any]:
        """Further arguments of `delegatekit.lower`."""
        if self.pins == "skip":
            return {"skip": {name: [Pinned(f"{name}{pin}")] for name in backends}}
        if self.pins == "torn":
            return {"partition": Torn(backends, pin)}
        return {}


ARRANGEMENTS = (
    Arrangement("alone", "the backend alone"),
    Arrangement("pinned", "a random third of the nodes is kept from the backend", pins="skip", share=0.5),
    Arrangement("torn", "each node that the backend takes is a delegate of its own", pins="torn", share=0.3),
    Arrangement("first", f"{PARTNER} comes after it; some nodes are kept from both", "skip", "after", share=0.3),
    Arrangement("second", f"{PARTNER} comes before it; some nodes are kept from both", "skip", "before", share=0.3),
    Arrangement("torn-pair", f"nodes go to the backend or to {PARTNER} one by one", "torn", "after", share=0.2),
)


class Pinned:
    """Selects a third of the nodes, and always the first, by a number and the nodes' names."""

    def __init__(self, salt: str) -> None:
        self.salt = salt
        self.__name__ = f"Pinned({salt!r})"

    def __call__(self, node: Node) -> bool:
        """True if the node is selected."""
        if node is next(other for other in node.graph.nodes if other.op == "call_function"):
            return True
        return hashlib.blake2b(f"{self.salt} {node.name}".encode(), digest_size=1).digest()[0] % 3 == 0


class Torn:
    """Forms partitions of one node each (and its companions), each for one of those backends that take it."""

    def __init__(self, backends: Sequence[str], pin: int) -> None:
        self.backends, self.pin = backends, pin

    def __call__(self, program: Any, ask: Callable[[str, Node], Any]) -> Iterator[tuple[str, list[Node]]]:
        """Pairs of a backend and nodes."""
        given: set[Node] = set()
        for node in program.graph.nodes:
            if node.op != "call_function" or node.target is operator.getitem or node in given:
                continue
            takers = [name for name in self.backends if ask(name, node).supported]
            if not takers:
                continue
            digest = hashlib.blake2b(f"{self.pin} {node.name}".encode(), digest_size=1).digest()[0]
            backend = takers[digest % len(takers)]
            group = _together(node, backend, ask)
            if not group & given and all(ask(backend, member).supported for member in group):
                given |= group
                yield backend, [member for member in program.graph.nodes if member in group]


def _together(node: Node, backend: str, ask: Callable[[str, Node], Any]) -> set[Node]:
    """The node with all nodes that its backend requires in the same delegate, and their results."""
    found: set[Node] = set()
    waiting = [node]
    while waiting:
        member = waiting.pop()
        if member in found:
            continue
        found.add(member)
        if member.target is operator.getitem:
            waiting += member.all_input_nodes
        else:
            waiting += ask(backend, member).group
        waiting += [user for user in member.users if user.target is operator.getitem]
    return found


@dataclass(frozen=True)
class GraphExample:
    """A graph and the number that its pins follow from."""

    recipe: Recipe
    pin: int

    def describe(self) -> str:
        """The graph's calls, and the number."""
        return f"{self.recipe.describe()} [pin {self.pin}]"


@dataclass(frozen=True)
class GraphCase(Case):
    """Some random graphs in one arrangement."""

    arrangement: Arrangement
    shard: int

    @property
    def name(self) -> str:  # type: ignore[override]
        """ "graphs/alone/0"."""
        return f"graphs/{self.arrangement.name}/{self.shard}"

    @property
    def cost(self) -> float:
        """Fifteen graphs of half a second."""
        return 7.0 * self.arrangement.share

    def strategy(self) -> SearchStrategy[GraphExample]:
        """Graphs with a number each."""
        return st.builds(GraphExample, graphs(), st.integers(0, 99))

    def count(self, context: Context) -> int:
        """The case's part of the profile's number of graphs."""
        return max(1, round(context.profile.graphs * self.arrangement.share / _SHARDS))

    def examples(self, context: Context) -> Sequence[GraphExample]:
        """Graphs at random."""
        return draw(self.strategy(), self.count(context), context.seed_of(self.name))

    def shrink(self, example: GraphExample, fails: Callable[[Any], bool], context: Context) -> GraphExample:
        """Parts of the graph; where none of them fails, Hypothesis leaves out steps."""

        def part_fails(recipe: Recipe) -> bool:
            return fails(replace(example, recipe=recipe))

        smaller = shrink_graph(example.recipe, part_fails)
        if smaller is not example.recipe:
            return replace(example, recipe=smaller)
        return shrink(self.strategy(), self.count(context), context.seed_of(self.name), example, fails)

    def run(self, example: GraphExample, context: Context) -> Outcome:
        """A trial of the graph, and the rules of partitioning."""
        backends = self.arrangement.backends(context)
        if reason := why_not(backends):
            return Outcome(Verdict.NOT_APPLICABLE, reason, example=example.describe())
        recipe = example.recipe
        lowering = self.arrangement.lowering(backends, example.pin)
        outcome = try_recipe(recipe, context, backends=backends, **lowering)
        if outcome.verdict is Verdict.LOWERING_ERROR and "selects no operator" in outcome.detail:
            # Everything was constant: there is no operator to pin.
            lowering = {}
            outcome = try_recipe(recipe, context, backends=backends)
        refusals = tuple(reason for reason in outcome.refusals if "left out" not in reason)  # by the pins
        outcome = replace(outcome, example=example.describe(), refusals=refusals)
        if not outcome.verdict.is_fault and outcome.verdict not in (Verdict.NOT_EXPORTABLE, Verdict.REFUSED):
            broken = check_lowering(recipe.export(), backends, lowering, context)
            if broken:
                outcome = replace(outcome, verdict=Verdict.VIOLATION, detail=broken, blame=_blame(broken))
        if outcome.verdict.is_fault or outcome.core:
            outcome = replace(outcome, snippet=self.snippet(example, context))
        return outcome

    def snippet(self, example: GraphExample, context: Context) -> str:
        """The graph as Python, with the arrangement."""
        text = example.recipe.snippet(context.backend)
        names = self.arrangement.backends(context)
        plain = f'backends=["{context.backend}"]'
        if not self.arrangement.pins:
            return text
        extra = f"skip={{name: [Pinned(name + '{example.pin}')] for name in backends}}"
        if self.arrangement.pins == "torn":
            extra = f"partition=Torn(backends, {example.pin})"
        imports = "from delegatekit_conformance.cases.graphs import Pinned, Torn\n"
        text = text.replace("import delegatekit\n", f"import delegatekit\n{imports}\nbackends = {names!r}\n", 1)
        return text.replace(plain, f"backends=backends, {extra}", 1)


def why_not(backends: Collection[str]) -> str:
    """Reason why these backends cannot be tried together; empty if they can."""
    if len(set(backends)) < len(backends):
        return f"{PARTNER} is the backend under test"
    for name in backends:
        try:
            backend = discovery.get_backend(name)
        except DelegateKitError as error:
            return f"{name} is not installed: pip install delegatekit-{name} ({error})"
        if not backend.has("create_partitioner"):
            return f"{name} compiles no programs: it has no create_partitioner"
    return ""


# -- the rules of partitioning ---------------------------------------------------------------------------------------

_STABLE = "two lowerings give different bytes"
_UNTOUCHED = "lowering changed the exported program"


def check_lowering(
    exported: ExportedProgram, backends: Sequence[str], lowering: dict[str, Any], context: Context
) -> str:
    """The first fault of a program's lowering, in words: in the plan, in a second lowering, or in the original."""
    options = context.by_backend
    before = fingerprint(exported)
    try:
        program = delegatekit.lower(exported, backends=backends, options=options, **lowering)
        again = delegatekit.lower(exported, backends=backends, options=options, **lowering)
    except Exception as error:
        return f"lowering fails the second time: {words(error)}"
    if fingerprint(exported) != before:
        return _UNTOUCHED
    if program.buffer != again.buffer:
        return _STABLE
    return broken_plan(program)


def _blame(broken: str) -> str:
    return "backend" if broken.startswith((_STABLE, _UNTOUCHED)) else "core"


def fingerprint(exported: ExportedProgram) -> str:
    """Changes when anything of an exported program changes that lowering may read: graph, signature, tensors."""
    digest = hashlib.sha256()
    for node in exported.graph.nodes:
        entry = (node.op, node.name, str(node.target), repr(node.args), repr(node.kwargs), repr(node.meta.get("val")))
        digest.update(repr(entry).encode())
        digest.update(repr(sorted(map(str, node.meta))).encode())
    digest.update(str(exported.graph_signature).encode())
    for name, tensor in sorted({**exported.state_dict, **exported.constants}.items()):
        digest.update(name.encode())
        if isinstance(tensor, torch.Tensor):
            digest.update(
                bytes(tensor.detach().contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy())
            )
            digest.update(repr((tensor.dtype, tensor.shape, tensor.stride())).encode())
    return digest.hexdigest()


def broken_plan(program: LoweredProgram) -> str:
    """The first rule that the plans of a program break, in words; empty if they keep all."""
    for method in program.methods.values():
        for plan in _plans(method.plan):
            if broken := check_plan(plan):
                return broken
    return ""


def _plans(plan: PartitionPlan) -> Iterator[PartitionPlan]:
    yield plan
    for regions in plan.regions.values():
        for region in regions:
            yield from _plans(region)


def check_plan(plan: PartitionPlan) -> str:
    """Check a plan: every operator in one step, steps after what they need, partitions convex and closed."""
    done: set[Node] = set()
    wanted: set[Node] = set()
    for step in plan.steps:
        members = step.nodes if isinstance(step, Partition) else (step,)
        wanted.update(node for member in members for node in member.graph.nodes if node.op == "call_function")
        for node in members:
            if node in done:
                return f"{node.name} is in two steps"
        inside = set(members)
        for node in members:
            for argument in node.all_input_nodes:
                if argument.op == "call_function" and argument not in inside and argument not in done:
                    return f"{node.name} comes before {argument.name}, which it needs"
        done |= inside
        if isinstance(step, Partition) and (broken := _check_partition(step)):
            return broken
    return "" if done == wanted else f"no step runs {', '.join(sorted(node.name for node in wanted - done))}"


def _check_partition(partition: Partition) -> str:
    inside = set(partition.nodes)
    # Convex: no path leaves the partition and comes back.
    waiting = [user for node in inside for user in node.users if user not in inside]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in inside:
            return f"a partition of {partition.backend} depends on itself through nodes outside, by {node.name}"
        if node not in seen:
            seen.add(node)
            waiting += node.users
    for node in inside:
        if any(user not in inside and user.op != "output" for user in node.users) and node not in partition.outputs:
            return f"{node.name} is used outside of its partition of {partition.backend}, which does not return it"
    given = {*partition.inputs, *partition.constants, *partition.buffers}
    for node in partition.nodes:
        for argument in node.all_input_nodes:
            known = argument in inside or argument in given or isinstance(argument.meta.get("val"), torch.SymInt)
            if not known:
                return f"a partition of {partition.backend} reads {argument.name}, which is not among its inputs"
    return ""


def cases() -> Iterator[Case]:
    """Every arrangement, in shards."""
    for arrangement in ARRANGEMENTS:
        for shard in range(_SHARDS):
            yield GraphCase(arrangement, shard)
