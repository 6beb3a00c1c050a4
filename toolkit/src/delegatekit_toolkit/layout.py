"""Orders of axes: the effect of permutations and reshapes on elements in memory, so that many of them need not run.

An order is what `torch.permute` takes: axis i of the result is axis `order[i]` of the input. Sizes may change
from call to call (`sizes.Size`) where a function says so.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, combinations, pairwise, permutations
from typing import Any, TypeAlias

from .sizes import Size, largest

#: A permutation of axes, as `torch.permute` takes it.
Order: TypeAlias = tuple[int, ...]


def identity(rank: int) -> Order:
    """The order that changes nothing.

    >>> identity(3)
    (0, 1, 2)
    """
    return tuple(range(rank))


def inverse(order: Sequence[int]) -> Order:
    """The permutation that undoes `order`.

    >>> inverse((0, 2, 3, 1))
    (0, 3, 1, 2)
    """
    result = [0] * len(order)
    for position, axis in enumerate(order):
        result[axis] = position
    return tuple(result)


def to_channels_last(rank: int) -> Order:
    """The permutation of (N, C, spatial...) to (N, spatial..., C).

    >>> to_channels_last(4)
    (0, 2, 3, 1)
    """
    return (0, *range(2, rank), 1)


def to_channels_first(rank: int) -> Order:
    """The permutation of (N, spatial..., C) to (N, C, spatial...).

    >>> to_channels_first(4)
    (0, 3, 1, 2)
    """
    return (0, rank - 1, *range(1, rank - 1))


def permuted(shape: Sequence[Size], order: Sequence[int]) -> tuple[Size, ...]:
    """A shape with its axes in another order; sizes may change.

    >>> permuted((1, 3, 8, 9), to_channels_last(4))
    (1, 8, 9, 3)
    """
    return tuple(shape[axis] for axis in order)


def moves_elements(shape: Sequence[Size], order: Sequence[int]) -> bool:
    """True if a permutation changes the order of elements in memory: axes of size 1 move for free. Sizes may change.

    >>> moves_elements((2, 3, 4), (0, 2, 1)), moves_elements((2, 1, 4), (0, 2, 1))
    (True, False)
    """
    moved = [axis for axis in order if shape[axis] != 1]
    return moved != sorted(moved)


def neighbors(order: Sequence[int], units: Container[int] = ()) -> list[list[int]]:
    """The runs of axes that a permutation keeps together, in the order of its result, without axes of size 1 (`units`).

    >>> neighbors((0, 1, 3, 2, 4, 5)), neighbors((0, 2, 3, 1), units=(0,))
    ([[0, 1], [3], [2], [4, 5]], [[2, 3], [1]])
    """
    runs: list[list[int]] = []
    for axis in (axis for axis in order if axis not in units):
        if runs and axis > runs[-1][-1] and all(item in units for item in range(runs[-1][-1] + 1, axis)):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def merged(shape: Sequence[Any], order: Sequence[int]) -> tuple[tuple[Any, ...], Order]:
    """A shape and its permutation with the fewest axes that move the same elements.

    Axes that stay neighbors are merged, those of size 1 dropped. Sizes may change.

    >>> merged((1, 3, 224, 225), to_channels_last(4))
    ((3, 50400), (1, 0))
    """
    runs = neighbors(order, {axis for axis in order if shape[axis] == 1})
    places = sorted(range(len(runs)), key=runs.__getitem__)
    return tuple(product(shape, runs[place]) for place in places), inverse(places)


def product(shape: Sequence[Any], axes: Iterable[int]) -> Any:
    """The elements along some axes of a shape. Sizes may change.

    >>> product((2, 3, 4), (0, 2))
    8
    """
    return math.prod(shape[axis] for axis in axes)


@cache
def steps(order: Order, most: int) -> tuple[Order, ...]:
    """A permutation as several, one after the other, that keep the axes together in at most `most` runs (4 or more).

    >>> steps((0, 1, 3, 2, 4, 5), 5)
    ((0, 1, 3, 2, 4, 5),)
    >>> steps((4, 2, 0, 5, 3, 1), 5)
    ((2, 0, 4, 5, 3, 1), (2, 0, 1, 3, 4, 5))
    """
    if len(neighbors(order)) <= most:
        return (order,)
    # Each step leaves fewer runs: a block that moves to its neighbor cuts the axes into four.
    step = min(_moves(len(order), most), key=lambda move: len(neighbors(_after(move, order))))
    return (step, *steps(_after(step, order), most))


def _after(first: Order, order: Order) -> Order:
    """The permutation that is left to do after the first of several."""
    places = inverse(first)
    return tuple(places[axis] for axis in order)


def _moves(rank: int, most: int) -> Iterator[Order]:
    """All permutations that keep the axes together in at most `most` runs."""
    for cuts in combinations(range(1, rank), most - 1):
        blocks = [range(*ends) for ends in pairwise((0, *cuts, rank))]
        for arranged in permutations(blocks):
            yield tuple(chain(*arranged))


def composed(
    shape: Sequence[int], first: Sequence[int], middle: Sequence[int], second: Sequence[int]
) -> tuple[tuple[int, ...], Order] | None:
    """A permutation, a reshape of its result to `middle`, and another permutation, as one permutation of one shape.

    None if the reshape splits axes so that no single permutation does it. The answer is `merged`: reshape the source to
    the shape, permute it, and reshape to the wanted shape. Sizes are numbers.

    >>> composed((2, 3, 4), (0, 2, 1), (2, 2, 2, 3), (0, 3, 1, 2))  # the second undoes the first
    ((24,), (0,))
    >>> composed((2, 3, 4), (0, 2, 1), (8, 3), (1, 0))
    ((2, 3, 4), (1, 0, 2))
    >>> composed((2, 3), (1, 0), (2, 3), (1, 0)) is None
    True
    """
    ends = [_ends(item) for item in ([shape[axis] for axis in first], middle)]
    cuts = sorted({*ends[0], *ends[1], 1}, reverse=True)
    if any(large % small for large, small in pairwise(cuts)):
        return None
    pieces = [large // small for large, small in pairwise(cuts)]
    # The pieces of each axis of the first result, and of the second's input.
    made, read = ([[*range(cuts.index(start), cuts.index(end))] for start, end in pairwise(item)] for item in ends)
    source = [piece for axis in range(len(shape)) for piece in made[list(first).index(axis)]]
    result = [piece for axis in second for piece in read[axis]]
    return merged([pieces[piece] for piece in source], [source.index(piece) for piece in result])


def _ends(shape: Sequence[int]) -> list[int]:
    """Elements from the start of each axis to the end of the tensor, and from its end."""
    ends = [1]
    for size in reversed(shape):
        ends.append(ends[-1] * size)
    return ends[::-1]


def regroupings(
    before: Sequence[Size], after: Sequence[Size], *, units: bool = False
) -> list[tuple[list[int], list[int]]]:
    """A reshape as the smallest runs of neighboring axes whose products agree: (axes before, axes after) for each run.

    Axes of size 1 are left out, or with `units` assigned as they are met (a run may then have axes on one side only).
    Sizes may change: two products agree if they do in every call. Raises ValueError for shapes with different numbers
    of elements, or none.

    >>> regroupings((6, 1, 4), (2, 3, 4))
    [([0], [0, 1]), ([2], [2])]
    >>> regroupings((1, 8, 1), (1, 8), units=True)
    [([0], [0]), ([1], [1]), ([2], [])]
    """
    old = [axis for axis, size in enumerate(before) if units or size != 1]
    new = [axis for axis, size in enumerate(after) if units or size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = old[i : i + 1], new[j : j + 1]
        product = before[left[0]] if left else 1
        wanted = after[right[0]] if right else 1
        i, j = i + len(left), j + len(right)
        while product != wanted:
            # Sizes that change may differ although they are equal in the largest call: then either side may grow.
            if i < len(old) and (j == len(new) or largest(product) <= largest(wanted)):
                left.append(old[i])
                product = product * before[old[i]]
                i += 1
            elif j < len(new):
                right.append(new[j])
                wanted = wanted * after[new[j]]
                j += 1
            else:
                raise ValueError(f"{tuple(before)} and {tuple(after)} do not have the same number of elements")
        groups.append((left, right))
    return groups
