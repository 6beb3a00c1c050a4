"""State that a delegate keeps from call to call, and caches that methods share, compared with eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import delegatekit
from delegatekit import pte
from delegatekit_api import FormatError
from delegatekit_conformance import models
from delegatekit_toolkit.testing import payload_of
from delegatekit_vulkan.blob.writer import serialize
from delegatekit_vulkan.ir.graph import PREPACK, Graph, Node, Tensor
from delegatekit_vulkan.ir.stock import BUFFER, VIEW, facts_of
from delegatekit_vulkan.ir.types import DataType
from delegatekit_vulkan.runtime import VulkanRuntime, device

from .blob.test_blob import stock_graph
from .comparison import graphs_of
from .stock import stock_buffer
from .test_stock_calls import spec

pytestmark = pytest.mark.needs_device

X = torch.randn(2, 3)


class Stateful(nn.Module):
    """A function of a module with buffers."""

    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def lowered(module: nn.Module, *inputs: torch.Tensor, whole: bool = True, **options: Any) -> Any:
    """The module with its state; `whole`: one delegate and no operator outside it."""
    dynamic = options.pop("dynamic_shapes", None)
    program = delegatekit.lower(
        copy.deepcopy(module).eval(),
        inputs,
        backends=["vulkan"],
        options={"vulkan": options},
        dynamic_shapes=None if dynamic is None else {"inputs": dynamic},
    )
    (found,) = delegatekit.report(program).methods
    assert not whole or (len(found.delegates) == 1 and not found.fallback), str(delegatekit.report(program))
    return program


def agree(got: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def _average(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.mean.mul_(0.75).add_(x * 0.25)
    return x - m.mean


def _old_and_new(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    before = m.mean.view(3, 2)
    m.mean.add_(x)
    return before * 2, m.mean.view(6) + 1


def _exchanged(m: Any, x: torch.Tensor) -> torch.Tensor:
    first = m.first * 1
    m.first.copy_(m.second)
    m.second.copy_(first)
    return m.first - x


def _product(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.square.copy_(m.square @ m.square * 0.5)
    return x @ m.square


def _repeated(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The new value does not depend on the old one element by element."""
    m.row.copy_(m.row.flip(-1) + x[:1])
    return x * m.row


def _counted(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    m.count.add_(2)
    return x * m.count, m.count + 1


def _last(m: Any, x: torch.Tensor) -> torch.Tensor:
    seen = m.last * 2
    m.last.copy_(x)
    return seen + 1


def _flags(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.seen.logical_or_(x > 1)
    return torch.where(m.seen, x, -x)


STATEFUL = {
    "an average": Stateful(_average, mean=torch.linspace(-1, 1, 6).reshape(2, 3)),
    "old and new value": Stateful(_old_and_new, mean=torch.ones(2, 3)),
    "two that change places": Stateful(_exchanged, first=torch.ones(2, 3), second=torch.zeros(2, 3)),
    "a product with itself": Stateful(_product, square=torch.eye(3) * 2),
    "a row that is turned": Stateful(_repeated, row=torch.arange(3.0).reshape(1, 3)),
    "a count": Stateful(_counted, count=torch.tensor(5)),
    "what was given last": Stateful(_last, last=torch.full((2, 3), 3.0)),
    "booleans": Stateful(_flags, seen=torch.tensor([[True, False, False]] * 2)),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_state_lives_from_call_to_call_in_each_session(name: str) -> None:
    module = STATEFUL[name]
    program = delegatekit.load(lowered(module, X).buffer)
    eager = [copy.deepcopy(module) for _ in range(2)]
    sessions = [program["forward"], program.new_session()["forward"]]
    for which in (0, 0, 1, 0, 1, 1, 0):
        x = torch.randn(2, 3)
        agree(sessions[which](x), eager[which](x))
    program.reset()
    agree(program["forward"](X), copy.deepcopy(module)(X))
    agree(sessions[1](X), eager[1](X))


def test_memory_that_the_host_does_not_see_begins_with_the_first_value_too(monkeypatch: pytest.MonkeyPatch) -> None:
    original = device.Device.memory_type

    def hidden(self: device.Device, allowed: int, *, host: bool) -> tuple[int, bool]:
        kind, visible = original(self, allowed, host=host)
        return kind, visible and host

    monkeypatch.setattr(device.Device, "memory_type", hidden)
    module = copy.deepcopy(STATEFUL["an average"])
    method = delegatekit.load(lowered(module, X).buffer)["forward"]
    for _ in range(3):
        x = torch.randn(2, 3)
        agree(method(x), module(x))


def test_state_is_one_for_all_sizes_of_the_inputs() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.total.add_(x.sum((0, 1)))
        return x * m.total

    module = Stateful(forward, total=torch.zeros(4))
    program = lowered(module, torch.randn(2, 5, 4), dynamic_shapes=({1: Dim("t", min=2, max=20)},))
    method = delegatekit.load(program.buffer)["forward"]
    for length in (5, 20, 2, 3, 4, 6, 7, 8, 9, 10, 11, 5, 20):  # more than the number of recordings kept
        x = torch.randn(2, length, 4)
        agree(method(x), module(x), 1e-5)


@pytest.mark.parametrize(
    ("buffer", "options", "words"),
    [
        (torch.zeros(2, 3), {"buffer_limit": 20}, "has 24 bytes: 20 are the most"),
        (torch.zeros(2, 3, dtype=torch.float64), {}, "float64"),
        (torch.full((2, 3), 1 << 40), {}, "32 bits"),
        (torch.tensor([[0, 1, 2], [3, 4, -(1 << 31) - 1]]), {}, "32 bits"),
    ],
    ids=str,
)
def test_what_the_device_cannot_keep_stays_outside(buffer: torch.Tensor, options: Any, words: str) -> None:
    from delegatekit.edge import build_edge
    from delegatekit_vulkan.options import VulkanOptions
    from delegatekit_vulkan.support import VulkanPartitioner

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.total.add_(1)
        return m.total.float() * 2 + x

    module = Stateful(forward, total=buffer)
    view = build_edge(torch.export.export(module, (X,), strict=False)).view
    (node,) = view.buffers
    reason = VulkanPartitioner(VulkanOptions(**options)).state_reason(view, node)
    assert reason is not None and words in reason


@pytest.mark.parametrize("storage", ["auto", "texture", "buffer"])
def test_state_as_float16_is_what_float16_results_kept_outside_are(storage: str) -> None:
    def outside(m: Any, x: torch.Tensor, total: torch.Tensor) -> Any:
        total = total + x / 3
        return total * 2, total

    def inside(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.total.add_(x / 3)
        return m.total * 2

    total, options = torch.randn(2, 3), {"fp16": True, "storage": storage}
    kept = delegatekit.load(lowered(Stateful(inside, total=total), X, **options).buffer)["forward"]
    given = delegatekit.load(lowered(Stateful(outside), X, total, **options).buffer)["forward"]
    for _ in range(5):
        x = torch.randn_like(X)
        doubled, total = given(x, total)
        assert torch.equal(kept(x), doubled)


# -- rows at computed places -------------------------------------------------------------------------------------------


def _cache(m: Any, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    m.rows.index_copy_(2, index, values.sin())
    return m.rows * 2


def _negative(m: Any, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    m.rows[:, :, index] = values.sin()
    return m.rows * 2


def _first_axis(m: Any, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    m.rows[index] = values.sin()[0, 0]
    return m.rows * 2


@pytest.mark.parametrize("update", [_cache, _negative])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_rows_are_written_where_numbers_say(update: Any, count: int, dtype: torch.dtype) -> None:
    module = Stateful(update, rows=torch.zeros(1, 2, 8, 4, dtype=dtype))
    if dtype is torch.int32:
        module.function = _whole
    values = torch.randn(1, 2, count, 4) * 9
    program = lowered(module, values.to(dtype), torch.arange(count))
    method = delegatekit.load(program.buffer)["forward"]
    for start in (0, 5, 2, 5, 7 - count):
        values, index = (torch.randn(1, 2, count, 4) * 9).to(dtype), torch.randperm(count) + start
        if update is _negative and dtype is torch.float32:
            index = torch.where(index % 2 == 0, index, index - 8)
        agree(method(values, index), module(values, index))


def _whole(m: Any, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    m.rows.index_copy_(2, index, values + 1)
    return m.rows * 2


def test_rows_of_the_first_axis_are_written() -> None:
    module = Stateful(_first_axis, rows=torch.ones(5, 4))
    program = lowered(module, torch.randn(1, 1, 2, 4), torch.tensor([3, 0]))
    method = delegatekit.load(program.buffer)["forward"]
    for index in ([3, 0], [-1, 2], [4, 4]):
        values = torch.randn(1, 1, 2, 4)
        agree(method(values, torch.tensor(index)), module(values, torch.tensor(index)))


def test_as_many_rows_as_the_caller_gives_are_written() -> None:
    module = Stateful(_cache, rows=torch.zeros(1, 2, 16, 4))
    count = Dim("count", min=2, max=8)
    inputs = torch.randn(1, 2, 3, 4), torch.arange(3)
    method = delegatekit.load(lowered(module, *inputs, dynamic_shapes=({2: count}, {0: count})).buffer)["forward"]
    for number in (3, 8, 2, 5):
        values, index = torch.randn(1, 2, number, 4), torch.randperm(16)[:number]
        agree(method(values, index), module(values, index))


def test_infinite_rows_do_not_reach_their_neighbours() -> None:
    module = Stateful(_whole, rows=torch.full((1, 2, 8, 4), torch.nan))
    method = delegatekit.load(lowered(module, torch.randn(1, 2, 2, 4), torch.arange(2)).buffer)["forward"]
    for index in ([0, 1], [5, 3]):
        values = torch.full((1, 2, 2, 4), torch.inf)
        torch.testing.assert_close(
            method(values, torch.tensor(index)), module(values, torch.tensor(index)), equal_nan=True
        )


class Decoder(nn.Module):
    """Two layers of attention with caches; the position is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 24) for _ in range(2))
        for layer in range(2):
            self.register_buffer(f"keys{layer}", torch.zeros(1, 2, 16, 4))
            self.register_buffer(f"values{layer}", torch.zeros(1, 2, 16, 4))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            query, key, value = layer(x).view(1, -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
            keys, values = self.get_buffer(f"keys{index}"), self.get_buffer(f"values{index}")
            keys.index_copy_(2, position, key)
            values.index_copy_(2, position, value)
            mask = torch.arange(16) <= position.view(-1, 1)
            x = x + F.scaled_dot_product_attention(query, keys, values, mask).transpose(1, 2).reshape(x.shape)
        return x


@pytest.mark.parametrize("options", [{}, {"fp16": True}, {"storage": "texture"}, {"storage": "buffer"}], ids=str)
def test_caches_stay_in_the_one_delegate_of_a_decoder(options: Any) -> None:
    torch.manual_seed(3)
    module = Decoder().eval()
    buffer = lowered(module, torch.randn(1, 1, 8), torch.tensor([0]), **options).buffer
    (graph,) = graphs_of(buffer)
    kept = graph.kept()
    assert len(kept) == 4 and all((item.storage, item.memory) == (BUFFER.storage, -1) for item in kept)
    # Written in place: no copies, and the positions are computed once for all layers.
    writers = [node for node in graph.nodes if node.result in kept and node.operator != PREPACK]
    assert all(facts_of(node).pointwise for node in writers) and len(writers) == 4
    assert sum(node.operator == "aten.eq.Tensor" for node in graph.nodes) == 1
    program = delegatekit.load(buffer)
    method, other = program["forward"], program.new_session()["forward"]
    second = copy.deepcopy(module)
    with torch.no_grad():
        for position in range(16):
            x, at = torch.randn(1, 1, 8), torch.tensor([position])
            agree(method(x, at), module(x, at), 2e-2 if options.get("fp16") else 1e-5)
            if position % 3 == 0:
                agree(other(-x, at), second(-x, at), 2e-2 if options.get("fp16") else 1e-5)


def test_a_llama_of_one_method_keeps_its_caches_in_one_delegate() -> None:
    pytest.importorskip("transformers")
    module = models.tiny_llama(16)
    exported = torch.export.export(module, (torch.zeros(1, 1, dtype=torch.int64),), strict=False)
    program = delegatekit.lower(exported, backends=["vulkan"])
    (found,) = delegatekit.report(program).methods
    assert len(found.delegates) == 1 and not found.fallback, str(delegatekit.report(program))
    loaded = delegatekit.load(program.buffer)
    for _ in range(2):
        module.reset()
        loaded.reset()
        for token in (3, 141, 59, 26, 5, 35, 89):
            with torch.no_grad():
                wanted = module(torch.tensor([[token]]))
            agree(loaded["forward"](torch.tensor([[token]])), wanted, 1e-5)


# -- blobs -------------------------------------------------------------------------------------------------------------

_FLOAT = DataType.FLOAT32


def _tensor(*shape: int, data: torch.Tensor | None = None) -> Tensor:
    return Tensor(shape, _FLOAT, _FLOAT, data)


def _blob(nodes: Callable[[Tensor, Tensor, Tensor], list[Node]], *, output_is_state: bool = False) -> Any:
    """A payload with one input, one output, and a state that begins with ones."""
    x, y, state = _tensor(4), _tensor(4), _tensor(4)
    graph = Graph([x], [state if output_is_state else y], nodes(x, y, state))
    verify, Graph.verify = Graph.verify, lambda self: None  # type: ignore[method-assign, assignment]
    try:
        written = serialize(graph)
    finally:
        Graph.verify = verify  # type: ignore[method-assign]
    data = {item.key: memoryview(item.data.numpy()).cast("B") for item in written.named_data}
    return payload_of(written.blob, [spec(torch.ones(4))], [spec(torch.ones(4))], named_data=data)


def _first() -> Tensor:
    return _tensor(4, data=torch.ones(4))


def _execute(payload: Any, *inputs: torch.Tensor) -> list[torch.Tensor]:
    vulkan = VulkanRuntime()
    handle, results = vulkan.init(payload), []
    for x in inputs:
        results.append(torch.empty(4))
        vulkan.execute(handle, [x], results[-1:])
    vulkan.destroy(handle)
    return results


def test_stock_reads_the_state_as_it_writes_its_own() -> None:
    """A constant that is uploaded, and the call whose result is the same value."""
    delegate = one_delegate(lowered(STATEFUL["an average"], X).buffer)
    calls = stock_graph(delegate).chain
    state = next(call.args[-1] for call in calls if call.name == PREPACK)
    assert [call.name for call in calls if call.args[-1] == state] == [PREPACK, "aten.add.Tensor"]


@pytest.mark.slow
def test_blobs_of_the_stock_lowering_with_state_run() -> None:
    module = copy.deepcopy(STATEFUL["an average"])
    module.function = _assigned
    buffer = stock_buffer(copy.deepcopy(module), (X,), alias_buffer_mutations=True)
    (graph,) = graphs_of(buffer)
    assert len(graph.kept()) == 1
    method = delegatekit.load(buffer)["forward"]
    for _ in range(4):
        x = torch.randn(2, 3)
        agree(method(x), module(x))


def _assigned(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.mean.copy_(m.mean * 0.75 + x * 0.25)
    return x - m.mean


def test_mutations_in_place_by_operators_that_read_other_elements_run() -> None:
    """As written by ExecuTorch's option `alias_buffer_mutations`."""

    def nodes(x: Tensor, y: Tensor, state: Tensor) -> list[Node]:
        return [Node(PREPACK, [_first()], state), Node("aten.flip.default", [state, (0,)], state),
                Node("aten.add.Tensor", [state, x, 1], state), Node("aten.mul.Tensor", [state, x], y)]  # fmt: skip

    wanted, results = torch.ones(4), []
    inputs = [torch.arange(4.0) + at for at in range(3)]
    for x in inputs:
        wanted = wanted.flip(0) + x
        results.append(wanted * x)
    agree(_execute(_blob(nodes), *inputs), results)


def test_a_state_may_be_an_output() -> None:
    def nodes(x: Tensor, y: Tensor, state: Tensor) -> list[Node]:
        return [Node(PREPACK, [_first()], state), Node("aten.add.Tensor", [state, x, 1], state)]

    inputs = [torch.arange(4.0) + at for at in range(3)]
    agree(_execute(_blob(nodes, output_is_state=True), *inputs), list((torch.stack(inputs).cumsum(0) + 1).unbind()))


def one_delegate(buffer: bytes) -> bytes:
    file = pte.read(buffer)
    (plan,) = file.program.execution_plan or ()
    (table,) = plan.delegates or ()
    return bytes(file.delegate_blob(table))


def _add(x: Tensor, state: Tensor, result: Tensor) -> Node:
    return Node("aten.add.Tensor", [state, x, 1], result)


DAMAGED = {
    "overwritten before it is there": (
        lambda x, y, s: [Node(VIEW, [x, (4,)], s), Node(PREPACK, [_first()], s), _add(x, s, y)],
        "overwrites a tensor before",
    ),
    "brought to the device twice": (
        lambda x, y, s: [Node(PREPACK, [_first()], s), Node(PREPACK, [_first()], s), _add(x, s, s), _add(x, s, y)],
        "which is the result of",
    ),
    "begins with another size": (
        lambda x, y, s: [
            Node(PREPACK, [_tensor(3, data=torch.ones(3))], s),
            _add(x, s, s),
            _add(x, s, y),
        ],
        "which begins as float32 \\(3,\\)",
    ),
    "an operand that is overwritten, and no state": (
        lambda x, y, s: [Node(VIEW, [x, (4,)], s), _add(x, s, s), _add(x, s, y)],
        "which is the result of",
    ),
    "an input that is overwritten": (
        lambda x, y, s: [Node(PREPACK, [_first()], s), Node(VIEW, [s, (4,)], x), _add(x, s, y)],
        "which is an input",
    ),
    "a new value of another size": (
        lambda x, y, s: [Node(PREPACK, [_first()], s), Node("aten.cat.default", [(s, x), 0], s), _add(x, s, y)],
        "declares the result",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_blobs_that_keep_what_cannot_be_kept_are_refused(name: str) -> None:
    nodes, words = DAMAGED[name]
    with pytest.raises(FormatError, match=words):
        VulkanRuntime().init(_blob(nodes))
