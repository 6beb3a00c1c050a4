"""For the tests of a backend's package: lower one operator or module, run it on both engines, compare with eager.

    def test_gelu() -> None:
        lowered = testkit.lower(torch.nn.GELU(), torch.randn(3, 5), backend="mine")
        testkit.compare(lowered, tolerance=float32_tolerance())

Everything runs in the process of the test, where a debugger sees it; the suite itself (`delegatekit conform`) runs its
cases outside. What needs no core is in `delegatekit_toolkit.testing`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import _pytree as pytree

from delegatekit_toolkit.testing import as_module, assert_same_bits

from . import stock

if TYPE_CHECKING:
    from delegatekit import LoweredProgram
    from delegatekit_api import Partitioner

__all__ = ["ENGINE", "STOCK", "Delegate", "Lowered", "compare", "lower", "refusals"]

#: Engines that run a file: ours, and the stock ExecuTorch runtime.
ENGINE: Final = "delegatekit"
STOCK: Final = "stock"


@dataclass(frozen=True)
class Delegate:
    """One delegate of a file, as its backend wrote it."""

    #: The id under which the runtime on the device knows the backend.
    identifier: str
    blob: bytes
    #: Compile specs, by key.
    compile_specs: Mapping[str, bytes]
    #: Named data of the whole file, by key.
    named_data: Mapping[str, bytes]


@dataclass(frozen=True)
class Lowered:
    """A module, the inputs that it was lowered with, and its file."""

    module: torch.nn.Module
    inputs: tuple[Any, ...]
    program: LoweredProgram
    buffer: bytes

    @property
    def delegates(self) -> tuple[Delegate, ...]:
        """The delegates of the file, in order."""
        from delegatekit import pte

        file = pte.read(self.buffer)
        named = {key: bytes(data) for key, data in file.named_data.items()}
        return tuple(
            Delegate(
                str(table.id),
                bytes(file.delegate_blob(table)),
                {str(spec.key): bytes(spec.value or b"") for spec in table.compile_specs or ()},
                named,
            )
            for plan in file.program.execution_plan or ()
            for table in plan.delegates or ()
        )

    @property
    def delegate(self) -> Delegate:
        """The one delegate. Raises ValueError if there are none, or several."""
        (found,) = self.delegates
        return found

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that can run the file here: ENGINE, and STOCK where that is installed and knows the backend."""
        found = stock.installed()
        only_delegates = all(method.parts == method.delegates for method in self.program.methods.values())
        known = {delegate.identifier for delegate in self.delegates}
        runs = found is not None and found.issuperset(known) and only_delegates
        return (ENGINE, STOCK) if runs else (ENGINE,)

    def run(self, *inputs: Any, engine: str = ENGINE) -> list[torch.Tensor]:
        """The outputs in one call; without inputs, for those that it was lowered with."""
        inputs = inputs or self.inputs
        if engine == ENGINE:
            import delegatekit

            return pytree.tree_leaves(delegatekit.load(self.buffer)["forward"](*inputs))
        # The program does not keep its bytes alive: this object does.
        return list(stock.load(self.buffer)(tuple(inputs)))

    def eager(self, *inputs: Any, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
        """PyTorch's outputs, as the module is, or with module and floating-point inputs converted to `dtype`."""
        inputs, module = inputs or self.inputs, self.module
        if dtype is not None:
            module = copy.deepcopy(module).to(dtype)
            inputs = tuple(item.to(dtype) if _is_floating(item) else item for item in inputs)
        with torch.no_grad():
            return pytree.tree_leaves(module(*inputs))


def lower(
    model: Any,
    *inputs: Any,
    backend: str,
    options: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    whole: bool = True,
) -> Lowered:
    """A module (or a function) lowered for one backend.

    `dynamic_shapes` is that of `torch.export`; a function's inputs are one argument there: `(({0: batch}, None),)`.
    With `whole`, raises AssertionError with the report unless all of it is in one delegate.
    """
    import delegatekit

    module = as_module(model)
    exported = torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes, strict=False)
    program = delegatekit.lower(exported, backends=[backend], options={backend: dict(options or {})})
    if whole:
        (method,) = delegatekit.report(program).methods
        if len(method.delegates) != 1 or method.fallback:
            raise AssertionError(f"not all of it is in one delegate:\n{delegatekit.report(program)}")
    return Lowered(module, inputs, program, program.buffer)


def compare(
    lowered: Lowered,
    *calls: Sequence[Any],
    tolerance: float | None = None,
    engines: Sequence[str] | None = None,
) -> None:
    """Raise AssertionError unless both engines agree with PyTorch in every call.

    `calls` are the inputs of calls; by default the one that it was lowered with. With a `tolerance` (relative, and
    absolute for results around 1) the wanted results are those in double precision; without one they must be PyTorch's
    own, bit by bit. Results that are all within the tolerance of 0 say nothing, and are an error, too. `engines` are by
    default all that can run the file (`Lowered.engines`).
    """
    for engine in lowered.engines if engines is None else engines:
        for call in calls or (lowered.inputs,):
            got = lowered.run(*call, engine=engine)
            want = lowered.eager(*call, dtype=None if tolerance is None else torch.float64)
            assert len(got) == len(want), f"{engine}: {len(got)} outputs instead of {len(want)}"
            for mine, wanted in zip(got, want, strict=True):
                assert mine.shape == wanted.shape, f"{engine}: {tuple(mine.shape)} instead of {tuple(wanted.shape)}"
                if tolerance is None:
                    assert_same_bits(mine, wanted)
                else:
                    result = mine.double() if _is_floating(mine) else mine
                    size = float(wanted.double().abs().max()) if wanted.numel() else 0.0
                    assert not 0 < size < tolerance, f"the largest result is {size:.0e}: within the tolerance of 0"
                    torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance)


def refusals(
    partitioner: Partitioner,
    model: Any,
    *inputs: Any,
    keep: Collection[str] = (),
    dynamic_shapes: Any = None,
) -> list[str]:
    """Reasons why a partitioner does not take calls of a module's edge program, in the order of the calls.

    `keep` are operators that are left whole beyond those that the partitioner keeps.
    """
    from delegatekit.edge import build_edge

    exported = torch.export.export(as_module(model), inputs, dynamic_shapes=dynamic_shapes, strict=False)
    view = build_edge(exported, keep={*partitioner.keep_operators(), *keep}).view
    verdicts = map(partitioner.check, view.calls())
    return [verdict.reason for verdict in verdicts if not verdict.supported]


def _is_floating(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.is_floating_point()
