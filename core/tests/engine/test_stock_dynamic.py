"""Files of ExecuTorch's own lowering with sizes that change: engine, stock runtime and eager agree at every size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

import delegatekit
from delegatekit_api import ExecutionError

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")

#: Lowers each module with stock ExecuTorch; importing that takes long, so all files are written by one process.
SCRIPT = """
import logging, sys, warnings
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
import torch
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch.export import Dim
from torch.utils._pytree import tree_leaves
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

class Function(nn.Module):
    def __init__(self, function, **children):
        super().__init__()
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)
    def forward(self, *args):
        return self.function(self, *args)

def views(m, x):
    n = x.shape[0]
    y = x + 1
    flat = y.view(-1) * 2
    wide = y.unsqueeze(1).expand(n, 2, 6) * 2
    return flat.view(n * 2, 3), y.reshape(n * 3, 2).t().contiguous(), wide, flat

def sizes(m, x, y):
    n, k = x.shape[0], y.shape[1]
    both = torch.cat([x, x * 2, y], 1)
    return both, torch.arange(n) * 2, torch.full((n, k), 1.5) + y, n * k + 1, x.t() @ y[:, : k - 1]

def found(m, x):
    places = torch.nonzero(x > 0)
    torch._check(places.shape[0] <= 54)
    return places * 2, x * 2

class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.arange(24.0).view(8, 3))
    def forward(self, x, position):
        self.cache.index_copy_(0, position, x)
        return self.cache.sum(0) + x.sum(0), x * 2

def image():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )

def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))

def last(*shape):
    return torch.randn(*shape).to(memory_format=torch.channels_last)

R = torch.randn
encoder = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True))
branch = lambda m, x: torch.cond(x.sum() > 0, lambda x: x.cos(), lambda x: x.exp() + x, (x,)) * 2
mapped = lambda m, xs, y: torch_map(lambda x, y: m.layer(x) * y, xs, y) + 1
n, k, h = Dim("n", min=2, max=9), Dim("k", min=3, max=7), Dim("h", min=8, max=20)
p, half = Dim("p", min=2, max=8), Dim("half", min=4, max=10)
unplanned = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
images = [(R(b, 3, u, v),) for b, u, v in ((3, 16, 16), (9, 20, 20), (2, 8, 8), (5, 13, 13))]
images_last = [(last(b, 3, u, v),) for b, u, v in ((3, 16, 16), (9, 20, 20), (2, 10, 10), (5, 14, 14))]
rows = [(R(b, 6),) for b in (3, 9, 2, 9, 9, 5)]
words = [(R(b, t, 16),) for b, t in ((3, 5), (9, 7), (2, 3), (2, 7), (2, 7))]
pairs = [(R(b, 6), R(b, t)) for b, t in ((3, 4), (9, 7), (9, 3), (2, 5), (2, 5))]
updates = [(R(b, 3), torch.randperm(8)[:b]) for b in (3, 8, 2, 8, 5)]
signed = [(R(b, 4) + shift,) for b in (3, 9, 2) for shift in (1, -1)]
initialized = dict(passes=[InitializedMutableBufferPass(["cache"])])
# name: module, calls, dynamic shapes, configuration, whether XNNPACK gets its part
cases = {
    "mlp": (mlp(), rows, ({0: n},), {}, False),
    "views": (Function(views), [(R(b, 6),) for b in (4, 9, 2, 2, 8)], ({0: n},), {}, False),
    "sizes": (Function(sizes), pairs, ({0: n}, {0: n, 1: k}), {}, False),
    "encoder": (encoder, words, ({0: n, 1: k},), {}, False),
    "image": (image(), images, ({0: n, 2: h, 3: h},), dict(memory_planning_pass=unplanned), False),
    "channels last": (
        image().to(memory_format=torch.channels_last), images_last, ({0: n, 2: 2 * half, 3: 2 * half},), {}, False,
    ),
    "found": (Function(found), rows, ({0: n},), {}, False),
    "branch": (Function(branch), signed, ({0: n},), {}, False),
    # The stock lowering gives what is computed of a map's result the sizes of the example.
    "map": (Function(mapped, layer=nn.Linear(8, 8)), [(R(3, 4, 8), R(8)) for _ in range(2)], ({0: n}, None), {}, False),
    "cache": (Cache(), updates, ({0: p}, {0: p}), initialized, False),
    "cache from zero": (Cache(), updates, ({0: p}, {0: p}), {}, False),
    "xnnpack mlp": (mlp(), rows, ({0: n},), {}, True),
    "xnnpack encoder": (encoder, words, ({0: n, 1: k},), {}, True),
    "xnnpack image": (image(), images, ({0: n, 2: h, 3: h},), {}, True),
}
for name in sys.argv[2:]:
    module, calls, shapes, config, delegated = cases[name]
    torch.manual_seed(0)
    module = module.eval()
    shapes = {"args": shapes} if isinstance(module, Function) else shapes
    program = to_edge(
        torch.export.export(module, calls[0], dynamic_shapes=shapes),
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    if delegated:
        program = program.to_backend(XnnpackPartitioner())
    with open(f"{sys.argv[1]}/{name}.pte", "wb") as file:
        file.write(program.to_executorch(ExecutorchBackendConfig(**config)).buffer)
    if name == "cache from zero":
        module.cache.zero_()
    with torch.no_grad():
        results = [(call, [value.clone() if hasattr(value, "clone") else value for value in tree_leaves(module(*call))])
                   for call in calls]
    torch.save(results, f"{sys.argv[1]}/{name}.pt")
"""
NAMES = ["mlp", "sizes", "found", "branch", "cache from zero", "xnnpack mlp"]
MORE = ["views", "encoder", "image", "channels last", "map", "cache", "xnnpack encoder", "xnnpack image"]
#: Its portable kernels refuse the dim orders that its own lowering writes here.
STOCK_FAILS = {"channels last", "found"}


@pytest.fixture(scope="module")
def files(once: Any, stock_process: Any) -> Path:
    folder: Path = once("stock_dynamic", lambda folder: stock_process.run(SCRIPT, folder, *NAMES))
    return folder


@pytest.fixture(scope="module")
def more_files(once: Any, stock_process: Any) -> Path:
    folder: Path = once("stock_more_dynamic", lambda folder: stock_process.run(SCRIPT, folder, *MORE))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_takes_every_size_that_the_file_allows(
    name: str, files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _check(name, files)
    # PyTorch writes its warning to stderr, not through Python.
    assert "resized" not in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_the_engine_takes_every_size_of_larger_networks(
    name: str, more_files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _check(name, more_files)
    assert "resized" not in capfd.readouterr().err


def _check(name: str, folder: Path) -> None:
    data = (folder / f"{name}.pte").read_bytes()
    program = _C._load_program_from_buffer(data)
    stock = None if name in STOCK_FAILS else program.load_method("forward")
    method = delegatekit.load(data)["forward"]
    for call, expected in torch.load(folder / f"{name}.pt"):
        ours = tree_leaves(method(*call))
        _same(ours, expected)
        if stock is not None:
            _same(ours, stock(call))


def _same(ours: list[Any], expected: list[Any]) -> None:
    assert len(ours) == len(expected)
    for mine, yours in zip(ours, expected, strict=True):
        if not isinstance(yours, torch.Tensor):
            assert mine == yours
            continue
        assert (mine.shape, mine.dtype) == (yours.shape, yours.dtype)
        torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((10, 6), r"method forward, input 0: has shape \(10, 6\), not \(9, 6\) at most"),
        ((3, 7), r"has shape \(3, 7\), not \(9, 6\) at most"),
        ((54,), r"has shape \(54,\), not \(9, 6\) at most"),
        ((3, 6, 1), r"has shape \(3, 6, 1\), not \(9, 6\) at most"),
    ],
)
def test_an_input_above_the_largest_sizes_is_refused_and_does_no_harm(
    shape: tuple[int, ...], words: str, files: Path
) -> None:
    method = delegatekit.load(files / "mlp.pte")["forward"]
    (first, expected), *_ = torch.load(files / "mlp.pt")
    for _ in range(2):
        with pytest.raises(ExecutionError, match=words):
            method(torch.ones(shape))
        _same([method(*first)], expected)


def test_a_call_that_was_refused_half_way_leaves_no_old_sizes_behind(files: Path) -> None:
    """The first input is already resized when the second is refused."""
    method = delegatekit.load(files / "sizes.pte")["forward"]
    (first, expected), (larger, more), *_ = torch.load(files / "sizes.pt")
    _same(tree_leaves(method(*first)), expected)
    with pytest.raises(ExecutionError, match="input 1"):
        method(larger[0], torch.ones(9, 8))
    _same(tree_leaves(method(*larger)), more)


def test_outputs_have_the_sizes_of_their_call_and_keep_them(files: Path) -> None:
    method = delegatekit.load(files / "mlp.pte")["forward"]
    small = method(torch.ones(2, 6), clone_outputs=False)
    large = method(torch.ones(9, 6), clone_outputs=False)
    assert (small.shape, large.shape) == ((2, 4), (9, 4))
    assert method.outputs[0] is not None and method.outputs[0].dynamic


def test_a_buffer_that_the_file_gives_no_value_is_zero_and_can_be_put_back_to_it(files: Path) -> None:
    method = delegatekit.load(files / "cache from zero.pte")["forward"]
    (first, expected), *_ = torch.load(files / "cache from zero.pt")
    for _ in range(2):
        (buffer,) = method.state.values()
        assert not buffer.any()
        _same(list(method(*first)), expected)
        assert buffer.any()
        method.reset()
