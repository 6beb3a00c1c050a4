"""Mutable buffers: both engines keep them from call to call and write them back as eager does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from referee import StockProgram, same
from torch import nn
from torch.export import Dim

import delegatekit
from delegatekit.pte import read, schema
from delegatekit_api import ExecutionError, PluginError, UnsupportedError


class Stateful(nn.Module):
    """Buffers `cache` (4, 3), `count` (), `total` (3); `function(self, x)` is the forward."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(3, 3)
        self.register_buffer("cache", torch.arange(12.0).view(4, 3))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("total", torch.ones(3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def rows(m: Any, x: torch.Tensor) -> Any:
    m.cache.index_copy_(0, (m.count % 4).view(1), m.layer(x).view(1, 3))
    m.count.add_(1)
    return m.cache.sum(0) + m.total, m.count * 1


def through_a_slice(m: Any, x: torch.Tensor) -> Any:
    m.cache[1:3] = x
    m.cache[:, 0].add_(1)
    return m.cache.clone()


def old_value_returned(m: Any, x: torch.Tensor) -> Any:
    old = m.total.clone()
    m.total.mul_(0.5).add_(x)
    return old, m.total.clone()


def view_before_the_write(m: Any, x: torch.Tensor) -> Any:
    first = m.cache.view(3, 4).sum(1)
    m.cache.index_copy_(0, torch.tensor([2]), x.view(1, 3))
    return first, m.cache.view(12) * 2


def view_across_the_write(m: Any, x: torch.Tensor) -> Any:
    flat = m.cache.view(12)
    m.cache.index_copy_(0, torch.tensor([2]), x.view(1, 3))
    return flat + 1


def copied_first(m: Any, x: torch.Tensor) -> Any:
    flat = m.cache.clone().view(12)
    m.cache.index_put_((torch.tensor([0, 3]),), x)
    return flat, flat * 2, m.cache * 1


def exchanged(m: Any, x: torch.Tensor) -> Any:
    kept = m.total.clone()
    m.total.copy_(m.cache[0])
    m.cache.index_copy_(0, torch.tensor([0]), kept.view(1, 3))
    return x + m.total


def written_twice(m: Any, x: torch.Tensor) -> Any:
    m.total.add_(x)
    middle = m.total * 1
    m.total.mul_(2)
    return middle, m.total * 1


def replaced(m: Any, x: torch.Tensor) -> Any:
    m.total.copy_(x * 2)
    m.count.fill_(7)
    return m.total + 1


def only_read(m: Any, x: torch.Tensor) -> Any:
    return m.cache + x


def converted_alias(m: Any, x: torch.Tensor) -> Any:
    count = m.count.to(torch.int64)
    count.add_(2)
    return x * m.count


def buffer_returned(m: Any, x: torch.Tensor) -> Any:
    m.total.add_(x)
    return m.total


CASES = [
    rows,
    through_a_slice,
    old_value_returned,
    view_before_the_write,
    view_across_the_write,
    copied_first,
    exchanged,
    written_twice,
    replaced,
    only_read,
    converted_alias,
    buffer_returned,
]


@pytest.mark.parametrize("backends", [[], ["xnnpack"]], ids=["runtime", "xnnpack"])
@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_buffers_are_written_as_in_eager(function: Callable[..., Any], backends: list[str]) -> None:
    module = Stateful(function).eval()
    exported = torch.export.export(copy.deepcopy(module), (torch.randn(3),), strict=False)
    buffer = delegatekit.lower(exported, backends=backends).buffer
    stock, engine = StockProgram(buffer).method(), delegatekit.load(buffer)["forward"]
    for _ in range(6):
        x = torch.randn(3)
        with torch.no_grad():
            want = copy.deepcopy(module(x))
        same(stock((x,)), want)
        same(engine(x), want)
    for name, tensor in module.named_buffers():
        if function is not only_read and name in {v[0] for v in _written(buffer)}:
            same(stock.get_attribute(name), tensor)


def _written(buffer: bytes) -> list[tuple[str, schema.Tensor]]:
    (plan,) = read(buffer).program.execution_plan or ()
    tensors = [value.val for value in plan.values or () if isinstance(value.val, schema.Tensor)]
    return [(t.extra_tensor_info.fully_qualified_name or "", t) for t in tensors if t.extra_tensor_info is not None]


def test_rows_of_a_cache_are_written_in_place() -> None:
    exported = torch.export.export(Stateful(rows).eval(), (torch.randn(3),), strict=False)
    report = delegatekit.report(delegatekit.lower(exported, backends=[])).methods[0]
    assert report.fallback["aten::index_put_"] == 1
    assert report.fallback["aten::copy_"] == 1  # the counter


class Cache(nn.Module):
    """A buffer `rows`; `update(rows, values, index)` changes it."""

    def __init__(self, update: Callable[..., Any], sizes: tuple[int, ...] = (2, 2, 16, 4)) -> None:
        super().__init__()
        self.update = update
        self.register_buffer("rows", torch.randn(sizes, generator=torch.Generator().manual_seed(0)))

    def forward(self, values: torch.Tensor, index: torch.Tensor) -> Any:
        self.update(self.rows, values, index)
        return self.rows * 1


def put(place: Callable[[Any], Any]) -> Callable[..., Any]:
    """The update `rows[place(index)] = values`."""

    def update(rows: torch.Tensor, values: torch.Tensor, index: torch.Tensor) -> None:
        rows[place(index)] = values

    return update


def third(index: Any) -> Any:
    return slice(None), slice(None), index


def fill(rows: torch.Tensor, _: torch.Tensor, index: torch.Tensor) -> None:
    rows[:, :, index] = 0.5


THREE = torch.tensor([1, 5, 7])
MASK = torch.arange(256).view(2, 2, 16, 4) % 3 == 0

#: Form -> update, sizes of the values, index, and whether the runtime writes the rows in place.
FORMS: dict[str, tuple[Callable[..., Any], tuple[int, ...], torch.Tensor, bool]] = {
    "whole rows": (put(third), (2, 2, 3, 4), THREE, True),
    "whole rows, int32": (put(third), (2, 2, 3, 4), THREE.int(), True),
    "a row twice": (put(third), (2, 2, 3, 4), torch.tensor([1, 1, 7]), True),
    "first dimension": (put(lambda i: i), (2, 2, 16, 4), torch.tensor([1, 0]), True),
    "last dimension": (put(lambda i: (..., i)), (2, 2, 16, 2), torch.tensor([3, 1]), True),
    "from the end": (put(third), (2, 2, 3, 4), torch.tensor([-1, 5, -7]), True),
    "from the end, int32": (put(third), (2, 2, 3, 4), torch.tensor([-1, 5, -16]).int(), True),
    "known from the end": (put(lambda i: third(torch.tensor([-2]))), (2, 2, 1, 4), THREE, True),
    "one row": (put(lambda i: i), (2, 16, 4), torch.tensor([1]), True),
    "values of one dimension": (put(third), (4,), THREE, True),
    "values of two dimensions": (put(third), (3, 4), THREE, True),
    "values of no dimensions": (put(third), (), THREE, True),
    "values for each batch": (put(third), (2, 1, 3, 4), THREE, True),
    "values with further dimensions": (put(third), (1, 1, 2, 2, 3, 4), THREE, True),
    "a number": (fill, (1,), THREE, True),
    "index of two dimensions": (put(third), (2, 2, 2, 2, 4), torch.tensor([[1, -5], [7, 2]]), True),
    "index of two dimensions, broadcast": (put(third), (2, 4), torch.tensor([[1, 5], [7, 2]]), True),
    "index_copy_": (lambda r, v, i: r.index_copy_(2, i, v), (2, 2, 3, 4), THREE, True),
    "index_fill_": (lambda r, v, i: r.index_fill_(2, i, 1.5), (1,), torch.tensor([-1, 5]), True),
    "index_add_": (lambda r, v, i: r.index_add_(2, i, v), (2, 2, 3, 4), torch.tensor([1, 1, 7]), False),
    "accumulated": (lambda r, v, i: r.index_put_((i, i), v, accumulate=True), (2, 16, 4), torch.tensor([1, 1]), False),
    "two indices": (put(lambda i: (i, slice(None), i)), (2, 2, 4), torch.tensor([1, 0]), False),
    "two indices together": (put(lambda i: (i, i)), (2, 16, 4), torch.tensor([1, -1]), False),
    "two indices, broadcast": (put(lambda i: (i[:, None], slice(None), i)), (4,), torch.tensor([1, 0]), False),
    "mask": (put(lambda i: i), (), MASK, False),
    "mask of one dimension": (put(lambda i: i), (16, 4), torch.tensor([True, False]), False),
    "mask, a value for each": (put(lambda i: i), (86,), MASK, False),
    "in a row": (lambda r, v, i: r[:, 1].__setitem__((slice(None), i), v), (2, 3, 4), THREE, False),
    "transposed": (lambda r, v, i: r.transpose(1, 2).__setitem__((slice(None), i), v), (2, 3, 2, 4), THREE, False),
    "scatter_": (lambda r, v, i: r.scatter_(2, i.view(1, 1, 3, 1).expand(2, 2, 3, 4), v), (2, 2, 3, 4), THREE, False),
    "rows from the buffer": (lambda r, v, i: r.__setitem__(third(i), r[:, :, i + 1] + v), (4,), THREE, True),
    "its own rows": (lambda r, v, i: r.copy_(r.index_copy(0, i, r)), (), torch.tensor([1, 0]), False),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_an_indexed_update_runs_in_both_runtimes(form: str) -> None:
    update, sizes, index, in_place = FORMS[form]
    module = Cache(update).eval()
    lowered = delegatekit.lower(copy.deepcopy(module), (torch.randn(sizes), index), backends=[])
    program = StockProgram(lowered.buffer)
    stock, engine = program.method(), delegatekit.load(lowered.buffer)["forward"]
    for _ in range(3):
        inputs = (torch.randn(sizes), index)
        want = module(*inputs).clone()
        same(stock(inputs), want)
        same(engine(*inputs), want)
    assert ("aten::index_put_" in delegatekit.report(lowered).methods[0].fallback) == in_place


@pytest.mark.parametrize("count", [1, 3])
def test_a_cache_of_batch_one_is_written_in_place(count: int) -> None:
    """Its values lose the batch dimension when they are exported."""
    module = Cache(put(third), (1, 2, 16, 4)).eval()
    values, index = torch.randn(1, 2, count, 4), torch.arange(count) + 2
    lowered = delegatekit.lower(copy.deepcopy(module), (values, index), backends=["xnnpack"])
    want = module(values, index)
    program = StockProgram(lowered.buffer)
    same(program.method()((values, index)), want)
    same(delegatekit.load(lowered.buffer)["forward"](values, index), want)
    fallback = delegatekit.report(lowered).methods[0].fallback
    assert fallback["aten::index_put_"] == 1
    assert "aten::copy_" not in fallback
    assert "aten::expand_copy.out" not in fallback


def test_a_row_out_of_bounds_is_an_error_in_both_runtimes() -> None:
    module = Cache(put(third)).eval()
    values = torch.randn(2, 2, 1, 4)
    lowered = delegatekit.lower(copy.deepcopy(module), (values, torch.tensor([0])), backends=[])
    program = StockProgram(lowered.buffer)
    for row in (16, -17):
        with pytest.raises(RuntimeError, match="0x12"):
            program.method()((values, torch.tensor([row])))
        with pytest.raises(ExecutionError, match="out of bounds"):
            delegatekit.load(lowered.buffer)["forward"](values, torch.tensor([row]))


def test_as_many_rows_as_the_caller_gives_are_written_in_place() -> None:
    module = Cache(put(third), (1, 2, 16, 4)).eval()
    count = Dim("count", max=8)
    lowered = delegatekit.lower(
        copy.deepcopy(module),
        (torch.randn(1, 2, 3, 4), THREE),
        backends=[],
        dynamic_shapes=({2: count}, {0: count}),
    )
    program = StockProgram(lowered.buffer)
    stock, engine = program.method(), delegatekit.load(lowered.buffer)["forward"]
    for number in (3, 8, 1):
        inputs = (torch.randn(1, 2, number, 4), torch.arange(number) * 2 - 3)
        want = module(*inputs).clone()
        same(stock(inputs), want)
        same(engine(*inputs), want)
    assert delegatekit.report(lowered).methods[0].fallback["aten::index_put_"] == 1


def test_a_number_cannot_choose_rows_of_the_buffer_that_it_is_in() -> None:
    def update(rows: torch.Tensor, values: torch.Tensor, index: torch.Tensor) -> None:
        rows.copy_(rows.index_copy(0, rows, values))

    module = Cache(update, (3,))
    module.rows = torch.tensor([1, 2, 0])
    lowered = delegatekit.lower(copy.deepcopy(module), (torch.arange(3), THREE), backends=[])
    program = StockProgram(lowered.buffer)
    stock = program.method()
    for values in (torch.tensor([2, 0, 1]), torch.tensor([0, 2, 1])):
        want = module(values, THREE).clone()
        same(stock((values, THREE)), want)


def test_a_tensor_that_is_no_buffer_cannot_be_written() -> None:
    state = torch.zeros(3)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        state.add_(x)
        return state * 1

    exported = torch.export.export(Stateful(forward).eval(), (torch.randn(3),), strict=False)
    with pytest.raises(UnsupportedError, match=r"(?s)test_state\.py.*not a buffer.*register_buffer"):
        delegatekit.lower(exported, backends=[])


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(self.layer(x).sin())
        return self.seen * 2


class Reader(nn.Module):
    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.layer, self.seen = counter.layer, nn.Buffer(counter.seen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.mul_(0.5)
        return self.layer(x) + self.seen


def test_methods_share_the_buffers_that_their_modules_share() -> None:
    counter = Counter().eval()
    reader = Reader(counter).eval()
    assert reader.seen.data_ptr() == counter.seen.data_ptr()
    x = torch.randn(3)
    methods = {name: torch.export.export(m, (x,), strict=False) for name, m in (("a", counter), ("b", reader))}
    program = delegatekit.lower(methods, backends=["xnnpack"])
    loaded = delegatekit.load(program.buffer)
    # Shared buffers lie in memory 2 at equal offsets, which the stock runtime's Python binding gives to all methods;
    # loading a method sets them to their initial values.
    stock = StockProgram(program.buffer)
    for name in "ab":
        stock.method(name)
    for name in "aabab":
        x = torch.randn(3)
        with torch.no_grad():
            want = {"a": counter, "b": reader}[name](x).clone()
        same(loaded[name](x), want)
        same(stock.method(name)((x,)), [want])


_KEEPER = """
from delegatekit_api import *
import json, torch

class Takes:
    def keep_operators(self): return ()
    def check(self, call):
        node = call.node
        return Verdict.yes() if str(node.target) in ("aten.sin.default", "aten.add.Tensor") else Verdict.no("not mine")
    def propose(self, program): return None
    {decides}

@hookimpl
def describe_backend():
    return BackendDescription(
        "keeper", "keeperBackend", "delegatekit-keeper", "1.2", "keeps state", owns_state={owns}
    )

@hookimpl
def create_partitioner(options): return Takes()

@hookimpl
def preprocess_methods(methods, options):
    # All partitions of all methods in one call: the blob says how many there were.
    import io
    results = {{}}
    total = sum(map(len, methods.values()))
    for name, partitions in methods.items():
        results[name] = []
        for partition in partitions:
            file = io.BytesIO()
            torch.export.save(partition.exported_program, file)
            results[name].append(PreprocessResult(
                file.getvalue(), (CompileSpec("total", str(total).encode()),),
                (NamedData("shared", b"the same for all"),),
            ))
    return results

class Runtime:
    def is_available(self): return Availability(True)
    def init(self, payload):
        import io
        return torch.export.load(io.BytesIO(bytes(payload.blob))).module(check_guards=False)
    def execute(self, handle, inputs, outputs):
        for output, result in zip(outputs, handle(*inputs)):
            output.copy_(result)
    def destroy(self, handle): pass

@hookimpl
def create_runtime(): return Runtime()
"""


_DECIDES = "def state_reason(self, program, buffer): return {} if program.buffers[buffer].name == 'seen' else None"


@pytest.mark.parametrize(
    ("owns", "decides", "kept"),
    [
        (True, "", True),
        (False, "", False),
        (True, _DECIDES.format(None), True),
        (True, _DECIDES.format("'it does not start at zero'"), False),
    ],
)
def test_a_delegate_keeps_a_buffer_only_where_the_plugin_says_so(
    owns: bool, decides: str, kept: bool, install_plugin: Any
) -> None:
    install_plugin("keeper", _KEEPER.format(owns=owns, decides=decides))
    counter = Counter().eval()
    exported = torch.export.export(copy.deepcopy(counter), (torch.randn(3),), strict=False)
    program = delegatekit.lower(exported, backends=["keeper"])
    (plan,) = read(program.buffer).program.execution_plan or ()
    planned = [name for name, _ in _written(program.buffer)]
    assert planned == ([] if kept else ["seen"])
    assert len(plan.delegates or ()) == 1
    loaded = delegatekit.load(program.buffer)
    for _ in range(2):
        fresh = copy.deepcopy(counter)
        for _ in range(3):
            x = torch.randn(3)
            with torch.no_grad():
                same(loaded["forward"](x), fresh(x))
        loaded.reset()


def test_an_answer_about_a_buffer_that_is_none_is_the_plugins_fault(install_plugin: Any) -> None:
    install_plugin("keeper", _KEEPER.format(owns=True, decides=_DECIDES.format(1)))
    with pytest.raises(PluginError, match="what state_reason returned"):
        delegatekit.lower(Counter().eval(), (torch.randn(3),), backends=["keeper"])


def test_no_delegate_keeps_a_buffer_that_several_methods_update(install_plugin: Any) -> None:
    install_plugin("keeper", _KEEPER.format(owns=True, decides=""))
    counter = Counter().eval()
    reader = Reader(counter).eval()
    x = torch.randn(3)
    methods = {
        name: torch.export.export(module, (x,), strict=False) for name, module in (("a", counter), ("b", reader))
    }
    loaded = delegatekit.load(delegatekit.lower(methods, backends=["keeper"]).buffer)
    for name in "aabab":
        x = torch.randn(3)
        with torch.no_grad():
            want = (counter if name == "a" else reader)(x).clone()
        same(loaded[name](x), want)


def test_a_backend_compiles_all_methods_together_if_it_wants(install_plugin: Any) -> None:
    install_plugin("keeper", _KEEPER.format(owns=False, decides=""))
    x = torch.randn(3)
    methods = {name: torch.export.export(Counter().eval(), (x,), strict=False) for name in ("one", "two")}
    file = read(delegatekit.lower(methods, backends=["keeper"]).buffer)
    specs = [d.compile_specs[0].value for p in file.program.execution_plan or () for d in p.delegates or ()]
    assert specs == [b"2", b"2"]
    assert bytes(file.named_data["shared"]) == b"the same for all"
