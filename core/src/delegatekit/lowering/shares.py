"""The shares of the backends and the runtime in a program, the largest that no backend takes, and limits on these."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import floor
from typing import Final, TypeAlias

from torch.fx import Node

from delegatekit_api import Call, LoweringError, Verdict
from delegatekit_api.nodes import is_dynamic, operator_name, source_line
from delegatekit_toolkit.macs import elements, macs
from delegatekit_toolkit.source_paths import short_source

from ..edge import EdgeMethod, called_module, is_precompiled
from ..errors.misuse import WrongArgumentError
from ..partition import PartitionedMethod, PartitionPlan
from .plans import graphs_of, is_work

#: The least share that backends run: of the operators, or of each of "operators" and "macs". 0.95 or "95%".
Minimum: TypeAlias = float | str | Mapping[str, float | str]

OPERATORS, MACS = "operators", "macs"
#: The reason for a node that a backend takes but that is in no delegate.
ONLY_TOGETHER: Final = "takes it only together with operators that compute something"
_NAMED: Final = 3


@dataclass(frozen=True)
class Share:
    """Operators of the edge program, and the multiply-accumulates of one call: graphs of control flow run once."""

    operators: int = 0
    macs: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.operators + other.operators, self.macs + other.macs)


@dataclass(frozen=True)
class LeftOut:
    """Operators of one kind that no backend takes for the same reasons."""

    operator: str
    count: int
    macs: int
    #: Elements of the results.
    elements: int
    #: The module of the first of them, or its source line.
    place: str
    #: Backend -> its reason.
    reasons: Mapping[str, str]

    def __str__(self) -> str:
        size = f", {self.macs:,} MACs" * bool(self.macs) + f" in {short_source(self.place)}" * bool(self.place)
        why = "; ".join(f"{backend}: {reason}" for backend, reason in self.reasons.items())
        return f"{self.operator} x{self.count}{size}" + f": {why}" * bool(why)


@dataclass(frozen=True)
class Shares:
    """Shares of a program. Sizes that change count at their upper bounds, or the example's where they have none."""

    #: Backend -> what it runs, in priority order.
    backends: Mapping[str, Share]
    runtime: Share
    #: What no backend takes, the most multiply-accumulates first, then the most elements.
    left_out: tuple[LeftOut, ...] = ()
    #: True if sizes change in what has multiply-accumulates.
    changing: bool = False

    @property
    def delegated(self) -> Share:
        """The sum of the backends' shares."""
        return reduce(operator.add, self.backends.values(), Share())

    @property
    def total(self) -> Share:
        """The whole program."""
        return self.delegated + self.runtime

    @property
    def is_idle(self) -> bool:
        """True if there is something to compute, and no backend computes any of it."""
        return bool(self.runtime.operators) and not self.delegated.operators

    @property
    def largest(self) -> tuple[LeftOut, ...]:
        """The three largest things that no backend takes."""
        return self.left_out[:_NAMED]

    def lines(self) -> list[str]:
        """The shares, and the largest that no backend takes, in a line each."""
        return [str(self), *(f"  left out: {item}" for item in self.largest)]

    def __str__(self) -> str:
        total, (*parts,) = self.total, ((name, item) for name, item in self.backends.items() if item.operators)
        marked = "nothing is delegated: " if self.is_idle else ""
        parts += [("the runtime", self.runtime)] if self.runtime.operators else []
        said = [f"{name} runs {_of(item, total, whole=not place)}" for place, (name, item) in enumerate(parts)]
        note = " (sizes that change count at their upper bounds)" if self.changing else ""
        return f"{marked}{'; '.join(said) or 'there is nothing to compute'}{note}"


def _of(part: Share, total: Share, *, whole: bool) -> str:
    count = f"{part.operators} of {total.operators} operators" if whole else str(part.operators)
    found = f"{count} ({_percent(part.operators, total.operators)})"
    if not total.macs:
        return found
    return f"{found} and {_percent(part.macs, total.macs)}" + (f" of {total.macs:,} MACs" if whole else "")


def _percent(part: int, whole: int) -> str:
    """A share in percent, rounded down: less than all is never 100."""
    return f"{floor(1000 * part / whole) / 10:.1f} %"


def shares_of(methods: Mapping[str, PartitionedMethod], backends: Sequence[str] = ()) -> Shares:
    """The shares in partitioned methods, of the chosen backends and others that lowered modules were compiled by."""
    runners, runtime, changing = dict.fromkeys(backends, Share()), Share(), False
    found: dict[tuple[str, tuple[tuple[str, str], ...]], LeftOut] = {}
    for edge, plan in (graph for method in methods.values() for graph in graphs_of(method.edge, method.plan)):
        for node in filter(is_work, edge.graph.nodes):
            taker, inside = _run_by(node, plan)
            share = reduce(operator.add, (Share(1, macs(Call(item, edge.view))) for item in inside))
            changing |= share.macs > 0 and is_dynamic(node.meta.get("val"))
            if taker is not None:
                runners[taker] = runners.get(taker, Share()) + share
                continue
            runtime += share
            item = _left_out(node, share, edge, plan)
            key = item.operator, tuple(item.reasons.items())
            found[key] = replace(
                known := found.get(key, replace(item, count=0, macs=0, elements=0)),
                count=known.count + 1,
                macs=known.macs + item.macs,
                elements=known.elements + item.elements,
            )
    left = sorted(found.values(), key=lambda item: (-item.macs, -item.elements))
    return Shares(runners, runtime, tuple(left), changing)


def _run_by(node: Node, plan: PartitionPlan) -> tuple[str | None, Sequence[Node]]:
    """The backend that runs a node, and the operators that this is: those of a lowered module are many."""
    if not is_precompiled(node):
        return plan.taker.get(node), [node]
    delegate = called_module(node).delegate
    return delegate.chosen.backend.name, [item for item in delegate.partition.nodes if is_work(item)] or [node]


def _left_out(node: Node, share: Share, edge: EdgeMethod, plan: PartitionPlan) -> LeftOut:
    stack = node.meta.get("nn_module_stack")
    module = str(next(reversed(stack.values()))[0]) if stack else ""
    return LeftOut(
        operator=operator_name(node),
        count=1,
        macs=share.macs,
        elements=elements(Call(node, edge.view)),
        place=module or source_line(node) or "",
        reasons=reasons_left(plan.verdicts[node]),
    )


def reasons_left(verdicts: Mapping[str, Verdict]) -> dict[str, str]:
    """The reason why each backend does not take a node that is in no delegate, refusals first."""
    refused = {backend: answer.reason for backend, answer in verdicts.items() if not answer.supported}
    return refused | {backend: ONLY_TOGETHER for backend, answer in verdicts.items() if answer.supported}


def parse_minimum(minimum: Minimum | None) -> dict[str, Fraction]:
    """The least share of the operators, and of the MACs, as far as asked for. Raises LoweringError for what is none."""
    if minimum is None:
        return {}
    given = minimum if isinstance(minimum, Mapping) else {OPERATORS: minimum}
    return {name: _share(name, value) for name, value in given.items()}


def _share(name: str, value: float | str) -> Fraction:
    text = str(value).strip()
    try:
        found = Fraction(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        found = Fraction(-1)
    if name not in (OPERATORS, MACS) or not 0 <= found <= 1:
        hint = f"'95%' or 0.95, of {OPERATORS!r} or {MACS!r}"
        raise WrongArgumentError(f"{name} = {value!r} is no share of a program", where="min_delegated", hint=hint)
    return found


def check_minimum(shares: Shares, limits: Mapping[str, Fraction]) -> None:
    """Raise LoweringError, with the largest that is left out, if backends run less than they must."""
    low = [
        f"{_percent(part, whole)} of the {word} are delegated ({part:,} of {whole:,}), {float(100 * least):g} % must be"
        for name, least in limits.items()
        for word in ["MACs" if name == MACS else name]
        for part, whole in [(getattr(shares.delegated, name), getattr(shares.total, name))]
        if part < least * whole
    ]
    if low:
        left = "".join(f"\n    left out: {item}" for item in shares.largest)
        hint = "`explain` shows who would run each operator, and why"
        raise LoweringError(f"{'; '.join(low)}{left}", where="min_delegated", hint=hint)
