"""Programs that PyTorch writes in several forms: eager, the engine and the stock runtime agree on each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from referee import StockProgram, check, same
from torch import nn

import delegatekit
from delegatekit_api import UnsupportedError
from delegatekit_toolkit.testing import Apply

ROWS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
SIZE = torch.export.Dim("size", max=8)


def test_ranges_whose_ends_change() -> None:
    def ranges(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        size = x.shape[0]
        return (
            torch.arange(0, size),
            torch.arange(size) * 2,
            torch.arange(1, size + 1),
            torch.arange(0, size, dtype=torch.float32) / size,
            torch.arange(0.0, size),
            torch.arange(0, size, 0.5),
            torch.arange(size - 1, -1, -1),
            x + torch.arange(0, size)[:, None],
        )

    check(Apply(ranges), (ROWS,), [(ROWS,), (torch.randn(7, 3),), (torch.randn(1, 3),)], dynamic_shapes=(({0: SIZE},),))


def test_functions_of_one_example_over_a_batch() -> None:
    linear = nn.Linear(3, 2)

    def mapped(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.vmap(lambda row: torch.sin(row).sum())(x),
            torch.vmap(torch.dot)(x, y),
            torch.vmap(linear)(x),
            torch.vmap(torch.vmap(torch.dot, (None, 0)), (0, None))(x, y),
            torch.vmap(torch.outer)(x, y).sum(0),
        )

    check(Apply(mapped), (ROWS, ROWS * 2), [(ROWS, ROWS * 2), (ROWS - 1, ROWS)])


def test_functions_of_one_example_over_a_batch_that_changes() -> None:
    def sines(row: torch.Tensor) -> torch.Tensor:
        return torch.sin(row).sum()

    mapped = Apply(torch.vmap(sines))
    check(mapped, (ROWS,), [(ROWS,), (torch.randn(7, 3),)], dynamic_shapes=(({0: SIZE},),))


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.BatchNorm1d(4, track_running_stats=False), (6, 4)),
        (nn.BatchNorm1d(4, affine=False, track_running_stats=False), (6, 4, 5)),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)), (2, 3, 8, 8)),
        (nn.BatchNorm3d(4, track_running_stats=False), (2, 4, 3, 2, 3)),
    ],
)
def test_batch_norms_without_running_statistics_use_those_of_the_input(norm: nn.Module, shape: tuple[int, ...]) -> None:
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    check(norm, (torch.randn(shape),), [(torch.randn(shape),), (torch.randn(shape) * 5 + 3,)])


def test_batch_norms_in_training_mode_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="training mode"):
        delegatekit.lower(
            torch.export.export(nn.BatchNorm1d(4).train(), (torch.randn(6, 4),), strict=False), backends=[]
        )


@pytest.mark.parametrize("bounds", [(4, 0, 3), (10, -1, 1), (7, -0.3, 2.1), (6, 0, 0), (5, 2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_histograms(bounds: tuple[Any, ...], dtype: torch.dtype) -> None:
    values = torch.cat([torch.randn(60), torch.arange(-1, 3, 0.1)]).to(dtype)
    odd = (
        torch.full_like(values, 2.0)
        if bounds[1] == bounds[2]
        else values.clone().index_fill(0, torch.tensor([3]), torch.nan)
    )
    check(Apply(lambda x: torch.histc(x, *bounds)), (values,), [(values,), (values * 2,), (odd,)])


def test_rows_times_the_matrix_of_their_group() -> None:
    def grouped(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return nn.functional.grouped_mm(x, weight, offs=ends).float()

    x, weight = torch.randn(6, 8).bfloat16(), torch.randn(3, 8, 16).bfloat16()
    calls = [(x, weight, torch.tensor(ends, dtype=torch.int32)) for ends in ([1, 1, 6], [2, 5, 6])]
    check(Apply(grouped), calls[0], calls, tolerance=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Mixtral", "Qwen2Moe"])
def test_mixtures_of_experts_of_transformers(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    settings = {
        "vocab_size": 32,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 32,
    }
    own: dict[str, Any] = {
        "Mixtral": {"num_local_experts": 4},
        "Qwen2Moe": {"num_experts": 4, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8},
    }
    config = getattr(transformers, f"{family}Config")(**settings, **own[family])
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    routed = Apply(lambda ids: model(input_ids=ids, use_cache=False).logits)
    routed.model = model
    length = torch.export.Dim("length", min=2, max=12)
    calls = [(torch.randint(0, 32, (1, size)),) for size in (5, 9)]
    buffer = delegatekit.lower(routed, calls[0], backends=["xnnpack"], dynamic_shapes=(({1: length},),)).buffer
    stock, engine = StockProgram(buffer), delegatekit.load(buffer)["forward"]
    for call in calls:
        with torch.no_grad():
            want = routed(*call)
        same(engine(*call), want)
        same(stock.method()(call), want)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_in_two_directions_with_given_states(layer: Any) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer(5, 4, 2, batch_first=True, bidirectional=True)

        def forward(self, x: torch.Tensor, *states: torch.Tensor) -> Any:
            return self.inner(x, states if len(states) > 1 else states[0])

    states = [torch.randn(4, 2, 4) for _ in range(2 if layer is nn.LSTM else 1)]
    inputs = (torch.randn(2, 3, 5), *states)
    check(Layer(), inputs, [inputs])
