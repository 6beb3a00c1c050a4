"""Inference of the Vulkan backend on this machine's device, beside eager mode: time, accuracy, shares of shaders.

    python benchmarks/vulkan_device.py                         all models, and what a dispatch costs
    python benchmarks/vulkan_device.py --models mobilenet-v2 --shares

With a driver on the CPU (Mesa's lavapipe) CPU seconds of all threads are counted; on a graphics card they say what the
host spends. Each model runs in a process of its own, its calls and eager's in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from apart import measured

MODELS = ("mobilenet-v2", "efficientnet-lite0", "resnet-50", "vit-base", "minilm", "bert-base", "llama-100m")
MORE = ("whisper-tiny encoder", "u-net")
#: Dispatches of the chain that shows what one costs.
CHAIN = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[*MODELS, *MORE])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--shares", action="store_true", help="the time of each shader, by the device's clock")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.rounds, arguments.fp16)))
        return
    print("| model | delegates | CPU s: Vulkan | eager | ratio | largest error | dispatches |")
    print("|---|---|---|---|---|---|---|")
    shares: dict[str, dict[str, float]] = {}
    for name in arguments.models:
        row = run(name, arguments.rounds, fp16=arguments.fp16)
        ratio = row["vulkan"] / row["eager"]
        cells = [name, row["delegates"], f"{row['vulkan']:.3f}", f"{row['eager']:.3f}", f"{ratio:.1f}"]
        print("| " + " | ".join(map(str, [*cells, f"{row['error']:.1e}", row["dispatches"]])) + " |", flush=True)
        shares[name] = row["shares"]
    chain = run("chain", 50, fp16=False)
    print(f"\n{CHAIN} small dispatches, one after the other: {chain['vulkan'] / CHAIN * 1e6:.1f} us of CPU time each")
    if arguments.shares:
        print("\n| model | share of each shader |\n|---|---|")
        for name, found in shares.items():
            texts = [f"{shader} {share:.0%}" for shader, share in Counter(found).most_common(6)]
            print(f"| {name} | {', '.join(texts)} |")


def run(name: str, rounds: int, *, fp16: bool) -> dict[str, Any]:
    """One measurement in a fresh process."""
    return measured(__file__, name, more=["--rounds", str(rounds), *(["--fp16"] if fp16 else [])]) or sys.exit(1)


def measure(name: str, rounds: int, fp16: bool) -> dict[str, Any]:
    """Lower, run, compare and time a model."""
    import torch

    import delegatekit
    from delegatekit_conformance.models import build_model
    from delegatekit_vulkan.runtime import VulkanRuntime

    torch.set_num_threads(1)
    if name == "chain":
        module, inputs = Chain(), (torch.ones(256),)
        exported = torch.export.export(module, inputs, strict=False)
    else:
        case = build_model(name)
        module, inputs, exported = case.module, case.inputs, case.export()
    program = delegatekit.lower(exported, backends=["vulkan"], options={"vulkan": {"fp16": fp16}})
    handles: list[Any] = []
    calls: list[Any] = []
    watch(VulkanRuntime, handles, calls)
    method = delegatekit.load(program.buffer)["forward"]
    with torch.no_grad():
        wanted, got = module(*inputs), method(*inputs)
        times = {
            "vulkan": seconds(lambda: method(*inputs), rounds),
            "eager": seconds(lambda: module(*inputs), rounds),
        }
    runtime, totals, dispatches = VulkanRuntime(), Counter[str](), 0
    for handle, (tensors, results) in zip(handles, calls, strict=False):
        for item in runtime.profile(handle, tensors, results):
            totals[item.name.rpartition("(")[2].rstrip(")")] += item.seconds
            dispatches += 1
    whole = sum(totals.values()) or 1.0
    return {
        **times,
        "error": float((got - wanted).abs().max() / wanted.abs().max()),
        "delegates": len(handles),
        "dispatches": dispatches,
        "shares": {shader: value / whole for shader, value in totals.items()},
    }


def watch(runtime: Any, handles: list[Any], calls: list[Any]) -> None:
    """Keep the handles that the engine makes, and the inputs of each one's first call, with tensors for its results."""
    init, execute = runtime.init, runtime.execute

    def made(self: Any, payload: Any) -> Any:
        handles.append(init(self, payload))
        return handles[-1]

    def called(self: Any, handle: Any, inputs: Any, outputs: Any) -> None:
        if len(calls) < len(handles):
            calls.append(tuple([tensor.clone() for tensor in given] for given in (inputs, outputs)))
        execute(self, handle, inputs, outputs)

    runtime.init, runtime.execute = made, called


def seconds(action: Callable[[], object], rounds: int) -> float:
    """The median of the CPU seconds of some calls, after one that is not counted."""
    action()
    found = []
    for _ in range(rounds):
        start = time.process_time()
        action()
        found.append(time.process_time() - start)
    return statistics.median(found)


class Chain:
    """This many operators, each on the result of the one before."""

    def __new__(cls) -> Any:
        import torch

        class Steps(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                for index in range(CHAIN):
                    x = x * 0.5 if index % 2 else x + 1.0
                return x

        return Steps()


if __name__ == "__main__":
    main()
