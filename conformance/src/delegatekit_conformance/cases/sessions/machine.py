"""The cases: each draws sequences of some kinds of steps over some kinds of programs, and tries them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from delegatekit.plugins import discovery

from ...context import Context
from ...drawing import draw
from ...outcome import Outcome, Verdict
from ..base import Case, NotApplicable
from ..fresh import in_fresh_process
from ..keeping import keeping
from . import steps as s
from .library import Library, library_of
from .programs import Kind
from .script import script_of
from .steps import Step, Steps, shorter, steps_of
from .world import World, Wrong, temporary


@dataclass(frozen=True)
class Focus:
    """The focus of one machine."""

    #: Programs that have all of these traits, and none of those.
    wanted: Collection[str]
    unwanted: Collection[str]
    #: Steps that each sequence begins with, and strategies of those that follow.
    start: tuple[Step, ...]
    some: tuple[Any, ...]
    length: int = 8
    #: True if it is about programs of which delegates keep a buffer, with an option that has them keep more.
    kept: bool = False

    def library(self, context: Context) -> tuple[Library, list[Kind]]:
        """The library and the kinds of this focus. Raises NotApplicable if there are none."""
        library = library_of(keeping(context) if self.kept else context, runnable=False)
        kinds = library.usable(self.wanted, self.unwanted)
        return library, library.keeping(kinds) if self.kept else kinds


class Machine(Case):
    """Sequences of one focus. After each step all living sessions answer as eager does."""

    def __init__(self, name: str, focus: Focus) -> None:
        self.name, self._focus = f"sessions/{name}", focus

    @property
    def cost(self) -> float:
        """Programs are lowered once; then a sequence takes a tenth of a second."""
        return 6.0

    def examples(self, context: Context) -> Sequence[Steps]:
        """Sequences, the first with the first programs, the second with the second ones."""
        count = context.profile.sequences
        drawn = draw(
            steps_of(self._focus.start, self._focus.some, self._focus.length), count, context.seed_of(self.name)
        )
        return [Steps(number, steps) for number, steps in enumerate(drawn)]

    def run(self, example: Steps, context: Context) -> Outcome:
        """Do the steps; on failure, without the backend, too."""
        start = time.perf_counter()
        try:
            available = discovery.get_backend(context.backend).runtime_availability()
            library, kinds = self._focus.library(context)
        except NotApplicable as reason:
            return Outcome(Verdict.NOT_APPLICABLE, str(reason))
        if not available.available:
            return Outcome(Verdict.UNAVAILABLE, available.reason)
        outcome = self._try(example, library, kinds)
        if outcome.verdict.is_fault:
            alone = self._try(example, Library(library.context, ()), kinds)
            core = alone.verdict is outcome.verdict
            outcome = replace(outcome, blame="core" if core else "backend")
            if alone.verdict.is_fault:
                outcome = replace(outcome, core=f"{alone.verdict.value}: {alone.detail}")
        return replace(outcome, seconds=time.perf_counter() - start)

    def _try(self, example: Steps, library: Library, kinds: Sequence[Kind]) -> Outcome:
        with temporary() as folder:
            world = World(library, kinds, example.first, Path(folder))
            try:
                for step in example.steps:
                    step.do(world)
            except Wrong as wrong:
                compared = wrong.compared
                script = script_of(world.script, (*world.used, *world.mentioned))
                return Outcome(
                    wrong.verdict, wrong.detail, snippet=script, error=compared.error, tolerance=compared.tolerance
                )
            finally:
                _close(world)
            used = world.used.values()
            calls = sum(lowered.fallback_calls for lowered in used)
            return Outcome(
                Verdict.PARTLY if calls else Verdict.DELEGATED,
                delegates=sum(lowered.delegates for lowered in used),
                delegated_nodes=sum(lowered.delegated_nodes for lowered in used),
                fallback_calls=calls,
                error=world.worst.error,
                tolerance=world.worst.tolerance,
            )

    def snippet(self, example: Steps, context: Context) -> str:
        """The script, written without running anything."""
        try:
            library, kinds = self._focus.library(context)
            world = World(library, kinds, example.first, Path(), dry=True)
            for step in example.steps:
                step.do(world)
        except (NotApplicable, Wrong):
            return ""
        return script_of(world.script, (*world.used, *world.mentioned))

    def shrink(self, example: Steps, fails: Callable[[Any], bool], context: Context) -> Any:
        """The shortest sequence that fails here, if it fails in a process that did nothing else; or the whole."""
        found = shorter(example, fails)
        if found is example or self._fails_alone(found, context):
            return found
        return example

    def _fails_alone(self, example: Steps, context: Context) -> bool:
        """True if a sequence fails in a fresh process: former work of this one may be part of the fault."""
        try:
            fresh = in_fresh_process(_ALONE, context, (self.name, example, context))
        except Exception:
            return True  # a process that dies is a fault, too
        return bool(fresh.answer["fault"])


_ALONE = """
from delegatekit_conformance.cases import sessions
name, example, context = given
case = next(case for case in sessions.cases() if case.name == name)
answer["fault"] = case.run(example, context).verdict.is_fault
"""


def _close(world: World) -> None:
    """Close all sessions, so that the next sequence starts empty."""
    for one in world.living:
        try:
            one.loaded.close()
        except Exception as error:
            del error  # the step `Close` finds faults of closing


_STATE_START = (s.Load(0), s.Open(0, profiled=True))
_STATE_STEPS = (s.CALLS, s.RESETS, s.RESETS, s.LOADS, s.OPENS, s.CLOSES)

MACHINES = (
    Machine(
        "calls",
        Focus(
            (), ("stateful",), (s.Load(0), s.Load(0, 1), s.Open(0)), (s.CALLS, s.CALLS, s.LOADS, s.CLOSES, s.BETWEEN)
        ),
    ),
    Machine(
        "sizes",
        Focus(
            ("dynamic",),
            (),
            (s.Load(0), s.Open(0)),
            (s.SIZES_OF_ONE, s.SIZES_OF_ONE, s.CALLS, s.CALLS, s.CLOSES, s.BETWEEN),
            length=16,
        ),
    ),
    Machine(
        "state",
        Focus(("stateful",), (), _STATE_START, _STATE_STEPS),
    ),
    Machine("kept-state", Focus(("stateful",), (), _STATE_START, _STATE_STEPS, kept=True)),
    Machine(
        "threads",
        Focus(
            (),
            (),
            (s.Load(0), s.Load(1), s.Open(0), s.Threads()),
            (s.THREADS, s.THREADS, s.LOADS, s.OPENS, s.RESETS),
            length=4,
        ),
    ),
    Machine(
        "data",
        Focus(
            ("weights",),
            (),
            (s.Load(0, external=True), s.Exchange(0)),
            (s.DATA, s.EXCHANGES, s.EXCHANGES, s.CALLS, s.CLOSES),
            length=5,
        ),
    ),
    Machine("compiling", Focus((), (), (s.Load(0),), (s.LOWERS, s.CACHED, s.CACHED, s.DATA), length=5)),
)
