"""Sizes that change from call to call: eager, the Python engine and the stock runtime agree on the same file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from function_module import Function
from referee import StockProgram, check, same
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import delegatekit
from delegatekit.pte import read, schema
from delegatekit_api import ExecutionError, UnsupportedError

N, M = Dim("n", min=1, max=9), Dim("m", min=1, max=7)
SIZES = [3, 9, 1, 2, 8]

#: One input (n, 6): what is computed.
OPERATORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x + x.sum(0),
    "number of rows": lambda x: x * x.shape[0],
    "float of size": lambda x: x / (x.shape[0] * 0.5),
    "view": lambda x: x.view(-1, 2, 3),
    "view with size": lambda x: x.view(x.shape[0], 3, 2).transpose(1, 2),
    "flatten": lambda x: x.flatten(),
    "reshape of permute": lambda x: x.t().reshape(2, 3, -1),
    "unsqueeze": lambda x: x.unsqueeze(1) * x.unsqueeze(0),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1) + 1,
    "slice front": lambda x: x[1:],
    "slice end": lambda x: x[:-1],
    "slice last": lambda x: x[-1:],
    "select last": lambda x: x[-1],
    "slice columns": lambda x: x[:, 1:5:2],
    "split": lambda x: x.split([2, 4], dim=1),
    "chunk": lambda x: x.chunk(3, dim=-1),
    "unbind": lambda x: x.unbind(1),
    "cat": lambda x: torch.cat([x, x + 1, x[:, :2].repeat(1, 3)]),
    "stack": lambda x: torch.stack([x, -x], 1),
    "expand": lambda x: x.unsqueeze(0).expand(2, -1, -1) * 2,
    "expand constant": lambda x: torch.arange(6.0).expand(x.shape[0], 6) + x,
    "zeros": lambda x: torch.zeros(x.shape[0], 2),
    "ones like": lambda x: torch.ones_like(x) * x,
    "full": lambda x: x.new_full((x.shape[0], 3), 2.5),
    "arange": lambda x: torch.arange(x.shape[0]) * 2,
    "arange of half": lambda x: torch.arange(x.shape[0] // 2 + 1),
    "size plus": lambda x: torch.zeros(x.shape[0] * 2 + 1),
    "max of sizes": lambda x: torch.zeros(max(x.shape[0], 4)),
    "mean": lambda x: x.mean(0),
    "mean of columns": lambda x: x.mean(1, keepdim=True),
    "softmax rows": lambda x: x.softmax(0),
    "layer norm": lambda x: F.layer_norm(x, (6,)),
    "matmul with itself": lambda x: x @ x.t(),
    "where": lambda x: torch.where(x > 0, x, x.sum()),
    "cumsum": lambda x: x.cumsum(0),
    "flip": lambda x: x.flip(0),
    "pad": lambda x: F.pad(x, (1, 2)),
    "pad rows": lambda x: F.pad(x, (0, 0, 1, 1)),
    "repeat": lambda x: x.repeat(2, 1),
    "roll": lambda x: x.roll(1, 0),
    "tril": lambda x: (x @ x.t()).tril(),
    "argmax": lambda x: x.argmax(0),
    "topk": lambda x: x.topk(2, dim=1),
    "index": lambda x: x[:, torch.tensor([5, 0, 3])],
    "embedding": lambda x: F.embedding(x.abs().long().clamp(max=3), torch.arange(8.0).view(4, 2)),
    "causal attention": lambda x: F.scaled_dot_product_attention(
        x.view(1, -1, 2, 3).transpose(1, 2),
        x.view(1, -1, 2, 3).transpose(1, 2),
        x.view(1, -1, 2, 3).transpose(1, 2),
        is_causal=True,
    ),
    "size returned": lambda x: (x * 2, x.shape[0]),
    "size alone": lambda x: x.shape[0] + 1,
    "var": lambda x: x.var(0),
    "group norm": lambda x: F.group_norm(x.unsqueeze(2), 2),
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "std": lambda x: x.std(1),
}


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Norms of few numbers magnify roundings: random numbers must not depend on earlier tests."""
    torch.manual_seed(0)


@pytest.mark.sweep
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_with_a_size_that_changes(name: str) -> None:
    function = OPERATORS[name]
    # PyTorch's export assumes that a slice's result has not exactly one row.
    least = {"slice front": 3, "slice end": 3, "var": 2}.get(name, 1)
    dim = Dim("n", min=least, max=9)
    calls = [(torch.randn(max(n, least), 6),) for n in SIZES]
    check(Function(function), (torch.randn(3, 6),), calls, dynamic_shapes={"inputs": ({0: dim},)})


def test_two_sizes_and_what_is_computed_of_them() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> Any:
        both = torch.cat([x, y], 1)
        return both, both.shape[1], (x.unsqueeze(2) * y.unsqueeze(1)).reshape(x.shape[0], -1), both.transpose(0, 1)

    calls = [(torch.randn(n, m), torch.randn(n, m + 1)) for n, m in ((3, 4), (9, 7), (1, 1), (2, 7), (9, 1))]
    check(Function(forward), calls[0], calls, dynamic_shapes={"inputs": ({0: N, 1: M}, {0: N, 1: M + 1})})


def test_a_size_that_is_a_multiple_of_what_the_caller_chooses() -> None:
    half = Dim("half", min=1, max=5)
    calls = [(torch.randn(2 * n, 4),) for n in (3, 5, 1, 2)]
    check(
        Function(lambda x: (x[: x.shape[0] // 2] * x[x.shape[0] // 2 :], torch.arange(x.shape[0] // 2))),
        calls[0],
        calls,
        dynamic_shapes={"inputs": ({0: 2 * half},)},
    )


def test_convolutions_with_changing_batch_and_image() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )
    sizes = [(2, 16, 24), (4, 32, 8), (1, 8, 8), (4, 16, 32)]
    calls = [(torch.randn(n, 3, h, w),) for n, h, w in sizes]
    dims = {0: Dim("b", max=4), 2: 8 * Dim("h", max=4), 3: 8 * Dim("w", max=4)}
    check(net, calls[0], calls, dynamic_shapes={"input": dims})


def test_a_transformer_layer_with_changing_batch_and_length() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    calls = [(torch.randn(b, t, 16),) for b, t in ((2, 5), (4, 12), (1, 1), (3, 12), (4, 2))]
    check(layer, calls[0], calls, dynamic_shapes={"src": {0: Dim("b", max=4), 1: Dim("t", max=12)}})


def test_a_number_read_from_a_tensor_bounds_a_size() -> None:
    def forward(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        count = n.item()
        torch._check(count >= 1)
        torch._check(count <= 6)
        return x[:count] * 2

    calls = [(torch.randn(6, 2), torch.tensor(n)) for n in (3, 6, 1)]
    check(Function(forward), calls[0], calls)


def test_a_number_read_from_a_tensor_says_where_a_row_is_written() -> None:
    def forward(cache: torch.Tensor, row: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        place = n.item()
        torch._check(place >= 0)
        torch._check(place < 8)
        rows = cache.clone()
        rows.narrow(1, place, 1).copy_(row)
        return rows * 2

    calls = [(torch.randn(2, 8, 4), torch.randn(2, 1, 4), torch.tensor(n)) for n in (3, 0, 7)]
    check(Function(forward), calls[0], calls)


def test_the_file_has_the_largest_sizes() -> None:
    program = check(Function(lambda x: x.t() * 2), (torch.randn(3, 6),), [], dynamic_shapes={"inputs": ({0: N},)})
    (plan,) = read(program.buffer).program.execution_plan or ()
    tensors = [value.val for value in plan.values or () if isinstance(value.val, schema.Tensor)]
    assert [(t.sizes, t.shape_dynamism) for t in tensors] == [([9, 6], 1), ([6, 9], 1), ([6, 9], 1)]


def test_a_size_above_the_bound_is_refused_by_both_engines() -> None:
    module = Function(lambda x: x * 2)
    exported = torch.export.export(module, (torch.randn(3, 6),), dynamic_shapes={"inputs": ({0: N},)})
    buffer = delegatekit.lower(exported, backends=[]).buffer
    with pytest.raises(RuntimeError, match="0x10"):
        StockProgram(buffer).method()((torch.randn(10, 6),))
    method = delegatekit.load(buffer)["forward"]
    with pytest.raises(Exception, match=r"input .*\(10, 6\)"):
        method(torch.randn(10, 6))
    same(method(torch.ones(9, 6)), torch.full((9, 6), 2.0))


def _sizes_method(dims: Any, *shapes: tuple[int, ...]) -> Any:
    """The lowered sum of all elements of each input, whose sizes change as `dims` says."""
    examples = tuple(torch.ones(shape) for shape in shapes)
    module = Function(lambda *args: [x.sum() for x in args])
    exported = torch.export.export(module, examples, dynamic_shapes={"inputs": dims})
    return delegatekit.load(delegatekit.lower(exported, backends=[]).buffer)["forward"]


#: What does not fit -> how sizes change, sizes of the example, of calls that are right, and of one that is not; why.
WRONG_SIZES: dict[str, tuple[Any, list[Any], list[Any], list[Any], str]] = {
    "a fixed axis beside one that changes": (
        ({0: N},),
        [(2, 3, 4)],
        [[(3, 3, 4)], [(9, 3, 4)]],
        [(3, 2, 4)],
        r"\(3, 2, 4\): axis 1 must be 3$",
    ),
    "above the bound": (({0: N},), [(2, 3)], [[(9, 3)]], [(10, 3)], "axis 0 must be 0 to 9$"),
    "below the bound": (({0: Dim("k", min=4, max=9)},), [(5, 3)], [[(4, 3)]], [(3, 3)], "axis 0 must be 4 to 9$"),
    "axes of one size": (
        ({0: N, 1: N},),
        [(3, 3)],
        [[(4, 4)], [(2, 2)]],
        [(2, 4)],
        r"axis 1 must be 2, which follows from axis 0 of inputs_0$",
    ),
    "inputs of one size": (
        ({0: N}, {0: N}),
        [(3, 2), (3,)],
        [[(4, 2), (4,)]],
        [(4, 2), (3,)],
        r"inputs_1: has shape \(3,\): axis 0 must be 4, which follows from axis 0 of inputs_0$",
    ),
    "a multiple": (({0: 2 * M},), [(6,)], [[(2,)], [(14,)]], [(5,)], "axis 0 must be a multiple of 2$"),
    "one more": (({0: M}, {0: M + 1}), [(3,), (4,)], [[(5,), (6,)]], [(5,), (5,)], "axis 0 must be 6, which follows"),
}


@pytest.mark.parametrize("case", WRONG_SIZES)
def test_sizes_that_the_program_was_not_exported_for_are_refused(case: str) -> None:
    dims, example, right, wrong, message = WRONG_SIZES[case]
    method = _sizes_method(dims, *example)
    for shapes in (*right, example):
        same(method(*map(torch.ones, shapes)), [torch.ones(shape).sum() for shape in shapes])
        with pytest.raises(ExecutionError, match=message):
            method(*map(torch.ones, wrong))


def test_a_size_without_a_bound_is_refused_with_the_way_out() -> None:
    exported = torch.export.export(
        Function(lambda x: x * 2), (torch.randn(3, 6),), dynamic_shapes={"inputs": ({0: Dim("n")},)}
    )
    with pytest.raises(UnsupportedError, match=r"(?s)without an upper bound.*max="):
        delegatekit.lower(exported, backends=[])


def test_a_number_that_the_caller_changes_is_refused() -> None:
    exported = torch.export.export(
        Function(lambda x, n: x * n), (torch.randn(3), 4), dynamic_shapes={"inputs": (None, Dim.DYNAMIC)}
    )
    with pytest.raises(UnsupportedError, match="pass a tensor"):
        delegatekit.lower(exported, backends=[])


def test_a_backend_that_takes_static_shapes_only_is_given_none(install_plugin: Any) -> None:
    install_plugin("fixed", _PLUGIN.format(name="fixed", more=""))
    exported = torch.export.export(
        Function(lambda x: x.sin() + torch.ones(2, 6).sin()), (torch.randn(1, 6),), dynamic_shapes=None
    )
    assert len(delegatekit.report(delegatekit.lower(exported, backends=["fixed"])).methods[0].delegates) == 1
    exported = torch.export.export(
        Function(lambda x: x.sin()), (torch.randn(3, 6),), dynamic_shapes={"inputs": ({0: N},)}
    )
    (row,) = delegatekit.explain(exported, backends=["fixed"]).rows
    assert row.backend is None and "takes static shapes only" in row.reasons["fixed"]


def test_a_delegate_gets_tensors_only_and_computes_sizes_from_theirs(install_plugin: Any) -> None:
    install_plugin("seeing", _PLUGIN.format(name="seeing", more=", supports_dynamic_shapes=True"))
    import delegatekit_seeing_plugin as plugin

    # The second tensor is expanded to a size of the first: where that is an input, the delegate has it.
    exported = torch.export.export(
        Function(lambda x, y: (x.sin().view(x.shape[0], 3, 2), y.expand(x.shape[0], 6) * 2)),
        (torch.randn(3, 6), torch.randn(6)),
        dynamic_shapes={"inputs": ({0: N}, None)},
    )
    program = delegatekit.lower(exported, backends=["seeing"])
    assert "sym_size" not in str(delegatekit.report(program))
    (first,) = plugin.seen
    operators = [str(node.target) for node in first.view.graph.nodes if node.op == "call_function"]
    assert sorted(operators) == [
        "aten.expand_copy.default",
        "aten.sin.default",
        "aten.sym_size.int",
        "aten.view_copy.default",
    ]
    assert all(isinstance(node.meta["val"], torch.Tensor) for node in first.view.inputs)
    x, y = torch.ones(5, 6), torch.ones(6)
    given = [x if node.meta["val"].dim() == 2 else y for node in first.view.inputs]
    got = first.exported_program.module(check_guards=False)(*given)
    shapes = sorted(tuple(result.shape) for result in got)
    assert shapes == [(5, 3, 2), (5, 6)]

    exported = torch.export.export(
        Function(lambda x, y: (x.cos(), y.expand(x.shape[0], 6).sin())),
        (torch.randn(3, 6), torch.randn(6)),
        dynamic_shapes={"inputs": ({0: N}, None)},
    )
    rows = {row.operator: row for row in delegatekit.explain(exported, backends=["seeing"]).rows}
    assert "is not a size of its delegate's inputs" in rows["aten.expand_copy.default"].reasons["seeing"]


_PLUGIN = """
from delegatekit_api import *

seen = []

class Takes:
    def keep_operators(self): return ()
    def check(self, call):
        node = call.node
        names = ("aten.sin.default", "aten.view_copy.default", "aten.expand_copy.default")
        return Verdict.yes() if str(node.target) in names else Verdict.no("not mine")
    def propose(self, program): return None

@hookimpl
def describe_backend():
    return BackendDescription("{name}", "{name}Backend", "delegatekit-{name}", "1.2", "a test backend"{more})

@hookimpl
def create_partitioner(options): return Takes()

@hookimpl
def preprocess(partition, options):
    seen.append(partition)
    return PreprocessResult(b"blob")
"""


@pytest.mark.parametrize("device", [True, False])
def test_the_report_says_what_runs_only_here(install_plugin: Any, device: bool) -> None:
    more = f", supports_dynamic_shapes=True, device_dynamic_shapes={device}"
    install_plugin("here", _PLUGIN.format(name="here", more=more))
    for shapes, changing in (({"inputs": ({0: N},)}, True), (None, False)):
        exported = torch.export.export(Function(torch.sin), (torch.randn(3, 6),), dynamic_shapes=shapes)
        report = delegatekit.report(delegatekit.lower(exported, backends=["here"]))
        (delegate,) = report.methods[0].delegates
        assert delegate.only_here is (changing and not device)
        assert ("it runs here, but not on the device" in str(report)) is delegate.only_here


def test_lowering_does_not_change_the_exported_program() -> None:
    exported = torch.export.export(
        Function(lambda x: x.view(-1, 2) @ torch.ones(2, 3)), (torch.randn(3, 6),), dynamic_shapes={"inputs": ({0: N},)}
    )
    before = str(exported)
    delegatekit.lower(exported, backends=[])
    assert str(exported) == before
