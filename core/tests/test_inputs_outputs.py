"""Inputs and outputs of methods: structures, None, numbers, empty tensors, and wrong calls.

Each program runs in eager, in our engine, which keeps the structure, and in the stock runtime, which takes and returns
flat values.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import delegatekit
from delegatekit_api import ExecutionError, UnsupportedError

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")


@dataclasses.dataclass
class Batch:
    tokens: torch.Tensor
    mask: torch.Tensor | None = None


@dataclasses.dataclass
class Secret:
    """Known to torch.export, without a name for files."""

    value: torch.Tensor


Point = namedtuple("Point", "x y")
Plain = namedtuple("Plain", "x y")  # without a name for files

X, Y = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, -1.0, 2.0])


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    if Batch not in pytree.SUPPORTED_NODES:
        torch.export.register_dataclass(Batch, serialized_type_name="test_inputs_outputs.Batch")
        pytree._register_namedtuple(Point, serialized_type_name="test_inputs_outputs.Point")
        pytree.register_pytree_node(
            Secret,
            lambda secret: ([secret.value], None),
            lambda values, _: Secret(*values),
            flatten_with_keys_fn=lambda secret: ([(pytree.GetAttrKey("value"), secret.value)], None),
        )
    yield


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        return self.function(self, *inputs, **keywords)


def leaves(tree: Any) -> list[Any]:
    return list(pytree.tree_leaves(tree))


def same(found: Any, wanted: Any) -> None:
    assert pytree.tree_structure(found) == pytree.tree_structure(wanted), (found, wanted)
    same_flat(leaves(found), leaves(wanted))


def same_flat(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    assert len(found) == len(wanted)
    for mine, yours in zip(found, wanted, strict=True):
        assert type(mine) is type(yours) or isinstance(yours, nn.Parameter)
        if isinstance(yours, torch.Tensor):
            assert mine.dtype == yours.dtype and torch.equal(mine, yours.detach())
        else:
            assert mine == yours


def lowered(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> bytes:
    return delegatekit.lower(module.eval(), tuple(args), kwargs=dict(kwargs or {}), backends=[]).buffer


def stock(data: bytes, inputs: Sequence[Any]) -> list[Any]:
    return list(_C._load_program_from_buffer(data).load_method("forward")(tuple(inputs)))


def check(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
    """Lower, run everywhere, compare; returns the engine's method."""
    kwargs = dict(kwargs or {})
    with torch.no_grad():
        wanted = module(*copy.deepcopy(tuple(args)), **copy.deepcopy(kwargs))
    data = lowered(module, args, kwargs)
    method = delegatekit.load(data)["forward"]
    same(method(*args, **kwargs), wanted)
    same_flat(stock(data, leaves((tuple(args), kwargs))), leaves(wanted))
    return method


EMPTY = torch.zeros(2, 0, 3)
SCALAR = torch.tensor(2.5)
TABLE = nn.Parameter(torch.arange(6.0).reshape(2, 3))

#: Case -> the body of forward on (self, *inputs), the inputs, and self's attributes.
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "a tensor": (lambda self, x: x + 1, (X,), {}),
    "a tuple of one": (lambda self, x: (x + 1,), (X,), {}),
    "a list of one": (lambda self, x: [x + 1], (X,), {}),
    "a dict": (lambda self, d: {"sum": d["b"] - d["a"]}, ({"a": X, "b": Y},), {}),
    "an ordered dict": (lambda self, d: OrderedDict(b=d["b"], a=d["a"]), (OrderedDict(a=X, b=Y),), {}),
    "a default dict": (lambda self, d: d["a"] - d["b"], (defaultdict(list, {"a": X, "b": Y}),), {}),
    "nested": (
        lambda self, a, b: {"x": [a[0], (b["y"][1] * 2, {"z": a[1]["k"]})], "none": None},
        ((X, {"k": Y}), {"y": [Y, X]}),
        {},
    ),
    "a dataclass": (lambda self, b: Batch(b.tokens * 2, b.mask), (Batch(X, Y),), {}),
    "a dataclass without its optional tensor": (lambda self, b: Batch(b.tokens * 2), (Batch(X),), {}),
    "a named tuple": (lambda self, p: Point(p.y, p.x + 1), (Point(X, Y),), {}),
    "a named tuple in a list": (lambda self, p: [Point(p[0].y, p[0].x), p[0].x], ([Point(X, Y)],), {}),
    "numbers": (lambda self, x, n, s, flag: x * n + s if flag else x, (X, 3, 0.5, True), {}),
    "None": (lambda self, x, mask: x if mask is None else x * mask, (X, None), {}),
    "numbers and None among the outputs": (lambda self, x: (x + 1, 3, 2.5, None, True, "text"), (X,), {}),
    "numbers only among the outputs": (lambda self, x: (3, None), (X,), {}),
    "the input itself": (lambda self, x: x, (X,), {}),
    "inputs and more": (lambda self, x, y: (y, x, x + y), (X, Y), {}),
    "the same twice": (lambda self, x: (s := x * 2, s, [s]), (X,), {}),
    "an input twice": (lambda self, x: (x, x), (X,), {}),
    "a view of an input": (lambda self, x: (x.view(3, 1), x[None], x), (X,), {}),
    "a slice of an input": (lambda self, x: (x[1:], x[0], x.expand(2, 3)), (X,), {}),
    "a view of a result": (lambda self, x: (s := x + 1, s.view(1, 3), s[1:]), (X,), {}),
    "a parameter": (lambda self, x: (self.table, x @ self.table.T), (X,), {"table": TABLE}),
    "a view of a parameter": (lambda self, x: (self.table[1], self.table.T, x), (X,), {"table": TABLE}),
    "a constant": (lambda self, x: (x + 1, torch.tensor([1, 2])), (X,), {}),
    "the same constant twice": (lambda self, x: (self.table, self.table, x), (X,), {"table": TABLE}),
    "constants only": (lambda self, x: (torch.ones(2), self.table), (X,), {"table": TABLE}),
    "no inputs": (lambda self: torch.arange(4) * 2, (), {}),
    "no inputs, a parameter": (lambda self: self.table * 2, (), {"table": TABLE}),
    "no outputs": (lambda self, x: (), (X,), {}),
    "None is the output": (lambda self, x: None, (X,), {}),
    "nothing at all": (lambda self: (), (), {}),
    "an unused input": (lambda self, x, y: x + 1, (X, Y), {}),
    "an unused input in a dict": (lambda self, d: d["a"] + 1, ({"a": X, "b": Y},), {}),
    "empty containers": (lambda self, x, a, b: (x + 1, [], {}, ()), (X, [], {}), {}),
    "no dimensions": (lambda self, s: (s, s * 2, s.view(1), s.reshape(())), (SCALAR,), {}),
    "a constant of no dimensions": (lambda self, x: (self.c, x * self.c), (X,), {"c": nn.Parameter(SCALAR)}),
    "no elements": (lambda self, e: (e, e + 1, e.sum(1), torch.cat([e, e + 1], 1)), (EMPTY,), {}),
    "a constant without elements": (lambda self, x: (self.c, x), (X,), {"c": nn.Parameter(EMPTY)}),
    "no elements in between": (lambda self, x: torch.cat([x[:0] * 2, x, x[3:].exp()]), (X,), {}),
    "no elements but a result": (lambda self, e: (e.sum(), e.view(0, 3).mean(1), e.prod(1)), (EMPTY,), {}),
    "all dtypes": (lambda self, *xs: tuple(xs), tuple(X.to(d) for d in (torch.int8, torch.bool, torch.half)), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_method_takes_and_returns_what_the_module_does(name: str) -> None:
    function, inputs, attributes = CASES[name]
    check(Call(function, **attributes), inputs)


def test_text_is_an_input_like_a_number() -> None:
    data = lowered(Call(lambda self, x, mode: x + 1 if mode == "add" else x), (X, "add"))
    method = delegatekit.load(data)["forward"]
    same(method(X, "add"), X + 1)
    with pytest.raises(ExecutionError, match="was lowered for the value 'add', got 'sub'"):
        method(X, "sub")
    with pytest.raises(RuntimeError, match="Unsupported python type"):
        stock(data, (X, "add"))  # its Python interface takes no text


# -- arguments by name -------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def forward(
        self, x: torch.Tensor, pair: Any = None, scale: float = 1.0, *, mask: Any = None, shift: Any = None
    ) -> torch.Tensor:
        result = x * scale
        if pair is not None:
            result = result + pair["a"] - 3 * pair["b"]
        if mask is not None:
            result = result * mask
        return result if shift is None else result + shift


PAIR = {"a": X, "b": Y}


def test_arguments_may_come_by_position_or_name_in_any_order() -> None:
    method = check(Layer(), (X, PAIR), {"mask": Y, "shift": X})
    with torch.no_grad():
        wanted = Layer()(X, PAIR, mask=Y, shift=X)
    same(method(X, PAIR, shift=X, mask=Y), wanted)
    same(method(shift=X, pair=PAIR, mask=Y, x=X), wanted)
    same(method(X, {"b": Y, "a": X}, mask=Y, shift=X), wanted)


def test_a_parameter_may_be_left_out_if_it_was_none() -> None:
    method = check(Layer(), (X,), {"mask": None, "shift": Y})
    same(method(X, shift=Y), Layer()(X, shift=Y))
    same(method(X, mask=None, shift=Y), Layer()(X, shift=Y))
    same(check(Layer(), (X, None))(X), X)


def test_numbers_stay_what_they_were() -> None:
    method = check(Layer(), (X, PAIR, 2.0), {"mask": Y})
    same(method(X, PAIR, mask=Y, scale=2.0), Layer()(X, PAIR, 2.0, mask=Y))
    with pytest.raises(ExecutionError, match=r"input scale: was lowered for the value 2\.0, got 3\.0"):
        method(X, PAIR, 3.0, mask=Y)
    with pytest.raises(ExecutionError, match="is missing scale"):
        method(X, PAIR, mask=Y)


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "unknown keyword": (lambda m: m(X, PAIR, maks=Y), "has no parameter maks\n.*call with x, pair, mask=..."),
    "missing keyword": (lambda m: m(X, PAIR), "method forward: is missing mask"),
    "missing argument": (lambda m: m(X, mask=Y), "is missing pair"),
    "given twice": (lambda m: m(X, PAIR, x=X, mask=Y), "got x by position and by name"),
    "too many": (lambda m: m(X, PAIR, Y), "takes 2 arguments by position, got 3"),
    "missing key": (lambda m: m(X, {"a": X}, mask=Y), "input pair: is missing the key 'b'"),
    "unknown key": (lambda m: m(X, PAIR | {"c": X}, mask=Y), "input pair: has keys that it was not lowered with: 'c'"),
    "another container": (lambda m: m(X, [X, Y], mask=Y), "input pair: is a list, not a dict"),
    "no container": (lambda m: m(X, X, mask=Y), "input pair: is a Tensor, not a dict"),
    "a container": (lambda m: m([X], PAIR, mask=Y), "input x: is a list, not a tensor or number"),
    "no tensor": (lambda m: m(X, {"a": X, "b": 1}, mask=Y), r"input pair\['b'\]: is 1, not a tensor"),
    "None": (lambda m: m(X, PAIR, mask=None), "input mask: is None, not a tensor"),
    "dtype": (
        lambda m: m(X, {"a": X, "b": Y.double()}, mask=Y),
        r"input pair\['b'\]: has dtype torch.float64, not torch.float32",
    ),
    "shape": (lambda m: m(X, PAIR, mask=Y[:2]), r"input mask: has shape \(2,\), not \(3,\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_names_the_parameter(name: str) -> None:
    call, words = WRONG[name]
    method = delegatekit.load(lowered(Layer(), (X, PAIR), {"mask": Y}))["forward"]
    with pytest.raises(ExecutionError, match=words):
        call(method)
    same(method(X, PAIR, mask=Y), Layer()(X, PAIR, mask=Y))


def test_parts_of_containers_have_the_names_that_lead_to_them() -> None:
    module = Call(lambda self, batch, points: batch.tokens + batch.mask + points[0].x + points[0].y)
    method = check(module, (Batch(X, Y), [Point(X, Y)]))
    wrong = X.double()
    for args, where in (
        ((Batch(X, wrong), [Point(X, Y)]), r"input inputs_0\.mask: has dtype"),
        ((Batch(X, Y), [Point(X, wrong)]), r"input inputs_1\[0\]\.y: has dtype"),
        ((Batch(X), [Point(X, Y)]), "input inputs_0: has 1 items, not 2"),
        ((Batch(X, Y), [(X, Y)]), r"input inputs_1\[0\]: is a tuple, not a namedtuple"),
        ((Batch(X, Y), []), "input inputs_1: has 0 items, not 1"),
    ):
        with pytest.raises(ExecutionError, match=where):
            method(*args)


# -- structures that cannot be written ---------------------------------------------------------------------------------


def test_types_without_a_name_for_files_leave_the_values_flat() -> None:
    module = Call(lambda self, s, t: (Plain(s.value + 1, t), Secret(t)))
    data = lowered(module, (Secret(X), Y))
    method = delegatekit.load(data)["forward"]
    for result in (method(X, Y), method(Secret(X), Y), stock(data, (X, Y))):
        same_flat(list(result), [X + 1, Y, Y])


def test_dicts_beside_them_must_be_given_flat() -> None:
    """A dict of unknown order could be flattened wrongly."""
    module = Call(lambda self, p, d: p.x - d["a"] + 2 * d["b"])
    method = delegatekit.load(lowered(module, (Plain(X, Y), {"a": X, "b": Y})))["forward"]
    same(method(X, Y, X, Y), 2 * Y)
    for args, kwargs in (((Plain(X, Y), {"b": Y, "a": X}), {}), ((X, Y), {"z": X})):
        with pytest.raises(
            ExecutionError, match=r"takes 4 inputs in their flat order: the structure .* is not in the file"
        ):
            method(*args, **kwargs)


# -- strides and storages ----------------------------------------------------------------------------------------------

IMAGE = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))


def test_inputs_may_be_strided_in_any_way() -> None:
    module = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU()).eval()
    method = delegatekit.load(lowered(module, (IMAGE,)))["forward"]
    with torch.no_grad():
        wanted = module(IMAGE)
    wide = torch.zeros(2, 3, 4, 10)
    wide[..., ::2] = IMAGE
    for given in (
        IMAGE.to(memory_format=torch.channels_last),
        wide[..., ::2],
        IMAGE.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        IMAGE.flip(0).flip(0),
    ):
        torch.testing.assert_close(method(given), wanted)
    constant = IMAGE[:1, :1, :1, :1].expand(2, 3, 4, 5)
    torch.testing.assert_close(method(constant), module(constant).detach())


def test_example_inputs_may_be_strided_too() -> None:
    module = Call(lambda self, x: (x.flatten(1), x.transpose(1, 2).reshape(2, -1), x.amax((2, 3)), x + 1))
    given = IMAGE.to(memory_format=torch.channels_last)
    data = lowered(module, (given,))
    wanted = module(IMAGE)
    same(delegatekit.load(data)["forward"](given), wanted)
    same_flat(stock(data, (given,)), list(wanted))  # its binding tells the runtime the order of the dimensions


STORED: dict[str, Callable[[], torch.Tensor]] = {
    "transposed": lambda: torch.arange(600.0).reshape(20, 30).T,
    "a slice": lambda: torch.arange(1200.0).reshape(30, 40)[:, 5:25],
    "every second": lambda: torch.arange(1200.0).reshape(30, 40)[:, ::2],
    "expanded": lambda: torch.arange(30.0)[:, None].expand(30, 20),
    "channels last": lambda: (
        torch.arange(600.0).reshape(1, 20, 5, 6).to(memory_format=torch.channels_last).reshape(30, 20)
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_constants_may_be_strided_in_any_way(name: str) -> None:
    buffer = STORED[name]()
    module = nn.Module()
    module.register_buffer("table", buffer)
    module.forward = lambda x: (x + module.table, module.table.sum(1), module.table)  # type: ignore[method-assign]
    check(module, (torch.ones(30, 20),))


class Tied(nn.Module):
    """Weights that are one tensor, or parts of one storage."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, 16)
        self.head = nn.Linear(16, 500, bias=False)
        self.head.weight = self.embedding.weight
        whole = torch.randn(4, 500)
        self.register_buffer("first", whole[:2])
        self.register_buffer("second", whole[2:])
        self.register_buffer("alias", whole[:2])

    def forward(self, tokens: torch.Tensor) -> Any:
        hidden = self.embedding(tokens)
        return self.head(hidden) + self.first[0] + self.second[1], self.alias + self.first


def test_tied_weights_and_shared_storages_are_stored_once() -> None:
    module = Tied().eval()
    tokens = torch.tensor([3, 1, 499])
    data = lowered(module, (tokens,))
    weights = 500 * 16 * 4 + 4 * 500 * 4
    assert len(data) < weights + 8000, len(data)
    with torch.no_grad():
        wanted = module(tokens)
    for result in (delegatekit.load(data)["forward"](tokens), stock(data, (tokens,))):
        for found, expected in zip(result, wanted, strict=True):
            torch.testing.assert_close(found, expected)


def test_more_dimensions_than_a_file_can_have_are_refused_with_their_place() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + 1).reshape(2, *[1] * 16)

    program = torch.export.export(Model(), (torch.zeros(2),))
    with pytest.raises(UnsupportedError, match="a value with 17 dimensions cannot be stored") as error:
        delegatekit.lower(program, backends=[])
    assert "reshape" in str(error.value) or "view" in str(error.value)
