"""Programs lowered in one order here, and in the opposite order in a fresh process: the files are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from hypothesis import strategies as st

from ...context import Context
from ...drawing import draw
from ...outcome import Outcome, Verdict
from ..base import Broken, Case, Late, NotApplicable
from ..fresh import in_fresh_process
from .library import Library, Wanted, content, library_of
from .script import lowering, orders_script

#: A program's number, the seed of its weights, whether it has data files, and the number of an option (-1: none).
Item: TypeAlias = tuple[int, int, bool, int]
#: Sequences of the other machines for each order: a fresh process takes some seconds.
_SHARE = 12
#: Programs of one order, each with and without an option.
_LENGTH = 10


@dataclass(frozen=True)
class Order:
    """Programs by their numbers, each with a seed, whether it has data files, and the number of an option."""

    items: tuple[Item, ...]

    def describe(self) -> str:
        """The number of programs, and their numbers."""
        return f"lowers {len(self.items)} programs: {', '.join(str(item[0]) for item in self.items)}"


class Orders(Case):
    """The lowering of a program does not depend on earlier lowerings."""

    name = "sessions/orders"

    @property
    def cost(self) -> float:
        """A fresh process for each example."""
        return 10.0

    def examples(self, context: Context) -> Sequence[Order]:
        """Orders. Each program comes with and without an option, so that one could be taken for the other."""
        # Seeds that no other program uses.
        one = st.tuples(st.integers(0, 20), st.integers(10, 11), st.booleans())
        orders = st.lists(one, min_size=_LENGTH, max_size=_LENGTH)
        count = max(1, context.profile.sequences // _SHARE)
        drawn = draw(orders, count + 1, context.seed_of(self.name))[1:]  # the simplest has one program only
        return [Order(tuple(_with_and_without(items))) for items in drawn]

    def run(self, example: Order, context: Context) -> Outcome:
        """Lower them here, and in a fresh process from the last one on."""
        try:
            here = digests(example, context)
            fresh = in_fresh_process(_BACK, context, (replace(example, items=example.items[::-1]), context))
        except NotApplicable as reason:
            return Outcome(Verdict.NOT_APPLICABLE, str(reason))
        except Late as late:
            return Outcome(Verdict.TIMEOUT, str(late), blame="backend")
        except Broken as broken:
            return Outcome(Verdict.VIOLATION, str(broken), blame="backend")
        there: list[str] = fresh.answer["digests"][::-1]
        for item, one, other in zip(example.items, here, there, strict=True):
            if one != other:
                wanted, library = wanted_of(item, context)
                options = library.options_of(wanted)
                what = f"{wanted.kind.name}{f' with {options}' if options else ''}"
                detail = f"{what}: what was lowered before it changes its files"
                return Outcome(Verdict.VIOLATION, detail, blame="backend")
        return Outcome(Verdict.PASSED, f"{len(here)} programs")

    def snippet(self, example: Order, context: Context) -> str:
        """A script that calls itself for the opposite order."""
        wanted = [wanted_of(item, context) for item in example.items]
        return orders_script([(one, lowering(one, library)) for one, library in wanted])

    def shrink(self, example: Order, fails: Callable[[Any], bool], context: Context) -> Any:
        """Two programs that suffice, if there are any."""
        try:
            size = len(example.items) // 2
            while size:
                for start in range(0, len(example.items), size):
                    rest = example.items[:start] + example.items[start + size :]
                    if len(rest) > 1 and fails(replace(example, items=rest)):
                        example = replace(example, items=rest)
                        break
                else:
                    size //= 2
        except Exception:
            return example
        return example


def _with_and_without(items: Sequence[tuple[int, int, bool]]) -> Iterator[Item]:
    for option, (number, seed, external) in enumerate(items):
        yield number, seed, external, option
        yield number, seed, external, -1


_BACK = """
from delegatekit_conformance.cases.sessions.orders import digests
answer["digests"] = digests(*given)
"""


def wanted_of(item: Item, context: Context) -> tuple[Wanted, Library]:
    """The program of an item. Raises NotApplicable if the backend takes none."""
    library = library_of(context, runnable=False)
    kinds = library.usable()
    number, seed, external, option = item
    return Wanted(kinds[number % len(kinds)], seed, external, option), library


def digests(order: Order, context: Context) -> list[str]:
    """Digests of the files of each program, lowered one after the other; the reason for one that is refused."""
    found = []
    for item in order.items:
        wanted, library = wanted_of(item, context)
        try:
            found.append(content(library.lower(wanted)))
        except Exception as error:
            found.append(type(error).__name__)
    return found
