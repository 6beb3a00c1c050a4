"""The architectures of the project's tests through ExecuTorch's pipeline, float and quantized: as `lower` does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from architectures import ARCHITECTURES
from pipelines import STOCK, Lowered, close, exported, lowered, run

import delegatekit
import delegatekit.pte
from delegatekit.pte.manifest import read_manifest

#: Recurrent, convolutional, with windows, and language models: each with operators of its own. Attention is called
#: with one input three times, and uses one of the three.
EIGHT = ("LSTM", "multi-head attention", "group and instance norm", "ConvNext", "Swin", "GPT-2", "ALBERT", "Qwen2")
#: Those that take least time.
QUICK = ("multi-head attention", "encoder", "group and instance norm")
#: By default XNNPACK runs all, the others the quick ones.
DEFAULT = [("xnnpack", name) for name in EIGHT] + [
    (backend, name) for backend in ("vulkan", "coreml", "reference") for name in QUICK
]
ALL = [
    (backend, name)
    for backend in ("xnnpack", "vulkan", "coreml", "reference")
    for name in ARCHITECTURES
    if (backend, name) not in DEFAULT
]
#: No scheme has a rule for recurrent layers.
QUANTIZED = [(backend, name) for backend in ("xnnpack", "vulkan") for name in ("encoder", *EIGHT) if name != "LSTM"]


def marked(pairs: list[tuple[str, str]], *, slow: bool) -> list[Any]:
    return [pytest.param(*pair, marks=pytest.mark.slow) if slow else pair for pair in pairs]


def run_by_all(
    found: Lowered, backend: str, inputs: tuple[torch.Tensor, ...], run_hosted: Callable[..., list[list[torch.Tensor]]]
) -> torch.Tensor:
    """The first output, the same bits in ExecuTorch's runtime and in our engine, which needs no guess to run it."""
    manifest = read_manifest(delegatekit.pte.read(found.buffer))
    assert len(manifest.owners) == len(manifest.outputs) == len(found.delegates())
    in_stock = run(found.buffer, backend, inputs) if backend in STOCK else run_hosted(found.buffer, [inputs])[0][0]
    in_ours = delegatekit.load(found.buffer)["forward"](*inputs)
    first = in_ours[0] if isinstance(in_ours, tuple | list) else in_ours
    assert torch.equal(in_stock, first)
    return in_stock


@pytest.mark.sweep
@pytest.mark.parametrize(("backend", "name"), [*DEFAULT, *marked(ALL, slow=True)])
def test_a_file_of_the_pipeline_agrees_with_eager_and_has_as_many_delegates_as_ours(
    backend: str, name: str, run_hosted: Callable[..., list[list[torch.Tensor]]]
) -> None:
    build, inputs, _ = ARCHITECTURES[name]
    torch.manual_seed(0)
    module = build().eval()
    with torch.no_grad():
        eager = module(*inputs)
    program = exported(module, inputs)
    found = lowered(program, backend)
    close(run_by_all(found, backend, inputs, run_hosted), eager, backend, program)
    ours = delegatekit.lower(program, backends=[backend])
    assert len(found.delegates()) == len(ours.methods["forward"].delegates)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("backend", "name"),
    [
        *(pair for pair in QUANTIZED if pair[1] in (*QUICK, "GPT-2")),
        *marked([pair for pair in QUANTIZED if pair[1] not in (*QUICK, "GPT-2")], slow=True),
    ],
)
def test_a_quantized_one_computes_what_that_of_lower_computes(
    backend: str, name: str, run_hosted: Callable[..., list[list[torch.Tensor]]]
) -> None:
    build, inputs, _ = ARCHITECTURES[name]
    torch.manual_seed(0)
    module = delegatekit.quantize(build().eval(), [inputs], backend=backend, scheme="int8")
    program = torch.export.export(module, inputs)
    found, ours = lowered(program, backend), delegatekit.lower(program, backends=[backend])
    assert len(found.delegates()) == len(ours.methods["forward"].delegates)
    result = run_by_all(found, backend, inputs, run_hosted)
    wanted = delegatekit.load(ours.buffer)["forward"](*inputs)
    assert torch.equal(result, wanted[0] if isinstance(wanted, tuple | list) else wanted)
