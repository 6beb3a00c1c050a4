"""Cases whose one example is a module that a function builds: patterns, sizes that change, state, control flow."""

from __future__ import annotations

import copy
import inspect
import statistics
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import nn

import delegatekit
from delegatekit_toolkit.accuracy import Accuracy, estimate
from delegatekit_toolkit.accuracy.script import COMPARISON

from ..context import Context
from ..outcome import Outcome, Verdict
from ..trial import Subject, try_subject, words
from .base import Case

#: A module in eval mode, the inputs of its calls, and if sizes change, the argument of `torch.export.export` for them.
Built: TypeAlias = "tuple[nn.Module, Sequence[tuple[Any, ...]]] | tuple[nn.Module, Sequence[tuple[Any, ...]], Any]"
#: Builds one, from torch alone: the imports of `_HEAD` are all that its text may use.
Builder: TypeAlias = Callable[[], Built]

#: Runs whose median is the latency.
_RUNS = 5


class SubjectCase(Case):
    """A case of one module.

    The builder's text becomes the snippet, so it must use nothing but `torch` and `nn`; `arguments` are what it is
    called with. The accuracy of the results
    follows from the exported graph (`estimate`). With `stateful`, calls change buffers; `loops` is the
    largest number of rounds of a `while_loop`; with `measure`, the backend is timed against eager.
    """

    def __init__(
        self,
        name: str,
        build: Callable[..., Built],
        *,
        arguments: Mapping[str, Any] | None = None,
        stateful: bool = False,
        loops: int = 1,
        measure: bool = False,
        exact: bool = False,
        cost: float = 0.5,
    ) -> None:
        self.name = name
        self.build = build
        self._arguments = dict(arguments or {})
        self.stateful, self.loops, self.measure, self.exact = stateful, loops, measure, exact
        self._cost = cost

    @property
    def cost(self) -> float:
        """As given."""
        return self._cost

    def describe(self) -> str:
        """The first line of the builder's docstring."""
        return (self.build.__doc__ or self.name).strip().splitlines()[0]

    def examples(self, context: Context) -> Sequence[str]:
        """The module itself."""
        return (self.describe(),)

    def subject(self) -> Subject:
        """The module with its calls. Raises exceptions of the builder and of torch.export."""
        torch.manual_seed(0)
        module, calls, *dynamic = self.build(**self._arguments)
        shapes = dynamic[0] if dynamic else None
        return subject_of(module.eval(), calls, shapes, stateful=self.stateful, loops=self.loops, exact=self.exact)

    def run(self, example: str, context: Context) -> Outcome:
        """A trial of the module."""
        try:
            subject = self.subject()
        except Exception as error:
            return Outcome(Verdict.NOT_EXPORTABLE, words(error), example=example)
        outcome = replace(try_subject(subject, context), example=example)
        if self.measure:
            outcome = measured(outcome, subject, context)
        if outcome.verdict.is_fault or outcome.core:
            outcome = replace(outcome, snippet=self.snippet(example, context))
        return outcome

    def snippet(self, example: str, context: Context) -> str:
        """The builder's text, and code that tries its module."""
        options = f", options={{{context.backend!r}: {dict(context.options)}}}" if context.options else ""
        lowering = _LOWERING.format(backend=context.backend, options=options)
        return script(self.build, lowering, self._arguments)


def subject_of(
    module: nn.Module,
    calls: Sequence[tuple[Any, ...]],
    dynamic_shapes: Any = None,
    *,
    stateful: bool = False,
    loops: int = 1,
    exact: bool = False,
    ill_conditioned: bool = False,
) -> Subject:
    """A subject whose accuracy follows from its exported graph. Raises exceptions of torch.export."""
    module.requires_grad_(False)  # weights that are returned would carry their gradients' history
    subject = Subject(module, tuple(calls), Accuracy(), dynamic_shapes, stateful)
    accuracy = estimate(
        subject.program, loops=loops, calls=len(calls) if stateful else 1, ill_conditioned=ill_conditioned
    )
    found = replace(subject, accuracy=replace(accuracy, exact=exact))
    found.__dict__["program"] = subject.program  # `cached_property` would export it once more
    return found


def measured(outcome: Outcome, subject: Subject, context: Context) -> Outcome:
    """The outcome with the median seconds of one run, on the backend and in eager, if the backend ran anything."""
    if outcome.verdict not in (Verdict.DELEGATED, Verdict.PARTLY):
        return outcome
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        options = context.by_backend
        program = delegatekit.lower(subject.program, backends=[context.backend], options=options)
        method = delegatekit.load(program.buffer)["forward"]
        module, inputs = copy.deepcopy(subject.module), subject.calls[0]
        with torch.no_grad():
            return replace(
                outcome,
                latency=_median(lambda: method.run(inputs)),
                eager_latency=_median(lambda: module(*inputs)),
            )
    except Exception as error:
        return replace(
            outcome, verdict=Verdict.RUN_ERROR, detail=f"the second run fails: {words(error)}", blame="backend"
        )
    finally:
        torch.set_num_threads(threads)


def _median(run: Callable[[], Any]) -> float:
    run()
    seconds = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


class Register:
    """Collects the builders of one room: `@register("name")` above a function."""

    def __init__(self, room: str, **defaults: Any) -> None:
        self.room = room
        self._defaults = defaults
        self._cases: dict[str, SubjectCase] = {}

    def __call__(self, name: str, **settings: Any) -> Callable[[Builder], Builder]:
        """Register a builder; `settings` are those of `SubjectCase`. Raises ValueError for a name in use."""

        def register(build: Builder) -> Builder:
            if name in self._cases:
                raise ValueError(f"two builders are called {self.room}/{name}")
            self._cases[name] = SubjectCase(f"{self.room}/{name}", build, **(self._defaults | settings))
            return build

        return register

    @property
    def cases(self) -> Mapping[str, SubjectCase]:
        """The cases by the names that they were registered under."""
        return self._cases


#: Imports and definitions before the text of a builder.
_HEAD = """import copy
from typing import Any, TypeAlias

import torch
from torch import nn

import delegatekit

Built: TypeAlias = Any

"""
_TAIL = """

torch.manual_seed(0)
module, calls, *dynamic = {name}({arguments})
module.eval()
exact = copy.deepcopy(module).double()
bound = None
with torch.no_grad():
    shapes = dynamic[0] if dynamic else None
    exported = torch.export.export(copy.deepcopy(module), calls[0], dynamic_shapes=shapes, strict=False)
{lowering}
with torch.no_grad():
    for inputs in calls:
        wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
        compare(method(*inputs), exact(*wide), bound)
"""


_LOWERING = """program = delegatekit.lower(exported, backends=["{backend}"]{options})
print(delegatekit.report(program))
method = delegatekit.load(program.buffer)["forward"]"""


def script(build: Callable[..., Built], lowering: str, arguments: Mapping[str, Any] | None = None) -> str:
    """A script that tries a builder's module; `lowering` is the part that makes `method` of `exported`."""
    given = ", ".join(f"{name}={value!r}" for name, value in (arguments or {}).items())
    text = textwrap.dedent(inspect.getsource(build))
    source = text[text.index("def ") :]
    return f"{_HEAD}{COMPARISON}\n\n{source}{_TAIL.format(name=build.__name__, arguments=given, lowering=lowering)}"
