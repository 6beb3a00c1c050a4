"""Architectures without any tuning: both engines must agree with eager on all of them, also with changing sizes."""

from __future__ import annotations

import pytest
import torch
from architectures import ARCHITECTURES, One
from referee import StockProgram
from torch.export import Dim

import delegatekit

#: Sizes that torch.export fixes in these models, whatever is requested.
FIXED = {
    "batch": {"GRU, bidirectional", "RNN"},  # their first dimension is time, over which PyTorch unrolls
    "length": {"Mamba", "wav2vec 2"},
}
#: Models of tokens, whose second dimension is their number.
TOKENS = [name for name, (_, inputs, _) in ARCHITECTURES.items() if all(tensor.dim() == 2 for tensor in inputs)]


def close(result: torch.Tensor, eager: torch.Tensor) -> None:
    """float32 rounding through some dozen layers, relative to the largest value."""
    torch.testing.assert_close(result, eager, rtol=0, atol=float(2e-5 * eager.abs().max()))


@pytest.mark.sweep
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_both_engines_agree_with_eager(name: str) -> None:
    build, inputs, most_delegates = ARCHITECTURES[name]
    torch.manual_seed(0)
    module = build().eval()
    with torch.no_grad():
        eager = module(*inputs)
    program = delegatekit.lower(module, inputs, backends=["xnnpack"])
    data = program.buffer
    close(delegatekit.load(data)["forward"](*inputs), eager)
    close(StockProgram(data).method()(inputs)[0], eager)
    assert len(delegatekit.report(program).methods[0].delegates) <= most_delegates


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *((name, "batch") for name in ARCHITECTURES if name not in FIXED["batch"]),
        *((name, "length") for name in TOKENS if name not in FIXED["length"]),
    ],
)
@pytest.mark.parametrize("backend", ["runtime", "xnnpack"])
@pytest.mark.slow
def test_batch_and_length_may_change(name: str, size: str, backend: str) -> None:
    build, inputs, _ = ARCHITECTURES[name]
    torch.manual_seed(0)
    module = build().eval()
    axis, most = (0, 5) if size == "batch" else (1, 24)
    examples = tuple(torch.cat([tensor] * 2) if tensor.shape[0] == 1 else tensor for tensor in inputs)
    dims = tuple({axis: Dim("n", min=2, max=most)} for _ in inputs)
    exported = torch.export.export(
        module, examples, dynamic_shapes={"inputs": dims} if isinstance(module, One) else dims, strict=False
    )
    data = delegatekit.lower(exported, backends=[] if backend == "runtime" else [backend]).buffer
    engine, stock = delegatekit.load(data)["forward"], StockProgram(data).method()
    for count in (3, most, 2):
        call = tuple(torch.cat([tensor] * most, axis).narrow(axis, 0, count).contiguous() for tensor in examples)
        with torch.no_grad():
            eager = module(*call)
        close(engine(*call), eager)
        close(stock(call)[0], eager)
