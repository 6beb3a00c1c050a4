"""The runtime: profiles, threads, and calls that do not fit."""

from __future__ import annotations

import torch

import delegatekit
from delegatekit_api import CompileSpec, DelegatePayload, TensorSpec
from delegatekit_conformance import testkit
from delegatekit_openvino.runtime import OpenVINORuntime


def test_counters_are_told_with_the_calls_that_they_come_from() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))
    x = torch.randn(1, 3, 8, 8)
    program = delegatekit.lower(net.eval(), (x,), backends=["openvino"])
    # The convolution and its activation are one node, and so are the layer and its bias.
    text = str(delegatekit.profile(delegatekit.load(program.buffer)["forward"], (x,), debug_map=program.debug_map()))
    assert "0, 1 " in text and "100.0 %" in text


def test_handles_of_their_own_run_in_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    lowered = testkit.lower(torch.nn.Linear(8, 4), torch.randn(2, 8), backend="openvino")
    methods = [delegatekit.load(lowered.buffer)["forward"] for _ in range(3)]
    inputs = [torch.randn(2, 8) for _ in methods]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda pair: pair[0](pair[1]), zip(methods, inputs, strict=True)))
    for result, given in zip(results, inputs, strict=True):
        found = result[0] if isinstance(result, list | tuple) else result
        torch.testing.assert_close(found, lowered.module(given))


def test_times_are_of_all_calls_that_were_joined() -> None:
    """OpenVINO makes one operation of a constant that is subtracted, a factor and a sum, and forgets the sum."""
    table = torch.arange(12.0).reshape(3, 4)

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp((x - 2) * 0.5 + table)

    program = delegatekit.lower(Model(), (torch.randn(3, 4),), backends=["openvino"])
    (delegate,) = program.methods["forward"].delegates
    assert len({handle for handles in delegate.debug_handle_map.values() for handle in handles}) == 4


def test_results_are_written_into_any_memory() -> None:
    lowered = testkit.lower(torch.nn.ReLU(), torch.randn(2, 3), backend="openvino")
    specs = tuple(CompileSpec(key, value) for key, value in lowered.delegate.compile_specs.items())
    kind = TensorSpec("float32", (2, 3))
    payload = DelegatePayload("OpenvinoBackend", memoryview(lowered.delegate.blob), specs, (kind,), (kind,), {}, bytes)
    runtime, output = OpenVINORuntime(), torch.zeros(3, 2).t()
    runtime.execute(runtime.init(payload), lowered.inputs, [output])
    torch.testing.assert_close(output, lowered.eager()[0], rtol=0, atol=0)
