"""The implementation of the command `delegatekit quantize`, and the reader of its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delegatekit_api import FormatError, LoweringError, QuantizationError

from ..pipeline import Source
from .samples import read_calibration, read_calibration_of_methods

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from .report import QuantizationReport


def quantize_model(
    model: Source,
    *,
    calibration: Path | None,
    random: int | None,
    output: Path,
    trust: bool = False,
    **settings: Any,
) -> QuantizationReport | Mapping[str, QuantizationReport]:
    """Quantize the program of the MODEL argument (the first arguments of `lower`) and write a .pt2 file.

    A model of several methods gives a report for each. `trust` is for the calibration file, see `read_calibration`.
    """
    import torch

    from ..files import shielded, write_files
    from .flow import quantize
    from .methods import exported, quantize_methods, save_methods

    if model.kwargs:
        raise QuantizationError("the model takes keyword arguments", hint="wrap it in a module that takes none")
    program, dynamic_shapes = model.model, model.dynamic_shapes
    # The command tells its progress by itself.
    settings["progress"] = False
    if isinstance(program, Mapping):
        programs = model.programs()
        samples = _samples_of_methods(programs, calibration, random, trust=trust)
        found = quantize_methods(programs, samples, **settings)
        write_files({output: shielded(lambda file: save_methods(found.programs, file))})
        return found.reports
    example = _example(program, model.inputs)
    inputs = _random(example, random) if calibration is None else read_calibration(calibration, example, trust=trust)
    with _naming(calibration, inputs, example):
        quantized: Any = quantize(program, inputs, dynamic_shapes=dynamic_shapes, **settings)
    if isinstance(program, torch.export.ExportedProgram):
        made = exported(quantized, example, program)
    else:
        made = Source(quantized, example, dynamic_shapes=dynamic_shapes).programs()["forward"]
    write_files({output: shielded(lambda file: torch.export.save(made, file))})
    report: QuantizationReport = quantized.quantization
    return report


def as_text(found: QuantizationReport | Mapping[str, QuantizationReport]) -> str:
    """What was quantized, of each method if there are several."""
    if isinstance(found, Mapping):
        return "\n".join(f"method {name}: {report}" for name, report in found.items())
    return str(found)


def _samples_of_methods(
    programs: Mapping[str, ExportedProgram], calibration: Path | None, random: int | None, *, trust: bool
) -> dict[str, list[tuple[Any, ...]]]:
    """The inputs of each method: random ones, or those of a .pt file with a dict by method name."""
    examples = {name: _example(program, None) for name, program in programs.items()}
    if calibration is None:
        return {name: _random(example, random) for name, example in examples.items()}
    return read_calibration_of_methods(calibration, examples, trust=trust)


@contextmanager
def _naming(calibration: Path | None, inputs: Sequence[Any], example: Sequence[Any]) -> Iterator[None]:
    """Name the cause if the model was refused together with a first sample that differs in size from the example."""
    import torch

    from .calibration import describe

    try:
        yield
    except LoweringError as error:
        for value, wanted in zip(inputs[0], example, strict=True):
            if isinstance(wanted, torch.Tensor) and value.shape != wanted.shape:
                what = f"is {describe(value)}, and the model's example {describe(wanted)}; {error.what}"
                raise QuantizationError(what, where=f"{calibration}, sample 0", hint="check the sizes") from error
        raise


def _example(program: Any, given: Any) -> tuple[Any, ...]:
    from torch.export import ExportedProgram

    if isinstance(program, ExportedProgram):
        inputs = program.example_inputs
        if inputs is None or inputs[1]:
            raise QuantizationError("the exported program has no example inputs, or keyword arguments")
        return tuple(inputs[0])
    if given is None:
        raise QuantizationError("the model has no example inputs", hint="return (module, inputs)")
    return tuple(given)


def _random(example: Sequence[Any], count: int | None) -> list[tuple[Any, ...]]:
    import torch

    generator = torch.Generator().manual_seed(0)

    def like(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return torch.randn(value.shape, generator=generator).to(value.dtype)
        return value

    return [tuple(like(value) for value in example) for _ in range(count or 0)]


def load_quantized(path: str | Path, *, trust: bool = False) -> ExportedProgram:
    """Read a .pt2 file as torch.export.load does, with the operators of quantized programs registered.

    A .pt2 file can contain pickled objects and others that run any code while PyTorch loads them. Such a file is
    refused without `trust`. Raises FormatError for that, for a file of several methods, and for any other kind of file.
    """
    found = load_quantized_methods(path, trust=trust)
    if isinstance(found, Mapping):
        hint = "delegatekit.quantization.load_quantized_methods reads all"
        raise FormatError(f"holds the methods {', '.join(found)}", where=str(path), hint=hint)
    return found


def load_quantized_methods(path: str | Path, *, trust: bool = False) -> ExportedProgram | dict[str, ExportedProgram]:
    """As `load_quantized`; of a file of several methods, their programs by name, which share what they shared."""
    from ..files.exported import graphs_of, load_exported
    from .methods import holds_methods, load_methods

    path = Path(path)
    _register_operators(graphs_of(path))
    found: ExportedProgram | dict[str, ExportedProgram] = load_exported(
        path, trust=trust, read=load_methods if holds_methods(path) else None
    )
    return found


def _register_operators(graphs: Sequence[bytes]) -> None:
    """Register the operators that the graphs of a quantized .pt2 file call, so that torch can load it."""
    if any(b"quantized_decomposed." in graph for graph in graphs):
        import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers them)
    if any(b"torchao." in graph for graph in graphs):
        from . import torchao

        torchao.load("quantization.quant_primitives")
    if any(b"dequantize_codebook" in graph for graph in graphs):
        from .tables import load_operator

        load_operator()
