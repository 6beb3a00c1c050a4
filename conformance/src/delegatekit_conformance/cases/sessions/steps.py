"""The steps of a sequence, as plain data, and the drawing and shrinking of sequences.

Not Hypothesis' own state machine: that draws while it runs, so its examples depend on the backend. A list
of steps can be drawn before anything runs, is the same in every process, and each part of it is a sequence, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from .compiling import again, cached, exchange
from .pairs import SIZES
from .world import Living, World


class Step(Protocol):
    """One possible action of a user."""

    def do(self, world: World) -> None:
        """Do it. Raises Wrong."""
        ...


@dataclass(frozen=True)
class Load:
    """Load a program, from bytes or from a file."""

    program: int = 0
    seed: int = 0
    saved: bool = False
    #: True if its constants lie in data files.
    external: bool = False
    #: True if the first call of each method is profiled.
    profiled: bool = False

    def do(self, world: World) -> None:
        """Load it, if there are not too many."""
        _first(world, world.load(self.program, self.seed, self.saved, self.external), self.profiled)


@dataclass(frozen=True)
class Open:
    """Open a further session of a loaded program."""

    session: int = 0
    #: True if the first call of each method is profiled.
    profiled: bool = False

    def do(self, world: World) -> None:
        """Open it, if there are not too many."""
        _first(world, world.open(self.session), self.profiled)


def _first(world: World, one: Living | None, profiled: bool) -> None:
    """Makes a new session's first calls as profiled ones: the probe after each step makes plain ones."""
    if one is not None and profiled:
        for method in one.methods:
            world.call(one, method, 0, SIZES[0], 0, profiled=True)


@dataclass(frozen=True)
class Call:
    """Call a method of a session."""

    session: int = 0
    method: int = 0
    seed: int = 0
    #: Its place among `SIZES`.
    size: int = 0
    #: Above 0: one element in the middle of the inputs has another value.
    changed: int = 0
    #: True if the inputs are written into the tensors of the former inputs.
    kept: bool = False
    profiled: bool = False

    def do(self, world: World) -> None:
        """Call it."""
        one = world.session(self.session)
        if one is not None:
            method = one.methods[self.method % len(one.methods)]
            world.call(one, method, self.seed, SIZES[self.size], self.changed, self.kept, self.profiled)


@dataclass(frozen=True)
class Between:
    """Load another program, call it, and close it."""

    program: int = 0
    seed: int = 0

    def do(self, world: World) -> None:
        """Do so, if there are not too many sessions."""
        one = world.load(self.program, self.seed, saved=False)
        if one is not None:
            for method in one.methods:
                world.call(one, method, self.seed, SIZES[0], 0)
            world.close(len(world.living) - 1, whole=True)


@dataclass(frozen=True)
class Threads:
    """Call all sessions at the same time."""

    seed: int = 0
    times: int = 8
    others: bool = False

    def do(self, world: World) -> None:
        """Call them."""
        world.together(self.seed, self.times, self.others)


@dataclass(frozen=True)
class Reset:
    """Reset a session, or one of its methods."""

    session: int = 0
    #: Its number; -1 for all methods.
    method: int = -1

    def do(self, world: World) -> None:
        """Reset it."""
        one = world.session(self.session)
        if one is not None:
            world.reset(one, "" if self.method < 0 else one.methods[self.method % len(one.methods)])


@dataclass(frozen=True)
class Close:
    """Close a session, or the program with all its sessions."""

    session: int = 0
    whole: bool = False

    def do(self, world: World) -> None:
        """Close it."""
        world.close(self.session, self.whole)


@dataclass(frozen=True)
class Exchange:
    """Load a program with the data files of another: of the same modules with other weights, or of others."""

    program: int = 0
    seed: int = 0
    #: Distance of the other program.
    further: int = 0

    def do(self, world: World) -> None:
        """Load it, and call it if it is not refused."""
        wanted = world.wanted(self.program, self.seed, external=True)
        exchange(world, wanted, world.wanted(self.program + self.further, 1 - self.seed, external=True))


@dataclass(frozen=True)
class Lower:
    """Lower a program again."""

    program: int = 0
    seed: int = 0
    external: bool = False
    option: int = -1

    def do(self, world: World) -> None:
        """Lower it, and compare with the former result."""
        again(world, world.wanted(self.program, self.seed, self.external, self.option))


@dataclass(frozen=True)
class Cached:
    """Lower a program with the cache of compiled partitions."""

    program: int = 0
    seed: int = 0
    option: int = -1
    #: Content of the file that an option names, if there is such an option; 0: the option is not given.
    file: int = 0

    def do(self, world: World) -> None:
        """Lower it, and compare with the result without the cache."""
        cached(world, world.wanted(self.program, self.seed, option=self.option), self.file)


@dataclass(frozen=True)
class Probe:
    """Call all living sessions again with the inputs of the last call, except one element."""

    changed: int = 0

    def do(self, world: World) -> None:
        """Call them."""
        world.probe(self.changed)


@dataclass(frozen=True)
class Steps:
    """Steps that are done one after the other."""

    #: The first of the programs that the steps number.
    first: int
    steps: tuple[Step, ...]

    def describe(self) -> str:
        """The steps in one line."""
        return ", ".join(_described(step) for step in self.steps if not isinstance(step, Probe))


def _described(step: Any) -> str:
    values = [f"{item.name}={getattr(step, item.name)}" for item in fields(step)]
    told = [text for text, item in zip(values, fields(step), strict=True) if getattr(step, item.name) != item.default]
    return f"{type(step).__name__.lower()}({', '.join(told)})"


# Drawing

_SESSION = st.integers(0, 4)
_PROGRAM = st.integers(0, 2)
_SEED = st.integers(0, 1)

SIZES_OF_ONE = st.builds(Call, st.just(0), size=st.integers(0, len(SIZES) - 1), seed=_SEED, kept=st.booleans())
LOADS = st.builds(Load, _PROGRAM, _SEED, st.booleans(), profiled=st.booleans())
OPENS = st.builds(Open, _SESSION, st.booleans())
CALLS = st.builds(
    Call,
    _SESSION,
    method=st.integers(0, 1),
    seed=st.integers(0, 2),
    size=st.integers(0, len(SIZES) - 1),
    changed=st.integers(0, 3),
    kept=st.booleans(),
    profiled=st.sampled_from([False, False, False, True]),
)
BETWEEN = st.builds(Between, _PROGRAM, _SEED)
THREADS = st.builds(Threads, st.integers(0, 5), st.integers(8, 16), st.booleans())
RESETS = st.builds(Reset, _SESSION, st.sampled_from([-1, -1, 0, 1]))
DATA = st.builds(Load, _PROGRAM, _SEED, st.booleans(), st.just(True))
EXCHANGES = st.builds(Exchange, _PROGRAM, _SEED, st.sampled_from([0, 0, 1]))
LOWERS = st.builds(Lower, _PROGRAM, _SEED, st.booleans(), st.sampled_from([-1, -1, 0, 1, 2, 3]))
CACHED = st.builds(Cached, _PROGRAM, _SEED, st.integers(-1, 7), st.integers(0, 3))
CLOSES = st.builds(Close, _SESSION, st.booleans())


def steps_of(start: Sequence[Step], some: Sequence[SearchStrategy[Any]], length: int) -> SearchStrategy[Any]:
    """Sequences' steps: those of `start`, and `length` to half as many more drawn from `some`; after each, a probe."""
    return st.lists(st.one_of(*some), min_size=length, max_size=length + length // 2).map(
        lambda steps: tuple(_probed((*start, *steps)))
    )


def _probed(steps: Sequence[Step]) -> Iterator[Step]:
    for number, step in enumerate(steps):
        yield step
        # Each call is made twice, with the next step in between.
        yield Probe((number + 1) // 2 % 8)


# Shrinking


def shorter(example: Steps, fails: Callable[[Steps], bool]) -> Steps:
    """The shortest sequence found for which `fails` is true; its exceptions end the search with the best so far."""
    best = example

    def better(steps: Sequence[Step]) -> bool:
        nonlocal best
        candidate = replace(best, steps=tuple(steps))
        if candidate.steps and fails(candidate):
            best = candidate
            return True
        return False

    try:
        while _left_out(lambda: best.steps, better) or _simplified(lambda: best.steps, better):
            pass
    except Exception:
        return best
    return best


def _left_out(steps: Callable[[], Sequence[Step]], better: Callable[[Sequence[Step]], bool]) -> bool:
    """Leaves out steps, halves first, then smaller parts, the last ones first; True if any could be left out."""
    found, size = False, len(steps()) // 2
    while size:
        end = len(steps())
        while end > 0:
            now = steps()
            found |= better((*now[: max(0, end - size)], *now[end:]))
            end -= size
        size //= 2
    return found


def _simplified(steps: Callable[[], Sequence[Step]], better: Callable[[Sequence[Step]], bool]) -> bool:
    """Simplifies a step's number; True if it could be that of the simplest."""
    found = False
    for place in range(len(steps())):
        for item in fields(steps()[place]):  # type: ignore[arg-type]
            now = steps()
            if getattr(now[place], item.name) != item.default:
                simpler: Any = replace(now[place], **{item.name: item.default})  # type: ignore[type-var]
                found |= better((*now[:place], simpler, *now[place + 1 :]))
    return found
