"""ExecuTorch's own compiler for MLX judges our runtime: it wrote these files, and its tests say what they give."""

from __future__ import annotations

import copy
import io
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit_api import DelegateKitError
from delegatekit_toolkit.accuracy import tolerance

from .mlx_stock import nodes, operator_tests, stock_file

pytest.importorskip("mlx.core", reason="MLX is not installed: pip install 'delegatekit-mlx[runtime]'")


class Convolutions(nn.Module):
    """Down by convolutions and pools, and up again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.wide, self.up = (
            nn.Conv2d(8, 12, 3, stride=2, padding=2, dilation=2, groups=4),
            nn.ConvTranspose2d(12, 4, 2, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.first(x))), 3, 2, 1)
        x = F.avg_pool2d(F.silu(self.up(self.wide(x))), 2)
        return F.interpolate(x, scale_factor=2.0).flatten(1).softmax(1)


class Attention(nn.Module):
    """Causal attention of three heads between two norms."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.LayerNorm(12), nn.RMSNorm(12, eps=1e-5)
        self.project, self.out = nn.Linear(12, 36), nn.Linear(12, 12, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = self.project(self.first(x)).view(batch, length, 3, 3, 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return F.gelu(self.last(self.out(mixed.transpose(1, 2).reshape(batch, length, 12)) + x))


class Words(nn.Module):
    """An LSTM over words."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.lstm = nn.Embedding(20, 6), nn.LSTM(6, 5, batch_first=True)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.lstm(self.table(words))[0]
        return states.amax(1)


class Cache(nn.Module):
    """Rows that stay from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(1, 2, 8, 4))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        place = at.item()
        torch._check(place >= 0)
        torch._check(place + 1 <= 8)
        self.rows.narrow(2, place, 1).copy_(x)
        return self.rows * 2


def _four_bits() -> nn.Module:
    from torchao.quantization import IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    model = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32, bias=False))
    quantize_(model, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))
    return model


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


#: What makes a network, the calls of it in their order, the longest sum in it, and the sizes that change.
NETWORKS: dict[str, tuple[Any, list[tuple[torch.Tensor, ...]], int, Any]] = {
    "convolutions": (Convolutions, [(_random(2, 3, 12, 10),)], 27 + 18 + 24, None),
    "attention": (Attention, [(_random(2, 5, 12),)], 12 + 12 + 5 + 12, None),
    "words": (Words, [(torch.tensor([[1, 5, 19, 0], [7, 3, 3, 2]]),)], 4 * 11, None),
    "state": (Cache, [(_random(1, 2, 1, 4), torch.tensor(place)) for place in (0, 3, 1)], 1, None),
    "weights of 4 bits": (_four_bits, [(_random(3, 128),)], 128 + 64, None),
    "any batch": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)),
        [(_random(batch, 8),) for batch in (3, 1, 6)],
        8 + 16,
        ({0: torch.export.Dim("batch", min=1, max=6)},),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_our_runtime_runs_what_executorchs_compiler_wrote(name: str) -> None:
    make, calls, terms, shapes = NETWORKS[name]
    torch.manual_seed(0)
    model = make().eval()
    file = stock_file(copy.deepcopy(model), calls[0], shapes)
    loaded = delegatekit.load(file)
    assert sum(nodes(file).values()) > 0
    for inputs in calls:
        with torch.no_grad():
            eager = model(*inputs)
        bound = tolerance("float32", "float32", terms)
        torch.testing.assert_close(loaded["forward"](*inputs), eager, rtol=0, atol=bound * float(eager.abs().max()))


#: How often a kind of node is in what ExecuTorch's compiler writes, and how often in what ours does.
#:
#: Ours folds the batch norm into the convolution and turns constants (bias, weights) when it compiles, not in each
#: call; takes parts by their places, ExecuTorch's by ranges, or splits them; sees the windows of a pool, where
#: ExecuTorch's turns images to channels last and cuts them apart; has the sigmoid of a SiLU apart, which is computed in
#: float32 where numbers have few bits; makes the 0 of a ReLU by Full, a constant there; and has the offsets of
#: quantized weights in the file, where ExecuTorch's multiplies when it loads.
DIFFERENT: dict[str, dict[str, tuple[int, int]]] = {
    "convolutions": {
        "Add": (5, 3),
        "AsStrided": (1, 2),
        "Full": (0, 1),
        "IdCopy": (2, 0),
        "Multiply": (2, 1),
        "Reshape": (9, 1),
        "Rsqrt": (1, 0),
        "Sigmoid": (0, 1),
        "Silu": (1, 0),
        "Subtract": (1, 0),
        "Transpose": (11, 6),
    },
    "attention": {"IdCopy": (1, 0), "Slice": (3, 0), "Squeeze": (3, 0), "Take": (0, 3)},
    "weights of 4 bits": {"Full": (0, 1), "Multiply": (2, 0)},
    "any batch": {},
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_our_compiler_writes_the_nodes_that_executorchs_does_but_for_what_is_explained(name: str) -> None:
    make, (inputs, *_), _, shapes = NETWORKS[name]
    torch.manual_seed(0)
    model = make().eval()
    theirs = nodes(stock_file(copy.deepcopy(model), inputs, shapes))
    exported = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
    ours = nodes(bytes(delegatekit.lower(exported, backends=["mlx"]).buffer))
    different = {kind: (theirs[kind], ours[kind]) for kind in theirs | ours if theirs[kind] != ours[kind]}
    assert different == DIFFERENT[name]


#: Operators that ExecuTorch's tests have and a CPU has not, and the reason.
REFUSED = {
    "MetalKernel": "source text for Apple's GPUs",
    "UpdateAndAttend": "works on a cache that the program around the file installs",
    "RandomBits": "is not in MLX's module for Python",
}
#: Tests of ExecuTorch's that fail while they build their model: transformers 5 has other caches.
_BROKEN = ("hf_static_cache",)
_SHARDS = 16


@pytest.mark.sweep
@pytest.mark.parametrize("shard", range(_SHARDS))
def test_executorchs_tests_of_operators_give_what_they_expect(shard: int, tmp_path: Path) -> None:
    """The first case of each; `test_all_cases_of_executorchs_tests` has the others."""
    for name, kind in sorted(operator_tests().items())[shard::_SHARDS]:
        if not name.startswith(_BROKEN):
            _judge(next(iter(_cases(kind))), tmp_path)


@pytest.mark.slow
def test_all_cases_of_executorchs_tests(tmp_path: Path) -> None:
    refused: Counter[str] = Counter()
    for name, kind in sorted(operator_tests().items()):
        # (Turbo-quantized caches take minutes to export, to be kernels for GPUs.)
        if not name.startswith((*_BROKEN, "turboquant")):
            refused.update(filter(None, [_judge(case, tmp_path) for case in _cases(kind)]))
    assert set(refused) == set(REFUSED)


def _cases(kind: Any) -> list[Any]:
    return list(kind.get_test_configs()) if hasattr(kind, "get_test_configs") else [kind()]


def _judge(case: Any, folder: Path) -> str | None:
    """Run one of ExecuTorch's cases in our runtime, by its own bounds; the operator that is refused, or None."""
    from executorch.backends.mlx.test.test_utils import compare_outputs, export_model_to_pte

    file = folder / "case.pte"
    with redirect_stdout(io.StringIO()), torch.no_grad():
        case._set_seed()
        model, example = case.create_model().eval(), _tuple(case.create_inputs())
        case._set_seed()
        inputs = _tuple(case.create_test_inputs())
        expected = _tuple(case.compute_expected_outputs(copy.deepcopy(model), _copies(inputs)))
        export_model_to_pte(
            model,
            example,
            file,
            dynamic_shapes=case.get_dynamic_shapes(),
            edge_compile_config=case.get_edge_compile_config(),
            transform_passes=case.get_transform_passes(),
        )
    kinds = set(nodes(file.read_bytes()))
    beyond = next(iter(kinds & set(REFUSED)), None)
    if beyond is not None:
        with pytest.raises(DelegateKitError, match=beyond):
            delegatekit.load(file)["forward"](*_copies(inputs))
        return beyond
    found = delegatekit.load(file)["forward"](*_copies(inputs))
    if not case.skip_comparison:
        right, message = compare_outputs(list(expected), list(_tuple(found)), rtol=case.rtol, atol=case.atol)
        assert right, f"{case.name}: {message}"
        assert [item.dtype for item in _tuple(found)] == [item.dtype for item in expected], case.name
    return None


def _tuple(values: Any) -> tuple[Any, ...]:
    return (values,) if isinstance(values, torch.Tensor) else tuple(values)


def _copies(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(item.clone() if isinstance(item, torch.Tensor) else item for item in values)
