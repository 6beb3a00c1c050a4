"""The planned memory of a method: the space and offset of each value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from delegatekit_api import LoweringError, OptionError
from delegatekit_toolkit.number_text import human_size

from ..errors.foreign import as_ours
from .memory import ALIGNMENT, PLANNERS, MemoryPlan, Placed, Planner, Request, check_plan, largest_load

#: The default space, memory_id 1.
ARENA = "arena"
#: The space of the buffers of a file with several methods: memory_id 2.
STATE = "state"


@dataclass(frozen=True)
class PlannedValue:
    """One piece of planned memory, as `MemoryOptions.spaces` and reports see it.

    Steps are instruction numbers counted from 1; values that exist before the first have step 0, and outputs are
    returned at the step after the last.
    """

    method: str
    #: Names of the nodes whose values lie in it, the fully qualified name for a buffer.
    names: tuple[str, ...]
    #: Bytes.
    size: int
    #: "float32"; of the first value in it.
    dtype: str
    #: Of the first value in it; the upper bound of sizes that change.
    shape: tuple[int, ...]
    first: int
    last: int
    is_input: bool
    is_output: bool
    #: True if it keeps its content from call to call.
    is_buffer: bool
    #: Kernels ("aten::add.out") and backends that write it; "input" if the caller does.
    writers: tuple[str, ...]
    #: Kernels and backends that read it.
    readers: tuple[str, ...]

    @property
    def name(self) -> str:
        """The first of the names."""
        return self.names[0]


@dataclass(frozen=True)
class PlacedValue:
    """A piece of planned memory and its location: the space's memory_id, and the offset in bytes."""

    value: PlannedValue
    memory_id: int
    offset: int


#: A space's name or its memory_id, or several in the order in which they are tried.
Space: TypeAlias = str | int | Sequence[str | int]

#: A large page size.
_LARGEST_ALIGNMENT: Final = 65536


@dataclass(frozen=True)
class MemoryOptions:
    """The options of memory planning.

    `planner`: "best", "greedy", "best-fit", or a function from requests to a plan, which is checked.
    `alignment`: alignment of every value, in bytes; a power of two, at least 16.
    `in_place`: elementwise kernels may write their result over an operand that is not needed any more.
    `views`: slices of leading rows and concatenations along them may be parts of one value instead of copies.
    `spaces`: a function from each planned value to its space: a name, a number (the memory_id of
    the file), or a sequence of them, tried in order: ("sram", "dram"). Names get the memory_ids from 1 in the order
    of `capacities`, then in the order in which they are first used; all methods of a file have the same. Buffers of
    files with several methods are not asked about: they are in the space "state", memory_id 2.
    `capacities`: the capacity of a space in any method in bytes, by name or number.
    Raises OptionError for wrong values.
    """

    planner: str | Planner = "best"
    alignment: int = ALIGNMENT
    in_place: bool = True
    views: bool = True
    spaces: Callable[[PlannedValue], Space] | None = None
    capacities: Mapping[str | int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.planner, str):
            if self.planner not in PLANNERS:
                raise OptionError(f"there is no planner {self.planner!r}", hint=f"planners: {', '.join(PLANNERS)}")
        elif not callable(self.planner):
            raise OptionError(f"planner = {self.planner!r} is neither a name nor a function")
        is_size = isinstance(self.alignment, int) and 16 <= self.alignment <= _LARGEST_ALIGNMENT
        if not is_size or self.alignment & (self.alignment - 1):
            limits = f"of at least 16 and at most {_LARGEST_ALIGNMENT}"
            raise OptionError(f"alignment = {self.alignment!r} is not a power of two {limits}")
        if self.spaces is not None and not callable(self.spaces):
            raise OptionError("spaces is not a function from a value to a space")
        for space, capacity in self.capacities.items():
            if not isinstance(capacity, int) or capacity < 0:
                raise OptionError(f"the capacity of space {space!r} is {capacity!r}, not a number of bytes")


@dataclass(frozen=True)
class PlannedSpace:
    """A space of a method."""

    name: str
    memory_id: int
    #: Bytes that the file asks for.
    size: int
    #: Bytes after the last value because a backend reads beyond its inputs.
    overread: int
    #: Every value begins at a multiple of this many bytes.
    alignment: int


class Spaces:
    """The memory spaces of a file: equal numbers in all methods, and the buffers that outlive a call."""

    def __init__(self, options: MemoryOptions) -> None:
        self.options = options
        self._numbers: dict[str, int] = {}
        #: (method, buffer) -> its place in the space STATE.
        self._state: dict[tuple[str, str], int] = {}
        self._state_overread = 0
        self._plain_numbers: set[int] = set()
        self._capacities: dict[int, int] = {}
        if options.spaces is None:
            self.number(ARENA)

    def keep(self, buffers: Sequence[tuple[int, Sequence[tuple[str, str]]]], overread: int = 0) -> None:
        """Give buffers a space of their own. Each is its bytes, and the methods and names that share it.

        A buffer that several methods share is at the same offset in all of them, and no two buffers of the file
        overlap: a runtime may give all methods one arena per memory_id (the stock one's Python binding does), where
        anything else that a method plans there would overwrite another method's state. `overread` bytes after them may
        be read in any method. To be called before the first plan.
        """
        # Buffers shared by several methods come first: then each method's space ends after its last buffer.
        end = 0
        for size, users in sorted(buffers, key=lambda buffer: (-len(buffer[1]), sorted(buffer[1]))):
            self._state.update(dict.fromkeys(users, end))
            end += Request(size, 0, 0, self.options.alignment).span
        self._state_overread = overread
        if self._state:
            self._numbers[STATE] = 2

    def number(self, space: str | int) -> int:
        """The memory_id of a space."""
        if not isinstance(space, int):
            if space not in self._numbers:
                taken = {*self._numbers.values(), *self._plain_numbers}
                self._numbers[space] = next(n for n in range(1, len(taken) + 2) if n not in taken)
            return self._numbers[space]
        if not 0 < space < 1 << 15:
            raise LoweringError(f"memory spaces are counted from 1: {space} is not valid")
        if space in self._numbers.values():
            raise LoweringError(f"memory space {space} is {self.name(space)!r} already", hint="use its name, or a name")
        self._plain_numbers.add(space)
        return space

    def name(self, number: int) -> str:
        """The name of a space, or its number."""
        return next((name for name, known in self._numbers.items() if known == number), str(number))

    def _prepare(self) -> None:
        for space, capacity in self.options.capacities.items():
            self._capacities[self.number(space)] = capacity

    def plan(
        self, method: str, values: Sequence[PlannedValue], overread: int
    ) -> tuple[list[tuple[int, int]], list[int], tuple[PlannedSpace, ...]]:
        """Plan a method: (memory_id, offset) of each value, the sizes of the spaces from 0 on, and the spaces in use.

        Raises LoweringError, with figures, if something does not fit, and for a wrong plan of a user's planner.
        """
        self._prepare()
        where = f"memory of method {method}"
        requests = [Request(value.size, value.first, value.last, self.options.alignment) for value in values]
        places: list[tuple[int, int]] = [(0, 0)] * len(values)
        sizes: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}
        choices: list[list[int]] = []
        for index, value in enumerate(values):
            kept = self._state.get((method, value.name)) if value.is_buffer else None
            if kept is not None:
                state = self._numbers[STATE]
                places[index] = state, kept
                sizes[state] = max(sizes.get(state, 0), kept + requests[index].span)
                choices.append([state])
                continue
            choices.append(self._choices(value))
            waiting.setdefault(choices[-1][0], []).append(index)
        while waiting:
            # A space without a limit takes everything assigned to it, so it comes after those that may overflow to it.
            number = min(waiting, key=lambda n: (n not in self._capacities, n))
            members = waiting.pop(number)
            capacity = self._capacities.get(number)
            limit = None if capacity is None else capacity - overread
            plan, spilled = self._fit(number, limit, members, requests, values, choices, where)
            for index in spilled:
                rest = choices[index][choices[index].index(number) + 1 :]
                if rest[0] in sizes:
                    raise LoweringError(
                        f"{_words(values[index])} does not fit space {self.name(number)}, and space "
                        f"{self.name(rest[0])}, to which it should go instead, was filled before",
                        where=where,
                        hint="let all values try limited spaces in the same order",
                    )
                waiting.setdefault(rest[0], []).append(index)
            staying = [index for index in members if index not in spilled]
            for index, offset in zip(staying, plan.offsets, strict=True):
                places[index] = number, offset
            sizes[number] = plan.size
        # The memory that a backend reads beyond its inputs must be in the same space.
        kept_at = self._numbers.get(STATE)
        beyond = {number: self._state_overread if number == kept_at else overread for number in sizes}
        sizes = {number: size + beyond[number] for number, size in sizes.items()}
        for number, size in sizes.items():
            if number == kept_at and size > self._capacities.get(number, size):
                raise LoweringError(
                    f"space {STATE} has {self._capacities[number]} bytes, the buffers need {size}", where=where
                )
        used = tuple(
            PlannedSpace(self.name(number), number, sizes[number], beyond[number], self.options.alignment)
            for number in sorted(sizes)
        )
        return places, [sizes.get(number, 0) for number in range(max(sizes, default=1) + 1)], used

    def _choices(self, value: PlannedValue) -> list[int]:
        if self.options.spaces is None:
            return [self.number(ARENA)]
        with as_ours(lambda fault: LoweringError(f"the function `spaces` failed: {fault}", where=value.name)):
            answer = self.options.spaces(value)
        spaces = [answer] if isinstance(answer, str | int) else list(answer) if isinstance(answer, Sequence) else []
        if not spaces or not all(isinstance(space, str | int) and not isinstance(space, bool) for space in spaces):
            raise LoweringError(
                f"spaces answered {answer!r} for value {value.name}",
                where=f"memory of method {value.method}",
                hint='answer with a name, a number from 1, or several: ("sram", "dram")',
            )
        return list(dict.fromkeys(self.number(space) for space in spaces))

    def _fit(
        self,
        number: int,
        capacity: int | None,
        members: Sequence[int],
        requests: Sequence[Request],
        values: Sequence[PlannedValue],
        choices: Sequence[Sequence[int]],
        where: str,
    ) -> tuple[MemoryPlan, set[int]]:
        """Plan one space; returns the values that must go to their next space because it is full."""
        mine = [requests[index] for index in members]
        plan = self._planned(mine, [values[index] for index in members], where)
        if capacity is None or plan.size <= capacity:
            return plan, set()
        # Those without an alternative come first, then the largest: they fill the space best.
        movable = [index for index in members if choices[index][-1] != number]
        bound = [index for index in members if choices[index][-1] == number]
        placed = Placed(mine)
        position = {index: place for place, index in enumerate(members)}
        spilled: set[int] = set()
        for group in (bound, movable):
            for index in sorted(group, key=lambda i: (-requests[i].size, requests[i].first, i)):
                offset = placed.gap(position[index])
                if offset + requests[index].span <= capacity:
                    placed.put(position[index], offset)
                elif group is movable:
                    spilled.add(index)
                else:
                    raise self._full(number, capacity, [values[i] for i in bound], where)
        kept = [index for index in members if index not in spilled]
        return MemoryPlan(tuple(placed.offsets[position[index]] for index in kept), placed.size), spilled

    def _planned(self, requests: Sequence[Request], values: Sequence[PlannedValue], where: str) -> MemoryPlan:
        planner = self.options.planner
        if isinstance(planner, str):
            return PLANNERS[planner](requests)
        with as_ours(lambda fault: LoweringError(f"the planner failed: {fault}", where=where)):
            plan = planner(requests)
        if not isinstance(plan, MemoryPlan):
            raise LoweringError(
                f"the planner returned a {type(plan).__name__}, not a MemoryPlan",
                where=where,
                hint="return delegatekit.MemoryPlan(offsets, size)",
            )
        try:
            check_plan(requests, plan, lambda index: f"value {values[index].name}")
        except LoweringError as error:
            raise LoweringError(error.what, where=where, hint="fix the planner") from None
        return plan

    def _full(self, number: int, capacity: int, values: Sequence[PlannedValue], where: str) -> LoweringError:
        load, step = largest_load([Request(value.size, value.first, value.last) for value in values])
        alive = sorted((v for v in values if v.first <= step <= v.last), key=lambda v: -v.size)
        words = ", ".join(map(_words, alive[:5])) + (f" and {len(alive) - 5} more" if len(alive) > 5 else "")
        return LoweringError(
            f"space {self.name(number)} has {capacity} bytes, but the values that have no other space need "
            f"{load} bytes at step {step}: {words}",
            where=where,
            hint=f'let some of them go elsewhere too, e.g. ("{self.name(number)}", "dram")',
        )


def _words(value: PlannedValue) -> str:
    return f"{value.name} ({human_size(value.size)}, steps {value.first} to {value.last})"
