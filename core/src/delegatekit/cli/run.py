"""`delegatekit run`: run a method of a .pte file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from delegatekit_api import DelegateKitError

from .arguments import FileArgument, JsonOption, TrustOption, installed_backends
from .console import out, print_json, say, usage
from .places import question_place
from .watch import ended_after


def run(
    file: FileArgument,
    inputs: Annotated[list[str], typer.Argument(help="Inputs in order: .npy, .pt or image files.")] = [],  # noqa: B006
    method: Annotated[str, typer.Option(help="The method to run.")] = "forward",
    data: Annotated[list[Path], typer.Option(help="A data file (.ptd) of the program; repeat for more.")] = [],  # noqa: B006
    backend: Annotated[
        list[str],
        typer.Option(
            "--backend",
            "-b",
            help="Backend that runs the delegates of its id, whichever plugin made them; repeat for more.",
            autocompletion=installed_backends,
        ),
    ] = [],  # noqa: B006
    isolate: Annotated[
        list[str],
        typer.Option(
            metavar="BACKEND",
            help="Run this backend's delegates in a process of their own, or those of all; repeat for more.",
            autocompletion=installed_backends,
        ),
    ] = [],  # noqa: B006
    seed: Annotated[
        int,
        typer.Option(min=-(2**63), max=2**64 - 1, help="Seed of the random inputs, used where no files are given."),
    ] = 0,
    repeat: Annotated[int, typer.Option(min=1, help="Run so many times and time all but the first.")] = 1,
    save: Annotated[Path | None, typer.Option(help="Write the outputs to this .pt file.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0.001, max=1e6, metavar="SECONDS", help="End a call that takes longer.")
    ] = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a method of a .pte file on the Python engine and print its outputs and timing."""
    from .. import load
    from ..files import PT, check_outputs

    check_outputs(save, inputs=[file, *data, *inputs])
    question_place("--save", save, PT)
    apart = "all" in isolate or isolate
    loaded = load(file, data=data, backends=backend, time_limit=time_limit, isolate=apart)[method]
    values = _read_inputs(inputs, loaded, trust=trust) if inputs else _random_inputs(loaded, seed)
    times = []
    for _ in range(repeat):
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
    out.print(f"{1e3 * wall:.2f} ms wall, {1e3 * cpu:.2f} ms CPU{best}", highlight=False)


def _save(results: Sequence[Any], path: Path) -> None:
    import torch

    from ..files import shielded, write_files

    values = [result.clone() if isinstance(result, torch.Tensor) else result for result in results]
    write_files({path: shielded(lambda file: torch.save(values, file))})


def _summary(result: Any) -> dict[str, Any]:
    """What is shown of an output: for a tensor its type, its range and, if it looks like scores, the largest five."""
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


def _random_inputs(method: Any, seed: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    values: list[Any] = []
    for spec in method.inputs:
        if spec is None:
            raise DelegateKitError("the method takes inputs that are not tensors", hint="give them as .pt files")
        dtype = getattr(torch, spec.dtype)
        if dtype.is_floating_point:
            values.append(torch.randn(spec.shape, generator=generator).to(dtype))
        else:
            values.append(torch.randint(0, 2, spec.shape, generator=generator).to(dtype))
    return values


def _read_inputs(paths: Sequence[str], method: Any, *, trust: bool) -> list[Any]:
    if len(paths) != len(method.inputs):
        usage(f"the method takes {len(method.inputs)} inputs, {len(paths)} files are given")
    return [_read_input(Path(path), spec, trust=trust) for path, spec in zip(paths, method.inputs, strict=True)]


def _read_input(path: Path, spec: Any, *, trust: bool) -> Any:
    import torch

    from ..files import check_file, open_file
    from ..files.pickles import read_pickled

    if not path.exists():
        usage(f"input {path} does not exist")
    if path.suffix == ".pt":
        return read_pickled(path, trust=trust)
    if path.suffix != ".npy":
        return _read_image(check_file(path), spec)
    import numpy

    with open_file(path) as file:
        try:
            return torch.from_numpy(numpy.load(file, allow_pickle=False))
        except Exception as error:
            raise DelegateKitError(f"cannot be read: {error}", where=str(path)) from error


def _read_image(path: Path, spec: Any) -> Any:
    """An image as (1, 3, H, W) float32, resized, with the ImageNet mean and standard deviation taken out."""
    import torch

    if spec is None or len(spec.shape) != 4 or spec.shape[1] != 3:
        raise DelegateKitError("an image fits only an input of shape [1, 3, H, W]", where=str(path))
    try:
        import numpy
        from PIL import Image

        with Image.open(path) as image:
            pixels = numpy.asarray(image.convert("RGB").resize((spec.shape[3], spec.shape[2])), dtype="float32") / 255.0
    except ImportError as error:
        raise DelegateKitError("images need Pillow", hint="pip install pillow") from error
    except Exception as error:  # Pillow raises what its decoders raise
        raise DelegateKitError(
            f"is not an image: {error}", where=str(path), hint="inputs are .npy, .pt or images"
        ) from error
    normal = (torch.from_numpy(pixels) - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    return normal.permute(2, 0, 1).unsqueeze(0).contiguous()
