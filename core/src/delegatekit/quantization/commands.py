"""The implementation of the command `delegatekit quantize`, and the reader of its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delegatekit_api import LoweringError, QuantizationError

from ..pipeline import Source

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
) -> QuantizationReport:
    """Quantize the program of the MODEL argument (the first arguments of `lower`) and write a .pt2 file.

    `trust` is for the calibration file, see `read_calibration`.
    """
    import torch

    from ..files import shielded, write_files
    from .flow import quantize
    from .samples import read_calibration

    program, dynamic_shapes = model.model, model.dynamic_shapes
    if isinstance(program, Mapping):
        raise QuantizationError(f"the model has {len(program)} methods", hint="quantize each method alone")
    if model.kwargs:
        raise QuantizationError("the model takes keyword arguments", hint="wrap it in a module that takes none")
    example = _example(program, model.inputs)
    inputs = _random(example, random) if calibration is None else read_calibration(calibration, example, trust=trust)
    with _naming(calibration, inputs, example):
        # The command tells its progress by itself.
        quantized: Any = quantize(program, inputs, dynamic_shapes=dynamic_shapes, progress=False, **settings)
    if isinstance(program, torch.export.ExportedProgram):
        dynamic_shapes = _shapes(program)
    exported = Source(quantized, example, dynamic_shapes=dynamic_shapes).programs()["forward"]
    write_files({output: shielded(lambda file: torch.export.save(exported, file))})
    report: QuantizationReport = quantized.quantization
    return report


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


def _shapes(program: ExportedProgram) -> Any:
    """The sizes of an exported program's inputs that may change, in torch.export's form; None if none may."""
    from torch import SymInt
    from torch.export import Dim

    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    shapes = []
    for name in names:
        sizes = getattr(values[name], "shape", ())
        shapes.append({index: Dim.AUTO for index, size in enumerate(sizes) if isinstance(size, SymInt)})
    return tuple(shapes) if any(shapes) else None


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
    refused without `trust`. Raises FormatError for that, and for any other kind of file.
    """
    from ..files.exported import graphs_of, load_exported

    path = Path(path)
    _register_operators(graphs_of(path))
    return load_exported(path, trust=trust)


def _register_operators(graphs: Sequence[bytes]) -> None:
    """Register the operators that the graphs of a quantized .pt2 file call, so that torch can load it."""
    if any(b"quantized_decomposed." in graph for graph in graphs):
        import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers them)
    if any(b"torchao." in graph for graph in graphs):
        from . import torchao

        torchao.load("quantization.quant_primitives")
