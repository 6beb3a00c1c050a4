"""A base of runtimes that execute a delegate operator by operator, and can time each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from delegatekit_api.profiling import OperatorTime

if TYPE_CHECKING:
    import torch

HandleT = TypeVar("HandleT")


class InterpretingRuntime(ABC, Generic[HandleT]):
    """Methods `execute` and `profile` of a runtime whose one way to run appends what each operator took to a list.

    >>> class Doubling(InterpretingRuntime[str]):
    ...     def run(self, handle, inputs, outputs, times):
    ...         outputs[:] = [2 * item for item in inputs]
    ...         if times is not None:
    ...             times.append(OperatorTime(handle, 0.5))
    >>> result = [0]
    >>> Doubling().execute("twice", [3], result), result
    (None, [6])
    >>> Doubling().profile("twice", [4], result), result
    ([OperatorTime(name='twice', seconds=0.5, key=None)], [8])
    """

    @abstractmethod
    def run(
        self,
        handle: HandleT,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        times: list[OperatorTime] | None,
    ) -> None:
        """Run once with this call's sizes and write the results into `outputs`. Raises ExecutionError.

        With a list of `times`, append to it what each operator took.
        """

    def execute(self, handle: HandleT, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once and write the results into `outputs`. Raises ExecutionError."""
        self.run(handle, inputs, outputs, None)

    def profile(
        self, handle: HandleT, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Sequence[OperatorTime]:
        """As `execute`, and what each operator took. Raises ExecutionError."""
        times: list[OperatorTime] = []
        self.run(handle, inputs, outputs, times)
        return times
