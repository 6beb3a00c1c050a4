"""Cases are the same in every process, and eager can run them."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import torch

from delegatekit_conformance.cases import CASES


def digest() -> str:
    """A digest of all weights and inputs."""
    found = hashlib.sha256()
    for case in CASES:
        module, inputs = case.make()
        for tensor in (*module.state_dict().values(), *inputs):
            found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def test_names_are_unique_and_there_are_operators_and_models() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert sum(name.startswith("model: ") for name in names) == 2
    assert len(names) >= 14


def test_cases_are_the_same_in_every_process() -> None:
    torch.manual_seed(1234)
    code = f"import runpy; print(runpy.run_path({__file__!r})['digest']())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest()


def test_building_cases_leaves_the_random_state_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    for case in CASES:
        case.make()
    assert torch.equal(torch.rand(1), expected)


def test_modules_are_in_eval_mode_and_run() -> None:
    for case in CASES:
        module, inputs = case.make()
        assert not any(part.training for part in module.modules())
        with torch.no_grad():
            assert isinstance(module(*inputs), torch.Tensor)
