"""Attention over a cache: beside plain products, in our engine and in ExecuTorch's runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.reading import open_program
from delegatekit_api import ExecutionError, UnsupportedError
from delegatekit_llama import attention

PLACES, GROUPS, HEADS, SIZE = 16, 2, 4, 8


def by_hand(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int, scale: float) -> torch.Tensor:
    """The same by products of matrices in double precision, with a mask over all places."""
    shared = query.shape[2] // keys.shape[1]
    repeated = [item.double().repeat_interleave(shared, 1).movedim(1, 0) for item in (keys, values)]
    scores = query[0].double().movedim(1, 0) @ repeated[0].transpose(1, 2) * scale
    hidden = torch.arange(len(keys)) > start + torch.arange(query.shape[1])[:, None]
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return (weights @ repeated[1]).movedim(0, 1)[None].float()


def sample(count: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values of new tokens."""
    shapes = ((1, count, HEADS, SIZE), (count, GROUPS, SIZE), (count, GROUPS, SIZE))
    return tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


class Layer(nn.Module):
    """Keys and values are written to caches, and read again."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(PLACES, GROUPS, SIZE, dtype=dtype))

    def forward(self, query: Any, new_keys: Any, new_values: Any, start: Any) -> torch.Tensor:
        places = start + torch.arange(query.shape[1])
        self.keys.index_copy_(0, places, new_keys)
        self.values.index_copy_(0, places, new_values)
        return attention(query * 2, self.keys, self.values, start) + 1


def lowered(count: int | None) -> delegatekit.LoweredProgram:
    """The layer's file for calls of so many tokens, or of up to 8."""
    tokens = torch.export.Dim("tokens", min=1, max=8)
    shapes = None if count is not None else ({1: tokens}, {0: tokens}, {0: tokens}, None)
    inputs = (*sample(count or 3), torch.tensor([0]))
    return delegatekit.lower(Layer(), inputs, dynamic_shapes=shapes, backends=["llama"])


@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 5), (11, 5), (15, 1)])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_it_is_what_products_give(start: int, count: int, scale: float | None) -> None:
    query, *_ = sample(count)
    cache = torch.randn(PLACES, GROUPS, SIZE), torch.randn(PLACES, GROUPS, SIZE)
    found = attention(query, *cache, torch.tensor([start]), scale)
    wanted = by_hand(query, *cache, start, SIZE**-0.5 if scale is None else scale)
    # Sums of at most 16 products, in single precision.
    torch.testing.assert_close(found, wanted, rtol=0, atol=32 * 2**-24 * float(wanted.abs().max()))
    assert found.is_contiguous()


def test_programs_call_the_runtimes_operator_and_nothing_is_copied() -> None:
    calls = [item.calls for item in open_program(lowered(None).buffer).methods["forward"].instructions]
    assert calls.count("llama::custom_sdpa.out") == 1
    assert calls.count("aten::index_put_") == 2
    assert not [name for name in calls if "copy" in name or "clone" in name]


@pytest.mark.parametrize("counts", [(3, 1, 4, 1, 7), (1,) * 16, (8, 8)], ids=str)
def test_a_text_goes_through_our_engine_as_through_the_layer(counts: tuple[int, ...]) -> None:
    forward, layer = delegatekit.load(lowered(None).buffer)["forward"], Layer()
    start = 0
    for count in counts:
        inputs = (*sample(count), torch.tensor([start]))
        assert torch.equal(forward(*inputs), layer(*inputs))
        start += count


@pytest.mark.parametrize("count", [None, 2])
def test_executorchs_runtime_computes_the_same(count: int | None, tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    lowered(count).save(tmp_path / "layer.pte")
    layer, start, calls = Layer(), 0, []
    for size in (3, 1, 4, 1, 7) if count is None else (count,) * 5:
        inputs = (*sample(size), torch.tensor([start]))
        calls.append((inputs, layer(*inputs)))
        start += size
    torch.save(calls, tmp_path / "calls.pt")
    # In a process of its own: the library registers operators, for good.
    code = (
        "import torch\n"
        "from executorch.extension.llm.custom_ops import custom_ops\n"
        "from executorch.runtime import Runtime\n"
        "method = Runtime.get().load_program('layer.pte').load_method('forward')\n"
        "for inputs, wanted in torch.load('calls.pt'):\n"
        "    bound = 32 * 2**-24 * float(wanted.abs().max())  # sums of at most 16 products\n"
        "    torch.testing.assert_close(method.execute(inputs)[0], wanted, rtol=0, atol=bound)\n"
        "print('equal')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((torch.ones(1, 2, 3, 8), *[torch.ones(6, 2, 8)] * 2), "a multiple of the groups"),
        ((torch.ones(1, 2, 4, 8), torch.ones(6, 2, 8), torch.ones(5, 2, 8)), "over twice"),
        ((torch.ones(1, 2, 4, 8).half(), *[torch.ones(6, 2, 8).half()] * 2), "query is float16: float32 is taken"),
    ],
)
def test_what_the_operator_does_not_compute_is_refused(inputs: tuple[torch.Tensor, ...], said: str) -> None:
    class Bare(nn.Module):
        def forward(self, query: Any, keys: Any, values: Any, start: Any) -> Any:
            return torch.ops.delegatekit_llama.attention(query, keys, values, start, 1.0)

    given = (*inputs, torch.tensor([0]))
    assert said in str(delegatekit.explain(Bare(), given, backends=["llama"]))
    with pytest.raises(UnsupportedError, match=r"no chosen backend takes delegatekit_llama\.attention"):
        delegatekit.lower(Bare(), given, backends=["llama"])


def test_a_text_that_is_too_long_is_refused() -> None:
    forward = delegatekit.load(lowered(None).buffer)["forward"]
    with pytest.raises(ExecutionError, match=r"index|do not fit"):
        forward(*sample(2), torch.tensor([15]))
