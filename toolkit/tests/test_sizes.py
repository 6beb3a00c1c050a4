"""Sizes that change: the arithmetic of numbers, and no equality that does not hold in every call."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import ShapeEnv, constrain_range

from delegatekit_api import LoweringError
from delegatekit_toolkit.sizes import Dynamic, at_most, dynamic_count, largest, minimum, smallest
from delegatekit_toolkit.symbols import is_bounded, shape_of, size_of
from delegatekit_toolkit.testing import view_of


def symbol(lower, upper):
    """An independent size of the range."""
    size = _ENVIRONMENT.create_unbacked_symint()
    constrain_range(size, min=lower, max=upper)
    return size


_ENVIRONMENT = ShapeEnv()


def test_a_size_is_its_bounds_at_least():
    size = size_of(symbol(3, 9))
    assert isinstance(size, Dynamic)
    assert (largest(size), smallest(size)) == (9, 3)
    assert set(size.calls) == set(range(3, 10))  # a range this small is sampled completely
    assert repr(size) == "3..9"


def test_a_size_with_one_value_is_a_number():
    assert size_of(symbol(4, 4)) == 4
    assert size_of(7) == 7


def test_a_size_that_may_be_0_or_1_is_1_at_least():
    # PyTorch exports for 2 and above and uses the program for 0 and 1, too.
    assert [smallest(size_of(symbol(least, 9))) for least in (0, 1, 2, 3)] == [1, 1, 1, 3]


def test_arithmetic_is_that_of_each_call():
    a, b = size_of(symbol(1, 50)), size_of(symbol(5, 60))
    for result, calls in [
        (a + b, [x + y for x, y in zip(a.calls, b.calls, strict=True)]),
        (a * 3 + 1, [x * 3 + 1 for x in a.calls]),
        (2 * b - a, [2 * y - x for x, y in zip(a.calls, b.calls, strict=True)]),
        (100 - a, [100 - x for x in a.calls]),
        ((b - 1) // 2, [(y - 1) // 2 for y in b.calls]),
        (minimum(b, 20), [min(y, 20) for y in b.calls]),
        (120 // b, [120 // y for y in b.calls]),
        (a % 4, [x % 4 for x in a.calls]),
        (7 % b, [7 % y for y in b.calls]),
    ]:
        assert isinstance(result, Dynamic)
        assert list(result.calls) == calls


def test_what_no_call_changes_is_a_number():
    a = size_of(symbol(1, 50))
    assert (a - a, a // a, (3 * a) // a, (6 * a) % 3) == (0, 1, 3, 0)
    assert minimum(a, 1) == 1


def test_a_size_equals_no_number_and_no_other_size():
    a = size_of(symbol(1, 2))
    assert a not in (1, 2)
    assert a != size_of(symbol(1, 2))


def test_independent_sizes_of_the_smallest_range_all_differ():
    sizes = [size_of(symbol(1, 2)) for _ in range(300)]
    assert len(set(sizes)) == 300


def test_sizes_written_differently_are_equal():
    n = symbol(1, 90)
    a = size_of(n)
    assert size_of((n - 1) // 2 + 1) == (a + 1) // 2
    assert size_of(n * 2 + n) == 3 * a
    assert hash(size_of(n + n)) == hash(2 * a)


def test_order_must_be_asked_for():
    a = size_of(symbol(2, 9))
    with pytest.raises(TypeError):
        a < 3  # noqa: B015
    assert at_most(a, 9)
    assert not at_most(a, 8)
    assert at_most(a, a + 1)
    assert not at_most(a + 1, a)


def test_sizes_without_a_bound_are_refused():
    exported = torch.export.export(torch.nn.ReLU(), (torch.randn(3, 2),), dynamic_shapes=({0: Dim("n")},))
    node = next(node for node in exported.graph.nodes if node.op == "call_function")
    size = node.meta["val"].shape[0]
    assert not is_bounded(size)
    with pytest.raises(LoweringError, match="no upper bound"):
        size_of(size)


def test_the_shape_of_an_operand_has_numbers_and_sizes_that_change():
    length = Dim("length", min=3, max=9)
    view = view_of(torch.relu, torch.ones(5, 2), dynamic_shapes=(({0: length},),))
    (call,) = view.calls()
    changing, fixed = shape_of(call.result)
    assert (largest(changing), smallest(changing), fixed) == (9, 3, 2)
    assert shape_of(call["self"]) == shape_of(call.result)


def test_changing_sizes_of_a_shape_are_counted():
    a = size_of(symbol(1, 9))
    assert [dynamic_count(shape) for shape in ((), (1, 2), (a, 3), (a, 2, a))] == [0, 0, 1, 2]


def test_calls_are_the_same_in_every_process():
    # A blob must not depend on the hash seed.
    n = symbol(1, 1000)
    name = str(n.node.expr)
    import subprocess
    import sys

    code = (
        "from delegatekit_toolkit.symbols import _sampled; import sympy\n"
        f"s = sympy.Symbol({name!r}); print(_sampled(s, ((s, sympy.Integer(1), sympy.Integer(1000)),)).calls)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == str(size_of(n).calls)


def test_sample_calls_see_sizes_that_grow_apart():
    pairs = itertools.combinations([size_of(symbol(1, upper)) for upper in (2, 3, 8, 1000)], 2)
    assert all(a != b and a * b not in (a, b) for a, b in pairs)
