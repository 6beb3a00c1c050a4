"""`delegatekit run`: run a method of a .pte file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .arguments import (
    DataOption,
    FileArgument,
    InputsArgument,
    IsolateOption,
    JsonOption,
    MethodOption,
    RunnerOption,
    SeedOption,
    TimeLimitOption,
    TrustOption,
)
from .console import print_json, progress, say
from .inputs import apart, inputs_for
from .places import question_place
from .watch import ended_after


def run(
    file: FileArgument,
    inputs: InputsArgument = [],  # noqa: B006
    method: MethodOption = "forward",
    data: DataOption = [],  # noqa: B006
    backend: RunnerOption = [],  # noqa: B006
    isolate: IsolateOption = [],  # noqa: B006
    seed: SeedOption = 0,
    repeat: Annotated[int, typer.Option(min=1, help="Run so many times and time all but the first.")] = 1,
    save: Annotated[Path | None, typer.Option(help="Write the outputs to this .pt file.")] = None,
    time_limit: TimeLimitOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a method of a .pte file on the Python engine and print its outputs and timing."""
    from .. import load
    from ..files import PT, check_outputs

    check_outputs(save, inputs=[file, *data, *inputs])
    question_place("--save", save, PT)
    with progress("run") as waiting:
        loaded = load(file, data=data, backends=backend, time_limit=time_limit, isolate=apart(isolate))[method]
        values = inputs_for(loaded, inputs, seed=seed, trust=trust)
        times = []
        for number in range(repeat):
            waiting.moved(number, repeat)
            start, cpu = time.perf_counter(), time.process_time()
            with ended_after(time_limit, f"method {method}"):
                results = loaded.run(values)
            times.append((time.perf_counter() - start, time.process_time() - cpu))
    wall, cpu = min(times[1:] or times)
    if save is not None:
        _save(results, save)
    if as_json:
        summaries = [_summary(result) for result in results]
        print_json({"outputs": summaries, "wall_seconds": wall, "cpu_seconds": cpu, "runs": repeat})
        return
    for index, result in enumerate(results):
        facts = ", ".join(f"{key} {value}" for key, value in _summary(result).items())
        say(f"output {index}: {facts}")
    best = f" (best of {repeat - 1})" if repeat > 2 else ""
    say(f"{1e3 * wall:.2f} ms wall, {1e3 * cpu:.2f} ms CPU{best}")


def _save(results: Sequence[Any], path: Path) -> None:
    import torch

    from ..files import shielded, write_files

    values = [result.clone() if isinstance(result, torch.Tensor) else result for result in results]
    write_files({path: shielded(lambda file: torch.save(values, file))})


def _summary(result: Any) -> dict[str, Any]:
    """The summary of an output: of a tensor its type, its range and, if it looks like scores, the largest five."""
    import torch

    if not isinstance(result, torch.Tensor):
        return {"value": result}
    facts: dict[str, Any] = {"type": str(result.dtype).removeprefix("torch."), "shape": list(result.shape)}
    if not result.numel() or result.is_complex():
        return facts
    numbers = result.double()
    for name in ("mean", "min", "max"):
        facts[name] = float(f"{getattr(numbers, name)().item():.6g}")
    if result.dim() == 2 and result.shape[0] == 1 and result.shape[1] > 5 and result.is_floating_point():
        top = result[0].topk(5)
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        facts["largest"] = {index: float(f"{value:.4g}") for index, value in pairs}
    return facts
