"""What a comparison found, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Measured:
    """How far a tensor is from the referee's, and how far it may be."""

    #: Largest error relative to the largest value, and the bound of that; in steps for quantized integers. None where
    #: it could not be measured.
    error: float | None = None
    bound: float | None = None
    #: Largest absolute error; largest error relative to the element itself, of those of some size.
    absolute: float | None = None
    relative: float | None = None
    #: Signal to quantization noise ratio in dB: infinite without an error.
    sqnr: float | None = None
    #: What no bound excuses, in words; empty if it is right.
    difference: str = ""
    #: Whether there is no tensor, since lowering or running failed.
    fails: bool = False

    @property
    def right(self) -> bool:
        """Whether it is within its bound."""
        return not self.difference

    @property
    def share(self) -> float:
        """How much of the bound the error takes."""
        if not self.error:
            return 0.0
        return self.error / self.bound if self.bound else float("inf")


@dataclass(frozen=True)
class Operator:
    """An operator of the lowered program, or several that are lowered together, and how it was judged."""

    #: Names of what computes, in order: "aten.linear.default".
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
    #: Why it was not compared; empty if it was.
    skipped: str = ""

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
class Divergence:
    """The first operator that diverges."""

    operator: Operator
    #: "alone": lowered by itself it is wrong, or fails. "context": it is right by itself, and wrong together with the
    #: others of `run`, the smallest run of operators that was found to show it.
    kind: str
    run: tuple[Operator, ...]
    #: A Python program that shows it with torch and DelegateKit alone; empty, with the reason, where there is none.
    snippet: str = ""
    no_snippet: str = ""
    #: What the snippet reads from a file beside it: too much to be written out.
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)
