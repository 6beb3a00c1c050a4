"""The architectures of the project's tests through ExecuTorch's pipeline: as our own `lower` does it, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from architectures import ARCHITECTURES
from pipelines import close, exported, lowered, run

import delegatekit
import delegatekit.pte
from delegatekit.pte.manifest import read_manifest

#: Recurrent, convolutional, with windows, and language models: each with operators of its own.
EIGHT = ("LSTM", "encoder", "group and instance norm", "ConvNext", "Swin", "GPT-2", "ALBERT", "Qwen2")
#: By default XNNPACK runs all, the others the two that take least time.
DEFAULT = [("xnnpack", name) for name in EIGHT] + [
    (backend, name) for backend in ("vulkan", "coreml", "reference") for name in ("encoder", "group and instance norm")
]
#: All others.
ALL = [
    (backend, name)
    for backend in ("xnnpack", "vulkan", "coreml", "reference")
    for name in ARCHITECTURES
    if (backend, name) not in DEFAULT
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


@pytest.mark.parametrize("backend", ["reference", "vulkan"])
def test_a_file_of_the_pipeline_says_which_arguments_are_results(backend: str, run_hosted: Callable[..., Any]) -> None:
    """Inputs and results of one shape, of which the blob alone does not tell the number."""
    build, _, _ = ARCHITECTURES["multi-head attention"]
    torch.manual_seed(0)
    module, x = build().eval(), torch.randn(2, 6, 16)
    found = lowered(exported(module, (x, x, x)), backend)
    program = delegatekit.pte.read(found.buffer)
    manifest = read_manifest(program)
    assert manifest.outputs == {("forward", 0): 1}
    assert manifest.owner("forward", 0).distribution == f"delegatekit-{backend}"
    ((result,),) = run_hosted(found.buffer, [(x, x, x)])
    with torch.no_grad():
        close(result, module(x, x, x), backend)
