"""The architectures of the project's tests through ExecuTorch's pipeline: as our own `lower` does it, whole."""

from __future__ import annotations

import pytest
import torch
from architectures import ARCHITECTURES
from pipelines import close, exported, lowered, run

import delegatekit

#: Recurrent, convolutional, with windows, and language models: each with operators of its own.
EIGHT = ("LSTM", "encoder", "group and instance norm", "ConvNext", "Swin", "GPT-2", "ALBERT", "Qwen2")
#: By default XNNPACK runs all, the others the two that take least time.
DEFAULT = [("xnnpack", name) for name in EIGHT] + [
    (backend, name) for backend in ("vulkan", "coreml", "reference") for name in ("encoder", "group and instance norm")
]
#: All others. Where a model does not use an input, the engine cannot tell a delegate's inputs from its outputs:
#: files of the pipeline have no manifest.
ALL = [
    (backend, name)
    for backend in ("xnnpack", "vulkan", "coreml", "reference")
    for name in ARCHITECTURES
    if (backend, name) not in DEFAULT and name != "multi-head attention"
]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("backend", "name"), [*DEFAULT, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ALL)]
)
def test_a_file_of_the_pipeline_agrees_with_eager_and_has_as_many_delegates_as_ours(backend: str, name: str) -> None:
    build, inputs, _ = ARCHITECTURES[name]
    torch.manual_seed(0)
    module = build().eval()
    with torch.no_grad():
        eager = module(*inputs)
    program = exported(module, inputs)
    found = lowered(program, backend)
    close(run(found.buffer, backend, inputs), eager, backend)
    ours = delegatekit.lower(program, backends=[backend])
    assert len(found.delegates()) == len(ours.methods["forward"].delegates)
