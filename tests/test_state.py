"""Mutable buffers: both engines keep them from call to call and write them back as eager does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from referee import StockProgram, same
from torch import nn

import delegatekit
from delegatekit.pte import read, schema
from delegatekit_api import UnsupportedError


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
    report = delegatekit.lower(exported, backends=[]).report().methods[0]
    assert report.fallback["aten::index_put_"] == 1
    assert report.fallback["aten::copy_"] == 1  # the counter


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


@pytest.mark.parametrize("owns", [True, False])
def test_a_delegate_keeps_a_buffer_only_where_the_plugin_says_so(owns: bool, install_plugin: Any) -> None:
    install_plugin("keeper", _KEEPER.format(owns=owns))
    counter = Counter().eval()
    exported = torch.export.export(copy.deepcopy(counter), (torch.randn(3),), strict=False)
    program = delegatekit.lower(exported, backends=["keeper"])
    (plan,) = read(program.buffer).program.execution_plan or ()
    planned = [name for name, _ in _written(program.buffer)]
    assert planned == ([] if owns else ["seen"])
    assert len(plan.delegates or ()) == 1
    loaded = delegatekit.load(program.buffer)
    for _ in range(2):
        fresh = copy.deepcopy(counter)
        for _ in range(3):
            x = torch.randn(3)
            with torch.no_grad():
                same(loaded["forward"](x), fresh(x))
        loaded.reset()


def test_a_backend_compiles_all_methods_together_if_it_wants(install_plugin: Any) -> None:
    install_plugin("keeper", _KEEPER.format(owns=False))
    x = torch.randn(3)
    methods = {name: torch.export.export(Counter().eval(), (x,), strict=False) for name in ("one", "two")}
    file = read(delegatekit.lower(methods, backends=["keeper"]).buffer)
    specs = [d.compile_specs[0].value for p in file.program.execution_plan or () for d in p.delegates or ()]
    assert specs == [b"2", b"2"]
    assert bytes(file.named_data["shared"]) == b"the same for all"
