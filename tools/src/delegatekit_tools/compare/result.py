"""The findings of a comparison, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Measured:
    """The error of a tensor against the referee's, and its bound."""

    #: Largest error relative to the largest value, and its bound; in steps for quantized integers. None if
    #: it could not be measured.
    error: float | None = None
    bound: float | None = None
    #: Largest absolute error; largest error relative to the element itself, of elements that are not tiny.
    absolute: float | None = None
    relative: float | None = None
    #: Signal to quantization noise ratio in dB: infinite without an error.
    sqnr: float | None = None
    #: A fault that no bound excuses, in words; empty if there is none.
    difference: str = ""
    #: Elements of an index, a mask or whole numbers that are not PyTorch's, and as right: their operands are within the
    #: bound. Error and bound are then those of the operands.
    ties: int = 0
    #: True if there is no tensor, since lowering or running failed.
    fails: bool = False

    @property
    def right(self) -> bool:
        """True if it is within its bound."""
        return not self.difference

    @property
    def share(self) -> float:
        """The error as a fraction of the bound."""
        if not self.error:
            return 0.0
        return self.error / self.bound if self.bound else float("inf")


@dataclass(frozen=True)
class Operator:
    """An operator of the lowered program, or several that are lowered together, and its judgment."""

    #: Names of the computing operators, in order: "aten.linear.default".
    operators: tuple[str, ...]
    #: Name of the node in the graph, its place there, and the debug handle: the exported node that it comes from.
    node: str
    position: int
    handle: int | None
    module: str
    source: str
    #: "acme, delegate 0" or "runtime".
    place: str
    measured: Measured = Measured()
    #: The reason why it was not compared; empty if it was.
    skipped: str = ""
    #: Names of all its nodes.
    nodes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The operators in one word."""
        return " + ".join(self.operators)


@dataclass(frozen=True)
class Output:
    """An output of the whole method, or a buffer after the call."""

    name: str
    measured: Measured


@dataclass(frozen=True)
class JudgedPass:
    """A pass that changed the program, and what it did to the results."""

    #: Its name, and its owner if that is a backend: "silu", "FewerAxes(5) of backend acme (acme 1.2)".
    name: str
    #: The number of its changes.
    changes: int
    #: The result that is the furthest from what it was before the pass.
    measured: Measured
    #: The first change after which a value is another one, in words; empty if all results are right.
    change: str = ""
    #: What was changed there.
    operator: Operator | None = None


@dataclass(frozen=True)
class Divergence:
    """The first operator that diverges."""

    operator: Operator
    #: "pass": a pass that changed it changed the program's results; `operator.place` names it. "alone": lowered by
    #: itself it is wrong, or fails. "context": it is right by itself, but wrong together with the
    #: others of `run`, the smallest run of operators that was found to show it.
    kind: str
    run: tuple[Operator, ...]
    #: A Python program that shows it with torch and DelegateKit alone; empty, with the reason, if there is none.
    snippet: str = ""
    no_snippet: str = ""
    #: The data that the snippet reads from a file beside it: too large to be written inline.
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)
