"""Lowered programs: every call equals eager PyTorch, bit by bit."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.export import Dim

import delegatekit
from delegatekit import pte
from delegatekit_api import DelegateKitError
from delegatekit_toolkit.signature import Range

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def _tensor(shape, dtype):
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    return torch.randn(shape).to(dtype) if dtype.is_floating_point else torch.randint(0, 9, shape).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_all_dtypes(equals_eager, dtype):
    weight = _tensor((3,), dtype)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", weight)

        def forward(self, x, y):
            total = x.logical_or(y) if dtype == torch.bool else x * y + self.weight
            return (
                torch.cat([x, y]),
                x == self.weight,
                total,
                torch.where(y > x, x, y),
                total.amax(1),
                x.to(torch.int16),
            )

    equals_eager(Net(), *(tuple(_tensor((2, 3), dtype) for _ in range(2)) for _ in range(3)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_operators(equals_eager, dtype):
    def model(x, y):
        x = torch.nn.functional.layer_norm(x, (4,)) @ y
        return torch.softmax(x, -1), x.erf(), torch.linalg.vector_norm(x, dim=1), x.std(0), x.cumsum(1)

    equals_eager(model, (_tensor((3, 4), dtype), _tensor((4, 5), dtype)))


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x.topk(2, 1),
        lambda x: x.max(1),
        lambda x: x.min(0, keepdim=True)[1] + x.min(0, keepdim=True)[0],
        lambda x: (x.relu().split(2, 1)[1], x.relu().chunk(3, 1)[2], x.relu().unbind(0)[1]),
        lambda x: torch.native_layer_norm(x, [6], None, None, 1e-5),
        lambda x: torch.native_group_norm(x, None, None, 4, 6, 1, 2, 1e-5),
        lambda x: torch.var_mean(x, 1),
        lambda x: x.sort(1, descending=True),
        lambda x: x.cummax(0),
        lambda x: torch.aminmax(x, dim=1),
        torch.frexp,
        torch.linalg.qr,
        lambda x: torch.linalg.svd(x, full_matrices=False)[1],
        lambda x: x.kthvalue(3, 1),
        lambda x: x.median(1)[1],
        lambda x: nn.functional.max_pool2d(x.view(1, 2, 3, 4).sin(), 2, return_indices=True)[1],
        lambda x: (x.sort(1)[1], x.mode(1)[0]),
    ],
)
def test_operators_of_several_results(equals_eager, model):
    equals_eager(model, (torch.randn(4, 6),), (torch.randn(4, 6).round(),))


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x.clamp(-math.inf, 0.5),
        lambda x: torch.full((2, 2), math.nan) + x.sum(),
        lambda x: x.masked_fill(x > 0, -math.inf),
        lambda x: x[:, [0, 2]] * x[torch.tensor([[0], [1]]), torch.tensor([1, 2])],
        lambda x: x.index_put((torch.tensor([1, 1]),), torch.ones(2, 4), accumulate=True),
        lambda x: x.nan_to_num(nan=math.inf, posinf=-1.0),
        lambda x: (x / 0).fmod(math.inf) + -0.0,
        lambda x: torch.div(x, 0.3, rounding_mode="floor"),
        lambda x: x.sum() + torch.tensor(3.5),
        lambda x: x.to(torch.float64).mean(dtype=torch.float32),
        lambda x: nn.functional.gelu(x, approximate="tanh"),
        lambda x: nn.functional.pad(x, (1, 1), mode="reflect"),
        lambda x: nn.functional.interpolate(x[None, None], scale_factor=2.5, mode="bicubic"),
        lambda x: torch.einsum("ij,kj->ik", x, x),
        lambda x: torch.arange(5, dtype=torch.int32) + x.shape[0] + x[0, 0].int(),
        lambda x: torch.cat([x, torch.empty(0)]).relu(),
        lambda x: torch.linspace(0, 1, 4) * x[:, :1],
    ],
)
def test_arguments_of_all_kinds(equals_eager, model):
    special = torch.tensor([[math.nan, math.inf, -math.inf, -0.0], [1.5, -2.5, 0.0, 1e-40]])
    equals_eager(model, (torch.randn(2, 4),), (special,))


def test_values_are_dense_whatever_a_kernel_makes(equals_eager):
    # The convolution of an input in channels_last, and a check of its memory.
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1).to(memory_format=torch.channels_last)

        def forward(self, x):
            y = self.conv(x).contiguous().relu()
            return y, torch.as_strided_copy(y, (2, 2), (4, 1)), y.transpose(1, 2).contiguous().view(-1).neg()

    net = Net()
    # Of few binary digits, so that kernels for different layouts round alike.
    for parameter in net.parameters():
        parameter.data.mul_(64).round_().div_(64)
    equals_eager(net, (torch.randn(2, 3, 4, 4).mul(8).round().div(8),))


@pytest.mark.parametrize("minimum", [1, 4])
def test_sizes_that_change(equals_eager, minimum):
    n, m = Dim("n", min=minimum, max=12), Dim("m", max=9)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 6)

        def forward(self, x, y):
            h = self.linear(x).view(x.shape[0], 3, 2).transpose(0, 1)
            pairs = torch.cat([y, y + 1], 1)
            return h.reshape(3, -1), x.mean(0) * x.shape[0], pairs.softmax(1), x[-1], y.new_full((y.shape[1] * 2,), 1.5)

    calls = [(torch.randn(a, 4), torch.randn(2, b)) for a, b in ((5, 4), (12, 9), (minimum, 2), (7, 1))]
    lowered = equals_eager(Net(), *calls, dynamic_shapes={"x": {0: n}, "y": {1: m}}, whole=False)
    operators = lowered.operators
    assert "aten.sym_size.int" in operators and "operator.mul" in operators
    sizes = {
        size for graph in lowered.graphs for tensor in graph.inputs for size in tensor.shape if type(size) is Range
    }
    assert {(size.low, size.high) for size in sizes} == {(4 if minimum == 4 else 0, 12), (0, 9)}
    assert len(delegatekit.report(lowered.program).methods[0].delegates) == 1
    with pytest.raises(DelegateKitError):
        delegatekit.load(lowered.buffer)["forward"](torch.randn(13, 4), torch.randn(2, 3))


def test_buffers_that_the_program_updates_are_inputs_and_outputs(lower):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total.add_(x)
            return self.total * 2

    method = delegatekit.load(lower(Counter(), (torch.ones(3),)).buffer)["forward"]
    assert [method(torch.ones(3))[0].item() for _ in range(3)] == [2.0, 4.0, 6.0]


def test_control_flow(lower):
    class Branches(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() + 1, (x,))

    method = delegatekit.load(lower(Branches(), (torch.ones(3),)).buffer)["forward"]
    for x in (torch.ones(3), -torch.ones(3)):
        assert torch.equal(method(x), Branches()(x))


def test_each_step_has_its_debug_handle(lower):
    lowered = lower(lambda x: (x.relu() + 1).topk(2)[0], (torch.randn(4),))
    (method,) = lowered.program.methods.values()
    (delegate,) = method.delegates
    assert lowered.operators == ["aten.relu.default", "aten.add.Scalar", "aten.topk.default", "getitem"]
    assert set(delegate.debug_handle_map) == {0, 1, 2, 3}
    handles = [delegate.debug_handle_map[step] for step in range(3)]
    assert len(set(handles)) == 3 and all(len(handle) == 1 for handle in handles)


def test_equal_weights_are_stored_once(lower):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.Parameter(torch.arange(1000.0)) for _ in range(2))

        def forward(self, x):
            return torch.nonzero((x + self.first).relu()).sum() + (x - self.second).sin().sum()

    lowered = lower(Net(), (torch.randn(1000),))
    keys = [constant.key for graph in lowered.graphs for constant in graph.constants if constant.shape == (1000,)]
    assert len(keys) == 2 and len(set(keys)) == 1
    file = pte.read(lowered.buffer)
    assert bytes(file.named_data[keys[0]]) == torch.arange(1000.0).numpy().tobytes()
    assert lowered.buffer.count(torch.arange(1000.0).numpy().tobytes()) == 1


def test_constants_of_one_element_may_have_any_strides(equals_eager):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.arange(12.0).view(3, 4)[:1, 1:2])
            self.register_buffer("column", torch.arange(12.0).view(3, 4)[:, 2])

        def forward(self, x):
            return x * self.weight + self.column

    equals_eager(Net(), (torch.randn(2, 3),))


def test_new_memory_leaves_no_trace_of_the_process_in_the_file(lower):
    # Undefined elements are zeros: the same bytes each time.
    for model in (lambda x: torch.empty(3) + x, lambda x: x.new_empty(3) + x, lambda x: torch.empty_like(x) + x):
        garbage = [torch.full((3,), 7.5) for _ in range(100)]
        del garbage
        (constant,) = (lowered := lower(model, (torch.rand(3),))).graph.constants
        data = bytes(pte.read(lowered.buffer).named_data[constant.key])
        assert not any(data)


SCRIPT = """
import hashlib, sys, torch, delegatekit
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 5)
    def forward(self, x):
        y = self.norm(self.conv(x)).relu().mean((2, 3))
        return self.linear(y).softmax(-1).topk(2), y.to(torch.bfloat16), x.shape[0] * y
x = torch.randn(2, 3, 8, 8)
exported = torch.export.export(Net().eval(), (x,), dynamic_shapes=({0: torch.export.Dim("n", max=7)},))
first, second = (delegatekit.lower(exported, backends=["reference"]).buffer for _ in range(2))
assert first == second
sys.stdout.write(hashlib.sha256(first).hexdigest())
"""


@pytest.mark.slow
def test_fresh_processes_write_the_same_bytes():
    found = set()
    for seed in ("1", "2"):
        command = [sys.executable, "-c", SCRIPT]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found.add(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)
    assert len(found) == 1 and len(found.pop()) == 64


def test_damage_anywhere_in_the_delegate_is_refused(lower):
    lowered = lower(nn.Linear(4, 3), (torch.randn(2, 4),))
    file = pte.read(lowered.buffer)
    (plan,) = file.program.execution_plan
    blob = bytes(file.delegate_blob(plan.delegates[0]))
    weights = [bytes(file.named_data[constant.key]) for constant in lowered.graph.constants]
    assert list(map(len, weights)) == [48, 12]
    for part in (blob, *weights):
        start = lowered.buffer.index(part)
        for place in range(start, start + len(part), 7):
            damaged = bytearray(lowered.buffer)
            damaged[place] ^= 1 << place % 8
            with pytest.raises(DelegateKitError):
                delegatekit.load(bytes(damaged))["forward"](torch.zeros(2, 4))
