"""Matrix products, linear layers, Einstein sums and distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..recipe import Recipe, Ref, Values
from .registry import operator
from .sketch import ALL, NUMBERS, Sketch
from .summands import summands

#: Sizes that are several blocks of a product and a rest.
_BLOCKS = (17, 60)


def _size(sketch: Sketch, largest: int = 6) -> int:
    """A size of 1 to `largest`; now and then 0, or several blocks."""
    if sketch.rarely(10):
        return 0
    return sketch.integer(*_BLOCKS) if largest >= _FEW and sketch.rarely(5) else sketch.integer(1, largest)


#: From here on sizes may be blocks: batches, and matrices in batches, have fewer.
_FEW = 6
_SMALL = 5


def _factors(sketch: Sketch, results: Sequence[int], *shapes: Sequence[int]) -> list[Ref]:
    """Operands of a product: the first is an input, the others are mostly weights if one is."""
    values = summands(sketch, results)
    first = sketch.tensor(shapes[0], values=values)
    constant = sketch.rarely(2)
    rest = [
        sketch.weight(shape, values=values) if constant else sketch.tensor(shape, values=values) for shape in shapes[1:]
    ]
    return [first, *rest]


def _scales(sketch: Sketch) -> dict[str, Any]:
    """`beta` and `alpha`, or without them."""
    kwargs = {}
    if sketch.flag():
        kwargs["beta"] = sketch.number()
    if sketch.flag():
        kwargs["alpha"] = sketch.number()
    return kwargs


def _added(sketch: Sketch, results: Sequence[int], scales: dict[str, Any], *, broadcast: bool = True) -> Ref:
    """The tensor that a product is added to. With beta 0 its NaN and infinities do not count, as PyTorch documents."""
    ignored = scales.get("beta") == 0 and sketch.is_float
    values: Values = ("special",) if ignored and sketch.flag() else summands(sketch, results)
    return sketch.tensor(sketch.broadcast(results) if broadcast else results, values=values)


@operator("aten.mm.default", dtypes=NUMBERS)
def _mm(sketch: Sketch, name: str) -> Recipe:
    m, k, n = (_size(sketch) for _ in range(3))
    sketch.call(name, *_factors(sketch, (m, n), (m, k), (k, n)))
    return sketch.recipe(reduction_length=k)


@operator("aten.bmm.default", dtypes=NUMBERS)
def _bmm(sketch: Sketch, name: str) -> Recipe:
    b, m, k, n = _size(sketch, 4), *(_size(sketch, _SMALL) for _ in range(3))
    sketch.call(name, *_factors(sketch, (b, m, n), (b, m, k), (b, k, n)))
    return sketch.recipe(reduction_length=k)


@operator("aten.addmm.default", dtypes=NUMBERS)
def _addmm(sketch: Sketch, name: str) -> Recipe:
    m, k, n = (_size(sketch) for _ in range(3))
    # The plainest form, which compilers fuse, would be rare.
    plain = sketch.rarely(3)
    scales = {} if plain else _scales(sketch)
    left, right = _factors(sketch, (m, n), (m, k), (k, n))
    sketch.call(name, _added(sketch, (m, n), scales, broadcast=not plain), left, right, **scales)
    return sketch.recipe(reduction_length=k + 1, depth=2)


@operator("aten.baddbmm.default", dtypes=NUMBERS)
def _baddbmm(sketch: Sketch, name: str) -> Recipe:
    b, m, k, n = _size(sketch, 4), *(_size(sketch, _SMALL) for _ in range(3))
    scales = _scales(sketch)
    left, right = _factors(sketch, (b, m, n), (b, m, k), (b, k, n))
    sketch.call(name, _added(sketch, (b, m, n), scales), left, right, **scales)
    return sketch.recipe(reduction_length=k + 1, depth=2)


@operator("aten.addbmm.default", dtypes=NUMBERS)
def _addbmm(sketch: Sketch, name: str) -> Recipe:
    b, m, k, n = sketch.integer(1, 4), *(sketch.integer(1, 6) for _ in range(3))
    scales = _scales(sketch)
    left, right = _factors(sketch, (m, n), (b, m, k), (b, k, n))
    sketch.call(name, _added(sketch, (m, n), scales), left, right, **scales)
    return sketch.recipe(reduction_length=b * k + 1, depth=2)


@operator("aten.addmv.default", dtypes=NUMBERS)
def _addmv(sketch: Sketch, name: str) -> Recipe:
    m, k = _size(sketch), _size(sketch)
    scales = _scales(sketch)
    left, right = _factors(sketch, (m,), (m, k), (k,))
    # With nothing to sum up, eager gives the result the shape of the added tensor instead of its own.
    added = _added(sketch, (m,), scales, broadcast=k > 0)
    sketch.call(name, added, left, right, **scales)
    return sketch.recipe(reduction_length=k + 1, depth=2)


@operator("aten.addr.default", dtypes=NUMBERS)
def _addr(sketch: Sketch, name: str) -> Recipe:
    m, n = _size(sketch), _size(sketch)
    scales = _scales(sketch)
    left, right = _factors(sketch, (m, n), (m,), (n,))
    sketch.call(name, _added(sketch, (m, n), scales), left, right, **scales)
    return sketch.recipe(reduction_length=2, depth=2)


@operator("aten.mv.default", dtypes=NUMBERS)
def _mv(sketch: Sketch, name: str) -> Recipe:
    m, k = _size(sketch), _size(sketch)
    sketch.call(name, *_factors(sketch, (m,), (m, k), (k,)))
    return sketch.recipe(reduction_length=k)


@operator("aten.dot.default", "aten.vdot.default", dtypes=NUMBERS)
def _dot(sketch: Sketch, name: str) -> Recipe:
    k = _size(sketch, 12)
    sketch.call(name, *_factors(sketch, (), (k,), (k,)))
    return sketch.recipe(reduction_length=k)


@operator("aten.outer.default", dtypes=ALL)
def _outer(sketch: Sketch, name: str) -> Recipe:
    m, n = _size(sketch), _size(sketch)
    sketch.call(name, *_factors(sketch, (m, n), (m,), (n,)))
    return sketch.recipe()


@operator("aten.matmul.default", dtypes=NUMBERS)
def _matmul(sketch: Sketch, name: str) -> Recipe:
    ranks = (sketch.integer(1, 5), sketch.integer(1, 5))
    k, m, n = (_size(sketch, _SMALL) for _ in range(3))
    batch = [sketch.integer(1, 3) for _ in range(max(0, max(ranks) - 2))]
    left, right = ([size if sketch.rarely(4) is False else 1 for size in _last(batch, rank - 2)] for rank in ranks)
    # Where both are broadcast, the result has a 1, too: a batch size that neither operand has.
    shapes = ([*left, m, k] if ranks[0] > 1 else [k], [*right, k, n] if ranks[1] > 1 else [k])
    results = [*batch, *([m] if ranks[0] > 1 else []), *([n] if ranks[1] > 1 else [])]
    sketch.call(name, *_factors(sketch, results, *shapes))
    return sketch.recipe(reduction_length=k)


def _last(items: list[int], count: int) -> list[int]:
    return items[len(items) - count :] if count > 0 else []


@operator("aten.linear.default", dtypes=NUMBERS)
def _linear(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape(1, 5)
    n = sketch.integer(1, 6)
    results = (*shape[:-1], n)
    values = summands(sketch, results)
    x = sketch.tensor(shape, values=values)
    # A weight vector gives one number for each row.
    vector = sketch.rarely(12)
    arguments = [x, sketch.weight((shape[-1],) if vector else (n, shape[-1]), values=values)]
    if not vector and sketch.flag():
        arguments.append(sketch.weight((n,), values=values))
    sketch.call(name, *arguments)
    return sketch.recipe(reduction_length=shape[-1] + 1)


_EQUATIONS = (
    "ij,jk->ik",
    "ij,kj->ik",
    "bij,bjk->bik",
    "bhid,bhjd->bhij",
    "ij->ji",
    "ij->j",
    "ij->",
    "ii->i",
    "ii",
    "i,j->ij",
    "i,i->",
    "bi,bi->b",
    "bij,bj->bi",
    "...ij,...jk->...ik",
    "bi,oij,bj->bo",
    "ijk,ikl,lm->jm",
)


@operator("torch.einsum", dtypes=NUMBERS)
def _einsum(sketch: Sketch, name: str) -> Recipe:
    equation = sketch.choice(_EQUATIONS)
    operands, _, output = equation.replace("...", "PQ").partition("->")
    sizes = {letter: sketch.integer(1, 4) for letter in sorted(set(operands) - {","})}
    if "->" not in equation:
        output = ""
    shapes = [[sizes[letter] for letter in operand] for operand in operands.split(",")]
    results = [sizes[letter] for letter in output]
    length = math.prod(size for letter, size in sizes.items() if letter not in output)
    sketch.call(name, equation, _factors(sketch, results, *shapes))
    # Products of three factors round once more.
    return sketch.recipe(reduction_length=length, depth=len(shapes))


_POWERS = (2.0, 1.0, 0.0, 3.0, 0.5, math.inf)


@operator("aten._cdist_forward.default", "aten.cdist.default", dtypes=("float32",))
def _cdist(sketch: Sketch, name: str) -> Recipe:
    m, n, k = _size(sketch), _size(sketch), sketch.integer(1, 6)
    batch = [sketch.integer(1, 3) for _ in range(sketch.integer(0, 2))]
    power = sketch.choice(_POWERS)
    # Far from one another: the root of a difference that is almost 0 has lost its digits. 0 counts the differences.
    low, high = (("integers", 0, 2),) * 2 if power == 0.0 else (("uniform", -1.0, 1.0), ("uniform", 2.0, 4.0))
    other = tuple(sketch.broadcast(batch))
    mine, theirs = (batch, other) if sketch.flag() else (other, batch)
    x = sketch.tensor((*mine, m, k), values=low)
    y = sketch.tensor((*theirs, n, k), values=high)
    # 1 computes by a matrix product, 2 does not, 0 chooses by size.
    mode = sketch.choice((None, 0, 2, 1))
    sketch.call(name, x, y, power, mode)
    return sketch.recipe(reduction_length=k, depth=3, exact=power == 0.0)


@operator("aten._pdist_forward.default", dtypes=("float32",))
def _pdist(sketch: Sketch, name: str) -> Recipe:
    rows, k = sketch.integer(2, 6), sketch.integer(1, 5)
    # "distinct" numbers differ by 0.25 or more.
    x = sketch.tensor((rows, k), values=("distinct",), layouts=False)  # eager wants it contiguous
    sketch.call(name, x, sketch.choice(_POWERS))
    return sketch.recipe(reduction_length=k, depth=3)
